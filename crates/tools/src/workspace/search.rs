//! `search_files`: finds the lines that match a regular expression.

use std::io;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch, sinks::Bytes,
};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};
use tokio_util::sync::CancellationToken;

use super::{Workspace, content::binary, made_by, path, root::Found, walk::Walk};
use crate::call::{REPEATABLE, Stoppable, check_stop, grouped, run_blocking};

const MAX_MATCHES: usize = 200;
const MAX_PATTERN_BYTES: usize = 1_000;
/// Maximum size of a compiled pattern in bytes.
const MAX_COMPILED_BYTES: usize = 4 << 20;
const MAX_LINE_BYTES: usize = 300;
/// Size of the shown window of a long line; windows overlap by half.
const WINDOW_BYTES: usize = 240;
/// Prefix of a long line in which the match is located; costs one search per window.
const MAX_LOOK_BYTES: usize = 64 << 10;
/// A file with a longer line is not treated as text.
const MAX_BUFFER_BYTES: usize = 8 << 20;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchFiles {
    /// A regular expression in Rust syntax, matched line by line; begin with `(?i)` to ignore case.
    pattern: String,
    /// The file or directory to search; the workspace root if left out.
    path: Option<String>,
}

/// The tool `search_files{pattern, path?}`: matching lines as `path:line: text`, sorted, at most 200.
///
/// Searches the files that `list_files` lists, except binary files and links; a link's target is found at its
/// own path.
pub fn search_files(workspace: &Workspace) -> impl Tool + use<> {
    let (workspace, about) = (workspace.clone(), workspace.clone());
    let spec = ToolSpec::of::<SearchFiles>(
        "search_files",
        "Searches the text files of the workspace for a regular expression. Answers with lines `path:line: text`, \
         sorted, at most 200. Leaves out what .gitignore excludes.",
    );
    let tool: FnTool<SearchFiles, _> = tool_fn(spec, move |args: SearchFiles, cx: ToolCx| {
        let workspace = workspace.of_call(&cx);
        run_blocking(cx, move |stop| search(&workspace, &args, stop))
    });
    let tool = tool.with_behaviour(REPEATABLE).with_changes_files(false).with_folder(made_by(search_files));
    tool.with_subject(move |argument, args| path(&about, argument, args, true))
}

fn search(workspace: &Workspace, args: &SearchFiles, stop: &CancellationToken) -> Result<String, ToolError> {
    if args.pattern.is_empty() {
        return Err(ToolError::InvalidArguments("`pattern` is empty; list files with `list_files`".into()));
    }
    if args.pattern.len() > MAX_PATTERN_BYTES {
        let text = format!("`pattern` is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(ToolError::InvalidArguments(text));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.line_terminator(Some(b'\n')).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES);
    let matcher = builder.build(&args.pattern).map_err(|error| {
        ToolError::InvalidArguments(format!(
            "`pattern` is not a valid regular expression for one line: {error}"
        ))
    })?;
    let start = workspace.permit(workspace.find_to_read(args.path.as_deref().unwrap_or("."))?, true)?;
    let mut hunt = SearchRun::new(workspace, matcher, stop);
    let mut unreadable = 0;
    if start.real.is_dir() {
        let mut walk = Walk::new(workspace, &start, stop)?;
        while let Some(item) = walk.next()? {
            if item.is_link {
                continue;
            }
            let found = Found { shown: workspace.show(&item.real), real: item.real };
            hunt.file(&found)?;
            if hunt.more {
                break;
            }
        }
        unreadable = walk.unreadable.len();
    } else {
        let (_, metadata) = workspace.open_file(&start)?;
        hunt.file(&start)?;
        if hunt.binary > 0 && hunt.lines.is_empty() {
            return Err(binary(&start, metadata.len()));
        }
    }
    Ok(hunt.finish(&start, unreadable))
}

struct SearchRun<'a> {
    workspace: &'a Workspace,
    stop: &'a CancellationToken,
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: Vec<String>,
    more: bool,
    searched: u64,
    binary: u64,
    failed: u64,
}

impl<'a> SearchRun<'a> {
    fn new(workspace: &'a Workspace, matcher: RegexMatcher, stop: &'a CancellationToken) -> Self {
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .bom_sniffing(false)
            .heap_limit(Some(MAX_BUFFER_BYTES))
            .line_number(true)
            .memory_map(MmapChoice::never())
            .build();
        Self {
            workspace,
            stop,
            matcher,
            searcher,
            lines: Vec::new(),
            more: false,
            searched: 0,
            binary: 0,
            failed: 0,
        }
    }

    /// Searches one file; an unreadable file is counted.
    fn file(&mut self, found: &Found) -> Result<(), ToolError> {
        let Ok((file, _)) = self.workspace.open_file(found) else {
            self.failed += 1;
            return Ok(());
        };
        let reader = Stoppable { inner: file, stop: self.stop };
        let mut sink = Collect {
            shown: &found.shown,
            matcher: &self.matcher,
            lines: &mut self.lines,
            more: false,
            binary: false,
        };
        let outcome = self.searcher.search_reader(&self.matcher, reader, &mut sink);
        self.more = sink.more;
        self.binary += u64::from(sink.binary);
        match outcome {
            Ok(()) => self.searched += 1,
            Err(_) => {
                check_stop(self.stop)?;
                self.failed += 1;
            }
        }
        Ok(())
    }

    fn finish(mut self, start: &Found, unreadable_dirs: usize) -> String {
        if self.lines.is_empty() {
            let text = self.searched - self.binary;
            self.lines.push(format!("[no match in {} text files of '{}']", grouped(text), start.shown));
        }
        if self.more {
            self.lines
                .push(format!("[stopped at {MAX_MATCHES} matches: narrow it with `pattern` or `path`]"));
        }
        if self.failed > 0 || unreadable_dirs > 0 {
            self.lines.push(format!(
                "[{} files and {unreadable_dirs} directories could not be searched]",
                grouped(self.failed)
            ));
        }
        self.lines.join("\n")
    }
}

struct Collect<'a> {
    shown: &'a str,
    matcher: &'a RegexMatcher,
    lines: &'a mut Vec<String>,
    more: bool,
    binary: bool,
}

