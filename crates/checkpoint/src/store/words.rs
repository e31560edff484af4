//! Finding items by their words.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use super::{Index, filter::field};

/// How many different words of a query count: the first ones.
pub const QUERY_WORDS: usize = 64;

/// So many items a search for words looks at, at the most.
pub const LOOKED_AT: u64 = 1_000;

/// The words of a text, in lower case: what is between characters that are neither letters nor digits. A character of a
/// script that writes no spaces (Han, Hiragana, Katakana) is a word of its own.
///
/// ```
/// let words: Vec<String> = superstep_graph::store::words("Ärger mit O'Neill, 東京 (2x)").collect();
/// assert_eq!(words, ["ärger", "mit", "o", "neill", "東", "京", "2x"]);
/// ```
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        let first = rest.chars().next()?;
        let end = if stands_alone(first) {
            first.len_utf8()
        } else {
            rest.find(|c: char| !c.is_alphanumeric() || stands_alone(c)).unwrap_or(rest.len())
        };
        let (word, left) = rest.split_at(end);
        rest = left;
        // Some capital letters become a letter and an accent of its own, which is no part of a word.
        Some(word.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect())
    })
}

fn stands_alone(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// The words of an item, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    counts: BTreeMap<String, u32>,
    len: u32,
}

impl Words {
    /// The words of a text.
    pub fn of(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        let mut len = 0_u32;
        for word in words(text) {
            *counts.entry(word).or_insert(0_u32) += 1;
            len = len.saturating_add(1);
        }
        Self { counts, len }
    }

    /// How many there are, the same one counted as often as it is there.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// How often each of these is there.
    pub fn count(&self, terms: &[String]) -> Vec<u32> {
        terms.iter().map(|term| self.counts.get(term).copied().unwrap_or(0)).collect()
    }
}

/// The first [`QUERY_WORDS`] different words of a query: those that count.
pub fn terms(query: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for word in words(query) {
        if !terms.contains(&word) {
            terms.push(word);
            if terms.len() == QUERY_WORDS {
                break;
            }
        }
    }
    terms
}

/// The texts and numbers of a value that queries look at, a line each.
pub(super) fn text_of(value: &Value, index: &Index) -> String {
    let mut text = String::new();
    match index {
        Index::Everything => collect(value, &mut text),
        Index::Fields(fields) => {
            for value in fields.iter().filter_map(|name| field(value, name)) {
                collect(value, &mut text);
            }
        }
        Index::Nothing => {}
    }
    text.truncate(text.trim_end().len());
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let _ = writeln!(text, "{number}");
        }
        Value::String(string) => {
            let _ = writeln!(text, "{string}");
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, text)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, text)),
    }
}

/// By which words of a query items are found, if so many of the items that are searched have each of them.
///
/// The rarest ones, as long as no more than [`LOOKED_AT`] items have them, counted word by word; the other ones only count in
/// scores. If even the rarest one is more common than that, it finds the [`LOOKED_AT`] items with it that were put last.
///
/// ```
/// use superstep_graph::store::finding;
///
/// // "the" "green" "tea" "xyz": nobody has to look at all the items with "the" to find tea.
/// assert_eq!(finding(&[50_000, 900, 80, 0]), [2, 1]);
/// assert_eq!(finding(&[50_000, 60_000]), [0]);
/// ```
pub fn finding(having: &[u64]) -> Vec<usize> {
    let mut rare: Vec<usize> = (0..having.len()).filter(|term| having[*term] > 0).collect();
    rare.sort_by_key(|term| having[*term]);
    let mut sum = 0_u64;
    let few = rare.iter().take_while(|term| {
        sum = sum.saturating_add(having[**term]);
        sum <= LOOKED_AT
    });
    let few = few.count().max(1);
    rare.truncate(few);
    rare
}

/// The items among which words are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// How many items.
    pub items: u64,
    /// How many words they have together.
    pub words: u64,
}

/// How well each item fits a query, by how often it has each of the query's words.
///
/// Rare words say more than common ones, more of a word says more than less of it, and a word in a short item says more
/// than in a long one.
///
/// # Shape
/// `found` has, for each item with at least one of the words, the count of each and how many words it has in all; `having`
/// has, for each of the words, how many items of the scope have it. The result has one score, greater than 0, for each item.
///
/// # Source
/// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with `k1` = 1.2, `b` = 0.75 and
/// the logarithm of 1 + odds, as Lucene has it, so that no score is negative.
pub fn bm25(found: &[(Vec<u32>, u32)], having: &[u64], scope: Scope) -> Vec<f64> {
    const K1: f64 = 1.2;
    const B: f64 = 0.75;
    let items = as_float(scope.items);
    let rarity = |having: &u64| {
        let having = as_float((*having).min(scope.items));
        ((items - having + 0.5) / (having + 0.5)).ln_1p()
    };
    let rarities: Vec<f64> = having.iter().map(rarity).collect();
    let usual = (as_float(scope.words) / items.max(1.0)).max(1.0);
    let score = |(counts, len): &(Vec<u32>, u32)| {
        let long = K1 * (1.0 - B + B * f64::from(*len) / usual);
        let parts = counts.iter().zip(&rarities).map(|(count, rarity)| {
            let count = f64::from(*count);
            rarity * count * (K1 + 1.0) / (count + long)
        });
        parts.sum()
    };
    found.iter().map(score).collect()
}

/// In how many of these each word is, of items as in [`bm25`].
pub fn having(counts: &[(Vec<u32>, u32)], terms: usize) -> Vec<u64> {
    let having = |term: usize| counts.iter().filter(|(counts, _)| counts[term] > 0).count() as u64;
    (0..terms).map(having).collect()
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so many items that it would matter")]
fn as_float(count: u64) -> f64 {
    count as f64
}
