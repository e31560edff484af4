//! Truncation of tool results.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Truncates long tool results.
///
/// A text that exceeds any limit is truncated to satisfy all of them, excluding the marker. Truncation never
/// splits a character.
///
/// ```
/// # use superstep_agent::config::{Truncate, TruncateSide};
/// let short = Truncate { keep: TruncateSide::HeadTail, ..Truncate::chars(4, "[{omitted} of {total}]") };
/// assert_eq!(short.apply("abcdefgh".into()), "ab[4 of 8]gh");
/// assert_eq!(short.apply("abcd".into()), "abcd");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truncate {
    /// Maximum number of characters (Unicode scalar values).
    pub max_chars: Option<usize>,
    /// Maximum number of bytes.
    pub max_bytes: Option<usize>,
    /// Maximum number of lines.
    pub max_lines: Option<usize>,
    /// The part that is retained.
    pub keep: TruncateSide,
    /// The text that replaces the omitted part. `{omitted}` is the omitted amount, `{total}` the original
    /// amount and `{limit}` the limit, all in `{unit}`: `chars`, `bytes` or `lines`, whichever limit omits
    /// the most.
    pub marker: String,
    /// The marker used if the whole text was stored, with `{path}` as its path. Without it, or if the agent
    /// has no [`Spill`](superstep_llm::spill::Spill), nothing is stored.
    pub spill: Option<String>,
}

/// The part of a long text that is retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruncateSide {
    /// The beginning of the text.
    #[default]
    Head,
    /// Half of the limit from the beginning and half from the end.
    HeadTail,
}

/// The position of a truncation and the facts for its marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The range of omitted bytes.
    omitted: Range<usize>,
    /// The unit of the reported amounts.
    unit: Unit,
    limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Chars,
    Bytes,
    Lines,
}

impl Truncate {
    /// Retains the first `max` characters.
    pub fn chars(max: usize, marker: impl Into<String>) -> Self {
        Self { max_chars: Some(max), marker: marker.into(), ..Self::default() }
    }

    /// Returns the text, truncated if it exceeds a limit. Nothing is stored.
    pub fn apply(&self, text: String) -> String {
        match self.cut(&text) {
            Some(cut) => cut.apply(&text, &self.marker),
            None => text,
        }
    }

    /// Returns the truncation of a text; `None` if it is short enough.
    pub(crate) fn cut(&self, text: &str) -> Option<Cut> {
        let bounds =
            [(Unit::Chars, self.max_chars), (Unit::Bytes, self.max_bytes), (Unit::Lines, self.max_lines)];
        let cuts = bounds.into_iter().filter_map(|(unit, limit)| {
            let (limit, total) = (limit?, unit.count(text));
            (total > limit).then(|| Cut { omitted: unit.omitted(text, total, limit, self.keep), unit, limit })
        });
        let all: Vec<Cut> = cuts.collect();
        let most = all.iter().max_by_key(|cut| cut.omitted.len())?;
        // The union of all omitted ranges is omitted.
        let start = all.iter().map(|cut| cut.omitted.start).min()?;
        let end = all.iter().map(|cut| cut.omitted.end).max()?;
        Some(Cut { omitted: start..end, ..*most })
    }
}

