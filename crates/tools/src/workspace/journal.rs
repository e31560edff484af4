//! A journal that makes edits idempotent: a call repeated after a crash changes its file once.
//!
//! Before new content replaces a file, a note records the call and the path of the new content. A repeated
//! call reads the note. Without one, nothing happened. With one, either the new content still exists beside
//! the file and nothing happened, or it has replaced the file.

use std::{
    fs,
    io::{self, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use superstep_llm::ToolError;
use tokio_util::sync::CancellationToken;

use super::root::NOTED_PREFIX;
use crate::{
    call::{cancelled, grouped},
    folders::{
        locks::{self, LockedFile, PATIENCE, keep_names, patiently},
        stored::read_stored,
    },
};

/// Maximum size of a note: a path and a result.
const MAX_NOTE_BYTES: u64 = 1 << 20;

/// Notes in a folder that the tools cannot reach. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct EditJournal {
    folder: Arc<Path>,
    /// The lock shared by everything that changes the files.
    lock: Arc<Path>,
    /// Maximum size of a file in bytes.
    most: u64,
}

/// An edit that was about to be made.
#[derive(Serialize, Deserialize)]
struct PendingEdit {
    /// The path of the new content, relative to the lock's folder.
    next: PathBuf,
    /// The result that the model receives.
    said: String,
}

impl EditJournal {
    /// Stores notes in `folder`, which is created with the first one. Files are limited to `most` bytes.
    pub fn new(folder: &Path, lock: &Path, most: u64) -> Self {
        Self { folder: folder.into(), lock: lock.into(), most }
    }

    /// Returns the name of a call, derived from its id and its arguments, because a model may give two calls
    /// one id.
    pub(crate) fn name(parts: &[&str]) -> String {
        let mut hash = blake3::Hasher::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hash.finalize().to_hex().to_string()
    }

    /// Waits for the lock or the cancellation of the call. The lock is held until the file is dropped.
    pub(crate) async fn lock(&self, cancel: &CancellationToken) -> Result<LockedFile, ToolError> {
        let lock = self.lock.clone();
        let locked = patiently(PATIENCE, move || locks::lock(&lock));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled()),
            locked = locked => locked.map_err(|error| {
                ToolError::Failed(format!("the file cannot be locked, so it was not edited: {error}"))
            }),
        }
    }

    /// Returns the recorded result of a call that has changed its file already.
    pub(crate) fn made(&self, call: &str) -> Result<Option<String>, ToolError> {
        let note = match read_stored(&self.path(call), MAX_NOTE_BYTES) {
            Ok(note) => note,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let PendingEdit { next, said } =
            serde_json::from_slice(&note).map_err(|error| failed(error.into()))?;
        // A note may have come with the folder, and what it names may be removed.
        if !is_noted(&next) {
            return Err(failed(io::Error::other(format!("`{call}.json` names a file elsewhere; delete it"))));
        }
        let next = self.beside().join(next);
        if fs::symlink_metadata(&next).is_err() {
            return Ok(Some(said));
        }
        self.forget(call)?;
        fs::remove_file(&next).map_err(failed)?;
        Ok(None)
    }

    /// Rejects content that is too large, unless it is smaller than before.
    pub(crate) fn check(&self, before: u64, after: &[u8]) -> Result<(), ToolError> {
        let after = after.len() as u64;
        if after <= self.most || after < before {
            return Ok(());
        }
        let most = grouped(self.most);
        Err(ToolError::Failed(format!(
            "the file would have more than {most} bytes; remove something from it first"
        )))
    }

    /// Records that a file is about to change.
    pub(crate) fn note(&self, call: &str, next: &Path, said: &str) -> Result<(), ToolError> {
        let write = || {
            let below = next.strip_prefix(self.beside()).map_err(io::Error::other)?;
            let note = PendingEdit { next: below.to_owned(), said: said.to_owned() };
            // A note whose new content is gone means that it has replaced the file.
            next.parent().map_or(Ok(()), keep_names)?;
            fs::create_dir_all(&self.folder)?;
            self.folder.parent().map_or(Ok(()), keep_names)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(&serde_json::to_vec(&note)?)?;
            file.as_file().sync_all()?;
            file.persist(self.path(call))?;
            keep_names(&self.folder)
        };
        write().map_err(failed)
    }

    pub(crate) fn forget(&self, call: &str) -> Result<(), ToolError> {
        fs::remove_file(self.path(call)).map_err(failed)
    }

    /// Deletes all notes, and the files that interrupted calls left beside the lock.
    /// # Errors
    /// Errors of the file system.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for entry in fs::read_dir(self.beside())? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(NOTED_PREFIX.as_bytes()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the folder of the lock.
    fn beside(&self) -> &Path {
        self.lock.parent().unwrap_or(&self.lock)
    }

    fn path(&self, call: &str) -> PathBuf {
        self.folder.join(format!("{call}.json"))
    }
}

