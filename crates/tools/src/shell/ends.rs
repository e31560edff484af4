//! Truncation of a byte stream to its first and last part.

use std::collections::VecDeque;

use crate::call::grouped;

/// Number of bytes retained of each end.
const KEPT: usize = 32 << 10;

/// Accepts any number of bytes and retains the first and the last 32 KiB.
#[derive(Default)]
pub(super) struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl HeadAndTail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// Returns the retained text and a note of the omitted size.
    pub(super) fn into_text(self) -> String {
        let Self { mut head, tail, left_out } = self;
        if left_out == 0 {
            head.extend(tail);
            return String::from_utf8_lossy(&head).into_owned();
        }
        let tail: Vec<u8> = tail.into();
        let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
        format!("{head}\n… [{} bytes left out] …\n{tail}", grouped(left_out))
    }
}

/// Decodes text from chunks of bytes that may end in the middle of a character.
#[derive(Default)]
pub(super) struct TextDecoder {
    begun: Vec<u8>,
}

impl TextDecoder {
    /// Returns the text of these bytes and of the pending ones before, without an incomplete last character.
    /// An empty piece marks the end of the stream and flushes the incomplete character.
    pub(super) fn text(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(piece);
        let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        if is_begun && !piece.is_empty() {
            self.begun = bytes.split_off(bytes.len() - last.len());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: &[&[u8]]) -> String {
        let mut ends = HeadAndTail::default();
        parts.iter().for_each(|part| ends.push(part));
        ends.into_text()
    }

    #[test]
    fn a_character_in_pieces_is_reported_as_a_whole() {
        let mut whole = TextDecoder::default();
        let told: Vec<_> = "añ😀b".as_bytes().chunks(1).map(|piece| whole.text(piece)).collect();
        assert_eq!(told, ["a", "", "ñ", "", "", "", "😀", "b"]);
        assert_eq!(whole.text(b"\xffx\xf0\x9f"), "\u{fffd}x");
        assert_eq!(whole.text(b""), "\u{fffd}");
    }

    #[test]
    fn nothing_is_left_out_before_both_ends_are_full() {
        assert_eq!(text(&["añ".as_bytes(), b"", b"b"]), "añb");
        let full = "x".repeat(2 * KEPT);
        assert_eq!(text(&[full.as_bytes()]), full);
        let over = text(&[full.as_bytes(), b"yz"]);
        let x = "x".repeat(KEPT);
        assert_eq!(over, format!("{x}\n… [2 bytes left out] …\n{}yz", &x[2..]));
    }

    #[test]
    fn a_character_across_two_parts_is_whole() {
        assert_eq!(text(&[b"\xc3", b"\xb1"]), "ñ");
    }
}
