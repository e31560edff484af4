//! Files that another person put beside a database.

use std::{
    fs,
    path::{Path, PathBuf},
};

use superstep_graph::Checkpointer;
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};

use crate::support::{Folder, line};

/// The first and the last bytes of a journal.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Returns a journal of SQLite that restores nothing and names `file` as its super-journal, behind `before` bytes.
fn with_super_journal(file: &Path, before: usize) -> Vec<u8> {
    let name = file.to_str().unwrap().as_bytes();
    let mut journal = MAGIC.to_vec();
    // No records, a nonce, the number of pages before, the lengths of a sector and of a page.
    for number in [0, 0x1234, 1, 512, 4_096u32] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(before, 0);
    let checksum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    journal.extend((0x4000_0000u32 / 4_096 + 1).to_be_bytes());
    journal.extend(name);
    journal.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    journal.extend(checksum.to_be_bytes());
    journal.extend(MAGIC);
    journal
}

/// Creates a folder with a database of one thread, and a file elsewhere that its journal names.
async fn with_a_journal() -> (Folder, PathBuf) {
    let folder = Folder::new();
    line(&folder.open(), &"t".into(), 1).await;
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "not SQLite's").unwrap();
    (folder, elsewhere)
}

fn refusals(folder: &Folder) -> [String; 4] {
    let db = folder.db();
    [
        folder.text(&SqliteCheckpointer::open(&db).unwrap_err()),
        folder.text(&SqliteCheckpointer::open_read_only(&db).unwrap_err()),
        SqliteStore::open(&db).unwrap_err().to_string(),
        SqliteStore::open_read_only(&db).unwrap_err().to_string(),
    ]
}

#[tokio::test]
async fn a_journal_that_names_a_super_journal_is_rejected_and_the_named_file_stays() {
    let (folder, elsewhere) = with_a_journal().await;
    for mode in ["WAL", "DELETE"] {
        folder.sql().execute_batch(&format!("PRAGMA journal_mode = {mode}")).unwrap();
        // Whole headers and records before it, and none.
        for before in [512, 512 + 4_104, 0] {
            let journal = with_super_journal(&elsewhere, before);
            fs::write(folder.path().join("db-journal"), &journal).unwrap();
            for refusal in refusals(&folder) {
                assert!(
                    refusal.contains("db-journal` names another file, which SQLite would delete"),
                    "{refusal}"
                );
            }
            assert_eq!(fs::read(folder.path().join("db-journal")).unwrap(), journal, "nothing was changed");
            assert!(elsewhere.exists(), "{mode}, {before}");
        }
        fs::remove_file(folder.path().join("db-journal")).unwrap();
    }
    assert_eq!(
        folder.open().names().await.unwrap(),
        ["t".into()],
        "without the journal, the database is as it was"
    );
}

#[tokio::test]
async fn a_journal_that_appears_while_a_database_is_read_is_not_rolled_back() {
    let (folder, elsewhere) = with_a_journal().await;
    for mode in ["WAL", "DELETE"] {
        folder.sql().execute_batch(&format!("PRAGMA journal_mode = {mode}")).unwrap();
        let reading = SqliteCheckpointer::open_read_only(folder.db()).unwrap();
        assert_eq!(reading.names().await.unwrap(), ["t".into()], "{mode}");
        fs::write(folder.path().join("db-journal"), with_super_journal(&elsewhere, 512)).unwrap();
        let read = reading.names().await;
        assert!(mode == "DELETE" || read.is_ok(), "{read:?}");
        assert!(elsewhere.exists(), "{mode}");
        fs::remove_file(folder.path().join("db-journal")).unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_regular_files_beside_a_database_are_opened() {
    let (folder, elsewhere) = with_a_journal().await;
    fs::write(&elsewhere, with_super_journal(Path::new("elsewhere"), 512)).unwrap();
    for ending in ["-journal", "-wal", "-shm"] {
        let beside = folder.path().join(format!("db{ending}"));
        std::os::unix::fs::symlink(&elsewhere, &beside).unwrap();
        let refused = folder.text(&SqliteCheckpointer::open(folder.db()).unwrap_err());
        let expected = format!(
            "SS303: cannot open database `DIR/db`: `DIR/db{ending}` is not a regular file; remove it"
        );
        assert_eq!(refused, expected);
        fs::remove_file(&beside).unwrap();
        fs::create_dir(&beside).unwrap();
        assert_eq!(folder.text(&SqliteCheckpointer::open_read_only(folder.db()).unwrap_err()), expected);
        fs::remove_dir(&beside).unwrap();
    }
    assert!(elsewhere.exists());
}