/// Returns whether a note may have this path: that of a new content below the folder of the lock.
fn is_noted(next: &Path) -> bool {
    let is_below = next.components().all(|part| matches!(part, Component::Normal(_)));
    let name = next.file_name().unwrap_or_default();
    is_below && name.as_encoded_bytes().starts_with(NOTED_PREFIX.as_bytes())
}

fn failed(error: io::Error) -> ToolError {
    ToolError::Failed(format!("the edit cannot be noted, so it was not made: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use serde_json::{Value, json};
    use superstep_llm::{Tool, ToolCx};

    use super::*;
    use crate::workspace::{edit::edit_file_once, root::PREFIX, testing::TestWorkspace};

    /// Returns an edit that could be made twice: its search text still exists afterwards.
    fn args() -> Value {
        json!({"path": "a", "old": "- tea", "new": "- tea\n- milk"})
    }

    const BEFORE: &str = "- tea\n";
    const AFTER: &str = "- tea\n- milk\n";

    struct Desk {
        place: TestWorkspace,
        journal: EditJournal,
    }

    impl Desk {
        fn new() -> Self {
            let place = TestWorkspace::new();
            place.file("a", BEFORE);
            let journal = EditJournal::new(&place.dir.path().join("notes"), &place.at("lock"), 20);
            Self { place, journal }
        }

        async fn call(&self, key: &str, args: Value) -> Result<String, ToolError> {
            let tool = edit_file_once(&self.place.workspace, self.journal.clone());
            let mut cx = ToolCx::new("c1");
            cx.idempotency_key = key.into();
            tool.call(args, cx).await.map(|reply| reply.text)
        }

        fn read(&self) -> String {
            fs::read_to_string(self.place.at("a")).unwrap()
        }

        /// Counts the files, including the lock.
        fn names(&self) -> usize {
            fs::read_dir(self.place.at(".")).unwrap().count()
        }
    }

    #[tokio::test]
    async fn a_repeated_call_changes_nothing_and_returns_the_same() {
        let desk = Desk::new();
        let said = desk.call("k", args()).await;
        assert_eq!(said.as_deref(), Ok("edited 'a' at line 1: 1 line became 2 lines"));
        assert_eq!(desk.call("k", args()).await, said);
        assert_eq!(desk.read(), AFTER);
        // Another call is another edit, also one with the same id.
        desk.call("l", args()).await.unwrap();
        desk.call("k", json!({"path": "a", "old": "- tea\n", "new": ""})).await.unwrap();
        assert_eq!(desk.read(), "- milk\n- milk\n");
    }

    #[tokio::test]
    async fn a_process_that_stopped_between_note_and_change_has_changed_nothing() {
        let desk = Desk::new();
        let call = EditJournal::name(&["k", "a", "- tea", "- tea\n- milk"]);
        let next = desk.place.at(&format!("{NOTED_PREFIX}x"));
        fs::write(&next, AFTER).unwrap();
        desk.journal.note(&call, &next, "made").unwrap();
        desk.call("k", args()).await.unwrap();
        assert_eq!((desk.read().as_str(), desk.names()), (AFTER, 2));
        // A process that stopped after the change has made it, whatever happened to the file since.
        fs::write(desk.place.at("a"), "something else").unwrap();
        assert!(desk.call("k", args()).await.unwrap().starts_with("edited"));
        assert_eq!(desk.read(), "something else");
    }

    #[tokio::test]
    async fn an_edit_that_cannot_be_made_leaves_no_note() {
        let desk = Desk::new();
        let refused = desk.call("k", json!({"path": "a", "old": "x", "new": "y"})).await.unwrap_err();
        assert!(refused.to_string().starts_with("`old` does not occur in 'a'"), "{refused}");
        fs::write(desk.place.dir.path().join("notes"), "no folder").unwrap();
        let refused = desk.call("k", args()).await.unwrap_err().to_string();
        assert!(refused.starts_with("the edit cannot be noted, so it was not made: "), "{refused}");
        assert_eq!((desk.read().as_str(), desk.names()), (BEFORE, 2));
        fs::remove_file(desk.place.dir.path().join("notes")).unwrap();
        desk.call("k", args()).await.unwrap();
        assert_eq!(desk.read(), AFTER);
    }

    #[tokio::test]
    async fn a_file_does_not_become_too_large_and_may_become_smaller() {
        let desk = Desk::new();
        let add = |text: &str| json!({"path": "a", "old": "- tea", "new": format!("- tea\n- {text}")});
        let refused = desk.call("k", add(&"x".repeat(20))).await.unwrap_err().to_string();
        assert_eq!(refused, "the file would have more than 20 bytes; remove something from it first");
        desk.call("l", add("12345678901")).await.unwrap();
        desk.place.file("a", "- tea\n".repeat(9) + "- x");
        desk.call("m", json!({"path": "a", "old": "- x", "new": ""})).await.unwrap();
        assert_eq!(desk.names(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_another_one() {
        let desk = Desk::new();
        let other = locks::lock(&desk.place.at("lock")).unwrap().unwrap();
        let waits = desk.call("k", args());
        tokio::pin!(waits);
        let timeout = tokio::time::timeout(Duration::from_secs(1), &mut waits).await;
        assert!(timeout.is_err());
        assert_eq!(desk.read(), BEFORE);
        drop(other);
        waits.await.unwrap();
        assert_eq!(desk.read(), AFTER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_does_not_wait_forever_for_another_one() {
        let desk = Desk::new();
        let _other = locks::lock(&desk.place.at("lock")).unwrap().unwrap();
        let refused = desk.call("k", args()).await.unwrap_err().to_string();
        let wanted =
            "the file cannot be locked, so it was not edited: another process has had it for 5000 ms";
        assert_eq!((refused.as_str(), desk.read().as_str()), (wanted, BEFORE));
    }

    #[tokio::test]
    async fn notes_are_understood_where_the_folder_was_moved_to() {
        let desk = Desk::new();
        let call = EditJournal::name(&["k", "a", "- tea", "- tea\n- milk"]);
        let next = desk.place.at(&format!("{NOTED_PREFIX}x"));
        desk.journal.note(&call, &next, "made").unwrap();
        let note = fs::read_to_string(desk.journal.path(&call)).unwrap();
        assert_eq!(note, format!(r#"{{"next":"{NOTED_PREFIX}x","said":"made"}}"#));
        let moved = Desk::new();
        fs::create_dir_all(&moved.journal.folder).unwrap();
        fs::write(moved.journal.path(&call), note).unwrap();
        fs::write(moved.place.at(&format!("{NOTED_PREFIX}x")), AFTER).unwrap();
        moved.call("k", args()).await.unwrap();
        assert_eq!((moved.read().as_str(), moved.names()), (AFTER, 2));
    }

    #[tokio::test]
    async fn a_forged_note_removes_nothing_elsewhere() {
        let desk = Desk::new();
        let call = EditJournal::name(&["k", "a", "- tea", "- tea\n- milk"]);
        fs::create_dir_all(&desk.journal.folder).unwrap();
        let elsewhere = desk.place.dir.path().join(format!("{NOTED_PREFIX}x"));
        fs::write(&elsewhere, "").unwrap();
        for next in [elsewhere.to_str().unwrap(), &format!("../{NOTED_PREFIX}x"), "a", ""] {
            fs::write(desk.journal.path(&call), json!({"next": next, "said": "made"}).to_string()).unwrap();
            let refused = desk.call("k", args()).await.unwrap_err().to_string();
            assert!(refused.ends_with(".json` names a file elsewhere; delete it"), "{next}: {refused}");
            assert!(elsewhere.exists() && desk.read() == BEFORE, "{next}");
        }
    }

    #[tokio::test]
    async fn leftovers_are_removed() {
        let desk = Desk::new();
        desk.call("k", args()).await.unwrap();
        desk.place.file(&format!("{NOTED_PREFIX}x"), "half");
        desk.place.file(&format!("{PREFIX}x"), "of an agent that edits a file here");
        desk.journal.clear().unwrap();
        desk.journal.clear().unwrap();
        fs::remove_file(desk.place.at(&format!("{PREFIX}x"))).unwrap();
        assert_eq!((desk.read().as_str(), desk.names()), (AFTER, 2));
        assert!(!desk.place.dir.path().join("notes").exists());
    }
}
