//! `edit_file`: replaces one occurrence of a text in a file, after approval.

use std::{io, path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_llm::{
    Behaviour, Subject, Tool, ToolCx, ToolError, ToolFuture, ToolSpec, text::printable_line,
};
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    content::{CurrentContent, load},
    journal::EditJournal,
    path,
    root::{Found, NOTED_PREFIX},
    store::{Next, replace},
};
use crate::{
    call::{change, check_stop, grouped},
    folders::locks::keep_names,
    question::changes,
    text::LineEnds,
};

/// Occurrences beyond this number are not counted.
const MAX_PLACES: usize = 1_000;
const MAX_PLACES_SHOWN: usize = 10;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFile {
    /// The file to edit; it must exist.
    path: String,
    /// The text to replace, exactly as it stands in the file, without line numbers; it must occur once.
    old: String,
    /// The text to put in its place; empty to delete.
    new: String,
}

impl EditFile {
    /// Checks the arguments without reading the file.
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let args = Self::deserialize(args).map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
        if args.old.is_empty() {
            return Err(ToolError::InvalidArguments(
                "`old` is empty; give the text to replace (`write_file` makes files)".into(),
            ));
        }
        if args.old == args.new {
            return Err(ToolError::InvalidArguments(
                "`old` and `new` are equal; nothing would change".into(),
            ));
        }
        Ok(args)
    }
}

/// The tool `edit_file{path, old, new}`: replaces the one occurrence of `old`, after approval.
///
/// A file is replaced atomically: the new content is written beside it and renamed over it. Permissions are
/// preserved; other hard links retain the old content. The tool never creates files, and refuses to edit a
/// file that is read-only, not UTF-8, or larger than 4 MiB.
pub fn edit_file(workspace: &Workspace) -> impl Tool + use<> {
    tool(workspace, None)
}

/// Creates the same tool with a journal and a lock: a call that is repeated after a crash changes the file
/// only once.
pub fn edit_file_once(workspace: &Workspace, journal: EditJournal) -> impl Tool + use<> {
    tool(workspace, Some(journal))
}

fn tool(workspace: &Workspace, journal: Option<EditJournal>) -> Edit {
    Edit {
        workspace: workspace.clone(),
        journal,
        spec: ToolSpec::of::<EditFile>(
            "edit_file",
            "Replaces a text in a file of the workspace. `old` must be exactly what stands in the file and occur \
             once: add lines around it until it does. A person may be asked first.",
        ),
    }
}

struct Edit {
    workspace: Workspace,
    journal: Option<EditJournal>,
    spec: ToolSpec,
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        Behaviour { idempotent: self.journal.is_some(), ..Behaviour::default() }
    }

    fn approval(&self, args: &Value) -> Option<String> {
        // Arguments that `call` rejects without touching anything need no approval.
        Some(preview(&EditFile::parse(args).ok()?))
    }

    fn changes_files(&self) -> Option<bool> {
        Some(true)
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        path(&self.workspace, argument, args, false)
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        // With a journal, the edited files are not those of a turn.
        if self.journal.is_some() {
            return Ok(None);
        }
        let workspace = Workspace::open_real(folder)?;
        Ok(Some(Arc::new(Self { workspace, journal: None, spec: self.spec.clone() })))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let args = EditFile::parse(&args)?;
            let (workspace, journal) = (self.workspace.of_call(&cx), self.journal.clone());
            let Some(journal) = journal else {
                return change(cx, move |stop| edit(&workspace, &args, stop)).await.map(Into::into);
            };
            let call = EditJournal::name(&[&cx.idempotency_key, &args.path, &args.old, &args.new]);
            let alone = journal.lock(&cx.cancel).await?;
            let edit = move |stop: &CancellationToken| {
                // Owned by the blocking task, which runs on for a moment after its caller is gone.
                let _alone = alone;
                edit_once(&workspace, &args, (&journal, &call), stop)
            };
            change(cx, edit).await.map(Into::into)
        })
    }
}

