//! `list_files`: lists the files below a directory.

use globset::{GlobBuilder, GlobSet};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};
use tokio_util::sync::CancellationToken;

use super::{
    Workspace, made_by, omitted, path,
    root::Found,
    walk::{Item, Walk},
};
use crate::call::{REPEATABLE, grouped, run_blocking};

const MAX_ENTRIES: usize = 1_000;
const MAX_GLOB_BYTES: usize = 1_000;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// The directory to list, with everything below it; the workspace root if left out.
    path: Option<String>,
    /// Lists only matching files: `*.rs` matches names at any depth, `src/**/*.rs` paths below `path`.
    glob: Option<String>,
}

/// The tool `list_files{path?, glob?}`: the files below a directory, one path a line, sorted.
///
/// Hidden files are listed; files that a `.gitignore` in the workspace excludes are not, nor are directories
/// by themselves.
// There is no tool `glob` beside it: two tools with the same purpose cost the model a decision, and small models
// decide wrongly.
pub fn list_files(workspace: &Workspace) -> impl Tool + use<> {
    let (workspace, about) = (workspace.clone(), workspace.clone());
    let spec = ToolSpec::of::<ListFiles>(
        "list_files",
        "Lists the files of the workspace, one path per line, sorted, at most 1,000. Leaves out what .gitignore \
         excludes. A link is shown as `link -> target`.",
    );
    let tool: FnTool<ListFiles, _> = tool_fn(spec, move |args: ListFiles, cx: ToolCx| {
        let workspace = workspace.of_call(&cx);
        run_blocking(cx, move |stop| list(&workspace, &args, stop))
    });
    let tool = tool.with_behaviour(REPEATABLE).with_changes_files(false).with_folder(made_by(list_files));
    tool.with_subject(move |argument, args| path(&about, argument, args, true))
}

fn list(workspace: &Workspace, args: &ListFiles, stop: &CancellationToken) -> Result<String, ToolError> {
    let start = workspace.permit(workspace.find(args.path.as_deref().unwrap_or("."))?, true)?;
    let glob = args.glob.as_deref().map(Glob::new).transpose()?;
    if !start.real.is_dir() {
        return Err(ToolError::Failed(format!(
            "path '{}' is not a directory; read a file with `read_file`",
            start.shown
        )));
    }
    let mut walk = Walk::new(workspace, &start, stop)?;
    let mut lines = Vec::new();
    let mut more = false;
    while let Some(item) = walk.next()? {
        if glob.as_ref().is_some_and(|glob| !glob.matches(&item, &start)) {
            continue;
        }
        if lines.len() == MAX_ENTRIES {
            more = true;
            break;
        }
        lines.push(line(workspace, &item));
    }
    let omitted = walk.omitted(!lines.is_empty());
    if lines.is_empty() {
        lines.push(match &args.glob {
            Some(glob) => format!("[no file in '{}' matches `{glob}`]", start.shown),
            None => format!("[no files in '{}']", start.shown),
        });
    }
    if more {
        let bound = grouped(MAX_ENTRIES as u64);
        lines.push(format!("[stopped at {bound} files: narrow it with `path` or `glob`]"));
    }
    lines.extend(omitted::note("listed", omitted));
    Ok(lines.join("\n"))
}

fn line(workspace: &Workspace, item: &Item) -> String {
    let shown = workspace.show(&item.real);
    if !item.is_link {
        return shown;
    }
    match workspace.find(&item.real) {
        Ok(target) => format!("{shown} -> {}", target.shown),
        Err(_) => format!("{shown} -> [leads nowhere in the workspace]"),
    }
}

struct Glob {
    matcher: GlobSet,
    by_name: bool,
}

impl Glob {
    fn new(text: &str) -> Result<Self, ToolError> {
        let wrong = |why: &dyn std::fmt::Display| ToolError::InvalidArguments(format!("`glob` {why}"));
        if text.len() > MAX_GLOB_BYTES {
            return Err(wrong(&format!("is longer than {MAX_GLOB_BYTES} bytes")));
        }
        let glob = GlobBuilder::new(text.strip_prefix("./").unwrap_or(text))
            .literal_separator(true)
            .build()
            .map_err(|error| wrong(&format!("is not a valid glob pattern: {error}")))?;
        let by_name = !glob.glob().contains('/');
        // A set reports a pattern that is too large as an error; a single matcher panics.
        let matcher =
            GlobSet::builder().add(glob).build().map_err(|error| wrong(&format!("is too large: {error}")))?;
        Ok(Self { by_name, matcher })
    }