impl Cut {
    /// Returns the text with the marker, a template of [`Truncate`], in place of the omitted part.
    pub(crate) fn apply(&self, text: &str, marker: &str) -> String {
        let (head, tail) = (&text[..self.omitted.start], &text[self.omitted.end..]);
        let unit = self.unit;
        let total = unit.count(text);
        let omitted = match unit {
            // A partially retained line is not counted as omitted.
            Unit::Lines => total.saturating_sub(unit.count(head) + unit.count(tail)),
            Unit::Chars | Unit::Bytes => unit.count(&text[self.omitted.clone()]),
        };
        let marker = marker
            .replace("{omitted}", &omitted.to_string())
            .replace("{total}", &total.to_string())
            .replace("{limit}", &self.limit.to_string())
            .replace("{unit}", unit.name());
        format!("{head}{marker}{tail}")
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Chars => "chars",
            Self::Bytes => "bytes",
            Self::Lines => "lines",
        }
    }

    fn count(self, text: &str) -> usize {
        match self {
            Self::Chars => text.chars().count(),
            Self::Bytes => text.len(),
            Self::Lines => text.lines().count(),
        }
    }

    /// Returns the bytes to omit from a text of `total` units, so that `limit` units stay.
    fn omitted(self, text: &str, total: usize, limit: usize, keep: TruncateSide) -> Range<usize> {
        let tail = match keep {
            TruncateSide::Head => 0,
            TruncateSide::HeadTail => limit / 2,
        };
        let start = self.place(text, limit - tail);
        let end = match (tail, self) {
            (0, _) => text.len(),
            (_, Self::Bytes) => text.ceil_char_boundary(total - tail),
            // A line's end is omitted with it, and the marker ends with one.
            (_, Self::Lines) => self.place(text, total - tail) + 1,
            (_, Self::Chars) => self.place(text, total - tail),
        };
        start..end.max(start)
    }

    /// Returns the byte offset after the first `n` units; the text has more.
    fn place(self, text: &str, n: usize) -> usize {
        match self {
            Self::Chars => text.char_indices().nth(n).map_or(text.len(), |(at, _)| at),
            Self::Bytes => text.floor_char_boundary(n),
            Self::Lines if n == 0 => 0,
            Self::Lines => text.match_indices('\n').nth(n - 1).map_or(text.len(), |(at, _)| at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_only_beyond_its_limit_and_between_characters() {
        let cococat = Truncate::chars(2000, "[truncated {omitted} chars]");
        assert_eq!(cococat.apply("x".repeat(2000)), "x".repeat(2000));
        assert_eq!(cococat.apply("x".repeat(2001)), "x".repeat(2000) + "[truncated 1 chars]");
        assert_eq!(cococat.apply("x".repeat(5000)), "x".repeat(2000) + "[truncated 3000 chars]");
        assert_eq!(cococat.apply("é".repeat(2001)), "é".repeat(2000) + "[truncated 1 chars]");
        let harness = Truncate::chars(16_000, "\n... truncated");
        assert_eq!(harness.apply("x".repeat(16_000)), "x".repeat(16_000));
        assert_eq!(harness.apply("x".repeat(16_001)), "x".repeat(16_000) + "\n... truncated");
    }

    const SAYS: &str = "[{omitted}/{total}/{limit} {unit}]";

    fn both(truncate: Truncate, text: &str) -> (String, String) {
        let truncate = Truncate { marker: SAYS.into(), ..truncate };
        let ends = Truncate { keep: TruncateSide::HeadTail, ..truncate.clone() };
        (truncate.apply(text.into()), ends.apply(text.into()))
    }

    #[test]
    fn each_unit_retains_the_head_or_both_ends() {
        let chars = Truncate { max_chars: Some(3), ..Truncate::default() };
        assert_eq!(both(chars, "aéxöb"), ("aéx[2/5/3 chars]".into(), "aé[2/5/3 chars]b".into()));
        // A character that does not fit completely is omitted: é has two bytes, 😀 four.
        let bytes = Truncate { max_bytes: Some(4), ..Truncate::default() };
        assert_eq!(both(bytes.clone(), "aé😀b"), ("aé[5/8/4 bytes]".into(), "a[6/8/4 bytes]b".into()));
        assert_eq!(both(bytes, "aé1"), ("aé1".into(), "aé1".into()));
        let lines = Truncate { max_lines: Some(2), ..Truncate::default() };
        assert_eq!(both(lines.clone(), "a\nb\nc\nd"), ("a\nb[2/4/2 lines]".into(), "a[2/4/2 lines]d".into()));
        assert_eq!(both(lines, "a\nb\n"), ("a\nb\n".into(), "a\nb\n".into()));
        let nothing = Truncate { max_lines: Some(0), max_chars: Some(0), ..Truncate::default() };
        assert_eq!(both(nothing.clone(), "a"), ("[1/1/0 lines]".into(), "[1/1/0 lines]".into()));
        assert_eq!(both(nothing, ""), (String::new(), String::new()));
    }

    #[test]
    fn all_limits_apply_and_the_tightest_is_reported() {
        let opencode = Truncate { max_lines: Some(3), max_bytes: Some(8), ..Truncate::default() };
        let (head, ends) = both(opencode.clone(), "aaaa\nbbbb\ncccc\ndddd\neeee");
        assert_eq!((&*head, &*ends), ("aaaa\nbbb[16/24/8 bytes]", "aaaa[16/24/8 bytes]eeee"));
        let (head, ends) = both(opencode, "a\nb\nc\nd\ne");
        assert_eq!((&*head, &*ends), ("a\nb\nc[2/5/3 lines]", "a\nb[2/5/3 lines]e"));
    }
}