fn edit(workspace: &Workspace, args: &EditFile, stop: &CancellationToken) -> Result<String, ToolError> {
    let turn = workspace.edit_turn()?;
    check_stop(stop)?;
    let Edited { found, old, content, said } = Edited::new(workspace, args)?;
    replace(workspace, &turn, &found, &old, &content, stop)?;
    Ok(said)
}

/// Edits the file unless the journal shows that the call was completed before.
fn edit_once(
    workspace: &Workspace,
    args: &EditFile,
    (journal, call): (&EditJournal, &str),
    stop: &CancellationToken,
) -> Result<String, ToolError> {
    let _turn = workspace.edit_turn()?;
    check_stop(stop)?;
    if let Some(said) = journal.made(call)? {
        return Ok(said);
    }
    let Edited { found, old, content, said } = Edited::new(workspace, args)?;
    journal.check(old.metadata.len(), &content)?;
    let next = Next::new(workspace, NOTED_PREFIX, &found, &old, &content)?;
    journal.note(call, &next.path(), &said)?;
    match next.take_place(workspace, &old, stop) {
        Ok(()) => {
            // The cursor of a memory consolidation must not outlast its edits.
            found.real.parent().map_or(Ok(()), keep_names).map_err(|error| {
                ToolError::Failed(format!("'{}' was edited, which may not last: {error}", found.shown))
            })?;
            Ok(said)
        }
        Err((next, error)) => {
            // While the new content still exists beside the file, it has not replaced it; so the note is
            // written first.
            journal.forget(call)?;
            drop(next);
            Err(error)
        }
    }
}

/// The new content of a file.
struct Edited {
    found: Found,
    old: CurrentContent,
    content: Vec<u8>,
    /// The result that the model receives.
    said: String,
}

impl Edited {
    fn new(workspace: &Workspace, args: &EditFile) -> Result<Self, ToolError> {
        let found = workspace.permit(workspace.find(&args.path)?, false)?;
        let current = load(workspace, &found)?;
        let text = &current.text;
        // The model reads lines without their ends, so that it gives `\n`.
        let ends = if args.old.contains('\r') { LineEnds::default() } else { LineEnds::of(text) };
        let (old, new) = (ends.kept_in(&args.old), ends.kept_in(&args.new));
        let at = only_place(text, &old, &found)?;
        let edited = [&text[..at], &new, &text[at + old.len()..]].concat();
        let line = line_of(text, at);
        let (before, after) = (lines(args.old.lines().count()), lines(args.new.lines().count()));
        let kept = current.kept(new != args.new, &edited);
        let said = format!("edited '{}' at line {line}: {before} became {after}{kept}", found.shown);
        let content = current.with(&found, &edited)?;
        Ok(Self { found, old: current, content, said })
    }
}

/// Returns the offset of `old` if it occurs exactly once; overlapping occurrences count.
fn only_place(content: &str, old: &str, found: &Found) -> Result<usize, ToolError> {
    let shown = &found.shown;
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = content[from..].find(old) {
        places.push(from + at);
        from += at + step;
        if places.len() > MAX_PLACES {
            break;
        }
    }
    match places[..] {
        [at] => Ok(at),
        [] if content.contains("\r\n") && old.contains('\n') && !LineEnds::of(content).are_crlf() => {
            let note = LineEnds::of(content).note().unwrap_or_default();
            Err(ToolError::Failed(format!(
                "`old` does not occur in '{shown}', whose {note}: give a text within one line, or the line ends as they are"
            )))
        }
        [] => Err(ToolError::Failed(format!(
            "`old` does not occur in '{shown}'; read the file and copy the text exactly, without line numbers"
        ))),
        _ => {
            let mut at: Vec<String> = places
                .iter()
                .take(MAX_PLACES_SHOWN)
                .map(|place| line_of(content, *place).to_string())
                .collect();
            if places.len() > MAX_PLACES_SHOWN {
                at.push("…".into());
            }
            let times = match places.len() {
                count if count > MAX_PLACES => format!("more than {}", grouped(MAX_PLACES as u64)),
                count => count.to_string(),
            };
            Err(ToolError::Failed(format!(
                "`old` occurs {times} times in '{shown}', at lines {}; add text around it until it occurs once",
                at.join(", ")
            )))
        }
    }
}

