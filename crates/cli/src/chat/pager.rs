//! The whole conversation on a screen of its own, without a terminal.
//!
//! Start at [`Pager`].

use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Style,
    text::Line,
};
use superstep_session::live::SessionEvent;

use crate::chat::{view::View, wrap::cut};

/// A stored conversation with the whole results of its tools.
pub(super) struct Pager {
    events: Vec<SessionEvent>,
    rows: Vec<Line<'static>>,
    /// The columns and rows of the screen.
    size: (usize, usize),
    /// The first row that is shown.
    top: usize,
}

impl Pager {
    /// Shows the end of a conversation.
    pub(super) fn new(events: Vec<SessionEvent>, size: (usize, usize)) -> Self {
        let mut pager = Self { events, rows: Vec::new(), size: (0, 0), top: 0 };
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
        }
        self.size = size;
        self.top = self.top.min(self.last());
    }

    /// Does what a key says. Returns whether the pager ends.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let page = self.page();
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
            _ => self.top,
        };
        self.top = top.min(self.last());
        false
    }

    /// Returns the rows of the screen; the last one has the position and the keys.
    pub(super) fn rows(&self) -> Vec<Line<'static>> {
        let shown: Vec<_> = self.rows.iter().skip(self.top).take(self.page()).cloned().collect();
        let (first, last) = (self.top + 1, self.top + shown.len());
        let empty = self.page() - shown.len();
        let status = format!(" {first}-{last} of {} · arrows, PgUp, PgDn, g, G · q: back", self.rows.len());
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
