//! The draft and its keys, without a terminal.
//!
//! Start at [`Composer::key`].

use std::path::{Path, PathBuf};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};
use superstep_session::text::count;

use crate::chat::menu::Menu;

/// A pasted text above this length is a chip in the draft, in lines and in characters.
const MAX_PASTED_LINES: usize = 6;
const MAX_PASTED_CHARS: usize = 600;

/// Maximum number of earlier messages.
const MAX_HISTORY: usize = 500;

/// The meaning of a key for the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The draft may have changed.
    Edited,
    /// Enter: the message.
    Send(String),
    /// Tab: the message, for after the turn.
    Queue(String),
    /// Esc.
    Cancel,
    /// Ctrl-C without a draft.
    Interrupt,
    /// Ctrl-D without a draft.
    Quit,
    /// Ctrl-G: the draft is to be edited in `$EDITOR`.
    Edit,
    /// Ctrl-T: the whole conversation is to be shown.
    Transcript,
    /// Alt-Up: the last queued message is to be the draft.
    TakeBack,
}

/// The draft of a message.
pub(super) struct Composer {
    area: TextArea<'static>,
    folder: PathBuf,
    history: Vec<String>,
    /// The place in the history, and the draft before it.
    browsed: Option<(usize, String)>,
    search: Option<Search>,
    menu: Menu,
    /// The pasted texts by their chips.
    pasted: Vec<(String, String)>,
}

/// A search in the history.
struct Search {
    query: String,
    /// The place of the match.
    found: Option<usize>,
    draft: String,
}