/// Returns the line number of the byte at `at`.
fn line_of(content: &str, at: usize) -> usize {
    content[..at].matches('\n').count() + 1
}

pub(crate) fn lines(count: usize) -> String {
    match count {
        0 => "nothing".into(),
        1 => "1 line".into(),
        count => format!("{count} lines"),
    }
}

/// Formats the approval question: the removed and the added lines.
fn preview(args: &EditFile) -> String {
    let mut text = vec![format!("edit {}", printable_line(&args.path))];
    text.extend(changes(&args.old, &args.new));
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::{
        testing::{self, call, refusal},
        workspace::testing::TestWorkspace,
    };

    fn args(path: &str, old: &str, new: &str) -> Value {
        json!({"path": path, "old": old, "new": new})
    }

    /// Lists the files of the root, to check that nothing was left behind.
    fn names(place: &TestWorkspace) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(place.at("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn replaces_the_one_place() {
        let place = TestWorkspace::new();
        place.file("a", "one\ntwo\nthree\n");
        let tool = edit_file(&place.workspace);
        let text = call(&tool, args("a", "two\nthree", "2\n3\n4")).await;
        assert_eq!(text, "edited 'a' at line 2: 2 lines became 3 lines");
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "one\n2\n3\n4\n");
        assert_eq!(call(&tool, args("a", "one\n", "")).await, "edited 'a' at line 1: 1 line became nothing");
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "2\n3\n4\n");
        assert_eq!(names(&place), ["a"]);
    }

    #[tokio::test]
    async fn refuses_unclear_edits_and_leaves_the_file_alone() {
        let place = TestWorkspace::new();
        place.file("a", "x\ny\nx\naaa\n");
        place.file("mixed", "x\r\ny\nz\n");
        place.file("many", "z\n".repeat(1_002));
        let tool = edit_file(&place.workspace);
        for (args, expected) in [
            (args("a", "", "n"), "`old` is empty; give the text to replace (`write_file` makes files)"),
            (args("a", "y", "y"), "`old` and `new` are equal; nothing would change"),
            (
                args("a", "q", "n"),
                "`old` does not occur in 'a'; read the file and copy the text exactly, without line numbers",
            ),
            (
                args("a", "x", "n"),
                "`old` occurs 2 times in 'a', at lines 1, 3; add text around it until it occurs once",
            ),
            (
                args("a", "aa", "n"),
                "`old` occurs 2 times in 'a', at lines 4, 4; add text around it until it occurs once",
            ),
            (
                args("many", "z", "n"),
                "`old` occurs more than 1,000 times in 'many', at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …; add text \
                 around it until it occurs once",
            ),
            (
                args("mixed", "x\r\ny\r\nz", "n"),
                "`old` does not occur in 'mixed', whose line ends are mixed: some lines end in \\r\\n, others in \\n: give a \
                 text within one line, or the line ends as they are",
            ),
        ] {
            assert_eq!(refusal(&tool, args).await, expected);
        }
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "x\ny\nx\naaa\n");
        assert_eq!(names(&place), ["a", "many", "mixed"]);
    }

    #[tokio::test]
    async fn line_ends_and_the_encoding_stay_as_they_are() {
        let place = TestWorkspace::new();
        let utf16 = |text: &str| {
            [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
        };
        let tool = edit_file(&place.workspace);
        for (before, (old, new), said, after) in [
            (
                b"one\r\ntwo\r\n".to_vec(),
                ("one\ntwo", "1\n2\n3"),
                "2 lines became 3 lines, with the file's line ends \\r\\n",
                b"1\r\n2\r\n3\r\n".to_vec(),
            ),
            (
                b"one\r\ntwo\r\n".to_vec(),
                ("one\r\n", "1\n"),
                "1 line became 1 line; line ends are mixed: some lines end in \\r\\n, others in \\n",
                b"1\ntwo\r\n".to_vec(),
            ),
            (
                b"one\r\ntwo\nthree".to_vec(),
                ("three", "3"),
                "1 line became 1 line",
                b"one\r\ntwo\n3".to_vec(),
            ),
            (utf16("one\r\n"), ("one", "1é"), "1 line became 1 line, in UTF-16LE", utf16("1é\r\n")),
            (b"\xef\xbb\xbfone".to_vec(), ("one", "1"), "1 line became 1 line", b"\xef\xbb\xbf1".to_vec()),
            (
                b"# coding: latin1\ncaf\xe9".to_vec(),
                ("café", "thé"),
                "1 line became 1 line, in windows-1252",
                b"# coding: latin1\nth\xe9".to_vec(),
            ),
        ] {
            place.file("a", before);
            let text = call(&tool, args("a", old, new)).await;
            assert!(text.ends_with(said), "{text}");
            assert_eq!(fs::read(place.at("a")).unwrap(), after, "{text}");
        }
        let refused = refusal(&tool, args("a", "thé", "😀")).await;
        assert_eq!(refused, "path 'a' is windows-1252 text, which lacks some of the new characters");
    }

    #[tokio::test]
    async fn refuses_files_it_must_not_edit() {
        let place = TestWorkspace::new();
        place.file("dir/x", "");
        place.file("binary", b"a\0");
        place.file("latin1", b"caf\xe9");
        place.file("large", vec![b'a'; 4 << 20 | 1]);
        place.file("locked", "a");
        place.file(".git/config", "a");
        let mut permissions = fs::metadata(place.at("locked")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(place.at("locked"), permissions).unwrap();
        let tool = edit_file(&place.workspace);
        for (path, expected) in [
            ("../x", "path '../x' is outside the workspace root; use a path below it"),
            ("new", "path 'new' not found in the workspace"),
            ("dir", "path 'dir' is a directory; list it with `list_files`"),
            ("binary", "path 'binary' is a binary file of 2 bytes, not text"),
            ("latin1", "path 'latin1' is not UTF-8 text and cannot be edited"),
            ("large", "path 'large' is larger than 4,194,304 bytes, too large to edit"),
            ("locked", "path 'locked' is read-only"),
            (".git/config", "path '.git/config' is reserved: `.git` and `.superstep` are out of reach"),
        ] {
            assert_eq!(refusal(&tool, args(path, "a", "b")).await, expected);
        }
        assert_eq!(fs::read_to_string(place.at("locked")).unwrap(), "a");
        assert!(!place.at("new").exists());
    }

    #[tokio::test]
    async fn a_cancelled_edit_changes_nothing() {
        let place = TestWorkspace::new();
        place.file("a", "x");
        let outcome = testing::cancelled(&edit_file(&place.workspace), args("a", "x", "y")).await;
        assert_eq!(outcome, Err(ToolError::Failed("cancelled".into())));
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "x");
        assert_eq!(names(&place), ["a"]);
    }

    #[test]
    fn a_file_changed_since_it_was_read_is_not_overwritten() {
        let place = TestWorkspace::new();
        place.file("a", "x");
        let found = place.workspace.find("a").unwrap();
        let old = load(&place.workspace, &found).unwrap();
        // Same length and same modification time.
        place.file("a", "z");
        fs::File::options()
            .write(true)
            .open(place.at("a"))
            .unwrap()
            .set_modified(old.metadata.modified().unwrap())
            .unwrap();
        let turn = place.workspace.edit_turn().unwrap();
        let refused =
            replace(&place.workspace, &turn, &found, &old, b"y", &CancellationToken::new()).unwrap_err();
        assert_eq!(refused.to_string(), "path 'a' was replaced while it was in use; try again");
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "z");
        assert_eq!(names(&place), ["a"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parallel_edits_of_one_file_all_count() {
        let place = TestWorkspace::new();
        place.file("a", (0..16).map(|number| format!("<{number}>\n")).collect::<String>());
        let edits = (0..16).map(|number| {
            let tool = edit_file(&place.workspace);
            async move { call(&tool, args("a", &format!("<{number}>"), &format!("[{number}]"))).await }
        });
        futures::future::join_all(edits).await;
        let expected: String = (0..16).map(|number| format!("[{number}]\n")).collect();
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), expected);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn permissions_and_links_to_the_file_are_preserved() {
        use std::os::unix::fs::PermissionsExt;
        let place = TestWorkspace::new();
        place.file("script", "echo old");
        fs::set_permissions(place.at("script"), fs::Permissions::from_mode(0o751)).unwrap();
        place.link("link", "script");
        call(&edit_file(&place.workspace), args("link", "old", "new")).await;
        assert_eq!(fs::read_to_string(place.at("script")).unwrap(), "echo new");
        assert_eq!(fs::metadata(place.at("script")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(fs::symlink_metadata(place.at("link")).unwrap().is_symlink());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_reader_sees_the_old_or_the_new_file_as_a_whole() {
        use std::os::unix::fs::MetadataExt;
        let place = TestWorkspace::new();
        place.file("a", "old");
        let before = fs::File::open(place.at("a")).unwrap();
        call(&edit_file(&place.workspace), args("a", "old", "new")).await;
        // The old file was never written to; the new one replaced it.
        assert_ne!(before.metadata().unwrap().ino(), fs::metadata(place.at("a")).unwrap().ino());
        assert_eq!(io::read_to_string(before).unwrap(), "old");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn nothing_outside_is_edited_through_links() {
        let place = TestWorkspace::new();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        fs::write(place.dir.path().join("elsewhere/a"), "x").unwrap();
        place.link("file", "../elsewhere/a");
        place.link("dir", "../elsewhere");
        place.link("dangling", "../elsewhere/new");
        let tool = edit_file(&place.workspace);
        for path in ["file", "dir/a", "dangling"] {
            assert_eq!(
                refusal(&tool, args(path, "x", "y")).await,
                format!("path '{path}' is outside the workspace root; use a path below it")
            );
        }
        assert_eq!(fs::read_to_string(place.dir.path().join("elsewhere/a")).unwrap(), "x");
    }

    #[test]
    fn the_preview_shows_removed_and_added_lines() {
        let tool = edit_file(&TestWorkspace::new().workspace);
        let ask = |old: &str, new: &str| tool.approval(&args("src/a.rs", old, new)).unwrap();
        assert_eq!(ask("a\nb\nc", "a\nB\nB2\nc"), "edit src/a.rs\n-b\n+B\n+B2");
        assert_eq!(ask("b", ""), "edit src/a.rs\n-b");
        assert_eq!(ask("a\nb", "a\n"), "edit src/a.rs\n-b\n+");
        assert_eq!(ask("a", "a\nb"), "edit src/a.rs\n+b");
        let long = ask("x", &"y\n".repeat(30));
        assert!(long.ends_with("+y\n+… [11 more lines]"), "{long}");
        let wide = ask("x", &"é".repeat(100));
        assert_eq!(wide, format!("edit src/a.rs\n-x\n+{}… [40 more bytes]", "é".repeat(80)));
    }

    #[test]
    fn the_preview_cannot_play_tricks_on_a_terminal() {
        let tool = edit_file(&TestWorkspace::new().workspace);
        assert_eq!(
            tool.approval(&args("a\u{1b}[2K", "x\r", "\u{202e}y\t")).unwrap(),
            "edit a\\u{1b}[2K\n-x\\r\n+\\u{202e}y\t"
        );
    }

    #[test]
    fn an_edit_that_will_fail_never_waits_for_approval() {
        let tool = edit_file(&TestWorkspace::new().workspace);
        assert_eq!(tool.approval(&args("a", "", "y")), None);
        assert_eq!(tool.approval(&args("a", "y", "y")), None);
        assert_eq!(tool.approval(&json!({"path": "a"})), None);
    }
}
