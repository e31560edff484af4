//! Two processes with the same open file.

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, Lease},
};

use crate::support::{Folder, line, load, superstep, updates};

#[track_caller]
fn assert_busy(lease: Result<Lease, CheckpointError>) {
    let error = lease.expect_err("someone else has it").to_string();
    assert_eq!(
        error,
        "SS301: thread `t` is busy, another run is working on it; wait for it to end or use another thread"
    );
}

#[tokio::test]
async fn a_thread_has_one_writer_among_all_openers_of_the_file() {
    let folder = Folder::new();
    let (one, two) = (folder.open(), folder.open());
    let thread = ThreadId::from("t");
    for _ in 0..3 {
        let lease = one.lease(&thread).await.unwrap();
        assert_busy(two.lease(&thread).await);
        assert_busy(one.lease(&thread).await);
        drop(lease);
        let lease = two.lease(&thread).await.unwrap();
        assert_busy(one.lease(&thread).await);
        drop(lease);
    }
}

#[tokio::test]
async fn a_lease_outlives_the_checkpointer_that_gave_it() {
    let folder = Folder::new();
    let one = folder.open();
    let thread = ThreadId::from("t");
    let lease = one.lease(&thread).await.unwrap();
    drop(one);
    let two = folder.open();
    assert_busy(two.lease(&thread).await);
    drop(lease);
    two.lease(&thread).await.unwrap();
}

/// A database may come with a folder of locks that is a link.
#[cfg(unix)]
#[tokio::test]
async fn linked_locks_are_refused_and_nothing_behind_the_link_is_created_or_removed() {
    let (folder, elsewhere) = (Folder::new(), tempfile::tempdir().unwrap());
    for number in 0..64 {
        std::fs::write(elsewhere.path().join(format!("{number:02x}")), "mine").unwrap();
    }
    let files = || std::fs::read_dir(elsewhere.path()).unwrap().count();
    let mut locks = folder.db().as_os_str().to_owned();
    locks.push("-locks");
    let locks = std::path::PathBuf::from(locks);
    std::os::unix::fs::symlink(elsewhere.path(), &locks).unwrap();
    let store = folder.open();
    let error = store.lease(&"t".into()).await.expect_err("it is a link");
    let cause = std::error::Error::source(&error).expect("the cause names the link").to_string();
    assert!(cause.contains("is a link; remove it"), "{cause}");
    drop(store);
    assert_eq!(files(), 64);
    // A link in place of a file is refused as well.
    std::fs::remove_file(&locks).unwrap();
    std::fs::create_dir(&locks).unwrap();
    for number in 0..64 {
        let name = format!("{number:02x}");
        let target = elsewhere.path().join(format!("new {name}"));
        std::os::unix::fs::symlink(target, locks.join(name)).unwrap();
    }
    assert!(folder.open().lease(&"t".into()).await.is_err());
    assert_eq!(files(), 64);
}

#[cfg(unix)]
#[tokio::test]
async fn another_name_of_the_same_file_leads_to_the_same_leases() {
    let folder = Folder::new();
    let one = folder.open();
    let alias = folder.path().join("alias");
    std::os::unix::fs::symlink(folder.db(), &alias).unwrap();
    let two = superstep_sqlite::SqliteCheckpointer::open(alias).unwrap();
    let _lease = one.lease(&"t".into()).await.unwrap();
    assert_busy(two.lease(&"t".into()).await);
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_left_of_a_lease() {
    let folder = Folder::new();
    let store = folder.open();
    let lease = store.lease(&"../t".into()).await.unwrap();
    let locks: Vec<_> = std::fs::read_dir(folder.path().join("db-locks")).unwrap().collect();
    assert_eq!(locks.len(), 1);
    drop(lease);
    drop(store);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["db"]);
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[tokio::test]
async fn the_next_lease_uses_the_file_of_the_last_one() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let store = folder.open();
    let mut known = Vec::new();
    for _ in 0..3 {
        drop(store.lease(&"t".into()).await.unwrap());
        let locks = std::fs::read_dir(folder.path().join("db-locks")).unwrap();
        known.push(locks.map(|file| file.unwrap().metadata().unwrap().ino()).collect::<Vec<_>>());
    }
    assert_eq!(known[0].len(), 1);
    assert!(known.iter().all(|files| *files == known[0]), "{known:?}");
}

#[test]
fn of_many_competing_writers_one_has_the_thread_at_a_time() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let folder = Folder::new();
    drop(folder.open());
    let (held, taken) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let store = folder.open();
                for _ in 0..200 {
                    match runtime.block_on(store.lease(&"t".into())) {
                        Ok(lease) => {
                            assert!(!held.swap(true, Ordering::SeqCst), "two have it");
                            taken.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            held.store(false, Ordering::SeqCst);
                            drop(lease);
                        }
                        Err(CheckpointError::Busy { .. }) => std::thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(taken.into_inner() > 0);
}

#[tokio::test]
async fn the_same_checkpoint_is_not_committed_twice() {
    let folder = Folder::new();
    let (one, two) = (folder.open(), folder.open());
    let thread = ThreadId::from("t");
    line(&one, &thread, 2).await;
    let head = Some(CheckpointId(2));
    two.commit(&thread, head, superstep(head, "\"two\"")).await.unwrap();
    let late = one.commit(&thread, head, superstep(head, "\"one\"")).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "SS302: thread `t` was changed by another writer: its head is no longer checkpoint 2; load it again"
    );
    assert_eq!(updates(&load(&one, &thread).await), ["1", "2", "\"two\""]);
    two.delete(&thread).await.unwrap();
    let head = Some(CheckpointId(3));
    let gone = one.commit(&thread, head, superstep(head, "\"one\"")).await;
    assert!(matches!(gone, Err(CheckpointError::Conflict { .. })), "{gone:?}");
    line(&two, &thread, 1).await;
    let gone = one.commit(&thread, head, superstep(head, "\"one\"")).await;
    assert!(matches!(gone, Err(CheckpointError::Conflict { .. })), "{gone:?}");
}
