//! Edits that are made once, although a process that stopped is followed by another one that makes them again.
//!
//! Before a new content takes the place of a file, a note says which call it is of, and where it stands. So whoever makes the call
//! again knows: without a note nothing happened; with one, the new content either still stands there, and nothing happened
//! either, or has taken its place.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use superstep_llm::ToolError;
use tokio_util::sync::CancellationToken;

use super::{grouped, store::NOTED_PREFIX};
use crate::{
    history::patiently,
    locks::{self, keep_names},
    memory::PATIENCE,
};

/// Notes in a folder that the tools cannot reach. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct EditJournal {
    folder: Arc<Path>,
    /// What everybody locks who changes the files.
    lock: Arc<Path>,
    /// How large a file may become, in bytes.
    most: u64,
}

/// An edit that was about to be made.
#[derive(Serialize, Deserialize)]
struct Note {
    /// Where the new content stood, from the folder of the lock.
    next: PathBuf,
    /// What the model reads of it.
    said: String,
}

impl EditJournal {
    /// Keeps notes in `folder`, which is made with the first one. No file may become larger than `most`.
    pub(crate) fn new(folder: &Path, lock: &Path, most: u64) -> Self {
        Self { folder: folder.into(), lock: lock.into(), most }
    }

    /// The name of a call: of its key, and of what it is to do, for a model may give two calls one id.
    pub(super) fn name(parts: &[&str]) -> String {
        let mut hash = blake3::Hasher::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hash.finalize().to_hex().to_string()
    }

    /// Waits until nobody else changes the files, or the call is cancelled. Held until it is dropped.
    pub(super) async fn lock(&self, cancel: &CancellationToken) -> Result<File, ToolError> {
        let lock = self.lock.clone();
        let locked = patiently(PATIENCE, move || locks::lock(&lock));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(super::cancelled()),
            locked = locked => locked.map_err(|error| {
                ToolError::Failed(format!("the file cannot be locked, so it was not edited: {error}"))
            }),
        }
    }

    /// What was said of a call, if it has changed its file already.
    pub(super) fn made(&self, call: &str) -> Result<Option<String>, ToolError> {
        let note = match fs::read(self.path(call)) {
            Ok(note) => note,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let Note { next, said } = serde_json::from_slice(&note).map_err(|error| failed(error.into()))?;
        let next = self.beside().join(next);
        if fs::symlink_metadata(&next).is_err() {
            return Ok(Some(said));
        }
        self.forget(call)?;
        fs::remove_file(&next).map_err(failed)?;
        Ok(None)
    }

    /// Refuses what is too large, unless it is smaller than before.
    pub(super) fn check(&self, before: u64, after: &str) -> Result<(), ToolError> {
        let after = after.len() as u64;
        if after <= self.most || after < before {
            return Ok(());
        }
        let most = grouped(self.most);
        Err(ToolError::Failed(format!(
            "the file would have more than {most} bytes; remove something from it first"
        )))
    }

    /// Notes that a file is about to change.
    pub(super) fn note(&self, call: &str, next: &Path, said: &str) -> Result<(), ToolError> {
        let below = next.strip_prefix(self.beside()).unwrap_or(next);
        let note = Note { next: below.to_owned(), said: said.to_owned() };
        let write = || {
            // A note of what is not there says that it has taken its place.
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

    pub(super) fn forget(&self, call: &str) -> Result<(), ToolError> {
        fs::remove_file(self.path(call)).map_err(failed)
    }

    /// Forgets all calls, and removes what those that were cut off left beside the lock.
    pub(crate) fn clear(&self) -> io::Result<()> {
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

    /// The folder of the lock.
    fn beside(&self) -> &Path {
        self.lock.parent().unwrap_or(&self.lock)
    }

    fn path(&self, call: &str) -> PathBuf {
        self.folder.join(format!("{call}.json"))
    }
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
    use crate::workspace::{edit::edit_file_once, store::PREFIX, testing::Place};

    /// An edit that could be made twice: what it looks for is still there afterwards.
    fn args() -> Value {
        json!({"path": "a", "old": "- tea", "new": "- tea\n- milk"})
    }

    const BEFORE: &str = "- tea\n";
    const AFTER: &str = "- tea\n- milk\n";

    struct Desk {
        place: Place,
        journal: EditJournal,
    }

    impl Desk {
        fn new() -> Self {
            let place = Place::new();
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

        /// How many files there are, with the lock.
        fn names(&self) -> usize {
            fs::read_dir(self.place.at(".")).unwrap().count()
        }
    }

    #[tokio::test]
    async fn a_call_that_is_made_again_changes_nothing_and_says_the_same() {
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
        // What stopped behind the change has made it, whatever else became of the file.
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
    async fn whoever_changes_the_file_is_waited_for() {
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
    async fn whoever_does_not_let_go_of_the_file_is_not_waited_for_without_end() {
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
    async fn what_was_left_behind_is_cleared_away() {
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
