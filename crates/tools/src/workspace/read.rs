//! `read_file`: reads lines of a text file with their numbers.

use std::{
    fmt::Write,
    io::{self, BufRead, BufReader, Read},
};

use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};
use tokio_util::sync::CancellationToken;

use super::{Workspace, content::binary, made_by, path, root::Found};
use crate::{
    call::{REPEATABLE, Stoppable, check_stop, grouped, run_blocking},
    text::{self, LineEnds, TextForm},
};

const MAX_LINES: i64 = 2_000;
const MAX_BYTES: usize = 256 << 10;
const MAX_LINE_BYTES: usize = 4 << 10;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// The file to read.
    path: String,
    /// The number of the first line to read, counted from 1; the first one if left out or 0.
    #[schemars(range(min = 0))]
    offset: Option<i64>,
    /// How many lines to read; 2000 if left out, which is also the most.
    #[schemars(range(min = 1, max = MAX_LINES))]
    limit: Option<i64>,
}

/// The tool `read_file{path, offset?, limit?}`: each line as its number, a tab, its text.
///
/// A call returns at most 2,000 lines and 256 KiB; the result names the `offset` of the next call. A line
/// longer than 4 KiB is truncated with a note. Files excluded from listing by `.gitignore` can be read.
pub fn read_file(workspace: &Workspace) -> impl Tool + use<> {
    let (workspace, about) = (workspace.clone(), workspace.clone());
    let spec = ToolSpec::of::<ReadFile>(
        "read_file",
        "Reads a text file. Each line comes as its number, a tab, and its text. Long files are read in parts: the \
         last line says with which offset to go on.",
    );
    let tool: FnTool<ReadFile, _> = tool_fn(spec, move |args: ReadFile, cx: ToolCx| {
        let workspace = workspace.of_call(&cx);
        run_blocking(cx, move |stop| read(&workspace, &args, stop))
    });
    let tool = tool.with_behaviour(REPEATABLE).with_changes_files(false).with_folder(made_by(read_file));
    tool.with_subject(move |argument, args| path(&about, argument, args, false))
}

fn read(workspace: &Workspace, args: &ReadFile, stop: &CancellationToken) -> Result<String, ToolError> {
    let offset = args.offset.unwrap_or(0);
    let limit = args.limit.unwrap_or(MAX_LINES);
    if offset < 0 {
        return Err(ToolError::InvalidArguments(format!("`offset` counts lines from 1, got {offset}")));
    }
    if !(1..=MAX_LINES).contains(&limit) {
        return Err(ToolError::InvalidArguments(format!("`limit` is from 1 to {MAX_LINES}, got {limit}")));
    }
    let found = workspace.permit(workspace.find_to_read(&args.path)?, false)?;
    let (file, metadata) = workspace.open_file(&found)?;
    let failed = |error: io::Error| match check_stop(stop) {
        Err(cancelled) => cancelled,
        Ok(()) => ToolError::Failed(format!("path '{}' cannot be read: {error}", found.shown)),
    };
    let opened = text::open(Stoppable { inner: file, stop }).map_err(failed)?;
    if opened.is_binary {
        return Err(binary(&found, metadata.len()));
    }
    let mut reader = BufReader::new(opened.text);
    Page::new(offset.max(1), limit).fill(&mut reader).map_err(failed)?.finish(&found, opened.form)
}

/// The lines from `offset` on that fit into one result.
struct Page {
    offset: i64,
    limit: i64,
    text: String,
    /// Number of lines read, shown or not.
    seen: i64,
    more: bool,
    /// The line ends of the shown lines.
    ends: LineEnds,
    lossy: bool,
}

impl Page {
    fn new(offset: i64, limit: i64) -> Self {
        Self {
            offset,
            limit,
            text: String::new(),
            seen: 0,
            more: false,
            ends: LineEnds::default(),
            lossy: false,
        }
    }

    fn fill(mut self, reader: &mut BufReader<impl Read>) -> io::Result<Self> {
        let mut start = Vec::new();
        loop {
            let wanted = self.seen + 1 >= self.offset;
            start.clear();
            let Some(line) = read_line(reader, &mut start, if wanted { MAX_LINE_BYTES } else { 0 })? else {
                break;
            };
            if wanted && !self.push(&start, &line) {
                self.more = true;
                break;
            }
            self.seen += 1;
        }
        Ok(self)
    }

