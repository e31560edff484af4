//! A text that grows: its finished rows, and the rest.
//!
//! Start at [`Stream`].

use ratatui::text::Line;

use crate::chat::markdown::{finished, is_table, rows};

/// A message of the model whose pieces arrive.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) message: String,
    text: String,
    /// The bytes whose rows are printed.
    done: usize,
    /// The rows of the last block that are printed, at this width.
    printed: usize,
    width: usize,
}

impl Stream {
    pub(super) fn new(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }

    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Returns whether some rows are printed.
    pub(super) fn is_printed(&self) -> bool {
        self.done > 0 || self.printed > 0
    }

    /// Returns the rows that are finished since the last call. The last `live` rows of the last block may still change; with its
    /// other rows this is so rare that they are printed.
    pub(super) fn advance(&mut self, width: usize, live: usize) -> Vec<Line<'static>> {
        self.fit(width);
        let mut new = Vec::new();
        let cut = finished(&self.text[self.done..]);
        if cut > 0 {
            let all = rows(&self.text[self.done..self.done + cut], self.width);
            new.extend(all.into_iter().skip(self.printed));
            new.push(Line::default());
            self.done += cut;
            self.printed = 0;
            self.fit(width);
        }
        let rest = &self.text[self.done..];
        if !is_table(rest) {
            let all = rows(rest, self.width);
            let stable = all.len().saturating_sub(live);
            if stable > self.printed {
                new.extend(all.into_iter().take(stable).skip(self.printed));
                self.printed = stable;
            }
        }
        new
    }

    /// Returns the rows that are not printed.
    pub(super) fn rest(&self) -> Vec<Line<'static>> {
        let rows = rows(&self.text[self.done..], self.width.max(1));
        rows.into_iter().skip(self.printed).collect()
    }

    /// Takes the terminal's width, unless some rows of a block are printed at another one.
    fn fit(&mut self, width: usize) {
        if self.printed == 0 {
            self.width = width;
        }
    }

    /// Returns all rows that are left, and an empty one.
    pub(super) fn end(mut self, width: usize) -> Vec<Line<'static>> {
        let mut all = self.advance(width, usize::MAX);
        all.extend(self.rest());
        if self.is_printed() || !all.is_empty() {
            all.push(Line::default());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_printed_once_and_in_order_whenever_the_width_changes() {
        let text: String = (0..90).map(|n| format!("- line {n} with some words\n")).collect();
        let text = format!("# Begin\n\n{text}\n```\n{}```\n\nend", "code\n".repeat(20));
        for live in [3, 6, usize::MAX] {
            let mut stream = Stream::new("m");
            let mut seen = Vec::new();
            for (at, piece) in text.as_bytes().chunks(7).enumerate() {
                stream.push(std::str::from_utf8(piece).unwrap());
                seen.extend(stream.advance(if at % 40 < 20 { 60 } else { 100 }, live));
                assert!(live != 6 || stream.rest().len() <= 6, "the live part stays small");
            }
            seen.extend(stream.end(60));
            let seen: Vec<_> = seen.iter().map(Line::to_string).collect();
            let wanted: Vec<_> = rows(&text, 60).iter().map(Line::to_string).collect();
            assert_eq!(seen[..seen.len() - 1], wanted, "{live}");
        }
    }
}
