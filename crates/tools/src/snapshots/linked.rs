//! Tests with folders and files of snapshots that came with the folder as links.

use std::{collections::BTreeSet, fs, path::PathBuf};

use superstep_llm::snapshots::FileChanges;
use tokio_util::sync::CancellationToken;

use super::{FileSnapshots, MAX_LIST_BYTES, index::FileStamp};
use crate::workspace::testing::TestWorkspace;

/// A workspace with the snapshots of thread `t`, and a folder elsewhere.
struct Linked {
    place: TestWorkspace,
    files: FileSnapshots,
    elsewhere: PathBuf,
}

impl Linked {
    fn new() -> Self {
        let place = TestWorkspace::new();
        place.file("a", "text");
        let elsewhere = place.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        Self { files: FileSnapshots::new(&place.workspace).unwrap(), place, elsewhere }
    }

    fn keep(&self, thread: &str) -> String {
        self.files.store_now(thread, &CancellationToken::new()).unwrap()
    }

    fn stored(&self, path: &str) -> PathBuf {
        self.place.at(format!(".superstep/files/{path}").trim_end_matches('/'))
    }

    /// Moves a stored file or folder elsewhere and leaves a link to it.
    fn link_to_moved(&self, path: &str) -> PathBuf {
        let moved = self.elsewhere.join("moved");
        fs::rename(self.stored(path), &moved).unwrap();
        std::os::unix::fs::symlink(&moved, self.stored(path)).unwrap();
        moved
    }
}

#[test]
fn no_file_is_deleted_in_a_folder_behind_a_link() {
    for link in ["+contents", ""] {
        let at = Linked::new();
        let tree = at.keep("t");
        let moved = at.link_to_moved(link);
        let contents = if link.is_empty() { moved.join("+contents") } else { moved };
        let only_there = contents.join("0".repeat(64));
        fs::write(&only_there, "a file of the user").unwrap();
        let trees = BTreeSet::from([tree.clone()]);
        let wanted = if link.is_empty() { ".superstep/files/t" } else { ".superstep/files/+contents" };
        let wanted = format!("there is a link in `{wanted}`; remove it");
        let refused = at.files.prune("t", &trees).unwrap_err().to_string();
        assert!(refused.ends_with(&wanted), "{refused}");
        let refused = at.files.delete("t").unwrap_err().to_string();
        assert_eq!(refused, wanted);
        assert!(at.files.store_now("t", &CancellationToken::new()).is_err());
        assert!(only_there.exists());
    }
}

#[test]
fn only_names_of_contents_are_deleted() {
    let at = Linked::new();
    let tree = at.keep("t");
    let names = ["notes.txt", "cafe", "1", &"0".repeat(63)].map(|name| at.stored("+contents").join(name));
    names.iter().for_each(|name| fs::write(name, "").unwrap());
    at.files.prune("t", &[tree].into()).unwrap();
    assert!(names.iter().all(|name| name.exists()));
}

#[test]
fn a_copy_creates_nothing_behind_a_link() {
    let at = Linked::new();
    let tree = at.keep("t");
    fs::create_dir(at.stored("u")).unwrap();
    let name = format!("{tree}.tree");
    std::os::unix::fs::symlink(at.elsewhere.join("new"), at.stored("u").join(&name)).unwrap();
    at.files.copy("t", "u").unwrap();
    assert_eq!(fs::read_dir(&at.elsewhere).unwrap().count(), 0);
    assert!(!at.files.has("u", &tree) && at.files.has("t", &tree));
}

#[test]
fn linked_trees_contents_and_notes_are_not_read() {
    let at = Linked::new();
    let before = at.keep("t");
    at.place.file("a", "other");
    let after = at.keep("t");
    let round = FileChanges { before: before.clone(), after, ..FileChanges::default() };
    let hash = blake3::hash(b"text").to_hex().to_string();
    fs::write(at.stored("t/revert.json"), "{}").unwrap();
    for name in [format!("{before}.tree"), hash, "revert.json".to_owned()] {
        let path = format!("t/{name}");
        let moved = at.link_to_moved(&path);
        let refused = match at.files.restore("t", std::slice::from_ref(&round), true) {
            Ok(restored) => restored.left["a"].clone(),
            Err(error) => error.to_string(),
        };
        assert!(refused.ends_with(&format!("`{name}` is not a regular file; remove it")), "{refused}");
        assert_eq!(fs::read_to_string(at.place.at("a")).unwrap(), "other");
        fs::rename(&moved, at.stored(&path)).unwrap();
    }
    at.files.restore("t", &[round], true).unwrap();
    assert_eq!(fs::read_to_string(at.place.at("a")).unwrap(), "text");
}

#[test]
fn a_note_that_is_too_long_is_an_error_that_names_it() {
    let at = Linked::new();
    let tree = at.keep("t");
    fs::File::create(at.stored("t/revert.json")).unwrap().set_len(MAX_LIST_BYTES + 1).unwrap();
    let refused = at.files.prune("t", &[tree].into()).unwrap_err().to_string();
    assert_eq!(refused, "the files cannot be stored: `revert.json` is longer than 16777216 bytes; delete it");
}

#[test]
fn a_linked_or_long_index_is_replaced() {
    let at = Linked::new();
    let metadata = || fs::metadata(at.place.at("a")).unwrap();
    let look = || FileStamp::of(&metadata()).unwrap();
    let later = metadata().modified().unwrap() + std::time::Duration::from_secs(60);
    let all = at.stored("");
    at.keep("t");
    at.files.index.store(&all, vec![("a".into(), look(), "0".repeat(64))], later, |_| true).unwrap();
    let index = || FileSnapshots::new(&at.place.workspace).unwrap().index.hash(&all, "a", &look());
    assert!(index().is_some());
    let moved = at.link_to_moved("+index");
    assert_eq!(index(), None);
    at.files.index.store(&all, vec![("a".into(), look(), "1".repeat(64))], later, |_| true).unwrap();
    assert!(fs::symlink_metadata(at.stored("+index")).unwrap().is_file() && moved.exists());
    assert_eq!(index(), Some("1".repeat(64)));
    fs::File::options().write(true).open(at.stored("+index")).unwrap().set_len(MAX_LIST_BYTES + 1).unwrap();
    assert_eq!(index(), None);
}
