//! The live part at the end of the terminal's lines.
//!
//! Start at [`Screen::draw`]. Finished lines scroll into the terminal's own history. The live part is found again relative to
//! the cursor, so that the position on the screen is never needed.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ratatui::{
    backend::IntoCrossterm as _,
    crossterm::{
        cursor::{Hide, MoveDown, MoveTo, MoveToColumn, MoveUp, Show},
        execute, queue,
        style::{Attribute, Print, SetAttribute, SetForegroundColor},
        terminal::{
            BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
            LeaveAlternateScreen,
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
    /// The columns of the rows of the live part.
    drawn: Vec<usize>,
    /// The row and the column of the cursor in the live part.
    cursor: (usize, usize),
    has_colours: bool,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, has_colours: bool) -> Self {
        Self { out, drawn: Vec::new(), cursor: (0, 0), has_colours }
    }

    /// Prints finished lines above the live part, and replaces the live part. Each of its lines must be shorter than a row, and
    /// all of them together lower than the terminal.
    pub(super) fn draw(
        &mut self,
        finished: &[Line<'_>],
        live: &[Line<'_>],
        cursor: (usize, usize),
    ) -> io::Result<()> {
        queue!(self.out, BeginSynchronizedUpdate, Hide)?;
        self.move_to_top()?;
        for line in finished {
            self.line(line)?;
            self.out.write_all(b"\r\n")?;
        }
        for (at, line) in live.iter().enumerate() {
            if at > 0 {
                self.out.write_all(b"\r\n")?;
            }
            self.line(line)?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown))?;
        self.drawn = live.iter().map(Line::width).collect();
        let up = live.len().saturating_sub(1).saturating_sub(cursor.0);
        if up > 0 {
            queue!(self.out, MoveUp(narrow(up)))?;
        }
        queue!(self.out, MoveToColumn(narrow(cursor.1)), Show, EndSynchronizedUpdate)?;
        self.cursor = cursor;
        self.out.flush()
    }

    /// Clears the live part after the terminal has got another width and has wrapped its rows anew. Otherwise a copy of it would
    /// stay in the history.
    pub(super) fn resized(&mut self, width: usize) -> io::Result<()> {
        let width = width.max(1);
        let rows = |columns: usize| columns.div_ceil(width).max(1);
        let above: usize = self.drawn.iter().take(self.cursor.0).map(|columns| rows(*columns)).sum();
        let own = self.cursor.1 / width;
        let up = above + own;
        queue!(self.out, MoveToColumn(0))?;
        if up > 0 {
            queue!(self.out, MoveUp(narrow(up)))?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown))?;
        (self.drawn, self.cursor) = (Vec::new(), (0, 0));
        self.out.flush()
    }

    /// Clears the live part, and leaves the cursor at its begin.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.move_to_top()?;
        queue!(self.out, Clear(ClearType::FromCursorDown), Show)?;
        (self.drawn, self.cursor) = (Vec::new(), (0, 0));
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
            self.line(row)?;
        }
        execute!(self.out, EndSynchronizedUpdate)
    }

    /// Returns to the conversation.
    pub(super) fn end_page(&mut self) -> io::Result<()> {
        execute!(self.out, LeaveAlternateScreen, Show)
    }

    /// Ends the live part, which stays, and leaves the cursor below it.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        let down = self.drawn.len().saturating_sub(1).saturating_sub(self.cursor.0);
        if down > 0 {
            queue!(self.out, MoveDown(narrow(down)))?;
        }
        self.clear()
    }

    fn move_to_top(&mut self) -> io::Result<()> {
        queue!(self.out, MoveToColumn(0))?;
        if self.cursor.0 > 0 {
            queue!(self.out, MoveUp(narrow(self.cursor.0)))?;
        }
        Ok(())
    }

    /// Writes a line over what is on the row. Blanks are not written to its end: they would be copied, and wrapped by a
    /// narrower terminal.
    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        for span in &line.spans {
            self.style(line.style.patch(span.style))?;
            queue!(self.out, Print(&span.content), SetAttribute(Attribute::Reset))?;
        }
        queue!(self.out, Clear(ClearType::UntilNewLine))
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
    use ratatui::text::Span;

    use super::*;

    fn written(screen: &mut Screen<Vec<u8>>) -> String {
        String::from_utf8(std::mem::take(&mut screen.out)).unwrap().replace('\u{1b}', "^")
    }

    #[test]
    fn finished_lines_are_printed_where_the_live_part_was() {
        let mut screen = Screen::new(Vec::new(), true);
        screen.draw(&[], &[Line::from("draft"), Line::from("status")], (0, 5)).unwrap();
        written(&mut screen);
        screen.draw(&[Line::from("done")], &[Line::from("draft"), Line::from("status")], (1, 2)).unwrap();
        let all = written(&mut screen);
        assert!(all.contains("done^[0m^[K\r\ndraft^[0m^[K\r\nstatus^[0m^[K^[J"), "{all}");
        screen.draw(&[], &[], (0, 0)).unwrap();
        assert!(written(&mut screen).contains("^[1G^[1A"));
    }

    #[test]
    fn a_resize_counts_the_rows_that_were_wrapped() {
        let mut screen = Screen::new(Vec::new(), true);
        let rows = [Line::from("x".repeat(30)), Line::from("y".repeat(10)), Line::from("z")];
        screen.draw(&[], &rows, (2, 1)).unwrap();
        written(&mut screen);
        screen.resized(20).unwrap();
        assert_eq!(written(&mut screen), "^[1G^[3A^[J");
        screen.resized(20).unwrap();
        assert_eq!(written(&mut screen), "^[1G^[J", "the live part is gone");
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
        screen.line(&line).unwrap();
        assert_eq!(written(&mut screen), "^[1mx^[0m^[K");
        screen.has_colours = true;
        screen.line(&line).unwrap();
        assert!(written(&mut screen).starts_with("^[1m^[38;5;1mx"));
    }
}