impl Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.lines.len() == MAX_MATCHES {
            self.more = true;
            return Ok(false);
        }
        let number = found.line_number().expect("the searcher counts lines");
        let mut bytes = found.bytes();
        bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        self.lines.push(format!("{}:{number}: {}", self.shown, around(self.matcher, &text)));
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Returns a line, or the window of a long line that contains the match.
fn around(matcher: &RegexMatcher, line: &str) -> String {
    if line.len() <= MAX_LINE_BYTES {
        return line.into();
    }
    let mut searcher = SearcherBuilder::new().build();
    let window = |from: usize| {
        let end = line.floor_char_boundary(from + WINDOW_BYTES);
        (line.floor_char_boundary(from), end)
    };
    // The window that matches by itself; the start of the line if only the whole line matches, or the match
    // is too far off.
    let (from, end) = (0..line.len().min(MAX_LOOK_BYTES))
        .step_by(WINDOW_BYTES / 2)
        .map(window)
        .find(|&(from, end)| {
            let mut hit = false;
            let sink = Bytes(|_, _| {
                hit = true;
                Ok(false)
            });
            searcher.search_slice(matcher, &line.as_bytes()[from..end], sink).is_ok() && hit
        })
        .unwrap_or_else(|| window(0));
    let before = if from > 0 { "…" } else { "" };
    let after = if end < line.len() { "…" } else { "" };
    format!("{before}{}{after}", &line[from..end])
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
    async fn finds_lines_sorted_by_path() {
        let place = TestWorkspace::new();
        place.file("b.txt", "none\nfn two() {}\r\n");
        place.file("a/x.rs", "fn one() {}\n\n\tfn three() {}");
        let tool = search_files(&place.workspace);
        assert_eq!(
            call(&tool, json!({"pattern": r"^\s*fn \w+"})).await,
            "a/x.rs:1: fn one() {}\na/x.rs:3: \tfn three() {}\nb.txt:2: fn two() {}"
        );
        assert_eq!(
            call(&tool, json!({"pattern": "(?i)FN T", "path": "a"})).await,
            "a/x.rs:3: \tfn three() {}"
        );
        assert_eq!(call(&tool, json!({"pattern": "fn", "path": "b.txt"})).await, "b.txt:2: fn two() {}");
        assert_eq!(call(&tool, json!({"pattern": "nothing"})).await, "[no match in 2 text files of '.']");
    }

    #[tokio::test]
    async fn ignored_reserved_and_binary_files_are_left_out() {
        let place = TestWorkspace::new();
        place.file(".gitignore", "ignored\n");
        for path in ["ignored", ".git/x", ".superstep/x", "seen"] {
            place.file(path, "needle\n");
        }
        place.file("binary", b"\0\nneedle\n");
        let tool = search_files(&place.workspace);
        assert_eq!(call(&tool, json!({"pattern": "needle"})).await, "seen:1: needle");
        // A file that is named explicitly is searched.
        assert_eq!(call(&tool, json!({"pattern": "needle", "path": "ignored"})).await, "ignored:1: needle");
    }

    #[tokio::test]
    async fn stops_at_two_hundred_matches_with_a_note() {
        let place = TestWorkspace::new();
        place.file("a", "x\n".repeat(150));
        place.file("b", "x\n".repeat(50));
        let tool = search_files(&place.workspace);
        let text = call(&tool, json!({"pattern": "x"})).await;
        assert_eq!((text.lines().count(), text.lines().last()), (200, Some("b:50: x")));
        place.file("b", "x\n".repeat(51));
        let text = call(&tool, json!({"pattern": "x"})).await;
        assert_eq!(text.lines().count(), 201);
        assert_eq!(text.lines().last(), Some("[stopped at 200 matches: narrow it with `pattern` or `path`]"));
    }

    #[tokio::test]
    async fn a_long_line_is_cut_around_the_match() {
        let place = TestWorkspace::new();
        place.file("a", format!("{}needle{}", "é".repeat(5_000), "x".repeat(5_000)));
        place.file("b", format!("needle{}", "y".repeat(1_000)));
        let tool = search_files(&place.workspace);
        let text = call(&tool, json!({"pattern": "needle"})).await;
        let (a, b) = text.split_once('\n').unwrap();
        assert!(a.starts_with("a:1: …é") && a.contains("needle") && a.ends_with("x…"), "{a}");
        assert!(a.len() < MAX_LINE_BYTES, "{a}");
        assert_eq!(b, format!("b:1: needle{}…", "y".repeat(WINDOW_BYTES - "needle".len())));
        // A match longer than the shown window.
        let text = call(&tool, json!({"pattern": "^needle.*y$"})).await;
        assert!(text.starts_with("b:1: needleyyy") && text.ends_with("y…"), "{text}");
    }

    #[tokio::test]
    async fn invalid_utf8_is_searched_and_shown_as_well_as_it_can() {
        let place = TestWorkspace::new();
        place.file("a", b"caf\xe9 needle\n");
        let text = call(&search_files(&place.workspace), json!({"pattern": "needle"})).await;
        assert_eq!(text, "a:1: caf\u{fffd} needle");
    }

    #[tokio::test]
    async fn a_line_too_long_to_hold_is_counted_as_not_searched() {
        let place = TestWorkspace::new();
        place.file("a", "x".repeat(MAX_BUFFER_BYTES + 1));
        place.file("b", "x\n");
        assert_eq!(
            call(&search_files(&place.workspace), json!({"pattern": "x$"})).await,
            "b:1: x\n[1 files and 0 directories could not be searched]"
        );
    }

    #[tokio::test]
    async fn rejects_invalid_patterns_and_folders() {
        let place = TestWorkspace::new();
        place.file("binary", b"\0");
        let tool = search_files(&place.workspace);
        for (args, expected) in [
            (
                json!({"pattern": "a", "path": "../x"}),
                "path '../x' is outside the workspace root; use a path below it",
            ),
            (json!({"pattern": "a", "path": "x"}), "path 'x' not found in the workspace"),
            (
                json!({"pattern": "a", "path": "binary"}),
                "path 'binary' is a binary file of 1 bytes, not text",
            ),
            (json!({"pattern": ""}), "`pattern` is empty; list files with `list_files`"),
            (
                json!({"pattern": r"a\nb"}),
                "`pattern` is not a valid regular expression for one line: the literal \"\\n\" is not \
                 allowed in a regex",
            ),
        ] {
            assert_eq!(refusal(&tool, args).await, expected);
        }
        let text = refusal(&tool, json!({"pattern": "a("})).await;
        assert!(
            text.starts_with("`pattern` is not a valid regular expression for one line: regex parse error"),
            "{text}"
        );
        assert_eq!(
            cancelled(&tool, json!({"pattern": "a"})).await,
            Err(ToolError::Failed("cancelled".into()))
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn links_and_pipes_are_not_searched() {
        let place = TestWorkspace::new();
        std::fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        std::fs::write(place.dir.path().join("elsewhere/secret"), "needle").unwrap();
        place.file("a", "needle");
        place.link("file", "../elsewhere/secret");
        place.link("dir", "../elsewhere");
        place.link("again", "a");
        place.fifo("pipe");
        let tool = search_files(&place.workspace);
        assert_eq!(
            call(&tool, json!({"pattern": "needle"})).await,
            "a:1: needle\n[1 files and 0 directories could not be searched]"
        );
        assert_eq!(
            refusal(&tool, json!({"pattern": "needle", "path": "dir"})).await,
            "path 'dir' is outside the workspace root; use a path below it"
        );
    }
}