    /// Adds the next line of `len` bytes, of which only the start may be known; returns `false` if the page
    /// is full.
    fn push(&mut self, start: &[u8], line: &Line) -> bool {
        let number = self.seen + 1;
        if number - self.offset == self.limit {
            return false;
        }
        let is_cut = line.len > start.len() as u64;
        let mut bytes = start;
        let mut ends = LineEnds::default();
        if is_cut {
            // Not inside a character.
            if let Some(last) = bytes.utf8_chunks().last()
                && matches!(last.invalid().len(), 1..=3)
            {
                bytes = &bytes[..bytes.len() - last.invalid().len()];
            }
        } else if let Some(shorter) = bytes.strip_suffix(b"\r").filter(|_| line.is_ended) {
            ends.crlf = 1;
            bytes = shorter;
        } else {
            ends.lf = usize::from(line.is_ended);
        }
        ends.cr = bytes.iter().filter(|byte| **byte == b'\r').count();
        let len = line.len;
        let line = String::from_utf8_lossy(bytes);
        let mut shown = format!("{number}\t{line}");
        if is_cut {
            write!(shown, "… [cut: the line has {} bytes]", grouped(len)).expect("a String takes everything");
        }
        if self.text.len() + shown.len() >= MAX_BYTES {
            return false;
        }
        self.lossy |= line.contains('\u{fffd}');
        self.ends = self.ends.plus(ends);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&shown);
        true
    }

    fn finish(mut self, found: &Found, form: TextForm) -> Result<String, ToolError> {
        if self.seen < self.offset {
            if self.offset == 1 {
                return Ok("[the file is empty]".into());
            }
            return Err(ToolError::InvalidArguments(format!(
                "`offset` {} is past the end of '{}', which has {} lines",
                self.offset, found.shown, self.seen
            )));
        }
        if self.lossy {
            write!(self.text, "\n[bytes that are not {} are shown as \u{fffd}]", form.encoding.name())
                .expect("a String takes everything");
        }
        if let Some(name) = form.name() {
            write!(self.text, "\n[the file is {name}]").expect("a String takes everything");
        }
        if let Some(note) = self.ends.note() {
            write!(self.text, "\n[{note}]").expect("a String takes everything");
        }
        if self.more {
            write!(self.text, "\n[more lines follow: go on with offset {}]", self.seen + 1)
                .expect("a String takes everything");
        }
        Ok(self.text)
    }
}

/// A line that was read.
struct Line {
    /// The number of its bytes, without the end.
    len: u64,
    /// `false` for a last line without an end.
    is_ended: bool,
}

