//! `write_file`: creates a file or replaces its content, after approval.

use std::{borrow::Cow, io, path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_llm::{
    Behaviour, Subject, Tool, ToolCx, ToolError, ToolFuture, ToolSpec, text::printable_line,
};
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    content::{MAX_FILE_BYTES, load},
    edit::lines,
    path,
    store::{create, replace},
};
use crate::{
    call::{REPEATABLE, change, check_stop, grouped},
    question::changes,
    text::LineEnds,
};

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// The file to write; folders that are missing on the way to it are made.
    path: String,
    /// The whole content of the file, as text.
    content: String,
}

impl WriteFile {
    /// Checks the arguments alone.
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let args = Self::deserialize(args).map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
        if args.path.is_empty() || args.path.ends_with('/') {
            return Err(ToolError::InvalidArguments("`path` names no file".into()));
        }
        if args.content.len() as u64 > MAX_FILE_BYTES {
            let most = grouped(MAX_FILE_BYTES);
            return Err(ToolError::InvalidArguments(format!("`content` is longer than {most} bytes")));
        }
        Ok(args)
    }
}

/// The tool `write_file{path, content}`: creates a file or replaces its content, after approval.
///
/// A file is written atomically, and a file that appears or changes in the meantime is not overwritten. A
/// replaced file must be writable text of at most 4 MiB; its permissions, its encoding and line ends that are all `\r\n` are
/// preserved.
pub fn write_file(workspace: &Workspace) -> impl Tool + use<> {
    Write {
        workspace: workspace.clone(),
        spec: ToolSpec::of::<WriteFile>(
            "write_file",
            "Writes a file of the workspace: makes a new one, or replaces everything in one that exists. To change a \
             part of a file use `edit_file`. A person may be asked first.",
        ),
    }
}

struct Write {
    workspace: Workspace,
    spec: ToolSpec,
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        // A repeated call has the same result as one call.
        REPEATABLE
    }

    fn approval(&self, args: &Value) -> Option<String> {
        // Approval depends on the arguments alone: the disk may change after the question.
        let WriteFile { path, content } = WriteFile::parse(args).ok()?;
        let (old, verb) = match self.workspace.place(Path::new(&path)) {
            Ok((found, true)) => {
                (load(&self.workspace, &found).map(|old| old.text).unwrap_or_default(), "replace")
            }
            Ok((_, false)) | Err(_) => (String::new(), "make"),
        };
        let mut text = vec![format!("{verb} {}, {}", printable_line(&path), lines(content.lines().count()))];
        text.extend(changes(&old, &written(&old, &content)));
        Some(text.join("\n"))
    }

    fn changes_files(&self) -> Option<bool> {
        Some(true)
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        path(&self.workspace, argument, args, false)
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        Ok(Some(Arc::new(Self { workspace: Workspace::open_real(folder)?, spec: self.spec.clone() })))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let args = WriteFile::parse(&args)?;
            let workspace = self.workspace.of_call(&cx);
            change(cx, move |stop| write(&workspace, &args, stop)).await.map(Into::into)
        })
    }
}

fn write(workspace: &Workspace, args: &WriteFile, stop: &CancellationToken) -> Result<String, ToolError> {
    let turn = workspace.edit_turn()?;
    check_stop(stop)?;
    let (found, exists) = workspace.place(Path::new(&args.path))?;
    let found = workspace.permit(found, false)?;
    let now = lines(args.content.lines().count());
    if !exists {
        create(workspace, &turn, &found, &args.content, stop)?;
        return Ok(format!("made '{}': {now}", found.shown));
    }
    let old = load(workspace, &found)?;
    let content = written(&old.text, &args.content);
    replace(workspace, &turn, &found, &old, &old.with(&found, &content)?, stop)?;
    let (before, kept) = (lines(old.text.lines().count()), old.kept(content != args.content, &content));
    Ok(format!("replaced '{}': {before} became {now}{kept}", found.shown))
}

