//! Searches that read every item.
//!
//! Start at [`scan`].

use serde_json::Value;

use super::{
    Namespace, ReadyQuery, Scope, Search, Vector, Words, bm25, finding, having,
    hybrid::{candidates, fused},
    words::MAX_CANDIDATES,
};

/// The place of an item.
type ItemKey = (Namespace, String);

/// An item that a search covers.
#[derive(Clone, Copy, Debug)]
pub struct Scanned<'a> {
    /// The item's namespace and key.
    pub place: &'a ItemKey,
    /// A number that grows with each put.
    pub nth: u64,
    /// The value of the item.
    pub value: &'a Value,
    /// The words of its searchable part.
    pub words: &'a Words,
    /// The embedding of that part.
    pub vector: Option<&'a Vector>,
}

/// Returns the positions and scores of the items that match a search, best first. `items` are those of its namespace, in order.
pub fn scan<'a>(
    items: impl Iterator<Item = Scanned<'a>>,
    search: &Search,
    query: Option<ReadyQuery>,
) -> Vec<(Option<f64>, ItemKey)> {
    let fits = |item: &Scanned<'_>| search.filter.iter().all(|filter| filter.matches(item.value));
    let mut scored: Vec<(Option<f64>, &ItemKey)> = match query {
        None => items.filter(fits).map(|item| (None, item.place)).collect(),
        Some(ReadyQuery::Meaning(meant)) => items
            .filter(fits)
            .filter_map(|item| Some((Some(item.vector?.cosine(&meant)?), item.place)))
            .collect(),
        Some(ReadyQuery::Hybrid { terms, meant, at_least }) => {
            let (items, all) = (items.collect::<Vec<_>>(), candidates(search));
            let [words, meaning] = [ReadyQuery::Words(terms), ReadyQuery::Meaning(meant)].map(|query| {
                let hits = scan(items.iter().copied(), &all, Some(query));
                hits.into_iter().map(|(score, place)| (place, score)).collect()
            });
            let page = fused(words, meaning, at_least, search);
            return page.into_iter().map(|(place, score)| (score, place)).collect();
        }
        Some(ReadyQuery::Words(terms)) => {
            let items: Vec<_> = items.collect();
            let words = items.iter().map(|item| u64::from(item.words.len())).sum();
            let scope = Scope { items: items.len() as u64, words };
            let counts = items.iter().map(|item| (item.words.count(&terms), item.words.len()));
            let counts: Vec<_> = counts.collect();
            let having = having(&counts, terms.len());
            let finding = finding(&having);
            let is_found = |counts: &[u32]| finding.iter().any(|term| counts[*term] > 0);
            let mut found: Vec<_> =
                items.into_iter().zip(counts).filter(|(_, (counts, _))| is_found(counts)).collect();
            let first = last_put(found.iter().map(|(item, _)| item.nth));
            found.retain(|(item, _)| item.nth >= first);
            let (found, counts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let scores = bm25(&counts, &having, scope);
            let scored = found.into_iter().zip(scores).filter(|(item, _)| fits(item));
            scored.map(|(item, score)| (Some(score), item.place)).collect()
        }
    };
    // Stable, and the input is ordered: of two equal scores the first one stays first.
    scored.sort_by(|(a, _), (b, _)| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0)));
    let page = scored.into_iter().skip(search.offset).take(search.limit);
    page.map(|(score, place)| (score, place.clone())).collect()
}

/// Returns the number of the first of the last [`MAX_CANDIDATES`] puts.
fn last_put(puts: impl Iterator<Item = u64>) -> u64 {
    let mut puts: Vec<_> = puts.collect();
    puts.sort_unstable_by_key(|nth| std::cmp::Reverse(*nth));
    let last = usize::try_from(MAX_CANDIDATES).unwrap_or(usize::MAX);
    puts.get(last - 1).copied().unwrap_or(0)
}