impl Composer {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            area: TextArea::default(),
            folder: folder.to_owned(),
            history: Vec::new(),
            browsed: None,
            search: None,
            menu: Menu::default(),
            pasted: Vec::new(),
        }
    }

    /// The lines of the draft.
    pub(super) fn lines(&self) -> &[String] {
        self.area.lines()
    }

    /// The line and the character of the cursor.
    pub(super) fn cursor(&self) -> (usize, usize) {
        let cursor = self.area.cursor();
        (cursor.0, cursor.1)
    }

    pub(super) fn menu(&self) -> &Menu {
        &self.menu
    }

    /// Returns the query of the search in the history, and whether there is a match.
    pub(super) fn search(&self) -> Option<(&str, bool)> {
        self.search.as_ref().map(|search| (&*search.query, search.found.is_some()))
    }

    pub(super) fn draft(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Replaces the draft.
    pub(super) fn set(&mut self, text: &str) {
        self.area = TextArea::from(text.split('\n'));
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
        self.menu = Menu::default();
    }

    /// Removes the draft, and ends a search.
    pub(super) fn clear(&mut self) {
        (self.search, self.browsed) = (None, None);
        self.set("");
    }

    /// Adds a message to the history.
    pub(super) fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) && !text.trim().is_empty() {
            self.history.push(text.to_owned());
        }
        let over = self.history.len().saturating_sub(MAX_HISTORY);
        self.history.drain(..over);
    }

    /// Inserts a pasted text; a long one is a chip that stands for it.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().count();
        if lines <= MAX_PASTED_LINES && text.chars().count() <= MAX_PASTED_CHARS {
            self.area.insert_str(&text);
        } else {
            let chip = format!("[pasted {}: {}]", self.pasted.len() + 1, count(lines, "line"));
            self.area.insert_str(&chip);
            self.pasted.push((chip, text));
        }
        self.edited();
    }

    /// Does what a key says.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        if self.search.is_some() {
            return self.search_key(key, ctrl);
        }
        let has_menu = !self.menu.choices.is_empty();
        match key.code {
            KeyCode::Enter if alt || shift => self.newline(),
            KeyCode::Char('j') if ctrl => self.newline(),
            KeyCode::Enter if has_menu && !self.is_complete() => self.complete(),
            KeyCode::Enter => self.take().map_or(Action::Edited, Action::Send),
            KeyCode::Tab if has_menu => self.complete(),
            KeyCode::Tab => self.take().map_or(Action::Edited, Action::Queue),
            KeyCode::Esc if has_menu => {
                self.menu = Menu::default();
                Action::Edited
            }
            KeyCode::Esc => Action::Cancel,
            KeyCode::Char('c') if ctrl => {
                if self.area.is_empty() {
                    return Action::Interrupt;
                }
                self.set("");
                self.browsed = None;
                Action::Edited
            }
            KeyCode::Char('d') if ctrl && self.area.is_empty() => Action::Quit,
            KeyCode::Char('g') if ctrl => Action::Edit,
            KeyCode::Char('t') if ctrl => Action::Transcript,
            KeyCode::Char('r') if ctrl => {
                self.search = Some(Search { query: String::new(), found: None, draft: self.draft() });
                Action::Edited
            }
            KeyCode::Char('u') if ctrl => {
                self.area.delete_line_by_head();
                self.edited()
            }
            KeyCode::Up if alt => Action::TakeBack,
            KeyCode::Up | KeyCode::Down if has_menu => {
                self.menu.step(key.code == KeyCode::Down);
                Action::Edited
            }
            KeyCode::Up if self.cursor().0 == 0 => self.browse(false),
            KeyCode::Down if self.cursor().0 + 1 == self.lines().len() => self.browse(true),
            _ => {
                self.area.input(key);
                self.edited()
            }
        }
    }

    fn newline(&mut self) -> Action {
        self.area.insert_newline();
        self.edited()
    }

    /// Updates the menu for the word before the cursor.
    fn edited(&mut self) -> Action {
        let (line, column) = self.cursor();
        let before: String = self.lines()[line].chars().take(column).collect();
        self.menu =
            if line == 0 || before.contains('@') { Menu::of(&before, &self.folder) } else { Menu::default() };
        Action::Edited
    }

    /// Returns whether the selected choice is already typed.
    fn is_complete(&self) -> bool {
        let typed = self.draft();
        self.menu.choices.iter().any(|choice| typed == choice.word)
            || self.menu.choice().is_some_and(|choice| typed.ends_with(&choice.word))
    }

    fn complete(&mut self) -> Action {
        if let Some(choice) = self.menu.choice() {
            let word = choice.word.clone();
            for _ in 0..self.menu.typed {
                self.area.delete_char();
            }
            self.area.insert_str(&word);
            if !word.ends_with('/') {
                self.area.insert_char(' ');
            }
        }
        self.edited()
    }

    /// Returns the message and clears the draft; `None` if it is empty.
    fn take(&mut self) -> Option<String> {
        let draft = self.draft();
        if draft.trim().is_empty() {
            return None;
        }
        let whole =
            self.pasted.drain(..).fold(draft, |text, (chip, pasted)| text.replacen(&chip, &pasted, 1));
        self.set("");
        self.browsed = None;
        self.remember(whole.trim());
        Some(whole.trim().to_owned())
    }

    fn browse(&mut self, down: bool) -> Action {
        let at = match (&self.browsed, down) {
            (None, true) => return Action::Edited,
            (None, false) => self.history.len(),
            (Some((at, _)), _) => *at,
        };
        let next = if down { Some(at + 1) } else { at.checked_sub(1) };
        let Some(next) = next else { return Action::Edited };
        let draft = self.browsed.take().map_or_else(|| self.draft(), |(_, draft)| draft);
        match self.history.get(next).cloned() {
            Some(text) => {
                self.set(&text);
                self.browsed = Some((next, draft));
            }
            None => self.set(&draft),
        }
        Action::Edited
    }

    fn search_key(&mut self, key: KeyEvent, ctrl: bool) -> Action {
        let Some(search) = &mut self.search else { return Action::Edited };
        let mut from = self.history.len();
        match key.code {
            KeyCode::Char('r') if ctrl => from = search.found.unwrap_or(from),
            KeyCode::Esc | KeyCode::Char('c' | 'g') if key.code == KeyCode::Esc || ctrl => {
                let draft = std::mem::take(&mut search.draft);
                self.search = None;
                self.set(&draft);
                return Action::Edited;
            }
            KeyCode::Backspace => drop(search.query.pop()),
            KeyCode::Char(sign) if !ctrl => search.query.push(sign),
            _ => {
                // The match is the draft: the next Enter sends it.
                self.search = None;
                return Action::Edited;
            }
        }
        let query = search.query.to_lowercase();
        let fits = |text: &String| !query.is_empty() && text.to_lowercase().contains(&query);
        let found = self.history[..from].iter().rposition(fits);
        // A further Ctrl-R without a match stays at the last one.
        search.found = found.or(if from < self.history.len() { search.found } else { None });
        let text = match search.found {
            Some(at) => self.history[at].clone(),
            None => search.draft.clone(),
        };
        self.set(&text);
        Action::Edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composer() -> Composer {
        Composer::new(Path::new("/nonexistent"))
    }

    fn press(composer: &mut Composer, code: KeyCode, modifiers: KeyModifiers) -> Action {
        composer.key(KeyEvent::new(code, modifiers))
    }

    fn types(composer: &mut Composer, text: &str) {
        for sign in text.chars() {
            press(composer, KeyCode::Char(sign), KeyModifiers::NONE);
        }
    }

    #[test]
    fn enter_sends_tab_queues_and_alt_enter_breaks_the_line() {
        let mut it = composer();
        types(&mut it, "one");
        press(&mut it, KeyCode::Enter, KeyModifiers::ALT);
        types(&mut it, "two ");
        assert_eq!((it.lines(), it.cursor()), (&["one".to_owned(), "two ".to_owned()][..], (1, 4)));
        assert_eq!(press(&mut it, KeyCode::Enter, KeyModifiers::NONE), Action::Send("one\ntwo".to_owned()));
        assert_eq!(press(&mut it, KeyCode::Enter, KeyModifiers::NONE), Action::Edited, "nothing to send");
        types(&mut it, "later");
        assert_eq!(press(&mut it, KeyCode::Tab, KeyModifiers::NONE), Action::Queue("later".to_owned()));
        assert_eq!(it.draft(), "");
    }

    #[test]
    fn ctrl_c_clears_the_draft_first() {
        let mut it = composer();
        types(&mut it, "draft");
        assert_eq!(press(&mut it, KeyCode::Char('c'), KeyModifiers::CONTROL), Action::Edited);
        assert_eq!(it.draft(), "");
        assert_eq!(press(&mut it, KeyCode::Char('c'), KeyModifiers::CONTROL), Action::Interrupt);
        assert_eq!(press(&mut it, KeyCode::Char('d'), KeyModifiers::CONTROL), Action::Quit);
        assert_eq!(press(&mut it, KeyCode::Esc, KeyModifiers::NONE), Action::Cancel);
        assert_eq!(press(&mut it, KeyCode::Char('t'), KeyModifiers::CONTROL), Action::Transcript);
    }

    #[test]
    fn the_history_returns_to_the_draft() {
        let mut it = composer();
        for text in ["first", "second"] {
            it.remember(text);
        }
        types(&mut it, "draft");
        let draft_after = |it: &mut Composer, code| {
            press(it, code, KeyModifiers::NONE);
            it.draft()
        };
        assert_eq!(draft_after(&mut it, KeyCode::Up), "second");
        assert_eq!(draft_after(&mut it, KeyCode::Up), "first");
        assert_eq!(draft_after(&mut it, KeyCode::Up), "first");
        assert_eq!(draft_after(&mut it, KeyCode::Down), "second");
        assert_eq!(draft_after(&mut it, KeyCode::Down), "draft");
    }

    #[test]
    fn ctrl_r_searches_backwards() {
        let mut it = composer();
        for text in ["cargo test", "cargo build", "ls"] {
            it.remember(text);
        }
        types(&mut it, "kept");
        press(&mut it, KeyCode::Char('r'), KeyModifiers::CONTROL);
        types(&mut it, "CAR");
        assert_eq!((it.draft().as_str(), it.search()), ("cargo build", Some(("CAR", true))));
        press(&mut it, KeyCode::Char('r'), KeyModifiers::CONTROL);
        assert_eq!(it.draft(), "cargo test");
        press(&mut it, KeyCode::Char('r'), KeyModifiers::CONTROL);
        assert_eq!(it.draft(), "cargo test");
        press(&mut it, KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!((it.draft().as_str(), it.search()), ("kept", None));
    }

    #[test]
    fn a_long_paste_is_a_chip_until_it_is_sent() {
        let mut it = composer();
        let long = "line\n".repeat(40);
        types(&mut it, "see ");
        it.paste(&long);
        it.paste("\r\nshort");
        assert_eq!(it.draft(), "see [pasted 1: 40 lines]\nshort");
        let sent = press(&mut it, KeyCode::Enter, KeyModifiers::NONE);
        assert_eq!(sent, Action::Send(format!("see {long}\nshort")));
    }

    #[test]
    fn a_menu_completes_a_command_and_enter_then_sends_it() {
        let mut it = composer();
        types(&mut it, "/hi");
        assert_eq!(it.menu().choices.len(), 1);
        assert_eq!(press(&mut it, KeyCode::Enter, KeyModifiers::NONE), Action::Edited);
        assert_eq!(it.draft(), "/history ");
        assert_eq!(press(&mut it, KeyCode::Enter, KeyModifiers::NONE), Action::Send("/history".to_owned()));
        types(&mut it, "/help");
        assert_eq!(press(&mut it, KeyCode::Enter, KeyModifiers::NONE), Action::Send("/help".to_owned()));
        types(&mut it, "/h");
        press(&mut it, KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!((it.menu().choices.len(), it.draft().as_str()), (0, "/h"));
    }
}
