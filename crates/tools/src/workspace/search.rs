//! `search_files`: finds the lines that match a regular expression.

use std::io;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{MmapChoice, Searcher, SearcherBuilder, Sink, SinkMatch, sinks::Bytes};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    content::binary,
    made_by,
    omitted::{self, Names},
    path,
    root::Found,
    walk::Walk,
};
use crate::{
    call::{REPEATABLE, Stoppable, check_stop, grouped, run_blocking},
    text,
};

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
/// own path. The result names what was not searched. `$` matches before `\r\n`, too, and `^` after a byte order mark.
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
    if args.pattern.contains("\\r") || args.pattern.contains('\r') {
        builder.line_terminator(Some(b'\n'))
    } else {
        builder.crlf(true)
    };
    builder.multi_line(true).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES);
    let matcher = builder.build(&args.pattern).map_err(|error| {
        ToolError::InvalidArguments(format!(
            "`pattern` is not a valid regular expression for one line: {error}"
        ))
    })?;
    let start = workspace.permit(workspace.find_to_read(args.path.as_deref().unwrap_or("."))?, true)?;
    let mut hunt = SearchRun::new(workspace, matcher, stop);
    let mut omitted = [None, None];
    if start.real.is_dir() {
        let mut walk = Walk::new(workspace, &start, stop)?;
        while let Some(item) = walk.next()? {
            let found = Found { shown: workspace.show(&item.real), real: item.real };
            if item.is_link {
                hunt.links.push(found.shown);
                continue;
            }
            hunt.file(&found)?;
            if hunt.more {
                break;
            }
        }
        omitted = walk.omitted(!hunt.lines.is_empty());
    } else {
        let (_, metadata) = workspace.open_file(&start)?;
        hunt.file(&start)?;
        if hunt.binary.count() > 0 {
            return Err(binary(&start, metadata.len()));
        }
    }
    Ok(hunt.finish(&start, omitted))
}

struct SearchRun<'a> {
    workspace: &'a Workspace,
    stop: &'a CancellationToken,
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: Vec<String>,
    more: bool,
    /// `true` if a line is not shown as a whole.
    is_cut: bool,
    searched: u64,
    binary: Names,
    failed: Names,
    links: Names,
}

impl<'a> SearchRun<'a> {
    fn new(workspace: &'a Workspace, matcher: RegexMatcher, stop: &'a CancellationToken) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(line_end(&matcher))
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
            is_cut: false,
            searched: 0,
            binary: Names::default(),
            failed: Names::default(),
            links: Names::default(),
        }
    }

    /// Searches one file; a file that is not searched is noted.
    fn file(&mut self, found: &Found) -> Result<(), ToolError> {
        match self.text(found) {
            Ok(true) => self.searched += 1,
            Ok(false) => self.binary.push(&*found.shown),
            Err(_) => {
                check_stop(self.stop)?;
                self.failed.push(&*found.shown);
            }
        }
        Ok(())
    }

    /// Searches one file; `false` if it is not text.
    fn text(&mut self, found: &Found) -> io::Result<bool> {
        let (file, _) = self.workspace.open_file(found).map_err(io::Error::other)?;
        let opened = text::open(Stoppable { inner: file, stop: self.stop })?;
        if opened.is_binary {
            return Ok(false);
        }
        let mut sink = Collect {
            shown: &found.shown,
            matcher: &self.matcher,
            lines: &mut self.lines,
            more: false,
            is_cut: false,
        };
        let outcome = self.searcher.search_reader(&self.matcher, opened.text, &mut sink);
        self.more = sink.more;
        self.is_cut |= sink.is_cut;
        outcome.map(|()| true)
    }

    fn finish(mut self, start: &Found, [unreadable, ignored]: [Option<String>; 2]) -> String {
        if self.lines.is_empty() {
            self.lines.push(format!(
                "[no match in {} text files of '{}']",
                grouped(self.searched),
                start.shown
            ));
        }
        if self.more {
            self.lines
                .push(format!("[stopped at {MAX_MATCHES} matches: narrow it with `pattern` or `path`]"));
        }
        if self.is_cut {
            self.lines.push(format!("[lines of more than {MAX_LINE_BYTES} bytes are cut at …]"));
        }
        let failed = (
            "file that cannot be read or has a line of more than 8 MiB",
            "files that cannot be read or have lines of more than 8 MiB",
        );
        let omitted = [
            self.binary.described("binary file", "binary files"),
            self.failed.described(failed.0, failed.1),
            unreadable,
            self.links.described("link", "links"),
            ignored,
        ];
        self.lines.extend(omitted::note("searched", omitted));
        self.lines.join("\n")
    }
}

