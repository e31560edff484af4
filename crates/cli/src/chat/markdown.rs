//! Markdown as lines of a terminal.
//!
//! Start at [`rows`] for a text, and at [`finished`] for one that grows.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::{
    style::{Color, Style},
    text::{Line, Span},
};
use superstep_session::text::{printable, printable_line};

use crate::chat::wrap::{text_columns, wrap};

/// Returns the length of the blocks that further text does not change, in bytes: all but the last one.
pub(super) fn finished(text: &str) -> usize {
    let (mut depth, mut before, mut last) = (0_usize, 0, 0);
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        if depth == 0 {
            (before, last) = (last, range.start);
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    // An indented block begins after its indentation.
    let line = |at: usize| text[..at].rfind('\n').map_or(0, |at| at + 1);
    let cut = line(last);
    // The begin of a line may still become a row of the table before it.
    let is_apart = text[..cut].ends_with("\n\n") || text[cut..].contains('\n');
    if is_apart { cut } else { line(before) }
}

/// Returns whether a block can only be shown as a whole, because its later lines change its first ones.
pub(super) fn is_table(text: &str) -> bool {
    Parser::new_ext(text, options()).next().is_some_and(|event| matches!(event, Event::Start(Tag::Table(_))))
}

/// Renders a text, with an empty row between its blocks.
pub(super) fn rows(text: &str, width: usize) -> Vec<Line<'static>> {
    let text = printable(text);
    let mut writer = Writer::new(width);
    for event in Parser::new_ext(&text, options()) {
        writer.event(event);
    }
    writer.flush();
    writer.rows
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The begin of the lines of a block.
struct Prefix {
    /// The begin of the next row; `None` after the first one.
    first: Option<Span<'static>>,
    rest: Span<'static>,
}

#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
    cell: Option<String>,
}

struct Writer {
    width: usize,
    rows: Vec<Line<'static>>,
    line: Vec<Span<'static>>,
    styles: Vec<Style>,
    prefixes: Vec<Prefix>,
    /// The numbers of the open lists; `None` for lists without.
    lists: Vec<Option<u64>>,
    links: Vec<(String, usize)>,
    table: Option<Table>,
    /// The text of the open block of code.
    code: Option<String>,
    depth: usize,
}

