//! Lines that fit the terminal.
//!
//! Start at [`wrap`].

use ratatui::{
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthChar as _;

/// The columns of a tab.
const TAB: usize = 4;

/// A character with its style and columns.
#[derive(Clone, Copy)]
struct Cell {
    sign: char,
    style: Style,
    columns: usize,
}

/// Breaks a line at spaces, and words that are too long anywhere. Rows after the first begin with `hang`.
pub(super) fn wrap(line: &Line<'_>, width: usize, hang: &[Span<'static>]) -> Vec<Line<'static>> {
    let hang: Vec<Cell> = cells(hang, Style::new()).collect();
    let indent = columns(&hang);
    let (hang, indent) = if indent + 8 > width { (Vec::new(), 0) } else { (hang, indent) };
    let (mut rows, mut row, mut used): (Vec<Vec<Cell>>, Vec<Cell>, usize) = (Vec::new(), Vec::new(), 0);
    // The length of the row up to its last space, and where its own text begins.
    let (mut space, mut begin) = (None, 0);
    for cell in cells(&line.spans, line.style) {
        if used + cell.columns > width.max(2) {
            let rest = match space.filter(|at| *at > begin) {
                // The space itself is not shown.
                Some(at) => {
                    let rest = row.split_off(at + 1);
                    row.truncate(at);
                    rest
                }
                None => Vec::new(),
            };
            rows.push(std::mem::take(&mut row));
            row.extend(&hang);
            begin = row.len();
            row.extend(&rest);
            used = indent + columns(&rest);
            space = None;
            if cell.sign == ' ' && rest.is_empty() {
                continue;
            }
        }
        if cell.sign == ' ' && row[begin..].iter().any(|cell| cell.sign != ' ') {
            space = Some(row.len());
        }
        used += cell.columns;
        row.push(cell);
    }
    rows.push(row);
    rows.into_iter().map(line_of).collect()
}

/// Cuts a line so that it is on one row.
pub(super) fn cut(line: &Line<'_>, width: usize) -> Line<'static> {
    let all: Vec<Cell> = cells(&line.spans, line.style).collect();
    if columns(&all) <= width {
        return line_of(all);
    }
    let mut used = 1;
    let mut row: Vec<Cell> = Vec::new();
    for cell in all {
        used += cell.columns;
        if used > width {
            break;
        }
        row.push(cell);
    }
    let style = row.last().map(|cell| cell.style).unwrap_or_default();
    row.push(Cell { sign: '…', style, columns: 1 });
    line_of(row)
}

/// Returns a line whose parts with a text are reversed, in either case of letters; `None` if it does not have the text.
pub(super) fn marked(line: &Line<'_>, text: &str) -> Option<Line<'static>> {
    let lower = |sign: char| sign.to_lowercase().next().unwrap_or(sign);
    let text: Vec<_> = text.chars().map(lower).collect();
    let mut all: Vec<Cell> = cells(&line.spans, line.style).collect();
    let signs: Vec<_> = all.iter().map(|cell| lower(cell.sign)).collect();
    let mut is_found = false;
    for at in 0..(signs.len() + 1).saturating_sub(text.len()) {
        if signs[at..].starts_with(&text) {
            is_found = true;
            all[at..at + text.len()].iter_mut().for_each(|cell| cell.style = cell.style.reversed());
        }
    }
    is_found.then(|| line_of(all))
}

/// Returns a line whose character at a column is reversed, or a blank at its end.
pub(super) fn reversed(line: &Line<'_>, column: usize) -> Line<'static> {
    let mut all: Vec<Cell> = cells(&line.spans, line.style).collect();
    if columns(&all) <= column {
        all.push(Cell { sign: ' ', style: Style::new(), columns: 1 });
    }
    let mut end = 0;
    let at = all.iter_mut().find(|cell| {
        end += cell.columns;
        end > column
    });
    if let Some(cell) = at {
        cell.style = cell.style.reversed();
    }
    line_of(all)
}

/// Returns the columns of a text.
pub(super) fn text_columns(text: &str) -> usize {
    text.chars().map(|sign| sign.width().unwrap_or(0)).sum()
}

fn cells<'a>(spans: &'a [Span<'_>], of_line: Style) -> impl Iterator<Item = Cell> + 'a {
    spans.iter().flat_map(move |span| {
        span.content.chars().flat_map(move |sign| {
            let style = of_line.patch(span.style);
            let (sign, times) = if sign == '\t' { (' ', TAB) } else { (sign, 1) };
            let columns = sign.width().unwrap_or(0);
            std::iter::repeat_n(Cell { sign, style, columns }, times)
        })
    })
}

fn columns(cells: &[Cell]) -> usize {
    cells.iter().map(|cell| cell.columns).sum()
}

fn line_of(cells: Vec<Cell>) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for cell in cells {
        match spans.last_mut() {
            Some(span) if span.style == cell.style => span.content.to_mut().push(cell.sign),
            _ => spans.push(Span::styled(cell.sign.to_string(), cell.style)),
        }
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize, hang: &str) -> Vec<String> {
        let hang = [Span::raw(hang.to_owned())];
        wrap(&Line::from(text.to_owned()), width, &hang).iter().map(Line::to_string).collect()
    }

    #[test]
    fn words_stay_whole_if_they_fit() {
        assert_eq!(wrapped("one two three", 8, ""), ["one two", "three"]);
        assert_eq!(wrapped("onetwo three", 6, ""), ["onetwo", "three"]);
        assert_eq!(wrapped("", 6, ""), [""]);
        assert_eq!(wrapped("abcdefghij", 4, ""), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("- one two three four", 14, "  "), ["- one two", "  three four"]);
        assert_eq!(wrapped("    indented code", 12, ""), ["    indented", "code"]);
    }

    #[test]
    fn columns_are_counted_and_not_characters() {
        assert_eq!(wrapped("日本語日本", 4, ""), ["日本", "語日", "本"]);
        assert_eq!(wrapped("a\tb", 20, ""), ["a    b"]);
        let line = Line::from("日本語".to_owned());
        assert_eq!(cut(&line, 6).to_string(), "日本語");
        assert_eq!(cut(&line, 5).to_string(), "日本…");
        assert_eq!(cut(&line, 4).to_string(), "日…");
    }

    #[test]
    fn styles_survive_a_break() {
        let bold = Style::new().bold();
        let line = Line::from(vec![Span::raw("one "), Span::styled("two three", bold)]);
        let rows = wrap(&line, 8, &[]);
        assert_eq!(rows[1].spans, [Span::styled("three", bold)]);
        assert_eq!(rows[0].spans, [Span::raw("one "), Span::styled("two", bold)]);
    }
}