    fn matches(&self, item: &Item, start: &Found) -> bool {
        if self.by_name {
            item.real.file_name().is_some_and(|name| self.matcher.is_match(name))
        } else {
            item.real.strip_prefix(&start.real).is_ok_and(|below| self.matcher.is_match(below))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        testing::{call, cancelled, refusal},
        workspace::testing::TestWorkspace,
    };

    #[tokio::test]
    async fn lists_files_sorted_with_hidden_ones() {
        let place = TestWorkspace::new();
        for path in ["b.txt", "a/z.rs", "a/b/c.rs", "a.txt", ".env", ".git/config", ".superstep/db", "B"] {
            place.file(path, "");
        }
        let tool = list_files(&place.workspace);
        assert_eq!(call(&tool, json!({})).await, ".env\nB\na/b/c.rs\na/z.rs\na.txt\nb.txt");
        assert_eq!(call(&tool, json!({"path": "a"})).await, "a/b/c.rs\na/z.rs");
    }

    #[tokio::test]
    async fn a_glob_matches_names_or_paths_below_the_listed_directory() {
        let place = TestWorkspace::new();
        for path in ["x.rs", "a/y.rs", "a/b/z.rs", "a/b/z.txt"] {
            place.file(path, "");
        }
        let tool = list_files(&place.workspace);
        assert_eq!(call(&tool, json!({"glob": "*.rs"})).await, "a/b/z.rs\na/y.rs\nx.rs");
        assert_eq!(call(&tool, json!({"glob": "a/*.rs"})).await, "a/y.rs");
        assert_eq!(call(&tool, json!({"glob": "./a/**/*.{rs,txt}"})).await, "a/b/z.rs\na/b/z.txt\na/y.rs");
        assert_eq!(call(&tool, json!({"path": "a", "glob": "b/*.rs"})).await, "a/b/z.rs");
        assert_eq!(
            call(&tool, json!({"path": "a", "glob": "*.md"})).await,
            "[no file in 'a' matches `*.md`]"
        );
    }

    #[tokio::test]
    async fn gitignore_is_respected_without_a_repository() {
        let place = TestWorkspace::new();
        place.file(".gitignore", "*.log\n/target/\nkeep/*\n!keep/this\n");
        place.file("sub/.gitignore", "!wanted.log\nlocal\n");
        for path in [
            "a.log",
            "target/x",
            "sub/target/x",
            "sub/b.log",
            "sub/wanted.log",
            "sub/local",
            "local",
            "keep/this",
            "keep/that",
        ] {
            place.file(path, "");
        }
        let tool = list_files(&place.workspace);
        let all = ".gitignore\nkeep/this\nlocal\nsub/.gitignore\nsub/target/x\nsub/wanted.log";
        assert_eq!(call(&tool, json!({})).await, all);
        assert_eq!(call(&tool, json!({"path": "sub"})).await, "sub/.gitignore\nsub/target/x\nsub/wanted.log");
        assert_eq!(
            call(&tool, json!({"glob": "*.md"})).await,
            "[no file in '.' matches `*.md`]\n\
             [not listed: 5 entries that .gitignore excludes (a.log, keep/that, sub/b.log, …)]"
        );
        // An ignored directory that is named explicitly is shown.
        assert_eq!(call(&tool, json!({"path": "target"})).await, "target/x");
    }

    #[tokio::test]
    async fn rules_above_the_root_do_not_count() {
        let place = TestWorkspace::new();
        std::fs::write(place.dir.path().join(".gitignore"), "*\n").unwrap();
        place.file("a", "");
        assert_eq!(call(&list_files(&place.workspace), json!({})).await, "a");
    }

    #[tokio::test]
    async fn the_rules_of_all_folders_together_are_limited() {
        let place = TestWorkspace::new();
        let tool = list_files(&place.workspace);
        let most = "x\n".repeat(5_000);
        place.file(".gitignore", &most);
        place.file("a/.gitignore", &most);
        // Rules beside it do not apply to it.
        place.file("b/.gitignore", &most);
        place.file("b/file", "# a comment\n");
        assert!(call(&tool, json!({})).await.ends_with("b/file"));
        place.file("a/b/.gitignore", "y\n");
        let refused = "path 'a/b/.gitignore' cannot be used: with those above it, it has more than 256 KiB or 10,000 patterns";
        for args in [json!({}), json!({"path": "a"}), json!({"path": "a/b"})] {
            assert_eq!(refusal(&tool, args).await, refused);
        }
        place.file("a/b/.gitignore", "# a comment\n\n");
        call(&tool, json!({"path": "a/b"})).await;
        place.file("a/.gitignore", "#".repeat((256 << 10) + 1));
        assert!(refusal(&tool, json!({})).await.ends_with(" it has more than 256 KiB or 10,000 patterns"));
        // Few bytes, and many patterns.
        place.file(".gitignore", "");
        for number in 0..21 {
            place.file(&format!("{number:02}/.gitignore"), &most);
        }
        let refused = "path '20/.gitignore' cannot be used: with those read before it, it has more than 4,096 KiB or \
                       100,000 patterns; name a folder with fewer of them";
        std::fs::remove_dir_all(place.at("a")).unwrap();
        std::fs::remove_dir_all(place.at("b")).unwrap();
        place.file("00/.gitignore", "x\n");
        place.file("01/.gitignore", "x\n".repeat(9_999));
        place.file("02/.gitignore", "y\n".repeat(5_000));
        assert_eq!(refusal(&tool, json!({})).await, refused);
    }

    #[tokio::test]
    async fn stops_at_a_thousand_files_with_a_note() {
        let place = TestWorkspace::new();
        for number in 0..1_000 {
            place.file(&format!("{number:04}"), "");
        }
        let tool = list_files(&place.workspace);
        let text = call(&tool, json!({})).await;
        assert_eq!(text.lines().count(), 1_000);
        assert_eq!(text.lines().last(), Some("0999"));
        place.file("1000", "");
        let text = call(&tool, json!({})).await;
        assert_eq!(text.lines().count(), 1_001);
        assert_eq!(text.lines().last(), Some("[stopped at 1,000 files: narrow it with `path` or `glob`]"));
    }

    #[tokio::test]
    async fn rejects_invalid_patterns_and_folders() {
        let place = TestWorkspace::new();
        place.file("file", "");
        let tool = list_files(&place.workspace);
        for (args, expected) in [
            (json!({"path": "../x"}), "path '../x' is outside the workspace root; use a path below it"),
            (json!({"path": "x"}), "path 'x' not found in the workspace"),
            (json!({"path": "file"}), "path 'file' is not a directory; read a file with `read_file`"),
            (
                json!({"glob": "a{"}),
                "`glob` is not a valid glob pattern: error parsing glob 'a{': unclosed alternate group; \
                 missing '}' (maybe escape '{' with '[{]'?)",
            ),
            (json!({"glob": "a".repeat(1_001)}), "`glob` is longer than 1000 bytes"),
            (json!({"glob": "{".repeat(100_000) + &"}".repeat(100_000)}), "`glob` is longer than 1000 bytes"),
        ] {
            assert_eq!(refusal(&tool, args).await, expected);
        }
        assert_eq!(cancelled(&tool, json!({})).await, Err(ToolError::Failed("cancelled".into())));
    }

    #[tokio::test]
    async fn an_empty_workspace_is_reported_as_empty() {
        assert_eq!(call(&list_files(&TestWorkspace::new().workspace), json!({})).await, "[no files in '.']");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn links_are_shown_and_never_followed() {
        let place = TestWorkspace::new();
        std::fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        std::fs::write(place.dir.path().join("elsewhere/secret"), "").unwrap();
        place.file("dir/file", "");
        place.link("away", "../elsewhere");
        place.link("gone", "missing");
        place.link("near", "dir");
        place.link("dir/up", "..");
        place.fifo("pipe");
        assert_eq!(
            call(&list_files(&place.workspace), json!({})).await,
            "away -> [leads nowhere in the workspace]\ndir/file\ndir/up -> .\n\
             gone -> [leads nowhere in the workspace]\nnear -> dir\npipe"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn ignore_files_that_are_links_or_pipes_are_not_read() {
        let place = TestWorkspace::new();
        std::fs::write(place.dir.path().join("rules"), "*\n").unwrap();
        place.file("a/x", "");
        place.file("b/y", "");
        place.link("a/.gitignore", "../../rules");
        place.fifo("b/.gitignore");
        assert_eq!(call(&list_files(&place.workspace), json!({"glob": "[xy]"})).await, "a/x\nb/y");
    }
}
