//! Valid and invalid files.

use std::time::Duration;

use superstep_graph::{CheckpointId, Checkpointer, ThreadId};
use superstep_sqlite::{SCHEMA, SqliteCheckpointer, SqliteOptions, SqliteStore, Synchronous};

use crate::support::{Folder, line, load, superstep, updates};

/// Returns the error of opening the folder's database.
fn refusal(folder: &Folder) -> String {
    folder.text(&SqliteCheckpointer::open(folder.db()).expect_err("it cannot be opened"))
}

#[test]
fn a_missing_folder_is_named() {
    let folder = Folder::new();
    let error = SqliteCheckpointer::open(folder.path().join("a/b/db")).unwrap_err();
    assert_eq!(
        folder.text(&error),
        "SS303: cannot open database `DIR/a/b/db`: the folder `DIR/a/b` does not exist; \
         create it or use another file: No such file or directory (os error 2)"
    );
}

#[test]
fn a_folder_is_not_a_database() {
    let folder = Folder::new();
    std::fs::create_dir(folder.db()).unwrap();
    assert_eq!(refusal(&folder), "SS303: cannot open database `DIR/db`: it is a folder; use a file");
}

#[test]
fn a_text_is_not_a_database() {
    let folder = Folder::new();
    let text = "not a database, ".repeat(100);
    std::fs::write(folder.db(), &text).unwrap();
    assert_eq!(
        refusal(&folder),
        "SS303: cannot open database `DIR/db`: it is not an SQLite database; use another file: \
         file is not a database (SQLite code 26)"
    );
    assert_eq!(std::fs::read_to_string(folder.db()).unwrap(), text);
}

#[test]
fn the_database_of_another_program_is_left_alone() {
    let folder = Folder::new();
    folder.sql().execute_batch("CREATE TABLE songs (name TEXT)").unwrap();
    let before = std::fs::read(folder.db()).unwrap();
    let expected =
        "SS303: cannot open database `DIR/db`: it is the database of another program; use another file";
    assert_eq!(refusal(&folder), expected);
    assert_eq!(std::fs::read(folder.db()).unwrap(), before);
    folder.sql().execute_batch("DROP TABLE songs; PRAGMA application_id = 7; VACUUM").unwrap();
    assert_eq!(refusal(&folder), expected);
}

