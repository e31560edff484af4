use std::{fs, path::PathBuf};

use superstep_llm::snapshots::FileChangeKind;

use super::{index::FileStamp, *};
use crate::workspace::{testing::TestWorkspace, walk::GITIGNORE};

struct Watched {
    place: TestWorkspace,
    files: FileSnapshots,
}

impl Watched {
    fn new() -> Self {
        let place = TestWorkspace::new();
        let files = FileSnapshots::new(&place.workspace).unwrap();
        Self { place, files }
    }

    fn keep(&self) -> String {
        self.files.store_now("t", &CancellationToken::new()).unwrap()
    }

    /// Restores what changed from the tree `to` to the tree `from`.
    fn restore(&self, from: &str, to: &str, overwrite: bool) -> Result<FileChanges, RestoreError> {
        let restored = self.files.restore("t", &[round(to, from)], overwrite)?;
        self.files.recorded("t").unwrap();
        Ok(restored.changes)
    }

    /// Returns the changes as `kind path` lines.
    fn changes(&self, before: &str, after: &str) -> Vec<String> {
        report(&self.compared(before, after))
    }

    fn compared(&self, before: &str, after: &str) -> FileChanges {
        let stop = CancellationToken::new();
        self.files.compared("t", before.to_owned(), after.to_owned(), &stop).unwrap()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.place.at(path)).ok()
    }

    /// Lists each path of the tree with its content, to compare folders.
    fn all(&self) -> Vec<String> {
        let mut paths: Vec<_> = self.files.tree("t", &self.keep()).unwrap().0.into_iter().collect();
        paths.sort_by(|a, b| a.0.cmp(&b.0));
        paths.into_iter().map(|(path, entry)| format!("{path} {entry:?}")).collect()
    }
}

fn round(before: &str, after: &str) -> FileChanges {
    FileChanges { before: before.into(), after: after.into(), ..FileChanges::default() }
}

fn report(changes: &FileChanges) -> Vec<String> {
    let kind = |kind| match kind {
        FileChangeKind::Made => "made",
        FileChangeKind::Changed => "changed",
        FileChangeKind::Removed => "removed",
    };
    changes.changes.iter().map(|change| format!("{} {}", kind(change.kind), change.path)).collect()
}

