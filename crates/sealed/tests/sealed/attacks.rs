//! Attacks with write access to the database: all are noticed, except deletion and older versions.

use std::sync::Arc;

use rusqlite::Connection;
use superstep_graph::{
    CheckpointId, Checkpointer, MemoryCheckpointer, ThreadId,
    checkpoint::{CheckpointError, Commit},
};
use superstep_sealed::{SealOptions, SealedCheckpointer};
use superstep_testing::lines::line;

use crate::support::{sealed, text, with_keys};

/// Copies a thread by hand, with a change of each commit.
async fn forged(
    inner: &Arc<MemoryCheckpointer>,
    names: (&ThreadId, &ThreadId),
    change: impl Fn(u64, &mut Vec<Commit>),
) -> SealedCheckpointer {
    let (from, to) = names;
    let forged = Arc::new(MemoryCheckpointer::new());
    for thread in [from.clone()].into_iter().chain(inner.children(from).await.unwrap()) {
        let head = inner.load(&thread, None).await.unwrap().unwrap().head;
        let mut commits = Vec::new();
        for id in 1..=head.0 {
            commits.push(inner.read_commit(&thread, CheckpointId(id)).await.unwrap().unwrap());
        }
        if !thread.is_child() {
            change(head.0, &mut commits);
        }
        forged.commit_all(&thread.moved(from, to), None, commits).await.unwrap();
    }
    sealed(&forged, SealOptions { required: true, ..with_keys(&[1]) })
}

#[tokio::test]
async fn each_forged_thread_is_refused() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    line(&sealed(&inner, with_keys(&[1])), &thread, 5).await;
    let same = (&thread, &thread);
    let read = async |store: SealedCheckpointer, thread: &ThreadId| store.load(thread, None).await;
    read(forged(&inner, same, |_, _| {}).await, &thread).await.unwrap();

    type Forgery = (&'static str, fn(&mut Vec<Commit>));
    let forgeries: [Forgery; 12] = [
        ("no first update", |all| all[1].parent = None),
        ("an update of an older checkpoint", |all| {
            all[4].applied[0].update = all[3].applied[0].update.clone()
        }),
        ("exchanged updates", |all| {
            let one = all[2].applied[0].update.clone();
            all[2].applied[0].update = all[3].applied[0].update.clone();
            all[3].applied[0].update = one;
        }),
        ("another node to run next", |all| all[4].control.next = vec!["deploy".into()]),
        ("another superstep", |all| all[4].control.step += 1),
        ("another time", |all| all[4].created_ms += 1),
        ("metadata of another checkpoint", |all| all[4].metadata = all[3].metadata.clone()),
        ("no metadata", |all| all[4].metadata = Default::default()),
        ("another author", |all| all[4].applied[0].node = "other".into()),
        ("a missing update of an earlier checkpoint", |all| all[2].applied.clear()),
        ("an update of an earlier checkpoint twice", |all| {
            let again = all[2].applied[0].clone();
            all[2].applied.push(again);
        }),
        ("a readable update", |all| all[4].applied[0].update = "{}".into()),
    ];
    for (what, forgery) in forgeries {
        let store = forged(&inner, same, |_, all| forgery(all)).await;
        let error = read(store, &thread).await.map(|_| ()).expect_err(what);
        let is_named = text(&error).contains("thread `t`");
        assert!(is_named, "{what}: {}", text(&error));
        let is_refused =
            matches!(error, CheckpointError::Corrupt { .. } | CheckpointError::Unencrypted { .. });
        assert!(is_refused, "{what}: {error:?}");
    }

    // The whole thread under another name.
    let other = ThreadId::from("u");
    let error = read(forged(&inner, (&thread, &other), |_, _| {}).await, &other).await.unwrap_err();
    assert!(text(&error).starts_with("SS304: the data keys of thread `u`"), "{}", text(&error));
}

#[tokio::test]
async fn each_flipped_bit_of_a_sealed_row_is_an_error_that_names_it() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    line(&sealed(&inner, with_keys(&[1])), &thread, 1).await;
    let commit = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    let update = commit.applied[0].update.to_string();
    for position in 0..update.len() {
        let mut bytes = update.clone().into_bytes();
        bytes[position] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        let store = forged(&inner, (&thread, &thread), |_, all| {
            all[0].applied[0].update = changed.clone().into();
        })
        .await;
        // The unused bits at the end of Base64 are an error as well.
        let error = store.load(&thread, None).await.map(|_| ()).expect_err(&changed);
        assert!(text(&error).contains("checkpoint 1 of thread `t`"), "{changed}: {}", text(&error));
    }
}

#[tokio::test]
async fn a_decompressed_value_is_limited() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    let limited = sealed(&inner, SealOptions { max_bytes: 100_000, ..with_keys(&[1]) });
    let store = sealed(&inner, with_keys(&[1]));
    let large = format!("{{\"c\":\"{}\"}}", "x".repeat(200_000));
    store.commit(&thread, None, superstep_testing::lines::superstep(None, &large)).await.unwrap();
    let stored = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    assert!(stored.applied[0].update.to_string().len() < 1_000);
    let error = text(&limited.load(&thread, None).await.unwrap_err());
    let expected =
        "it has 200008 bytes decompressed, and at most 100000 are allowed; raise `SealOptions::max_bytes`";
    assert!(error.contains(expected), "{error}");

    // A value that could not be read again is not compressed.
    let at = Some(CheckpointId(1));
    limited.commit(&thread, at, superstep_testing::lines::superstep(at, &large)).await.unwrap();
    let stored = inner.read_commit(&thread, CheckpointId(2)).await.unwrap().unwrap();
    assert!(stored.applied[0].update.to_string().len() > 200_000);
    let read = limited.read_commit(&thread, CheckpointId(2)).await.unwrap().unwrap();
    assert_eq!(read.applied[0].update.to_string(), large);
}

/// SQLite's own checksums find bit rot below the layer, so that it is not called an attack.
#[tokio::test]
async fn a_damaged_row_of_a_database_names_its_row() {
    let folder = crate::support::Folder::new();
    let thread = ThreadId::from("t");
    let store = folder.open_sealed(with_keys(&[1]));
    line(&*store, &thread, 2).await;
    drop(store);
    let sql = Connection::open(folder.db()).unwrap();
    sql.execute("UPDATE checkpoints SET applied = replace(applied, 'data\":\"', 'data\":\"A')", []).unwrap();
    let error = folder.open_sealed(with_keys(&[1])).load(&thread, None).await.unwrap_err();
    assert!(text(&error).starts_with("SS304: checkpoint 2 of thread `t`"), "{}", text(&error));
}
