//! The whole conversation on a screen of its own, without a terminal.
//!
//! Start at [`Pager`].

use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Style,
    text::Line,
};
use superstep_session::{live::SessionEvent, text::printable_line};

use crate::chat::{
    view::View,
    wrap::{cut, marked},
};

/// A stored conversation with the whole results of its tools.
pub(super) struct Pager {
    events: Vec<SessionEvent>,
    rows: Vec<Line<'static>>,
    /// The columns and rows of the screen.
    size: (usize, usize),
    /// The first row that is shown.
    top: usize,
    search: Option<Search>,
}

/// A search in the rows, which ignores the case.
#[derive(Default)]
struct Search {
    query: String,
    is_typed: bool,
    /// The row of the match.
    found: Option<usize>,
}

impl Pager {
    /// Shows the end of a conversation.
    pub(super) fn new(events: Vec<SessionEvent>, size: (usize, usize)) -> Self {
        let mut pager = Self { events, rows: Vec::new(), size: (0, 0), top: 0, search: None };
        pager.resize(size);
        pager.top = pager.last();
        pager
    }

    /// Wraps the conversation for another width, and stays at its place.
    pub(super) fn resize(&mut self, size: (usize, usize)) {
        if size.0 != self.size.0 {
            let before = self.rows.len().max(1);
            self.rows = View::whole(self.events.clone(), size.0);
            self.top = self.top * self.rows.len() / before;
            self.search.iter_mut().for_each(|search| search.found = None);
        }
        self.size = size;
        self.top = self.top.min(self.last());
    }

