//! The live part: what is not finished, the draft and the status.
//!
//! Start at [`layout`].

use ratatui::{
    style::{Color, Style},
    text::{Line, Span},
};
use superstep_session::text::{brief, printable, printable_line};

use crate::{
    chat::{
        composer::Composer,
        menu::Choice,
        view::{LIVE_ROWS, View, time},
        wrap::{cut, reversed, text_columns, wrap},
    },
    session::approve::asks,
};

const DIM: Style = Style::new().dim();

/// Maximum number of rows of the draft.
const MAX_DRAFT_ROWS: usize = 8;

/// Maximum number of calls, and of messages that wait, with a row each.
const MAX_LISTED: usize = 4;

/// Maximum number of characters of a message that waits.
const MAX_WAITING: usize = 60;

/// Columns of a terminal in which the live part is still lower than it. A terminal that becomes narrower wraps the rows, and those
/// that scroll out then stay in its history.
const NARROW: usize = 40;

/// Returns the rows of the live part, and the column of the cursor if it is in the first of them. In another row its place is
/// reversed instead: the rows above it would be wrapped by a terminal that becomes narrower.
pub(super) fn layout(
    view: &View,
    composer: &Composer,
    width: usize,
    height: usize,
) -> (Vec<Line<'static>>, Option<usize>) {
    let mut above = Vec::new();
    if let Some(stream) = &view.stream {
        let rows = stream.rest();
        let skip = rows.len().saturating_sub(LIVE_ROWS);
        above.extend(rows.into_iter().skip(skip));
    } else if !view.thought.trim().is_empty() {
        above.push(Line::styled(printable_line(view.thought.trim()), DIM));
    }
    for call in view.calls.iter().take(MAX_LISTED) {
        let took = time(call.began.elapsed());
        above.push(Line::from(vec![
            Span::styled("● ", Style::new().fg(Color::Yellow)),
            Span::raw(call.title.clone()),
            Span::styled(format!("  {took}"), DIM),
        ]));
        if !call.output.trim().is_empty() {
            above.push(Line::styled(format!("  │ {}", printable_line(call.output.trim())), DIM));
        }
    }
    if view.calls.len() > MAX_LISTED {
        above.push(Line::styled(format!("  and {} more", view.calls.len() - MAX_LISTED), DIM));
    }
    let sent = view.steered.iter().map(|text| (text, "sent, read before the next call of the model"));
    let queued = view.queue.iter().map(|queued| (&queued.text, "queued, Alt-Up takes it back"));
    for (text, about) in sent.chain(queued).take(MAX_LISTED) {
        let text = brief(text, MAX_WAITING);
        above.push(Line::from(vec![
            Span::styled(format!("> {text}"), Style::new().fg(Color::Cyan)),
            Span::styled(format!("  ({about})"), DIM),
        ]));
    }
    if !above.is_empty() {
        above.push(Line::default());
    }
    if let Some(question) = view.asked.front() {
        above.extend(wrap(&Line::styled(asks(&question.waiting), Style::new().bold()), width, &[]));
    }
    let (mut draft, cursor) = draft(composer, width);
    let mut below: Vec<_> = match composer.search() {
        Some((query, found)) => {
            let miss = if found || query.is_empty() { "" } else { " (no match)" };
            vec![Line::styled(format!("search: {}{miss}", printable_line(query)), DIM)]
        }
        None => choices(composer),
    };
    below.push(Line::styled(view.status(), DIM));
    // The last rows matter most, and one row stays for the history.
    let space = height.saturating_sub(1).max(2);
    below.drain(..below.len().saturating_sub(space / 2).min(below.len() - 1));
    let most = space.saturating_sub(below.len()).clamp(1, MAX_DRAFT_ROWS);
    let first = (cursor.0 + 1).saturating_sub(most);
    draft = draft.into_iter().skip(first).take(most).collect();
    let rows = |line: &Line<'_>| line.width().min(width).div_ceil(width.min(NARROW)).max(1);
    let mut used: usize = draft.iter().chain(&below).map(rows).sum();
    let fits = |line: &&Line<'_>| {
        used += rows(line);
        used <= space
    };
    // A question stays in sight, although a terminal that becomes narrower may then leave a row of it in the history.
    let least = usize::from(!view.asked.is_empty() && draft.len() + below.len() < space);
    let shown = above.iter().rev().take_while(fits).count().max(least);
    above.drain(..above.len() - shown);
    let is_first = above.is_empty() && cursor.0 == first;
    if !is_first {
        let row = &mut draft[cursor.0 - first];
        *row = reversed(row, cursor.1);
    }
    let all = above.into_iter().chain(draft).chain(below);
    (all.map(|line| cut(&line, width)).collect(), is_first.then_some(cursor.1))
}