/// Reads one line without its end and appends up to `keep` bytes of it. Returns `None` at the end of the file.
fn read_line(reader: &mut impl BufRead, start: &mut Vec<u8>, keep: usize) -> io::Result<Option<Line>> {
    let mut len = None;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(len.map(|len| Line { len, is_ended: false }));
        }
        let (part, used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&buffer[..end], end + 1, true),
            None => (buffer, buffer.len(), false),
        };
        start.extend_from_slice(&part[..part.len().min(keep - start.len().min(keep))]);
        let so_far = len.unwrap_or(0) + part.len() as u64;
        len = Some(so_far);
        reader.consume(used);
        if ended {
            return Ok(Some(Line { len: so_far, is_ended: true }));
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
    async fn numbers_the_lines() {
        let place = TestWorkspace::new();
        place.file("a", "one\n\n  three\n");
        place.file("b", "no end");
        let tool = read_file(&place.workspace);
        assert_eq!(call(&tool, json!({"path": "a"})).await, "1\tone\n2\t\n3\t  three");
        assert_eq!(call(&tool, json!({"path": "b"})).await, "1\tno end");
    }

    #[tokio::test]
    async fn continues_at_the_reported_offset() {
        let place = TestWorkspace::new();
        place.file("a", "1\n2\n3\n4\n5\n");
        let tool = read_file(&place.workspace);
        assert_eq!(
            call(&tool, json!({"path": "a", "offset": 2, "limit": 2})).await,
            "2\t2\n3\t3\n[more lines follow: go on with offset 4]"
        );
        assert_eq!(call(&tool, json!({"path": "a", "offset": 4, "limit": 2})).await, "4\t4\n5\t5");
        assert_eq!(call(&tool, json!({"path": "a", "offset": 5})).await, "5\t5");
        let first = "1\t1\n[more lines follow: go on with offset 2]";
        assert_eq!(call(&tool, json!({"path": "a", "offset": 0, "limit": 1})).await, first);
    }

    #[tokio::test]
    async fn shows_at_most_2000_lines_and_256_kib() {
        let place = TestWorkspace::new();
        place.file("lines", "x\n".repeat(2_001));
        place.file("bytes", format!("{}\n", "y".repeat(4_000)).repeat(100));
        let tool = read_file(&place.workspace);
        let text = call(&tool, json!({"path": "lines"})).await;
        assert_eq!(text.lines().count(), 2_001);
        assert_eq!(text.lines().last(), Some("[more lines follow: go on with offset 2001]"));
        assert_eq!(call(&tool, json!({"path": "lines", "offset": 2001})).await, "2001\tx");
        let text = call(&tool, json!({"path": "bytes"})).await;
        assert!(text.len() < MAX_BYTES + 100, "{}", text.len());
        assert_eq!(text.lines().last(), Some("[more lines follow: go on with offset 66]"));
    }

    #[tokio::test]
    async fn a_long_line_is_cut_between_characters() {
        let place = TestWorkspace::new();
        place.file("a", format!("x{}\nend\n", "é".repeat(5_000)));
        let text = call(&read_file(&place.workspace), json!({"path": "a"})).await;
        assert_eq!(text, format!("1\tx{}… [cut: the line has 10,001 bytes]\n2\tend", "é".repeat(2_047)));
    }

    #[tokio::test]
    async fn empty_binary_and_foreign_texts_are_reported() {
        let place = TestWorkspace::new();
        place.file("empty", "");
        place.file("latin1", b"caf\xe9\n");
        place.file("dos", "a\r\nb\r\n");
        let tool = read_file(&place.workspace);
        assert_eq!(call(&tool, json!({"path": "empty"})).await, "[the file is empty]");
        assert_eq!(
            call(&tool, json!({"path": "latin1"})).await,
            "1\tcaf\u{fffd}\n[bytes that are not UTF-8 are shown as \u{fffd}]"
        );
        assert_eq!(call(&tool, json!({"path": "dos"})).await, "1\ta\n2\tb\n[lines end in \\r\\n]");
        place.file("mixed", "a\r\nb\nc");
        place.file("mac", "a\rb\r");
        place.file("wide", b"\xff\xfeh\0\xe9\0\r\0\n\0");
        place.file("marked", "\u{feff}a\n");
        for (path, text) in [
            ("mixed", "1\ta\n2\tb\n3\tc\n[line ends are mixed: some lines end in \\r\\n, others in \\n]"),
            ("mac", "1\ta\rb\r\n[\\r stands alone in some lines, where it ends none]"),
            ("wide", "1\thé\n[the file is UTF-16LE]\n[lines end in \\r\\n]"),
            ("marked", "1\ta"),
        ] {
            assert_eq!(call(&tool, json!({ "path": path })).await, text);
        }
    }

    #[tokio::test]
    async fn rejects_unreadable_paths() {
        let place = TestWorkspace::new();
        place.file("dir/a", "1\n2\n");
        place.file("image", b"\x89PNG\0\0");
        let tool = read_file(&place.workspace);
        for (args, expected) in [
            (json!({"path": "../x"}), "path '../x' is outside the workspace root; use a path below it"),
            (json!({"path": "x"}), "path 'x' not found in the workspace"),
            (json!({"path": "dir"}), "path 'dir' is a directory; list it with `list_files`"),
            (json!({"path": "image"}), "path 'image' is a binary file of 6 bytes, not text"),
            (json!({"path": "dir/a", "offset": -3}), "`offset` counts lines from 1, got -3"),
            (
                json!({"path": "dir/a", "offset": 3}),
                "`offset` 3 is past the end of 'dir/a', which has 2 lines",
            ),
            (
                json!({"path": "dir/a", "offset": i64::MAX}),
                "`offset` 9223372036854775807 is past the end of 'dir/a', which has 2 lines",
            ),
            (json!({"path": "dir/a", "limit": 0}), "`limit` is from 1 to 2000, got 0"),
            (json!({"path": "dir/a", "limit": 2001}), "`limit` is from 1 to 2000, got 2001"),
        ] {
            assert_eq!(refusal(&tool, args).await, expected);
        }
        assert_eq!(
            cancelled(&tool, json!({"path": "dir/a"})).await,
            Err(ToolError::Failed("cancelled".into()))
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_pipe_is_refused_without_waiting_for_it() {
        let place = TestWorkspace::new();
        place.fifo("pipe");
        place.link("to_pipe", "pipe");
        let tool = read_file(&place.workspace);
        assert_eq!(refusal(&tool, json!({"path": "pipe"})).await, "path 'pipe' is not a regular file");
        assert_eq!(refusal(&tool, json!({"path": "to_pipe"})).await, "path 'pipe' is not a regular file");
        assert_eq!(
            refusal(&tool, json!({"path": "/dev/zero"})).await,
            "path '/dev/zero' is outside the workspace root; use a path below it"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_link_out_of_the_workspace_is_not_read() {
        let place = TestWorkspace::new();
        std::fs::write(place.dir.path().join("secret"), "s3cret").unwrap();
        place.link("a", "../secret");
        assert_eq!(
            refusal(&read_file(&place.workspace), json!({"path": "a"})).await,
            "path 'a' is outside the workspace root; use a path below it"
        );
    }
}