struct Collect<'a> {
    shown: &'a str,
    matcher: &'a RegexMatcher,
    lines: &'a mut Vec<String>,
    more: bool,
    is_cut: bool,
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
        self.is_cut |= text.len() > MAX_LINE_BYTES;
        self.lines.push(format!("{}:{number}: {}", self.shown, around(self.matcher, &text)));
        Ok(true)
    }
}

/// Returns the line end of a pattern.
fn line_end(matcher: &RegexMatcher) -> LineTerminator {
    matcher.line_terminator().unwrap_or_else(|| LineTerminator::byte(b'\n'))
}

/// Returns a line, or the window of a long line that contains the match.
fn around(matcher: &RegexMatcher, line: &str) -> String {
    if line.len() <= MAX_LINE_BYTES {
        return line.into();
    }
    let mut searcher = SearcherBuilder::new().line_terminator(line_end(matcher)).build();
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
        let omitted = "[not searched: 1 binary file (binary)]";
        assert_eq!(call(&tool, json!({"pattern": "needle"})).await, format!("seen:1: needle\n{omitted}"));
        assert_eq!(
            call(&tool, json!({"pattern": "nail"})).await,
            "[no match in 2 text files of '.']\n\
             [not searched: 1 binary file (binary); 1 entry that .gitignore excludes (ignored)]"
        );
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
        let [a, b, note] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(note, "[lines of more than 300 bytes are cut at …]");
        assert!(a.starts_with("a:1: …é") && a.contains("needle") && a.ends_with("x…"), "{a}");
        assert!(a.len() < MAX_LINE_BYTES, "{a}");
        assert_eq!(b, format!("b:1: needle{}…", "y".repeat(WINDOW_BYTES - "needle".len())));
        // A match longer than the shown window.
        let text = call(&tool, json!({"pattern": "^needle.*y$"})).await;
        assert!(text.starts_with("b:1: needleyyy") && text.contains("y…\n[lines"), "{text}");
    }

    #[tokio::test]
    async fn invalid_utf8_is_searched_and_shown_as_well_as_it_can() {
        let place = TestWorkspace::new();
        place.file("a", b"caf\xe9 needle\n");
        let text = call(&search_files(&place.workspace), json!({"pattern": "needle"})).await;
        assert_eq!(text, "a:1: caf\u{fffd} needle");
    }

    #[tokio::test]
    async fn every_text_is_searched_line_by_line_whatever_its_form() {
        let place = TestWorkspace::new();
        place.file("dos", "x = 1;\r\ny\r\n");
        place.file("marked", "\u{feff}using x;\n");
        place.file("wide", b"\xff\xfeu\0s\0i\0n\0g\0 \0\xe9\0;\0\r\0\n\0");
        place.file("latin", b"# coding: latin1\nusing \xe9;\n");
        place.file("late", [&b"using a;\n".repeat(10_000)[..], b"\0\nusing z;\n"].concat());
        let tool = search_files(&place.workspace);
        assert_eq!(call(&tool, json!({"pattern": "1;$"})).await, "dos:1: x = 1;");
        assert_eq!(call(&tool, json!({"pattern": r"1;\r$"})).await, "dos:1: x = 1;");
        assert_eq!(
            call(&tool, json!({"pattern": "^using [xzé];$"})).await,
            "late:10002: using z;\nlatin:2: using é;\nmarked:1: using x;\nwide:1: using é;"
        );
    }

    #[tokio::test]
    async fn a_line_too_long_to_hold_is_counted_as_not_searched() {
        let place = TestWorkspace::new();
        place.file("a", "x".repeat(MAX_BUFFER_BYTES + 1));
        place.file("b", "x\n");
        assert_eq!(
            call(&search_files(&place.workspace), json!({"pattern": "x$"})).await,
            "b:1: x\n[not searched: 1 file that cannot be read or has a line of more than 8 MiB (a)]"
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
            "a:1: needle\n[not searched: 1 file that cannot be read or has a line of more than 8 MiB (pipe); \
             3 links (again, dir, file)]"
        );
        assert_eq!(
            refusal(&tool, json!({"pattern": "needle", "path": "dir"})).await,
            "path 'dir' is outside the workspace root; use a path below it"
        );
    }
}
