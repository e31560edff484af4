//! Searches by words.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use super::{Index, Search, filter::field};

/// The number of different words of a query that count: the first ones.
pub const QUERY_WORDS: usize = 64;

/// The maximum number of items that a search by words inspects.
pub const MAX_CANDIDATES: u64 = 1_000;

/// Splits a text into words in lower case: the parts between characters that are neither letters nor digits.
/// A character of a script that writes no spaces (Han, Hiragana, Katakana) is a word of its own.
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
        // Some capital letters become a letter and a separate accent, which is not part of a word.
        Some(word.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect())
    })
}

fn stands_alone(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Returns the requested page of hits, the best ones first. They are given in the order of their places, which decides between
/// equal scores.
pub fn best(mut hits: Vec<(i64, f64)>, search: &Search) -> Vec<(i64, Option<f64>)> {
    hits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    hits.into_iter().skip(search.offset).take(search.limit).map(|(id, score)| (id, Some(score))).collect()
}

/// An item that has one of the words of a query.
pub struct Candidate<P> {
    /// The id of its row.
    pub id: i64,
    /// `true` if it passes the filters. One that does not still counts for the scores of others.
    pub fits: bool,
    /// The item's namespace and key, in whose order equal scores are.
    pub place: P,
    /// The number of occurrences of each term.
    pub counts: Vec<u32>,
    /// The number of its words.
    pub len: u32,
}

// SQLite's FTS5 computes the rarity of a word over all rows, including other namespaces and expired items. One user's data would
// affect another user's scores, and a test in memory would not be a test of SQLite. So FTS5 finds the items, and one function
// ranks them in every store. FTS5 receives words and not text: what counts as a word does not depend on SQLite's Unicode tables,
// and no query is a syntax error.

/// Returns those of the candidates that a search wants, with their scores. `having` counts the items with each term.
pub fn ranked<P: Ord>(
    mut found: Vec<Candidate<P>>,
    having: &[u64],
    scope: Scope,
    search: &Search,
) -> Vec<(i64, Option<f64>)> {
    found.sort_by(|a, b| a.place.cmp(&b.place));
    let counts: Vec<_> =
        found.iter_mut().map(|found| (std::mem::take(&mut found.counts), found.len)).collect();
    let scores = bm25(&counts, having, scope);
    let fitting = found.into_iter().zip(scores).filter(|(found, _)| found.fits);
    best(fitting.map(|(found, score)| (found.id, score)).collect(), search)
}

/// The counted words of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    counts: BTreeMap<String, u32>,
    len: u32,
}

impl Words {
    /// Counts the words of a text.
    pub fn of(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        let mut len = 0_u32;
        for word in words(text) {
            *counts.entry(word).or_insert(0_u32) += 1;
            len = len.saturating_add(1);
        }
        Self { counts, len }
    }

    /// Returns the number of words, including repetitions.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs `is_empty`")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of occurrences of each term.
    pub fn count(&self, terms: &[String]) -> Vec<u32> {
        terms.iter().map(|term| self.counts.get(term).copied().unwrap_or(0)).collect()
    }
}

/// Returns the first [`QUERY_WORDS`] different words of a query: those that count.
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

/// Returns the texts and numbers of a value that queries search, one per line.
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

// The scores of very common words are almost meaningless, and reading all matching items would dominate the search: among
// 100,000 items a quarter of a second instead of two milliseconds. The number of items per word is counted by namespace when
// items are put, so scores remain those of all items. For a query of common words only, the items put last are returned without
// reading the others. Up to a thousand items a search is exhaustive.

/// Chooses the words of a query that select items, given the number of items that have each word.
///
/// It takes the rarest words as long as they occur in at most [`MAX_CANDIDATES`] items, counted word by word; the
/// others only count in scores. If even the rarest word is more common, it selects the [`MAX_CANDIDATES`] items
/// with it that were put last.
///
/// ```
/// use superstep_graph::store::finding;
///
/// // "the" "green" "tea" "xyz": tea is found without inspecting all items with "the".
/// assert_eq!(finding(&[50_000, 900, 80, 0]), [2, 1]);
/// assert_eq!(finding(&[50_000, 60_000]), [0]);
/// ```
pub fn finding(having: &[u64]) -> Vec<usize> {
    let mut rare: Vec<usize> = (0..having.len()).filter(|term| having[*term] > 0).collect();
    rare.sort_by_key(|term| having[*term]);
    let mut sum = 0_u64;
    let few = rare.iter().take_while(|term| {
        sum = sum.saturating_add(having[**term]);
        sum <= MAX_CANDIDATES
    });
    let few = few.count().max(1);
    rare.truncate(few);
    rare
}

/// The items that a search by words covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The number of items.
    pub items: u64,
    /// The number of their words.
    pub words: u64,
}

/// Scores items for a query by the number of occurrences of each of its words.
///
/// Rare words weigh more than common ones, more occurrences more than fewer, and a word in a short item more
/// than in a long one.
///
/// # Shape
/// `found` has, for each item with at least one of the words, the count of each and its total number of
/// words; `having` has, for each word, the number of items of the scope with it. The result has one score,
/// greater than 0, for each item.
///
/// # Source
/// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with `k1` = 1.2,
/// `b` = 0.75 and the logarithm of 1 + odds, as Lucene has it, so that no score is negative.
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

/// Returns the number of items with each word, for items as in [`bm25`].
pub fn having(counts: &[(Vec<u32>, u32)], terms: usize) -> Vec<u64> {
    let having = |term: usize| counts.iter().filter(|(counts, _)| counts[term] > 0).count() as u64;
    (0..terms).map(having).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the number of items is far below the limit")]
fn as_float(count: u64) -> f64 {
    count as f64
}