/// Returns the rows of the draft, broken anywhere, and the row and the column of the cursor.
fn draft(composer: &Composer, width: usize) -> (Vec<Line<'static>>, (usize, usize)) {
    let space = width.saturating_sub(3).max(4);
    let (line, column) = composer.cursor();
    let (mut rows, mut cursor) = (Vec::new(), (0, 0));
    for (number, text) in composer.lines().iter().enumerate() {
        let (mut row, mut used) = (String::new(), 0);
        for (at, sign) in text.chars().chain([' ']).enumerate() {
            let shown = if sign == '\t' { " ".to_owned() } else { printable(sign.encode_utf8(&mut [0; 4])) };
            let columns = text_columns(&shown);
            if used + columns > space {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            if (number, at) == (line, column) {
                cursor = (rows.len(), used + 2);
            }
            row.push_str(&shown);
            used += columns;
        }
        // The place of the cursor after the text.
        row.pop();
        rows.push(row);
    }
    let sign =
        |at: usize| Span::styled(if at == 0 { "> " } else { "  " }, Style::new().fg(Color::Cyan).bold());
    let lines = rows.into_iter().enumerate().map(|(at, row)| Line::from(vec![sign(at), Span::raw(row)]));
    (lines.collect(), cursor)
}

fn choices(composer: &Composer) -> Vec<Line<'static>> {
    let menu = composer.menu();
    let line = |(at, choice): (usize, &Choice)| {
        let is_selected = at == menu.selected;
        let (sign, style) = if is_selected { ("> ", Style::new().bold()) } else { ("  ", Style::new()) };
        Line::from(vec![
            Span::styled(format!("{sign}{:<12}", choice.word), style),
            Span::styled(choice.about.clone(), DIM),
        ])
    };
    menu.choices.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use superstep_session::live::{Queued, SessionEvent, SettingsView};

    use super::*;

    fn shown(view: &View, composer: &Composer, width: usize, height: usize) -> (Vec<String>, Option<usize>) {
        let (lines, cursor) = layout(view, composer, width, height);
        (lines.iter().map(Line::to_string).collect(), cursor)
    }

    /// Returns the row of the reversed place and the text before it.
    fn place(view: &View, composer: &Composer, width: usize, height: usize) -> Option<(usize, String)> {
        let (rows, _) = layout(view, composer, width, height);
        let place = |row: &Line<'_>| {
            let at = row.spans.iter().position(|span| span.style == Style::new().reversed())?;
            Some(row.spans[..at].iter().map(|span| span.content.as_ref()).collect())
        };
        rows.iter().enumerate().find_map(|(at, row)| Some((at, place(row)?)))
    }

    #[test]
    fn the_cursor_is_in_the_wrapped_draft() {
        let mut composer = Composer::new(Path::new("/nonexistent"));
        let view = View::new(13, "t".into(), SettingsView::default());
        assert_eq!(shown(&view, &composer, 20, 24), (vec!["> ".into(), "ready · ask · t".into()], Some(2)));
        composer.set("0123456789abc\nx日");
        let (rows, cursor) = shown(&view, &composer, 13, 24);
        assert_eq!(rows, ["> 0123456789", "  abc", "  x日 ", "ready · ask …"]);
        assert_eq!((cursor, place(&view, &composer, 13, 24)), (None, Some((2, "  x日".into()))));
        composer.set("0123456789");
        let full = place(&view, &composer, 13, 24);
        assert_eq!(full, Some((1, "  ".into())), "after a full row");
    }

    #[test]
    fn the_live_part_is_lower_than_the_terminal() {
        let mut composer = Composer::new(Path::new("/nonexistent"));
        let mut view = View::new(40, "t".into(), SettingsView::default());
        let queued = |turn| Queued { turn, text: format!("message {turn}") };
        view.event(SessionEvent::Queue((1..9).map(queued).collect()));
        composer.set("a\nb\nc\nd\ne\nf\ng\nh\ni\nj");
        for height in [1, 2, 3, 5, 8, 12, 24] {
            let (rows, cursor) = shown(&view, &composer, 40, height);
            assert!(rows.len() < height.max(3), "{height}: {rows:?}");
            match cursor {
                Some(column) => assert_eq!((rows[0].as_str(), column), ("  j", 3)),
                None => assert_eq!(place(&view, &composer, 40, height).unwrap().1, "  j"),
            }
            assert_eq!(rows.last().map(String::as_str), Some("ready · ask · t"));
        }
    }

    #[test]
    fn the_live_part_of_a_wide_terminal_is_lower_than_a_narrow_one() {
        let composer = Composer::new(Path::new("/nonexistent"));
        let mut view = View::new(199, "t".into(), SettingsView::default());
        let queued = |turn| Queued { turn, text: format!("message {turn} {}", "x".repeat(60)) };
        view.event(SessionEvent::Queue((1..5).map(queued).collect()));
        for height in [8, 12, 24] {
            let (rows, _) = shown(&view, &composer, 199, height);
            let wrapped: usize = rows.iter().map(|row| row.chars().count().div_ceil(NARROW).max(1)).sum();
            assert!(wrapped < height && rows.len() > 3, "{height}: {rows:#?}");
        }
    }
}