/// Returns the text that replaces another one: lines end like those of the old one, and its byte order mark stays alone.
fn written<'a>(old: &str, content: &'a str) -> Cow<'a, str> {
    if content.contains("\r\n") { content.into() } else { LineEnds::of(old).kept_in(content) }
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

    fn args(path: &str, content: &str) -> Value {
        json!({"path": path, "content": content})
    }

    #[tokio::test]
    async fn makes_files_with_their_folders_and_replaces_them() {
        let place = TestWorkspace::new();
        let tool = write_file(&place.workspace);
        assert_eq!(call(&tool, args("a/b/c.txt", "one\ntwo\n")).await, "made 'a/b/c.txt': 2 lines");
        assert_eq!(fs::read_to_string(place.at("a/b/c.txt")).unwrap(), "one\ntwo\n");
        let text = call(&tool, args("a/./b/c.txt", "")).await;
        assert_eq!(text, "replaced 'a/b/c.txt': 2 lines became nothing");
        assert_eq!(fs::read_to_string(place.at("a/b/c.txt")).unwrap(), "");
        assert_eq!(fs::read_dir(place.at("a/b")).unwrap().count(), 1, "nothing is left behind");
    }

    #[tokio::test]
    async fn a_replaced_file_keeps_its_encoding_and_line_ends() {
        let place = TestWorkspace::new();
        place.file("dos", "\u{feff}one\r\ntwo\r\n");
        let tool = write_file(&place.workspace);
        assert_eq!(tool.approval(&args("dos", "one\n2\n")).unwrap(), "replace dos, 2 lines\n-two\\r\n+2\\r");
        let text = call(&tool, args("dos", "one\n2\n")).await;
        assert_eq!(text, "replaced 'dos': 2 lines became 2 lines, with the file's line ends \\r\\n");
        assert_eq!(fs::read_to_string(place.at("dos")).unwrap(), "\u{feff}one\r\n2\r\n");
    }

    #[tokio::test]
    async fn rejects_forbidden_paths() {
        let place = TestWorkspace::new();
        place.file("dir/x", "");
        place.file("binary", b"a\0");
        let tool = write_file(&place.workspace);
        for (path, expected) in [
            ("", "`path` names no file"),
            ("new/", "`path` names no file"),
            (".", "path '.' is a directory; list it with `list_files`"),
            ("dir", "path 'dir' is a directory; list it with `list_files`"),
            ("dir/x/y", "path 'dir/x' is not a directory"),
            ("binary", "path 'binary' is a binary file of 2 bytes, not text"),
            ("../x", "path '../x' is outside the workspace root; use a path below it"),
            ("new/../../x", "path 'new/../../x' is outside the workspace root; use a path below it"),
            (".git/x", "path '.git/x' is reserved: `.git` and `.superstep` are out of reach"),
            (
                "new/.superstep/x",
                "path 'new/.superstep/x' is reserved: `.git` and `.superstep` are out of reach",
            ),
        ] {
            assert_eq!(refusal(&tool, args(path, "new")).await, expected);
            assert_eq!(
                tool.approval(&args(path, "new")).is_none(),
                path.is_empty() || path == "new/",
                "{path}"
            );
        }
        let long = refusal(&tool, args("long", &"x".repeat((4 << 20) + 1))).await;
        assert_eq!(long, "`content` is longer than 4,194,304 bytes");
        for path in ["a\0b", &"a".repeat(5_000)] {
            assert!(refusal(&tool, args(path, "")).await.contains("cannot be resolved"));
        }
        assert!(!place.at("new").exists() && !place.dir.path().join("x").exists());
    }

    #[tokio::test]
    async fn a_cancelled_write_changes_nothing() {
        let place = TestWorkspace::new();
        let outcome = testing::cancelled(&write_file(&place.workspace), args("a/b", "x")).await;
        assert_eq!(outcome, Err(ToolError::Failed("cancelled".into())));
        assert!(!place.at("a").exists());
    }

    #[test]
    fn a_file_that_appeared_in_the_meantime_is_not_overwritten() {
        let place = TestWorkspace::new();
        let (found, exists) = place.workspace.place(Path::new("a")).unwrap();
        assert!(!exists);
        place.file("a", "by somebody else");
        let turn = place.workspace.edit_turn().unwrap();
        let refused = create(&place.workspace, &turn, &found, "x", &CancellationToken::new()).unwrap_err();
        assert_eq!(refused.to_string(), "path 'a' was replaced while it was in use; try again");
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "by somebody else");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn nothing_outside_is_written_through_links() {
        let place = TestWorkspace::new();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        place.link("dir", "../elsewhere");
        place.link("dangling", "../elsewhere/new");
        place.link("near", "made");
        let tool = write_file(&place.workspace);
        for path in ["dir/a", "dir/a/b", "dangling"] {
            assert_eq!(
                refusal(&tool, args(path, "y")).await,
                format!("path '{path}' is outside the workspace root; use a path below it")
            );
        }
        // A dangling link stays a link, and its target is created.
        assert_eq!(call(&tool, args("near", "y\n")).await, "made 'made': 1 line");
        assert!(fs::symlink_metadata(place.at("near")).unwrap().is_symlink());
        assert_eq!(fs::read_dir(place.dir.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_takes_the_place_of_a_folder_is_seen() {
        let place = TestWorkspace::new();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        let (found, _) = place.workspace.place(Path::new("dir/a/b")).unwrap();
        place.link("dir", "../elsewhere");
        let turn = place.workspace.edit_turn().unwrap();
        let refused = create(&place.workspace, &turn, &found, "x", &CancellationToken::new()).unwrap_err();
        assert_eq!(refused.to_string(), "path 'dir' was replaced while it was in use; try again");
        assert_eq!(fs::read_dir(place.dir.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_new_file_has_default_permissions_and_an_existing_one_retains_its_own() {
        use std::os::unix::fs::PermissionsExt;
        let place = TestWorkspace::new();
        place.file("usual", "");
        place.file("script", "");
        fs::set_permissions(place.at("script"), fs::Permissions::from_mode(0o751)).unwrap();
        let tool = write_file(&place.workspace);
        call(&tool, args("new", "x")).await;
        call(&tool, args("script", "x")).await;
        let mode = |path| fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("new"), mode("script")), (mode("usual"), 0o751));
    }

    #[test]
    fn the_question_states_whether_a_file_is_replaced() {
        let place = TestWorkspace::new();
        place.file("old", "a\nb\nc\n");
        let tool = write_file(&place.workspace);
        let ask = |path: &str, content: &str| tool.approval(&args(path, content)).unwrap();
        assert_eq!(ask("new", "x\ny\n"), "make new, 2 lines\n+x\n+y");
        assert_eq!(ask("old", "a\nB\nc\n"), "replace old, 3 lines\n-b\n+B");
    }
}
