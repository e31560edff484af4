//! The live part at the end of the terminal's lines.
//!
//! Start at [`Screen::draw`]. Finished lines scroll into the terminal's own history. The cursor rests in the first row of the
//! live part, so that the live part is found again at every size of the terminal, and its position on the screen is never needed.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ratatui::{
    backend::IntoCrossterm as _,
    crossterm::{
        cursor::{
            Hide, MoveDown, MoveRight, MoveTo, MoveToColumn, MoveUp, RestorePosition, SavePosition, Show,
        },
        execute, queue,
        style::{Attribute, Print, SetAttribute, SetForegroundColor},
        terminal::{
            BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
            EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        },
    },
    style::{Color, Modifier, Style},
    text::Line,
};

/// Maximum number of copied bytes: the usual limit of terminals, without the growth by Base64.
const MAX_COPIED: usize = 74_994 / 4 * 3;

/// The terminal with a live part.
pub(super) struct Screen<W> {
    out: W,
    /// The number of rows of the live part.
    rows: usize,
    /// The column of the cursor in the first row of the live part.
    column: usize,
    has_colours: bool,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, has_colours: bool) -> Self {
        Self { out, rows: 0, column: 0, has_colours }
    }

    /// Prints finished lines above the live part, and replaces the live part, whose rows together must be lower than the
    /// terminal. The cursor is shown at a column of its first row, or hidden.
    ///
    /// The terminal may have got another size that is not known yet. It wraps the finished lines if they are too long for it, and
    /// cuts the rows of the live part, so that the live part has as many rows as here. None of them scrolls into the history.
    pub(super) fn draw(
        &mut self,
        finished: &[Line<'_>],
        live: &[Line<'_>],
        cursor: Option<usize>,
    ) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate, Hide, MoveToColumn(0))?;
        if !finished.is_empty() || live.is_empty() || live.len() > self.rows {
            self.clear_below()?;
            for line in finished {
                self.text(line)?;
                self.out.write_all(b"\r\n")?;
            }
            let below = live.len().saturating_sub(1);
            self.out.write_all(&b"\n".repeat(below))?;
            self.up(below)?;
        }
        queue!(self.out, DisableLineWrap, SavePosition)?;
        for (at, line) in live.iter().enumerate() {
            if at > 0 {
                queue!(self.out, MoveDown(1), MoveToColumn(0))?;
            }
            self.row(line)?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown), RestorePosition, EnableLineWrap)?;
        (self.rows, self.column) = (live.len(), cursor.unwrap_or(0));
        if cursor.is_some() {
            queue!(self.out, MoveToColumn(narrow(self.column)), Show)?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    /// Clears the live part after the terminal has got another size, and may have wrapped its rows anew.
    pub(super) fn resized(&mut self, width: usize) -> io::Result<()> {
        queue!(self.out, MoveToColumn(0))?;
        self.up(self.column.checked_div(width).unwrap_or(0))?;
        self.clear_below()?;
        (self.rows, self.column) = (0, 0);
        self.out.flush()
    }

    /// Clears the live part, and leaves the cursor at its begin.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        queue!(self.out, MoveToColumn(0))?;
        self.clear_below()?;
        queue!(self.out, Show)?;
        (self.rows, self.column) = (0, 0);
        self.out.flush()
    }

    /// Sends a text to the clipboard, as OSC 52, which works over ssh too.
    ///
    /// # Errors
    /// The text is longer than terminals accept.
    pub(super) fn copy(&mut self, text: &str) -> io::Result<()> {
        if text.len() > MAX_COPIED {
            let what = format!(
                "a terminal copies at most {MAX_COPIED} bytes; `/export` writes the thread to a file"
            );
            return Err(io::Error::other(what));
        }
        write!(self.out, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text))?;
        self.out.flush()
    }

    /// Begins a screen of its own above the conversation, which stays as it is.
    pub(super) fn begin_page(&mut self) -> io::Result<()> {
        execute!(self.out, EnterAlternateScreen, Hide)
    }

    /// Shows rows on that screen, one for each of the terminal.
    pub(super) fn page(&mut self, rows: &[Line<'_>]) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate)?;
        for (at, row) in rows.iter().enumerate() {
            queue!(self.out, MoveTo(0, narrow(at)))?;
            self.row(row)?;
        }
        execute!(self.out, EndSynchronizedUpdate)
    }

    /// Returns to the conversation.
    pub(super) fn end_page(&mut self) -> io::Result<()> {
        execute!(self.out, LeaveAlternateScreen, Show)
    }

    /// Clears from the begin of the cursor's row. tmux moves the screen into the history if it is cleared from its first cell.
    fn clear_below(&mut self) -> io::Result<()> {
        queue!(
            self.out,
            Clear(ClearType::UntilNewLine),
            MoveRight(1),
            Clear(ClearType::FromCursorDown),
            MoveToColumn(0)
        )
    }

    fn up(&mut self, rows: usize) -> io::Result<()> {
        if rows > 0 {
            queue!(self.out, MoveUp(narrow(rows)))?;
        }
        Ok(())
    }

    /// Writes a line over a row. Blanks are not written to its end: they would be copied, and wrapped by a narrower terminal.
    fn row(&mut self, line: &Line<'_>) -> io::Result<()> {
        self.text(line)?;
        queue!(self.out, Clear(ClearType::UntilNewLine))
    }

    fn text(&mut self, line: &Line<'_>) -> io::Result<()> {
        for span in &line.spans {
            self.style(line.style.patch(span.style))?;
            queue!(self.out, Print(&span.content), SetAttribute(Attribute::Reset))?;
        }
        Ok(())
    }

    fn style(&mut self, style: Style) -> io::Result<()> {
        for (modifier, attribute) in [
            (Modifier::BOLD, Attribute::Bold),
            (Modifier::DIM, Attribute::Dim),
            (Modifier::ITALIC, Attribute::Italic),
            (Modifier::UNDERLINED, Attribute::Underlined),
            (Modifier::CROSSED_OUT, Attribute::CrossedOut),
            (Modifier::REVERSED, Attribute::Reverse),
        ] {
            if style.add_modifier.contains(modifier) {
                queue!(self.out, SetAttribute(attribute))?;
            }
        }
        match style.fg {
            Some(colour) if self.has_colours && colour != Color::Reset => {
                queue!(self.out, SetForegroundColor(colour.into_crossterm()))
            }
            _ => Ok(()),
        }
    }
}

fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use alacritty_terminal::{
        Term,
        event::VoidListener,
        grid::Dimensions as _,
        index::{Column, Line as Row},
        term::{Config, cell::Flags, test::TermSize},
        vte::ansi::Processor,
    };
    use ratatui::text::Span;

    use super::*;

    fn written(screen: &mut Screen<Vec<u8>>) -> String {
        String::from_utf8(std::mem::take(&mut screen.out)).unwrap().replace('\u{1b}', "^")
    }

    /// Returns the history and the screen, without what the terminal has wrapped.
    fn all(term: &Term<VoidListener>) -> Vec<String> {
        let (mut lines, mut line) = (Vec::new(), String::new());
        for row in term.topmost_line().0..=term.bottommost_line().0 {
            let cells = &term.grid()[Row(row)];
            line.extend((0..term.columns()).map(|column| cells[Column(column)].c));
            if !cells[Column(term.columns() - 1)].flags.contains(Flags::WRAPLINE) {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
            }
        }
        lines
    }

    /// A row of a number, which is as long as some rows are.
    fn numbered(number: usize, width: usize) -> Line<'static> {
        let text = format!("{number} {}", "x".repeat(number * 37 % width));
        Line::from(text.chars().take(width).collect::<String>())
    }

    #[test]
    fn every_line_is_in_the_history_once_whenever_the_terminal_is_resized() {
        for seed in 1..=40_usize {
            let mut state = seed * 7_919;
            let mut any = |limit: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % limit
            };
            let mut size = (80, 30);
            let mut term = Term::new(Config::default(), &TermSize::new(size.0, size.1), VoidListener);
            let mut parser: Processor = Processor::new();
            let mut screen = Screen::new(Vec::new(), true);
            // A full screen: this terminal scrolls wrapped rows out although the rows below are empty.
            let (mut known, mut printed) = (size, 40);
            let begin: Vec<_> = (0..printed).map(|at| numbered(at, size.0 - 1)).collect();
            screen.draw(&begin, &[], None).unwrap();
            for _ in 0..60 {
                // The program learns of a size after the terminal has it.
                if any(3) == 0 {
                    size = (40 + any(90), 26 + any(10));
                    term.resize(TermSize::new(size.0, size.1));
                }
                if any(2) == 0 && known != size {
                    known = size;
                    screen.resized(known.0).unwrap();
                }
                let width = known.0 - 1;
                let more = any(4);
                let finished: Vec<_> = (printed..printed + more).map(|at| numbered(at, width)).collect();
                printed += more;
                let mut live: Vec<_> = (printed..printed + any(6)).map(|at| numbered(at, width)).collect();
                live.push(Line::from("> draft"));
                live.push(Line::from("status".repeat(9).chars().take(width).collect::<String>()));
                screen.draw(&finished, &live, (live.len() == 2).then_some(7)).unwrap();
                parser.advance(&mut term, &std::mem::take(&mut screen.out));
            }
            term.resize(TermSize::new(130, 36));
            screen.resized(130).unwrap();
            screen.draw(&[], &[Line::from("the end")], None).unwrap();
            parser.advance(&mut term, &screen.out);
            let lines = all(&term);
            let first = |line: &String| line.split(' ').next().unwrap_or_default().parse::<usize>().ok();
            let seen: Vec<_> = lines.iter().filter_map(first).collect();
            assert_eq!(seen, (0..printed).collect::<Vec<_>>(), "{seed}: {lines:#?}");
            let rest: Vec<_> =
                lines.iter().filter(|line| first(line).is_none() && !line.is_empty()).collect();
            assert_eq!(rest, ["the end"], "{seed}: {lines:#?}");
        }
    }

    #[test]
    fn finished_lines_are_printed_where_the_live_part_was() {
        let mut screen = Screen::new(Vec::new(), true);
        let live = [Line::from("draft"), Line::from("status")];
        screen.draw(&[], &live, Some(5)).unwrap();
        assert!(written(&mut screen).ends_with("^[J^8^[?7h^[6G^[?25h^[?2026l"));
        screen.draw(&[Line::from("done")], &live, None).unwrap();
        let all = written(&mut screen);
        let cleared = "^[?25l^[1G^[K^[1C^[J^[1G";
        let rows = "done^[0m\r\n\n^[1A^[?7l^7draft^[0m^[K^[1B^[1Gstatus^[0m^[K^[J^8^[?7h";
        assert_eq!(all, format!("^[?2026h{cleared}{rows}^[?2026l"));
        screen.draw(&[], &live, None).unwrap();
        assert!(!written(&mut screen).contains(cleared), "the same rows do not flicker");
    }

    #[test]
    fn the_cursor_of_a_long_draft_is_on_a_wrapped_row_after_a_resize() {
        let mut screen = Screen::new(Vec::new(), true);
        screen.draw(&[], &[Line::from("x".repeat(50))], Some(50)).unwrap();
        written(&mut screen);
        screen.resized(20).unwrap();
        assert!(written(&mut screen).starts_with("^[1G^[2A^[K"));
        screen.resized(20).unwrap();
        assert!(written(&mut screen).starts_with("^[1G^[K"), "the live part is gone");
    }

    #[test]
    fn a_text_is_copied_if_terminals_accept_it() {
        let mut screen = Screen::new(Vec::new(), true);
        screen.copy("hi é").unwrap();
        assert_eq!(written(&mut screen), "^]52;c;aGkgw6k=\u{7}");
        assert!(screen.copy(&"x".repeat(MAX_COPIED + 1)).is_err());
        assert_eq!(written(&mut screen), "");
    }

    #[test]
    fn without_colours_there_are_only_attributes() {
        let mut screen = Screen::new(Vec::new(), false);
        let line = Line::from(Span::styled("x", Style::new().fg(Color::Red).bold()));
        screen.row(&line).unwrap();
        assert_eq!(written(&mut screen), "^[1mx^[0m^[K");
        screen.has_colours = true;
        screen.row(&line).unwrap();
        assert!(written(&mut screen).starts_with("^[1m^[38;5;1mx"));
    }
}
