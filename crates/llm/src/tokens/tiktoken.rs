//! Token counts with OpenAI's vocabularies.

use tiktoken_rs::{CoreBPE, o200k_base_singleton};

use crate::{
    Message, ToolSpec,
    tokens::{Bytes, TokenCounter, wide},
};

/// The maximum number of bytes of a piece of text for counting. A vocabulary takes disproportionate time for
/// one endless word or line, and a cut costs a token or two.
const PIECE: usize = 4 << 10;

/// The number of bytes of a text that are counted. The count of the rest is extrapolated.
const MAX_COUNTED_BYTES: usize = 256 << 10;

/// A counter with a vocabulary of OpenAI.
///
/// The vocabulary is loaded at the first count, which takes some 100 ms, and shared by all counters. The
/// models of other vendors have other vocabularies, whose counts differ by a fifth or so.
#[derive(Clone, Copy)]
pub struct Tiktoken {
    vocabulary: fn() -> &'static CoreBPE,
}

impl Tiktoken {
    /// Creates a counter with the vocabulary of GPT-4o, GPT-5 and gpt-oss.
    pub fn o200k() -> Self {
        Self { vocabulary: o200k_base_singleton }
    }
}

impl std::fmt::Debug for Tiktoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tiktoken")
    }
}

impl TokenCounter for Tiktoken {
    fn text(&self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let vocabulary = (self.vocabulary)();
        let mut rest = &text[..text.floor_char_boundary(MAX_COUNTED_BYTES)];
        let (counted, mut tokens) = (wide(rest.len()), 0u64);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(end_of_piece(rest));
            tokens += wide(vocabulary.count_ordinary(piece));
            rest = after;
        }
        if counted == wide(text.len()) {
            return tokens;
        }
        let all = u128::from(tokens) * u128::from(wide(text.len())) / u128::from(counted);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    fn message_at_most(&self, message: &Message) -> u64 {
        Bytes.message(message)
    }

    fn tool_at_most(&self, tool: &ToolSpec) -> u64 {
        Bytes.tool(tool)
    }
}

/// Returns the end of the first piece of a text: before a word, if there is one near the maximum length.
fn end_of_piece(text: &str) -> usize {
    if text.len() <= PIECE {
        return text.len();
    }
    let end = text.floor_char_boundary(PIECE);
    let from = text.floor_char_boundary(PIECE - 256);
    text[from..end].rfind(char::is_whitespace).map_or(end, |at| from + at).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> u64 {
        Tiktoken::o200k().text(text)
    }

    #[test]
    fn every_script_is_counted_as_the_vocabulary_has_it() {
        assert_eq!(count(""), 0);
        assert_eq!(count("hello world"), 2);
        assert_eq!(count("tiktoken is great!"), 6);
        assert_eq!(count("お誕生日おめでとう"), 8);
        assert_eq!(count("请记住我喜欢茶"), 6);
    }

    #[test]
    fn a_long_text_is_counted_in_pieces_and_by_its_beginning() {
        let line = "The quick brown fox jumps over the lazy dog, again and again, until the evening.\n";
        let lines = |n: usize| count(&line.repeat(n));
        let one = lines(1);
        for n in [100, 1_000, 10_000] {
            let (all, wanted) = (lines(n), one * wide(n));
            assert!(all.abs_diff(wanted) <= wanted / 100, "{n} lines: {all} instead of {wanted}");
        }
    }

    #[test]
    fn adversarial_text_is_counted_in_time() {
        let bytes = |unit: &str| unit.repeat(MAX_COUNTED_BYTES / unit.len());
        for unit in ["x", " ", "\n", "\t ", "a\u{300}", "\u{200b}", "!", "茶", "😀", "\0", "1", "'S"] {
            assert!(count(&bytes(unit)) > 0, "{unit:?}");
        }
    }

    #[test]
    fn no_text_has_more_tokens_than_bytes() {
        for text in ["x", "茶", "😀\u{200d}", "\u{10ffff}", " \n"] {
            let message = Message::user(text);
            assert!(
                Tiktoken::o200k().message(&message) <= Tiktoken::o200k().message_at_most(&message),
                "{text}"
            );
        }
    }
}
