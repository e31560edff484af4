//! Halves of surrogate pairs, which JSON can escape one by one.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// The content of a JSON string in WTF-8: like UTF-8, but a half of a surrogate pair may stand alone.
///
/// Some servers split a character in the middle of its escapes, `\ud83d` and `\ude00`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wtf8(Vec<u8>);

impl Wtf8 {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }
}

impl From<&str> for Wtf8 {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        // serde_json accepts lone halves in byte strings only.
        text.deserialize_byte_buf(Bytes)
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Wtf8;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Wtf8, E> {
        Ok(Wtf8(bytes.to_vec()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Wtf8, E> {
        Ok(text.into())
    }
}

/// Joins the halves of surrogate pairs across the pieces of one text. A half without its other becomes U+FFFD.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Halves {
    /// The first half at the end of the text so far.
    pending: Option<u16>,
}

impl Halves {
    /// Returns the text of the next piece, without a first half at its end.
    pub(crate) fn join(&mut self, piece: Wtf8) -> String {
        let bytes = match String::from_utf8(piece.0) {
            Ok(text) if self.pending.is_none() || text.is_empty() => return text,
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let (mut text, mut rest) = (String::with_capacity(bytes.len() + 3), &bytes[..]);
        loop {
            let half = rest.windows(3).position(|bytes| bytes[0] == 0xED && bytes[1] >= 0xA0);
            let (before, behind) = rest.split_at(half.unwrap_or(rest.len()));
            if !before.is_empty() {
                text.extend(self.end());
                text.push_str(&String::from_utf8_lossy(before));
            }
            let [_, high, low, behind @ ..] = behind else { return text };
            self.add(0xD000 | (u16::from(high & 0x3F) << 6) | u16::from(low & 0x3F), &mut text);
            rest = behind;
        }
    }

    fn add(&mut self, half: u16, text: &mut String) {
        let first = self.pending.take();
        if half < 0xDC00 {
            text.extend(first.map(|_| char::REPLACEMENT_CHARACTER));
            self.pending = Some(half);
            return;
        }
        let pair = char::decode_utf16(first.into_iter().chain([half])).next().and_then(Result::ok);
        text.push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
    }

    /// Ends the text: returns U+FFFD for a half that is still without its other.
    pub(crate) fn end(&mut self) -> Option<char> {
        self.pending.take().map(|_| char::REPLACEMENT_CHARACTER)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_joined_across_pieces_and_replaced_without_their_other() {
        let joined = |pieces: &[&str]| {
            let mut halves = Halves::default();
            let mut text: String =
                pieces.iter().map(|piece| halves.join(serde_json::from_str(piece).unwrap())).collect();
            text.extend(halves.end());
            text
        };
        assert_eq!(joined(&[r#""a\ud83d\ude00é""#]), "a😀é");
        assert_eq!(joined(&[r#""a\ud83d""#, r#""""#, r#""\ude00b""#]), "a😀b");
        assert_eq!(joined(&[r#""\ud83d""#, r#""\ude00\ud83d""#, r#""\ude01""#]), "😀😁");
        assert_eq!(joined(&[r#""a\ud83d""#]), "a\u{FFFD}");
        assert_eq!(joined(&[r#""a\ud83d""#, r#""b""#]), "a\u{FFFD}b");
        assert_eq!(
            joined(&[r#""\ud83dé\ude00""#, r#""\ud83d""#, r#""\ud83d\ude00""#]),
            "\u{FFFD}é\u{FFFD}\u{FFFD}😀"
        );
        assert_eq!(joined(&[r#""\ud7ff\ue000""#]), "\u{D7FF}\u{E000}");
    }
}