    /// Does what a key says. Returns whether the pager ends.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let page = self.page();
        if self.search.as_ref().is_some_and(|search| search.is_typed) {
            self.type_query(key);
            return false;
        }
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let top = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c' | 't') if ctrl => return true,
            KeyCode::Up | KeyCode::Char('k') => self.top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.top + 1,
            KeyCode::PageUp | KeyCode::Char('b') => self.top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ' | 'f') => self.top + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => self.last(),
            KeyCode::Char('/') => {
                self.search = Some(Search { is_typed: true, ..Search::default() });
                self.top
            }
            KeyCode::Char(sign @ ('n' | 'N')) => {
                self.find(sign == 'n');
                self.top
            }
            _ => self.top,
        };
        self.top = top.min(self.last());
        false
    }

    fn type_query(&mut self, key: KeyEvent) {
        let Some(search) = &mut self.search else { return };
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.search = None,
            KeyCode::Char('c') if ctrl => self.search = None,
            KeyCode::Enter if search.query.is_empty() => self.search = None,
            KeyCode::Enter => {
                search.is_typed = false;
                self.find(true);
            }
            KeyCode::Backspace => drop(search.query.pop()),
            KeyCode::Char(sign) if !ctrl => search.query.push(sign),
            _ => {}
        }
    }

    /// Moves to the next row with the searched text, or to the previous one, from the other end behind the last one.
    fn find(&mut self, down: bool) {
        let (count, page, last) = (self.rows.len(), self.page(), self.last());
        let Some(search) = &mut self.search else { return };
        // The first row on the screen is also searched.
        let from = search.found.unwrap_or(if down { self.top + count.saturating_sub(1) } else { self.top });
        let step = if down { 1 } else { count.saturating_sub(1) };
        let mut rows = (1..=count).map(|nth| (from + nth * step) % count);
        search.found = rows.find(|row| marked(&self.rows[*row], &search.query).is_some());
        if let Some(row) = search.found.filter(|row| !(self.top..self.top + page).contains(row)) {
            self.top = row.saturating_sub(page / 3).min(last);
        }
    }

    /// Returns the rows of the screen; the last one has the position and the keys, or the text to search.
    pub(super) fn rows(&self) -> Vec<Line<'static>> {
        let query =
            self.search.as_ref().map(|search| search.query.as_str()).filter(|query| !query.is_empty());
        let mark =
            |row: &Line<'static>| query.and_then(|query| marked(row, query)).unwrap_or_else(|| row.clone());
        let shown: Vec<_> = self.rows.iter().skip(self.top).take(self.page()).map(mark).collect();
        let (first, last) = (self.top + 1, self.top + shown.len());
        let empty = self.page() - shown.len();
        let keys = match &self.search {
            None => "arrows, PgUp, PgDn, g, G · /: search · q: back".to_owned(),
            Some(Search { query, found: None, .. }) => {
                format!("no `{}` · /: search · q: back", printable_line(query))
            }
            Some(_) => "n, N: next, previous · /: search · q: back".to_owned(),
        };
        let status = match &self.search {
            Some(Search { query, is_typed: true, .. }) => format!("/{}", printable_line(query)),
            _ => format!(" {first}-{last} of {} · {keys}", self.rows.len()),
        };
        let status = cut(&Line::styled(status, Style::new().reversed()), self.size.0);
        shown.into_iter().chain(std::iter::repeat_n(Line::default(), empty)).chain([status]).collect()
    }

    /// The rows of the conversation on the screen.
    fn page(&self) -> usize {
        self.size.1.saturating_sub(1).max(1)
    }

    /// The last value of `top`.
    fn last(&self) -> usize {
        self.rows.len().saturating_sub(self.page())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use superstep_session::live::{CallStatus, CallView};

    use super::*;

    fn pager(size: (usize, usize)) -> Pager {
        let result = (0..40).map(|n| format!("row {n}\n")).collect::<String>();
        let (key, tool, title) = ("c1".to_owned(), "shell".to_owned(), "shell ls".to_owned());
        let (args, status, result) = (json!({}), CallStatus::Done, Some(result));
        Pager::new(vec![SessionEvent::Call(CallView { key, tool, title, args, status, result })], size)
    }

    fn press(pager: &mut Pager, code: KeyCode) -> bool {
        pager.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn shown(pager: &Pager) -> Vec<String> {
        pager.rows().iter().map(Line::to_string).collect()
    }

    #[test]
    fn keys_move_between_the_ends() {
        let mut it = pager((60, 11));
        let rows = shown(&it);
        assert_eq!((rows.len(), rows[9].as_str()), (11, "    row 39"), "the end comes first");
        assert!(rows[10].starts_with(" 32-41 of 41 · "), "{rows:?}");
        assert!(!press(&mut it, KeyCode::Down) && shown(&it) == rows);
        press(&mut it, KeyCode::PageUp);
        assert_eq!(shown(&it)[9], "    row 29");
        press(&mut it, KeyCode::Home);
        assert_eq!((shown(&it)[0].starts_with("✓ shell ls"), &*shown(&it)[1]), (true, "    row 0"));
        press(&mut it, KeyCode::Char('j'));
        assert_eq!(shown(&it)[0], "    row 0");
        for code in [KeyCode::Esc, KeyCode::Char('q')] {
            assert!(press(&mut it, code));
        }
    }

    #[test]
    fn a_search_goes_from_match_to_match_and_around() {
        let mut it = pager((60, 11));
        let types = |it: &mut Pager, text: &str| {
            for sign in text.chars() {
                press(it, KeyCode::Char(sign));
            }
        };
        press(&mut it, KeyCode::Home);
        types(&mut it, "/ROW 3q");
        assert_eq!(shown(&it)[10], "/ROW 3q");
        press(&mut it, KeyCode::Backspace);
        press(&mut it, KeyCode::Enter);
        let found = |it: &Pager| it.search.as_ref().unwrap().found;
        // The first row has the title of the call.
        assert_eq!(found(&it), Some(4));
        let marks: Vec<_> = it.rows()[4].spans.iter().map(|span| span.content.to_string()).collect();
        assert_eq!(marks, ["    ", "row 3"]);
        types(&mut it, "n");
        assert_eq!((found(&it), shown(&it).contains(&"    row 30".to_owned())), (Some(31), true));
        types(&mut it, "NN");
        assert_eq!(found(&it), Some(40), "around the begin");
        types(&mut it, "/none");
        press(&mut it, KeyCode::Enter);
        assert!(shown(&it)[10].contains(" · no `none` · "), "{:?}", shown(&it));
        types(&mut it, "/");
        assert!(!press(&mut it, KeyCode::Esc) && it.search.is_none());
        assert!(press(&mut it, KeyCode::Esc));
    }

    #[test]
    fn another_size_stays_at_its_place() {
        let mut it = pager((60, 11));
        press(&mut it, KeyCode::Home);
        it.resize((8, 5));
        assert!(shown(&it)[0].starts_with("✓"), "{:?}", shown(&it));
        it.resize((80, 100));
        assert_eq!(shown(&it).len(), 100);
        assert!(shown(&it)[99].starts_with(" 1-41 of 41"));
    }
}