#[test]
fn equal_files_have_equal_names_and_a_readable_form() {
    let at = Watched::new();
    at.place.file("a", "x");
    at.place.file("sub/b", "x");
    let first = at.keep();
    assert_eq!(at.keep(), first);
    at.place.file("a", "y");
    assert_ne!(at.keep(), first);
    at.place.file("a", "x");
    assert_eq!(at.keep(), first);
    let folder = at.place.at(".superstep/files/t");
    let hash = blake3::hash(b"x").to_hex().to_string();
    assert_eq!(
        fs::read_to_string(folder.join(format!("{first}.tree"))).unwrap(),
        format!(r#"{{"a":{{"file":"{hash}"}},"sub/b":{{"file":"{hash}"}}}}"#)
    );
    // Two trees and two contents: equal contents are stored once.
    assert_eq!(fs::read_dir(folder).unwrap().count(), 4);
    assert_eq!(fs::read_to_string(at.place.at(".superstep/.gitignore")).unwrap(), "*\n");
}

#[test]
fn file_changes_are_reported_with_their_lines() {
    let at = Watched::new();
    at.place.file("gone", "1\n");
    at.place.file("text", "a\nb\nc\nd\ne\n");
    at.place.file("binary", b"\0\x01");
    at.place.file("same", "s");
    let before = at.keep();
    fs::remove_file(at.place.at("gone")).unwrap();
    at.place.file("text", "a\nb\nC\nd\ne\n");
    at.place.file("binary", b"\0\x02");
    at.place.file("dir/new", "n\n");
    let after = at.keep();
    assert_eq!(
        at.changes(&before, &after),
        ["changed binary", "made dir/new", "removed gone", "changed text"]
    );
    let changes = at.compared(&before, &after).changes;
    let diffs: Vec<_> = changes.iter().map(|change| change.diff.as_str()).collect();
    assert_eq!(
        diffs,
        ["", "@@ -0,0 +1 @@\n+n\n", "@@ -1 +0,0 @@\n-1\n", "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n"]
    );
    assert_eq!(at.changes(&before, &before), [""; 0]);
}

#[test]
fn many_changes_are_reported_partially() {
    let at = Watched::new();
    let before = at.keep();
    for number in 0..105 {
        at.place.file(&format!("{number:03}"), "line of text\n".repeat(100));
    }
    let after = at.keep();
    let changes = at.compared(&before, &after);
    assert_eq!((changes.changes.len(), changes.more), (100, 5));
    let diffs: usize = changes.changes.iter().map(|change| change.diff.len()).sum();
    assert!((10_000..=16 << 10).contains(&diffs), "{diffs}");

    // A file whose content is not reported is not even read.
    let before = at.keep();
    at.place.file("000", "a long line of text\n".repeat(10_000));
    at.place.file("001", "short\n");
    let after = at.keep();
    let kept = at.place.at(".superstep/files/t").join(blake3::hash(b"short\n").to_hex().as_str());
    fs::remove_file(kept).unwrap();
    let changes = at.compared(&before, &after).changes;
    assert_eq!((changes.len(), changes[1].diff.as_str()), (2, ""));
    assert!(changes[0].diff.len() > 16_000);
}

#[cfg(unix)]
#[test]
fn ignored_reserved_and_outside_files_are_neither_stored_nor_changed() {
    let at = Watched::new();
    fs::create_dir(at.place.dir.path().join("elsewhere")).unwrap();
    fs::write(at.place.dir.path().join("elsewhere/secret"), "s").unwrap();
    at.place.file(".gitignore", "*.log\n");
    at.place.file("a.log", "1");
    at.place.file(".git/config", "1");
    at.place.link("away", "../elsewhere");
    at.place.fifo("pipe");
    let before = at.keep();
    let tree = fs::read_to_string(at.place.at(&format!(".superstep/files/t/{before}.tree"))).unwrap();
    assert!(
        tree.starts_with(r#"{".gitignore":{"file":""#)
            && tree.ends_with(r#"},"away":{"link":"../elsewhere"}}"#)
    );
    at.place.file("a.log", "2");
    at.place.file(".git/config", "2");
    at.place.file("b", "b");
    let after = at.keep();
    assert_eq!(at.changes(&before, &after), ["made b"]);
    at.restore(&after, &before, true).unwrap();
    assert_eq!(
        (at.read("a.log"), at.read(".git/config"), at.read("b")),
        (Some("2".into()), Some("2".into()), None)
    );
}

#[cfg(unix)]
#[test]
fn files_are_restored_exactly() {
    use std::os::unix::fs::PermissionsExt;
    let at = Watched::new();
    at.place.file("keep", "k");
    at.place.file("script", "run");
    fs::set_permissions(at.place.at("script"), fs::Permissions::from_mode(0o755)).unwrap();
    at.place.file("dir/sub/gone", "g");
    at.place.file("was_file", "f");
    at.place.link("link", "keep");
    let (before, whole) = (at.keep(), at.all());
    at.place.file("script", "other");
    fs::set_permissions(at.place.at("script"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_dir_all(at.place.at("dir")).unwrap();
    fs::remove_file(at.place.at("was_file")).unwrap();
    at.place.file("was_file/now_folder", "n");
    fs::remove_file(at.place.at("link")).unwrap();
    at.place.file("link", "no link");
    at.place.file("new/deep/file", "n");
    let after = at.keep();
    at.place.file("mine", "made by somebody else, and none of their business");
    let changes = at.restore(&after, &before, false).unwrap();
    assert_eq!(
        report(&changes),
        [
            "made dir/sub/gone",
            "changed link",
            "removed new/deep/file",
            "changed script",
            "made was_file",
            "removed was_file/now_folder"
        ]
    );
    assert!(!at.place.at("new").exists(), "folders that are empty now are gone");
    assert_eq!(fs::metadata(at.place.at("script")).unwrap().permissions().mode() & 0o111, 0o111);
    fs::remove_file(at.place.at("mine")).unwrap();
    assert_eq!(at.all(), whole);
    // And back again.
    at.restore(&before, &after, false).unwrap();
    assert_eq!(at.read("was_file/now_folder"), Some("n".into()));
    assert_eq!(at.keep(), after);
}

#[test]
fn changes_by_others_are_not_overwritten_without_force() {
    let at = Watched::new();
    at.place.file("a", "1");
    at.place.file("b", "1");
    let before = at.keep();
    at.place.file("a", "2");
    at.place.file("b", "2");
    let after = at.keep();
    at.place.file("b", "3");
    let refused = at.restore(&after, &before, false).unwrap_err();
    assert_eq!(refused, RestoreError::Changed(vec!["b".into()]));
    assert_eq!(refused.to_string(), "changed by another program since: b");
    assert_eq!((at.read("a"), at.read("b")), (Some("2".into()), Some("3".into())), "nothing was done");
    at.restore(&after, &before, true).unwrap();
    assert_eq!((at.read("a"), at.read("b")), (Some("1".into()), Some("1".into())));
}

/// Sets permissions; root may read everything, so nothing is unknown then.
#[cfg(unix)]
fn permit(path: PathBuf, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_neither_reported_nor_changed() {
    use std::os::unix::ffi::OsStrExt;
    let at = Watched::new();
    at.place.file("private", "p");
    at.place.file("dir/sub/inside", "i");
    at.place.file("shut", "s");
    at.place.file("gone", "g");
    let no_text = std::ffi::OsStr::from_bytes(b"\xff");
    std::os::unix::fs::symlink(no_text, at.place.at("link")).unwrap();
    permit(at.place.at("private"), 0o000);
    permit(at.place.at("dir"), 0o000);
    let before = at.keep();
    permit(at.place.at("private"), 0o644);
    permit(at.place.at("dir"), 0o755);
    permit(at.place.at("shut"), 0o000);
    fs::remove_file(at.place.at("link")).unwrap();
    at.place.file("link", "no link");
    fs::remove_file(at.place.at("gone")).unwrap();
    let after = at.keep();
    assert_eq!(at.changes(&before, &after), ["removed gone"]);
    for (from, to, told_of) in [(&after, &before, "made gone"), (&before, &after, "removed gone")] {
        assert_eq!(report(&at.restore(from, to, false).unwrap()), [told_of]);
        let left = ["private", "dir/sub/inside", "link"].map(|path| at.read(path).unwrap());
        assert_eq!(left, ["p", "i", "no link"]);
        assert!(at.place.at("shut").exists());
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_read_now_is_not_replaced() {
    use std::os::unix::ffi::OsStrExt;
    let at = Watched::new();
    at.place.file("a", "1");
    at.place.file("b", "1");
    let before = at.keep();
    at.place.file("a", "2");
    at.place.file("b", "2");
    let after = at.keep();
    fs::remove_file(at.place.at("b")).unwrap();
    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(b"\xff"), at.place.at("b")).unwrap();
    for overwrite in [false, true] {
        let refused = at.restore(&after, &before, overwrite).unwrap_err();
        assert_eq!(refused.to_string(), "path 'b' cannot be read, so it is not replaced; nothing was done");
    }
    assert_eq!(at.read("a").unwrap(), "2");
    assert!(at.place.at("b").is_symlink());
}

#[test]
fn previously_ignored_files_are_not_deleted() {
    let at = Watched::new();
    at.place.file(".gitignore", "secret\n/build/\n");
    at.place.file("secret", "s");
    at.place.file("build/out", "o");
    let before = at.keep();
    at.place.file(".gitignore", "");
    let after = at.keep();
    assert_eq!(at.changes(&before, &after), ["changed .gitignore", "made build/out", "made secret"]);
    let restored = at.files.restore("t", &[round(&before, &after)], false).unwrap();
    assert_eq!(restored.left.into_keys().collect::<Vec<_>>(), ["build/out", "secret"]);
    assert_eq!((at.read("secret"), at.read("build/out")), (Some("s".into()), Some("o".into())));
}

#[test]
fn files_ignored_by_nested_rules_are_not_deleted() {
    // With a byte order mark; excluded by a file that ignores itself; below an ignored folder, and
    // re-included in vain.
    for (rules, file) in [
        ("\u{feff}secret\n", "secret"),
        ("*\n", "secret"),
        ("*\n", "sub/secret"),
        ("sub/\n!sub/secret\n", "sub/secret"),
    ] {
        let at = Watched::new();
        at.place.file("dir/.gitignore", rules);
        let file = format!("dir/{file}");
        at.place.file(&file, "s");
        at.place.file("a", "1");
        let before = at.keep();
        at.place.file("dir/.gitignore", "");
        at.place.file("a", "2");
        let after = at.keep();
        assert!(at.changes(&before, &after).contains(&format!("made {file}")), "{rules:?}");
        at.restore(&after, &before, false).unwrap();
        assert_eq!((at.read(&file), at.read("a")), (Some("s".into()), Some("1".into())), "{rules:?}");
        assert_eq!(at.read("dir/.gitignore").unwrap(), rules, "the tools changed it");
    }
}

#[test]
fn self_ignoring_rules_are_neither_reported_nor_restored() {
    let at = Watched::new();
    at.place.file("a", "1");
    at.place.file("old/.gitignore", "*\n");
    let before = at.keep();
    at.place.file("venv/.gitignore", "*\n");
    at.place.file("venv/lib", "l");
    at.place.file("old/.gitignore", "*\n# more\n");
    at.place.file("a", "2");
    let after = at.keep();
    assert_eq!(at.changes(&before, &after), ["changed a"]);
    assert_eq!(at.files.prune("t", &[before.clone(), after.clone()].into()).unwrap(), 0);
    at.restore(&after, &before, false).unwrap();
    assert_eq!(at.read("venv/.gitignore").unwrap(), "*\n");
    assert_eq!(at.read("old/.gitignore").unwrap(), "*\n# more\n");
}

#[test]
fn files_changed_during_a_restore_are_not_overwritten() {
    let at = Watched::new();
    at.place.file("a", "1");
    at.place.file("b", "1");
    let before = at.keep();
    at.place.file("a", "2");
    at.place.file("b", "2");
    at.place.file("new", "2");
    let after = at.keep();
    for overwrite in [false, true] {
        let steps = at.files.plan("t", &[round(&before, &after)], overwrite).unwrap().steps;
        at.place.file("b", "mine");
        let error = at.files.take("t", steps).unwrap_err();
        assert_eq!(
            error.to_string(),
            "file 'b' cannot be restored: it was changed at the same time; inspect it, and try again"
        );
        assert_eq!((at.read("a").unwrap(), at.read("b").unwrap()), ("1".into(), "mine".into()));
        at.place.file("b", "2");
    }
    let steps = at.files.plan("t", &[round(&after, &before)], false).unwrap().steps;
    at.place.file("new", "mine");
    at.files.take("t", steps).unwrap_err();
    assert_eq!(at.read("new").unwrap(), "mine");
}

#[cfg(unix)]
#[test]
fn a_restored_file_retains_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let at = Watched::new();
    let mode = |path: &str| fs::metadata(at.place.at(path)).unwrap().permissions().mode() & 0o777;
    let files =
        [("plain", 0o600, 0o600), ("run", 0o700, 0o600), ("read", 0o640, 0o750), ("own", 0o710, 0o710)];
    for (path, was, _) in files {
        at.place.file(path, "1");
        permit(at.place.at(path), was);
    }
    let before = at.keep();
    for (path, _, is) in files {
        at.place.file(path, "2");
        permit(at.place.at(path), is);
    }
    at.restore(&at.keep(), &before, false).unwrap();
    for (path, was, _) in files {
        assert_eq!((mode(path), at.read(path).unwrap()), (was, "1".into()), "{path}");
    }
}

#[test]
fn a_stored_content_has_its_name_only_once_it_is_on_the_disk() {
    let at = Watched::new();
    at.place.file("a", "1");
    at.keep();
    at.place.file("a", "2");
    at.place.file("b", "2");
    let names = || -> Vec<_> {
        let kept = fs::read_dir(at.place.at(".superstep/files/t")).unwrap();
        kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let before = names();
    // The state after a stop before the sync to the disk.
    let (folder, tree, written) = at.files.seen_now("t", &CancellationToken::new()).unwrap();
    let new: Vec<_> = names().into_iter().filter(|name| !before.contains(name)).collect();
    assert!(matches!(&new[..], [name] if !disk::is_stored_name(name)), "{new:?}");
    let name = at.files.store_tree(&folder, &tree, written).unwrap();
    assert!(names().iter().all(|name| disk::is_stored_name(name)), "{:?}", names());
    assert_eq!(at.files.tree("t", &name).unwrap(), tree);
}

#[test]
fn damaged_contents_are_not_restored_and_are_stored_again() {
    let at = Watched::new();
    at.place.file("a", "old");
    at.place.file("b", "1");
    let before = at.keep();
    at.place.file("a", "new");
    at.place.file("b", "2");
    let after = at.keep();
    let hash = blake3::hash(b"old").to_hex().to_string();
    let kept = at.place.at(&format!(".superstep/files/t/{hash}"));
    for damage in ["", "odd"] {
        fs::write(&kept, damage).unwrap();
        let restored = at.files.restore("t", &[round(&before, &after)], true).unwrap();
        at.files.recorded("t").unwrap();
        let why = format!("`{hash}`, which is stored for this thread, is damaged");
        assert_eq!(restored.left, [("a".to_owned(), why)].into());
        assert_eq!((at.read("a").unwrap(), at.read("b").unwrap()), ("new".into(), "1".into()));
        at.place.file("b", "2");
    }
    // The state after a machine stopped before it had written everything: the length may be right.
    for damage in ["", "\0\0\0"] {
        fs::write(&kept, damage).unwrap();
        at.place.file("c", "old");
        at.keep();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "old");
        assert_eq!(
            fs::read_to_string(at.place.at(&format!(".superstep/files/+contents/{hash}"))).unwrap(),
            "old"
        );
    }
    at.restore(&after, &before, false).unwrap();
    assert_eq!((at.read("a").unwrap(), at.read("b").unwrap()), ("old".into(), "1".into()));

    fs::write(at.place.at(&format!(".superstep/files/t/{before}.tree")), "{}").unwrap();
    let error = at.restore(&after, &before, true).unwrap_err().to_string();
    assert_eq!(error, format!("`{before}.tree`, which is stored for this thread, is damaged"));
}

#[test]
fn a_restore_that_was_stopped_can_be_done_again() {
    let at = Watched::new();
    for name in ["a", "b", "c"] {
        at.place.file(name, "1");
    }
    let before = at.keep();
    for name in ["a", "b", "c"] {
        at.place.file(name, "2");
    }
    let after = at.keep();
    // A folder at the path of `b` stops it between the first and the last file.
    fs::remove_file(at.place.at("b")).unwrap();
    at.place.file("b/in_the_way", "");
    let error = at.restore(&after, &before, true).unwrap_err();
    assert!(error.to_string().starts_with("file 'b' cannot be restored: "), "{error}");
    assert_eq!((at.read("a"), at.read("c")), (Some("1".into()), Some("2".into())), "each is whole");
    fs::remove_dir_all(at.place.at("b")).unwrap();
    at.place.file("b", "2");
    // The changes of the first attempt are returned as well until they are recorded, and their contents stay
    // stored.
    let note = r#"{"a":{"was":{"file":"TWO"},"becomes":{"file":"ONE"}}"#;
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let noted = fs::read_to_string(at.place.at(".superstep/files/t/revert.json")).unwrap();
    assert!(noted.starts_with(&note.replace("TWO", &hash("2")).replace("ONE", &hash("1"))[..]), "{noted}");
    at.files.copy("t", "u").unwrap();
    assert!(!at.place.at(".superstep/files/u/revert.json").exists(), "a copy has put nothing back");
    let put_back = || at.files.restore("t", &[round(&before, &after)], false).unwrap().changes;
    let first = put_back();
    assert_eq!(["a", "b", "c"].map(|name| at.read(name).unwrap()), ["1", "1", "1"]);
    assert_eq!(report(&first), ["changed a", "changed b", "changed c"]);
    at.files.prune("t", &[first.after.clone()].into()).unwrap();
    assert!(at.place.at(".superstep/files/t").join(hash("2")).exists());
    at.place.file("c", "2");
    at.files.copy("u", "t").unwrap();
    assert_eq!(put_back(), first, "it was undone by hand, and is done again");
    at.files.recorded("t").unwrap();
    assert_eq!(report(&put_back()), [""; 0]);
    at.restore(&first.after, &first.before, false).unwrap();
    assert_eq!(["a", "b", "c"].map(|name| at.read(name).unwrap()), ["2", "2", "2"]);
}

#[cfg(unix)]
#[test]
fn nothing_outside_is_written_through_a_link() {
    let at = Watched::new();
    fs::create_dir(at.place.dir.path().join("elsewhere")).unwrap();
    at.place.file("dir/a", "1");
    let before = at.keep();
    at.place.file("dir/a", "2");
    let after = at.keep();
    fs::remove_dir_all(at.place.at("dir")).unwrap();
    at.place.link("dir", "../elsewhere");
    for overwrite in [false, true] {
        assert!(at.restore(&after, &before, overwrite).is_err());
    }
    fs::write(at.place.dir.path().join("elsewhere/a"), "2").unwrap();
    for (from, to) in [(&after, &before), (&before, &after)] {
        assert!(at.restore(from, to, true).is_err());
    }
    assert_eq!(fs::read_to_string(at.place.dir.path().join("elsewhere/a")).unwrap(), "2");
}

#[test]
fn a_forged_tree_never_leads_outside() {
    let at = Watched::new();
    at.place.file("a", "evil");
    let empty = Tree::default();
    let kept = at.files.tree("t", &at.keep()).unwrap().0["a"].clone();
    let folder = at.place.at(".superstep/files/t");
    let forged = |tree: &Tree| {
        let text = serde_json::to_vec(tree).unwrap();
        let name = blake3::hash(&text).to_hex().to_string();
        fs::write(folder.join(format!("{name}.tree")), text).unwrap();
        name
    };
    let outside = at.place.dir.path().join("elsewhere/x");
    let absolute = outside.to_str().unwrap();
    let reserved = [".git/hooks/post-checkout", "sub/.GIT/config", ".superstep/threads.db"];
    let odd = ["../elsewhere/x", "sub/../../x", "", "a/", "/", "./a", "a//b", "."];
    for path in reserved.into_iter().chain(odd).chain([absolute]) {
        let tree = Tree([(path.to_owned(), kept.clone())].into());
        let error = at.restore(&forged(&empty), &forged(&tree), true).unwrap_err().to_string();
        let wanted = format!("tree `{}` cannot be read: path '{path}' is not in the snapshot", forged(&tree));
        assert_eq!(error, wanted);
        assert!(at.restore(&forged(&tree), &forged(&empty), true).is_err());
    }
    assert!(!outside.parent().unwrap().exists() && !at.place.at(".git").exists());
}

#[test]
fn the_rules_of_a_forged_tree_are_limited() {
    let at = Watched::new();
    at.place.file("a", "1");
    let after = at.keep();
    let content = "#".repeat((256 << 10) + 1);
    let hash = blake3::hash(content.as_bytes()).to_hex().to_string();
    let tree = serde_json::to_vec(&Tree([(GITIGNORE.to_owned(), Entry::File(hash.clone()))].into())).unwrap();
    let name = blake3::hash(&tree).to_hex().to_string();
    fs::write(at.place.at(&format!(".superstep/files/t/{hash}")), content).unwrap();
    fs::write(at.place.at(&format!(".superstep/files/t/{name}.tree")), tree).unwrap();
    let error = at.restore(&after, &name, true).unwrap_err().to_string();
    let wanted = "the `.gitignore` files of the snapshot are too large: one has at most 256 KiB or 10,000 patterns, all have 4,096 KiB \
                  or 100,000 patterns";
    assert_eq!(error, wanted);
}

#[test]
fn only_trees_of_the_thread_are_read() {
    let at = Watched::new();
    at.place.file("a", "1");
    let tree = at.keep();
    at.place.file("a", "2");
    let later = at.keep();
    for (thread, name) in [("other", later.as_str()), ("t", "../../../secret"), ("t", ""), ("t", "00")] {
        let error = at.files.restore(thread, &[round(name, &tree)], true).unwrap_err().to_string();
        assert!(error.contains("is not stored for this thread"), "{error}");
    }
    fs::write(at.place.at(&format!(".superstep/files/t/{tree}.tree")), "{").unwrap();
    let error = at.restore(&later, &tree, true).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
    at.files.delete("t").unwrap();
    assert!(!at.place.at(".superstep/files/t").exists());
}

#[tokio::test]
async fn a_snapshot_stops_when_it_is_no_longer_awaited() {
    let at = Watched::new();
    at.place.file("a", "1");
    let stop = CancellationToken::new();
    stop.cancel();
    assert!(at.files.store_now("t", &stop).is_err());
    let before = at.keep();
    at.place.file("a", "2");
    assert!(at.files.compared("t", before, at.keep(), &stop).is_err());
}

#[test]
fn unused_contents_are_deleted_and_the_rest_can_be_restored() {
    let watched = Watched::new();
    let at = |path: &str| watched.place.at(path);
    fs::write(at("same"), "same").unwrap();
    let mut trees = Vec::new();
    for text in ["1", "2", "3"] {
        fs::write(at("a"), text).unwrap();
        trees.push(watched.keep());
    }
    let wanted: BTreeSet<String> = trees[1..].iter().cloned().collect();
    let prune = || watched.files.prune("t", &wanted).unwrap();
    // The state after a process was killed while storing.
    let left_over = at(".superstep/files/t").join(".tmpA1b2C3");
    fs::write(&left_over, "par").unwrap();
    watched.files.copy("t", "u").unwrap();
    assert!(!at(".superstep/files/u/.tmpA1b2C3").exists());
    // The first tree, and a content that no other tree has.
    assert_eq!([prune(), prune()], [2, 0]);
    assert!(!left_over.exists());
    watched.restore(&trees[2], &trees[1], false).unwrap();
    assert_eq!((watched.read("a").unwrap(), watched.read("same").unwrap()), ("2".into(), "same".into()));
    assert!(watched.restore(&trees[1], &trees[0], false).is_err(), "it is gone");

    // A missing tree indicates a problem: then nothing is deleted.
    let error = watched.files.prune("t", &[trees[0].clone()].into()).unwrap_err();
    assert!(error.to_string().contains("is not stored for this thread"), "{error}");
    watched.restore(&trees[1], &trees[2], false).unwrap();
    assert_eq!(watched.files.prune("nobody", &wanted).unwrap(), 0);
}

#[cfg(unix)]
#[test]
fn a_content_is_stored_once_for_all_threads_until_none_uses_it() {
    use std::os::unix::fs::MetadataExt;
    let at = Watched::new();
    at.place.file("a", "x");
    let hash = blake3::hash(b"x").to_hex().to_string();
    let kept = |folder: &str| at.place.at(&format!(".superstep/files/{folder}/{hash}"));
    let stop = CancellationToken::new();
    let before = ["t", "u"].map(|thread| at.files.store_now(thread, &stop).unwrap());
    let inodes = ["t", "u", SHARED].map(|folder| fs::metadata(kept(folder)).unwrap().ino());
    assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    at.place.file("a", "y");
    let after = at.files.store_now("u", &stop).unwrap();
    at.files.delete("t").unwrap();
    assert_eq!(
        report(&at.files.restore("u", &[round(&before[1], &after)], false).unwrap().changes),
        ["changed a"]
    );
    assert_eq!(at.read("a"), Some("x".into()));
    at.files.delete("u").unwrap();
    assert!(!kept(SHARED).exists());
}

#[cfg(unix)]
#[test]
fn a_file_with_unchanged_metadata_is_not_read_again() {
    let at = Watched::new();
    at.place.file("a", "one");
    at.place.file("b", "two");
    let tree = at.keep();
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let (all, path) = (at.place.at(".superstep/files"), at.place.at("a"));
    let look = || FileStamp::of(&fs::metadata(&path).unwrap()).unwrap();
    let later = || fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(60);
    // A file that has just been changed is read again, because it may change once more within the clock's
    // granularity.
    assert_eq!(at.files.index.hash(&all, "a", &look()), None);
    // An entry that claims the content of `b` is trusted as long as the metadata is equal.
    at.files.index.store(&all, vec![("a".into(), look(), hash("two"))], later(), |_| true).unwrap();
    let wrong = at.files.tree("t", &at.keep()).unwrap();
    assert_eq!(wrong.0["a"], Entry::File(hash("two")));
    // Another process uses it as well.
    let other = FileSnapshots::new(&at.place.workspace).unwrap();
    assert_eq!(other.index.hash(&all, "a", &look()), Some(hash("two")));
    // Same length and the old time.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "One").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let right = at.files.tree("t", &at.keep()).unwrap();
    assert_eq!(right.0["a"], Entry::File(hash("One")));
    // A damaged index is not trusted, and a content that is no longer stored is read again.
    at.files.index.store(&all, vec![("a".into(), look(), hash("gone"))], later(), |_| true).unwrap();
    assert_eq!(at.files.tree("t", &at.keep()).unwrap(), right);
    fs::write(all.join("+index"), "{}").unwrap();
    let other = FileSnapshots::new(&at.place.workspace).unwrap();
    assert_eq!(other.index.hash(&all, "b", &look()), None);
    assert_eq!(at.changes(&tree, &at.keep()), ["changed a"]);
}

#[test]
fn stored_files_of_all_threads_are_limited_with_an_error() {
    let at = Watched::new();
    at.place.file("a", "1");
    at.keep();
    let full = at.place.at(&format!(".superstep/files/{SHARED}")).join("f".repeat(64));
    fs::File::create(&full).unwrap().set_len(MAX_KEPT_BYTES).unwrap();
    at.keep();
    at.place.file("a", "2");
    let error = at.files.store_now("t", &CancellationToken::new()).unwrap_err().to_string();
    let wanted = "the stored files of all threads would take more than 2048 MiB; delete or prune threads";
    assert_eq!(error, wanted);
}