#[test]
fn a_newer_schema_asks_for_a_newer_program() {
    let folder = Folder::new();
    drop(folder.open());
    folder.sql().execute_batch("PRAGMA user_version = 9").unwrap();
    assert_eq!(
        refusal(&folder),
        "SS303: cannot open database `DIR/db`: it was written by a newer superstep (schema 9, this program knows 4); \
         update superstep or use another file"
    );
    folder.sql().execute_batch("PRAGMA user_version = 0").unwrap();
    assert_eq!(
        refusal(&folder),
        "SS303: cannot open database `DIR/db`: superstep never wrote schema 0; \
         restore it from a backup or use another file"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    // The folder is not writable, not even for an administrator.
    let error = SqliteCheckpointer::open("/proc/superstep.db").unwrap_err().to_string();
    let expected = "SS303: cannot open database `/proc/superstep.db`: ";
    assert!(error.starts_with(expected), "{error}");
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    drop(folder.open());
    std::fs::set_permissions(folder.db(), std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(folder.db()).is_ok() {
        // An administrator can write it all the same.
        folder.open();
        return;
    }
    assert_eq!(
        refusal(&folder),
        "SS303: cannot open database `DIR/db`: it is read-only; \
         make the file and its folder writable, or use another file"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_stored_data() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let store = folder.open();
    line(&store, &"t".into(), 1).await;
    for name in ["db", "db-wal", "db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}: {mode:o}");
    }
}

#[test]
fn an_empty_file_becomes_a_database() {
    let folder = Folder::new();
    std::fs::write(folder.db(), "").unwrap();
    folder.open();
}

#[tokio::test]
async fn names_that_mean_something_to_sqlite_are_names() {
    let folder = Folder::new();
    for name in [":memory:", "file:x?mode=memory", "100% & ü"] {
        let path = folder.path().join(name);
        let store = SqliteCheckpointer::open(&path).unwrap();
        line(&store, &"t".into(), 1).await;
        assert_eq!(store.path(), Some(path.canonicalize().unwrap()));
        drop(store);
        assert_eq!(load(&SqliteCheckpointer::open(&path).unwrap(), &"t".into()).await.head, CheckpointId(1));
    }
    assert!(SqliteCheckpointer::open("").is_err());
}

#[tokio::test]
async fn the_name_that_sqlite_has_for_it_is_a_database_in_memory() {
    let store = SqliteCheckpointer::open(":memory:").unwrap();
    line(&store, &"t".into(), 2).await;
    assert_eq!((store.path(), load(&store, &"t".into()).await.head), (None, CheckpointId(2)));
    assert_eq!(SqliteStore::open(":memory:").unwrap().path(), None);
    assert!(!std::path::Path::new(":memory:").exists());
}

/// Leaves a database as after a kill of its process.
type Begin = fn(&Folder);

/// Kills during the creation of the first database leave these files.
#[tokio::test]
async fn a_database_that_was_just_begun_has_no_threads_and_can_be_used() {
    let begun: [(&str, Begin); 4] = [
        ("an empty file", |folder| std::fs::write(folder.db(), "").unwrap()),
        ("an empty file with an empty log", |folder| {
            for name in ["db", "db-wal"] {
                std::fs::write(folder.path().join(name), "").unwrap();
            }
        }),
        ("a file with a header and no tables", |folder| {
            folder.sql().execute_batch("PRAGMA journal_mode = WAL").unwrap();
        }),
        ("tables that were not committed", |folder| {
            let other = Folder::new();
            let making = other.sql();
            making
                .execute_batch(&format!("PRAGMA cache_size = 1; BEGIN; {SCHEMA}; CREATE TABLE more (x);"))
                .unwrap();
            making.execute("INSERT INTO more VALUES (zeroblob(100000))", []).unwrap();
            for name in ["db", "db-journal"] {
                std::fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
            }
        }),
    ];
    for (what, begin) in begun {
        let folder = Folder::new();
        begin(&folder);
        let store =
            SqliteCheckpointer::open_read_only(folder.db()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(store.threads().await.unwrap(), [], "{what}");
        assert_eq!(store.load(&"t".into(), None).await.unwrap(), None, "{what}");
        assert_eq!(store.history(&"t".into(), Default::default()).await.unwrap(), [], "{what}");
        drop(store);
        let store = folder.open();
        line(&store, &"t".into(), 1).await;
        assert_eq!(load(&store, &"t".into()).await.head, CheckpointId(1), "{what}");
    }
}

#[tokio::test]
async fn synced_data_is_in_the_log() {
    let folder = Folder::new();
    let options = SqliteOptions::new().synchronous(Synchronous::Commits);
    let store = SqliteCheckpointer::open_with(folder.db(), options).unwrap();
    line(&store, &"t".into(), 1).await;
    store.sync().await.unwrap();
    drop(store);
    let store = folder.open();
    line(&store, &"u".into(), 1).await;
    store.sync().await.unwrap();
    store.sync().await.unwrap();
    let cut = Folder::new();
    for name in ["db", "db-wal"] {
        std::fs::copy(folder.path().join(name), cut.path().join(name)).unwrap();
    }
    assert_eq!(cut.open().names().await.unwrap(), ["t".into(), "u".into()]);
}

#[test]
fn many_can_make_the_same_database_at_once() {
    let folder = Folder::new();
    for round in 0..10 {
        let path = folder.path().join(round.to_string());
        std::thread::scope(|scope| {
            for writer in 0..8u64 {
                let path = &path;
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let store = SqliteCheckpointer::open(path).unwrap();
                    runtime.block_on(line(&store, &writer.into(), 3));
                });
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = SqliteCheckpointer::open(&path).unwrap();
        assert_eq!(runtime.block_on(store.threads()).unwrap().len(), 8);
    }
}

#[tokio::test]
async fn a_database_that_is_only_read_is_not_changed() {
    let folder = Folder::new();
    let thread = ThreadId::from("t");
    let error = SqliteCheckpointer::open_read_only(folder.db()).unwrap_err();
    assert_eq!(
        folder.text(&error),
        "SS303: cannot open database `DIR/db`: the file does not exist; check its path"
    );
    line(&folder.open(), &thread, 2).await;
    let store = SqliteCheckpointer::open_read_only(folder.db()).unwrap();
    assert_eq!(updates(&load(&store, &thread).await), ["1", "2"]);
    let head = Some(CheckpointId(2));
    let expected = "SS303: database `DIR/db` was opened for reading only; open it for writing";
    let commit = store.commit(&thread, head, superstep(head, "3")).await.unwrap_err();
    assert_eq!(folder.text(&commit), expected);
    assert_eq!(folder.text(&store.delete(&thread).await.unwrap_err()), expected);
    assert_eq!(folder.text(&store.lease(&thread).await.unwrap_err()), expected);
    assert_eq!(format!("{:?}", folder.text(&commit)), format!("{expected:?}"));
}

#[tokio::test]
async fn a_database_that_stays_locked_is_rejected() {
    let folder = Folder::new();
    let options = SqliteOptions::new().busy_timeout(Duration::ZERO);
    let store = SqliteCheckpointer::open_with(folder.db(), options).unwrap();
    let thread = ThreadId::from("t");
    line(&store, &thread, 1).await;
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let head = Some(CheckpointId(1));
    let error = store.commit(&thread, head, superstep(head, "2")).await.unwrap_err();
    assert_eq!(
        folder.text(&error),
        "SS303: cannot commit to thread `t` in database `DIR/db`: another program has locked it; wait until \
         it is done, or end it: database is locked (SQLite code 5)"
    );
    assert_eq!(updates(&load(&store, &thread).await), ["1"]);
    other.execute_batch("COMMIT").unwrap();
    store.commit(&thread, head, superstep(head, "2")).await.unwrap();
}

#[tokio::test]
async fn a_commit_waits_for_another_writer() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    line(&store, &thread, 1).await;
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let head = Some(CheckpointId(1));
    let mut commit = store.commit(&thread, head, superstep(head, "2"));
    assert!(futures::poll!(&mut commit).is_pending());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(commit.await.unwrap(), CheckpointId(2));
}

#[tokio::test]
async fn the_write_ahead_log_is_limited() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    line(&store, &thread, 1).await;
    let update = format!("\"{}\"", "x".repeat(50_000));
    for head in 1..600 {
        let head = Some(CheckpointId(head));
        store.commit(&thread, head, superstep(head, &update)).await.unwrap();
    }
    let log = std::fs::metadata(folder.path().join("db-wal")).unwrap().len();
    assert!(log < 15_000_000, "30 MB were written, and the log has {log} bytes");
}

#[tokio::test]
async fn a_full_disk_rejects_a_commit_and_retains_the_last_one() {
    let folder = Folder::new();
    let options = SqliteOptions::new().max_bytes(200_000);
    let store = SqliteCheckpointer::open_with(folder.db(), options).unwrap();
    let thread = ThreadId::from("t");
    line(&store, &thread, 2).await;
    let head = Some(CheckpointId(2));
    let large = format!("\"{}\"", "x".repeat(300_000));
    for _ in 0..2 {
        let error = store.commit(&thread, head, superstep(head, &large)).await.unwrap_err();
        assert_eq!(
            folder.text(&error),
            "SS303: cannot commit to thread `t` in database `DIR/db`: it cannot grow; free some space and \
             resume from the last checkpoint: database or disk is full (SQLite code 13)"
        );
    }
    let mut first = superstep(None, &large);
    first.records =
        vec![(0, superstep_graph::checkpoint::TaskRecord::Cancelled { once: Default::default() })];
    store.commit(&"new".into(), None, first).await.unwrap_err();
    assert_eq!(store.threads().await.unwrap().len(), 1);
    assert_eq!(updates(&load(&store, &thread).await), ["1", "2"]);
    store.commit(&thread, head, superstep(head, "3")).await.unwrap();
    drop(store);
    assert_eq!(updates(&load(&folder.open(), &thread).await), ["1", "2", "3"]);
}

#[test]
fn foreign_schema_objects_in_a_database_are_rejected() {
    for (sql, what) in [
        (
            "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM threads; END",
            "it has the trigger `t`, which superstep did not make",
        ),
        ("CREATE VIEW v AS SELECT 1", "it has the view `v`, which superstep did not make"),
        ("CREATE TABLE more (a TEXT DEFAULT (hex(randomblob(9))))", "it has the table `more`, which superstep did not make"),
        ("CREATE INDEX i ON tasks (lower(record))", "it has the index `i`, which superstep did not make"),
        (
            "DROP VIEW history; CREATE VIEW history AS SELECT 'nothing happened' AS thread",
            "its view `history` is not defined as superstep defines it",
        ),
        (
            "ALTER TABLE tasks ADD COLUMN note TEXT GENERATED ALWAYS AS (upper(record)) VIRTUAL",
            "its table `tasks` is not defined as superstep defines it",
        ),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'slot INTEGER', 'slot INTEGER CHECK (slot < 9)')
             WHERE name = 'tasks'",
            "its table `tasks` is not defined as superstep defines it",
        ),
    ] {
        let folder = Folder::new();
        drop(folder.open());
        folder.sql().execute_batch(sql).unwrap();
        let expected = format!(
            "SS303: cannot open database `DIR/db`: {what}; do not use it if it came from another person, or remove what is \
             foreign with `sqlite3`"
        );
        assert_eq!(refusal(&folder), expected);
        assert_eq!(folder.text(&SqliteCheckpointer::open_read_only(folder.db()).unwrap_err()), expected);
        let store = SqliteStore::open(folder.db()).unwrap_err();
        assert!(store.to_string().contains(what), "{store}");
    }
}
