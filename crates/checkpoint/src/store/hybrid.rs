//! Searches by words and by meaning at once.

use std::collections::BTreeMap;

use super::{Search, words::MAX_CANDIDATES};

/// Returns the search for each of the two rankings: with the same scope and filters, and every candidate.
pub fn candidates(search: &Search) -> Search {
    let limit = usize::try_from(MAX_CANDIDATES).unwrap_or(usize::MAX);
    Search { offset: 0, limit, ..search.clone() }
}

/// Merges the hits of [`candidates`] by words and by meaning, each best first, and returns the requested page.
///
/// A hit by meaning counts if its score is `at_least` this high. Of equal sums the hit nearer in meaning is
/// first, so that the order depends on the two rankings only.
///
/// # Source
/// Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
/// Methods" (SIGIR 2009), with their `k` = 60.
pub fn fused<P: Ord>(
    words: Vec<(P, Option<f64>)>,
    meaning: Vec<(P, Option<f64>)>,
    at_least: f64,
    search: &Search,
) -> Vec<(P, Option<f64>)> {
    const K: f64 = 60.0;
    let part = |rank: u32| 1.0 / (K + f64::from(rank));
    let near = meaning.into_iter().filter(|(_, score)| score.is_some_and(|score| score >= at_least));
    let mut sums: BTreeMap<P, (f64, u32)> =
        (1..).zip(near).map(|(rank, (place, _))| (place, (part(rank), rank))).collect();
    for (rank, (place, _)) in (1..).zip(words) {
        sums.entry(place).or_insert((0.0, u32::MAX)).0 += part(rank);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, (a, a_rank)), (_, (b, b_rank))| b.total_cmp(a).then(a_rank.cmp(b_rank)));
    let page = sums.into_iter().skip(search.offset).take(search.limit);
    page.map(|(place, (sum, _))| (place, Some(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits<const N: usize>(places: [(char, f64); N]) -> Vec<(char, Option<f64>)> {
        places.map(|(place, score)| (place, Some(score))).into()
    }

    fn order(found: &[(char, Option<f64>)]) -> String {
        found.iter().map(|(place, _)| *place).collect()
    }

    #[test]
    fn a_hit_of_both_rankings_precedes_the_first_of_each() {
        let words = hits([('w', 9.0), ('b', 1.0)]);
        let meaning = hits([('m', 0.9), ('b', 0.8), ('f', 0.1)]);
        let found = fused(words.clone(), meaning.clone(), 0.5, &Search::everywhere());
        assert_eq!(order(&found), "bmw");
        assert_eq!(found[0].1, Some(2.0 / 62.0));
        assert_eq!(found[1].1, found[2].1, "the nearer one of a tie is first");
        assert_eq!(order(&fused(words.clone(), meaning.clone(), -1.0, &Search::everywhere())), "bmwf");
        let second = Search { offset: 1, limit: 1, ..Search::everywhere() };
        assert_eq!(order(&fused(words, meaning, 0.5, &second)), "m");
    }

    #[test]
    fn equal_sums_are_ordered_by_meaning_and_not_by_name() {
        let ranked = |words, meaning| order(&fused(words, meaning, -1.0, &Search::everywhere()));
        assert_eq!(ranked(hits([('a', 2.0), ('z', 1.0)]), hits([('z', 0.9), ('a', 0.8)])), "za");
        assert_eq!(ranked(hits([('z', 2.0), ('a', 1.0)]), hits([('a', 0.9), ('z', 0.8)])), "az");
    }
}