impl Writer {
    fn new(width: usize) -> Self {
        Self {
            width: width.max(10),
            rows: Vec::new(),
            line: Vec::new(),
            styles: Vec::new(),
            prefixes: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            table: None,
            code: None,
            depth: 0,
        }
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(Style::new(), |all, style| all.patch(*style))
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => {
                if self.depth == 0 && !self.rows.is_empty() {
                    self.rows.push(Line::default());
                }
                self.depth += 1;
                self.start(tag);
            }
            Event::End(tag) => {
                self.depth -= 1;
                self.end(tag);
            }
            Event::Text(text) => self.text(&text, Style::new()),
            Event::Code(text) => self.text(&text, Style::new().fg(Color::Cyan)),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text, Style::new()),
            Event::SoftBreak => self.text(" ", Style::new()),
            Event::HardBreak => self.flush(),
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }, Style::new()),
            Event::Rule => {
                if !self.rows.is_empty() {
                    self.rows.push(Line::default());
                }
                self.text(&"─".repeat(self.width.min(40)), Style::new().dim());
                self.flush();
            }
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                let style = Style::new().bold();
                self.styles.push(if level == HeadingLevel::H1 { style.underlined() } else { style });
            }
            Tag::BlockQuote(_) => {
                self.flush();
                let bar = Span::styled("│ ", Style::new().dim());
                self.prefixes.push(Prefix { first: Some(bar.clone()), rest: bar });
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    let language = printable_line(&language);
                    self.text(&format!("  {language}"), Style::new().dim());
                    self.flush();
                }
                self.code = Some(String::new());
            }
            Tag::List(begin) => {
                self.flush();
                self.lists.push(begin);
            }
            Tag::Item => {
                self.flush();
                let sign = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".to_owned(),
                };
                let rest = Span::raw(" ".repeat(sign.len()));
                self.prefixes.push(Prefix { first: Some(Span::styled(sign, Style::new().dim())), rest });
            }
            Tag::Emphasis => self.styles.push(Style::new().italic()),
            Tag::Strong => self.styles.push(Style::new().bold()),
            Tag::Strikethrough => self.styles.push(Style::new().crossed_out()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((printable_line(&dest_url), self.line.len()));
                self.styles.push(Style::new().underlined());
            }
            Tag::Table(_) => self.table = Some(Table::default()),
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                if let Some(table) = &mut self.table {
                    table.cell = Some(String::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            // Between the paragraphs of an item or a quotation there is no empty row.
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                for line in code.trim_end_matches('\n').split('\n') {
                    self.line.push(Span::styled(format!("  {line}"), Style::new().fg(Color::Cyan)));
                    self.flush();
                }
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.flush();
                self.prefixes.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some((url, begin)) = self.links.pop() {
                    let shown: String = self.line.iter().skip(begin).map(|span| &*span.content).collect();
                    // The user sees where a link leads.
                    if shown != url && self.table.is_none() {
                        self.text(&format!(" ({url})"), Style::new().dim());
                    }
                }
            }
            TagEnd::TableCell => {
                if let Some(table) = &mut self.table
                    && let Some(cell) = table.cell.take()
                    && let Some(row) = table.rows.last_mut()
                {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.table(&table.rows);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, style: Style) {
        if let Some(code) = &mut self.code {
            code.push_str(text);
            return;
        }
        if let Some(Table { cell: Some(cell), .. }) = &mut self.table {
            cell.push_str(text);
            return;
        }
        let style = self.style().patch(style);
        for (at, part) in text.split('\n').enumerate() {
            if at > 0 {
                self.flush();
            }
            if !part.is_empty() {
                self.line.push(Span::styled(part.to_owned(), style));
            }
        }
    }

    /// Ends the line.
    fn flush(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let rest: Vec<_> = self.prefixes.iter().map(|prefix| prefix.rest.clone()).collect();
        let mut line: Vec<_> = self
            .prefixes
            .iter_mut()
            .map(|prefix| prefix.first.take().unwrap_or_else(|| prefix.rest.clone()))
            .collect();
        line.append(&mut self.line);
        self.rows.extend(wrap(&Line::from(line), self.width, &rest));
    }

    fn table(&mut self, rows: &[Vec<String>]) {
        let count = rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..count)
            .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| text_columns(cell)).max())
            .map(Option::unwrap_or_default)
            .collect();
        let is_narrow = widths.iter().sum::<usize>() + 2 * count <= self.width;
        for (number, row) in rows.iter().enumerate() {
            let style = if number == 0 { Style::new().bold() } else { Style::new() };
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                line.push_str(cell);
                if at + 1 < row.len() {
                    let pad = if is_narrow { widths[at] - text_columns(cell) } else { 0 };
                    line.push_str(&" ".repeat(pad));
                    line.push_str(if is_narrow { "  " } else { " | " });
                }
            }
            self.text(&line, style);
            self.flush();
            if number == 0 && is_narrow {
                let rule = widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("  ");
                self.text(&rule, Style::new().dim());
                self.flush();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize) -> Vec<String> {
        rows(text, width).iter().map(Line::to_string).collect()
    }

    #[test]
    fn blocks_are_rows_with_an_empty_one_between() {
        let text = "# Title\n\nSome **bold** and `code`,\nand [a link](http://x.y/).\n\n- one\n- two\n  1. deep\n\n> said\n\n```rust\nfn x() {}\n\n  y\n```\n";
        assert_eq!(
            shown(text, 60),
            [
                "Title",
                "",
                "Some bold and code, and a link (http://x.y/).",
                "",
                "- one",
                "- two",
                "  1. deep",
                "",
                "│ said",
                "",
                "  rust",
                "  fn x() {}",
                "  ",
                "    y"
            ]
        );
    }

    #[test]
    fn items_hang_and_tables_align() {
        assert_eq!(shown("- one two three four", 14), ["- one two", "  three four"]);
        let table = "| a | long |\n|---|---|\n| 1 | x |\n";
        assert_eq!(shown(table, 40), ["a  long", "─  ────", "1  x"]);
        assert_eq!(shown(table, 6)[0], "a  long");
        assert!(is_table(table) && !is_table("a | b"));
    }

    #[test]
    fn control_characters_are_escaped_everywhere() {
        for text in ["a\u{1b}[2Jb", "`a\u{1b}[2Jb`", "```\na\u{1b}[2Jb\n```", "[x](http://a\u{202e}b)"] {
            let rows = shown(text, 60).join("\n");
            assert!(!rows.contains(['\u{1b}', '\u{202e}']) && rows.contains("\\u{"), "{rows}");
        }
    }

    #[test]
    fn all_but_the_last_block_are_finished() {
        let parts = |text: &'static str| text.split_at(finished(text));
        assert_eq!(parts("one"), ("", "one"));
        assert_eq!(parts("one\n\ntwo"), ("one\n\n", "two"));
        assert_eq!(parts("one\n\n- two\n- three"), ("one\n\n", "- two\n- three"));
        assert_eq!(parts("one\n\n```\nx\n\ny"), ("one\n\n", "```\nx\n\ny"));
        assert_eq!(parts("one\n\n    code\n"), ("one\n\n", "    code\n"));
        assert_eq!(parts("one\n\n---\n"), ("one\n\n", "---\n"));
    }

    #[test]
    fn a_text_in_pieces_has_the_rows_of_the_whole() {
        let text = "# A\n\nlong text here\n\n- a\n- b\n\n```\nx\n\ny\n```\n\n| a |\n|---|\n| b |\n\nend";
        let whole = shown(text, 20);
        let (mut seen, mut done) = (Vec::new(), 0);
        for (end, _) in text.char_indices() {
            let cut = done + finished(&text[done..end]);
            if cut > done {
                if !seen.is_empty() {
                    seen.push(String::new());
                }
                seen.extend(shown(&text[done..cut], 20));
                done = cut;
            }
        }
        seen.push(String::new());
        seen.extend(shown(&text[done..], 20));
        assert_eq!(seen, whole);
    }
}
