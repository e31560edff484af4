//! Searching for words inside a transaction.
//!
//! The number of items with a word is stored, so that only items with the rarer words of a query are read.

use std::{cmp::Reverse, collections::BTreeSet};

use rusqlite::Row;
use superstep_checkpoint::{
    internal::{self, ranked},
    store::{MAX_CANDIDATES, Scope, Search, StoreError, Words, finding},
};

use super::{
    items::{Hit, IN_SCOPE, Items, intact},
    rows,
};

/// The expired items of a scope that are still counted.
#[derive(Default)]
struct ExpiredCounts {
    items: u64,
    words: u64,
    having: Vec<u64>,
}

/// An item that has one of the words, with its namespace and key.
type Candidate = internal::Candidate<(String, String)>;

impl Items<'_> {
    pub(super) fn with_words(
        &self,
        now_ms: i64,
        search: &Search,
        terms: &[String],
    ) -> Result<Vec<Hit>, StoreError> {
        let over = self.over(now_ms, search, terms)?;
        let scope = self.total(search, &over)?;
        let having = terms
            .iter()
            .zip(&over.having)
            .map(|(term, over)| Ok::<_, StoreError>(self.having(search, term)?.saturating_sub(*over)));
        let having = having.collect::<Result<Vec<_>, _>>()?;
        let finding = finding(&having);
        if finding.is_empty() {
            return Ok(Vec::new());
        }
        let found = if self.is_rare_here(search, scope, finding.iter().map(|term| &terms[*term]))? {
            self.scanned(now_ms, search, terms, &finding)?
        } else {
            self.matching(now_ms, search, terms, &finding)?
        };
        Ok(ranked(found, &having, scope, search))
    }

    /// Returns the number of live items in the scope, and of their words.
    fn total(&self, search: &Search, over: &ExpiredCounts) -> Result<Scope, StoreError> {
        let sql = format!(
            "SELECT coalesce(sum(items), 0), coalesce(sum(words), 0) FROM store_totals WHERE {NAMESPACES}"
        );
        let mut scope = Scope { items: 0, words: 0 };
        self.each(&sql, search, &[], |row| {
            let count = |column, over| Ok::<_, StoreError>(self.count(row, column)?.saturating_sub(over));
            scope = Scope { items: count(0, over.items)?, words: count(1, over.words)? };
            Ok(true)
        })?;
        Ok(scope)
    }

    /// Returns the number of items in the scope with a word, including expired ones.
    fn having(&self, search: &Search, term: &str) -> Result<u64, StoreError> {
        let sql =
            format!("SELECT coalesce(sum(items), 0) FROM store_terms WHERE term = :term AND {NAMESPACES}");
        let mut having = 0;
        self.each(&sql, search, &[(":term", &term)], |row| {
            having = self.count(row, 0)?;
            Ok(true)
        })?;
        Ok(having)
    }

    fn over(&self, now_ms: i64, search: &Search, terms: &[String]) -> Result<ExpiredCounts, StoreError> {
        let sql = format!(
            "SELECT words, text FROM store_items INDEXED BY store_expiries
             LEFT JOIN store_words ON store_words.rowid = store_items.id WHERE expires_ms <= :now AND {NAMESPACES}"
        );
        let mut over = ExpiredCounts { having: vec![0; terms.len()], ..ExpiredCounts::default() };
        self.each(&sql, search, &[(":now", &now_ms)], |row| {
            over.items += 1;
            over.words += self.count(row, 0)?;
            let text = Words::of(&self.column::<Option<String>>(row, 1)?.unwrap_or_default());
            for (having, count) in over.having.iter_mut().zip(text.count(terms)) {
                *having += u64::from(count > 0);
            }
            Ok(true)
        })?;
        Ok(over)
    }

    /// Returns whether the words are so much more common in other scopes that reading all of this one is
    /// faster.
    fn is_rare_here<'t>(
        &self,
        search: &Search,
        scope: Scope,
        terms: impl Iterator<Item = &'t String>,
    ) -> Result<bool, StoreError> {
        if search.within.is_none() {
            return Ok(false);
        }
        let sql =
            "SELECT coalesce(sum(items), 0) FROM (SELECT items FROM store_terms WHERE term = ?1 LIMIT 1000)";
        let mut anywhere = 0_u64;
        for term in terms {
            let found = self.query(sql, [term], |row| self.count(row, 0))?;
            anywhere = anywhere.saturating_add(found.into_iter().sum());
        }
        Ok(anywhere / 4 > scope.items)
    }

    /// Searches the whole database for the words.
    fn matching(
        &self,
        now_ms: i64,
        search: &Search,
        terms: &[String],
        finding: &[usize],
    ) -> Result<Vec<Candidate>, StoreError> {
        // The words have only letters and digits; within quotation marks none of them is an operator.
        let wanted: Vec<_> = finding.iter().map(|term| format!("\"{}\"", terms[*term])).collect();
        let sql = format!(
            "SELECT {} FROM store_words CROSS JOIN store_items ON store_items.id = store_words.rowid
             WHERE store_words MATCH :wanted AND {IN_SCOPE} ORDER BY store_words.rowid DESC LIMIT :most",
            columns(search)
        );
        let mut found = Vec::new();
        let given: [(&str, &dyn rusqlite::ToSql); 3] =
            [(":wanted", &wanted.join(" OR ")), (":now", &now_ms), (":most", &(MAX_CANDIDATES as i64))];
        self.each(&sql, search, &given, |row| {
            found.extend(self.candidate(search, row, terms, finding)?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Searches every item of the scope for the words.
    fn scanned(
        &self,
        now_ms: i64,
        search: &Search,
        terms: &[String],
        finding: &[usize],
    ) -> Result<Vec<Candidate>, StoreError> {
        let sql = format!(
            "SELECT {} FROM store_items CROSS JOIN store_words ON store_words.rowid = store_items.id WHERE {IN_SCOPE}",
            columns(search)
        );
        let mut found = Vec::new();
        self.each(&sql, search, &[(":now", &now_ms)], |row| {
            found.extend(self.candidate(search, row, terms, finding)?);
            Ok(true)
        })?;
        // Items that were put last.
        found.sort_by_key(|found| Reverse(found.id));
        found.truncate(usize::try_from(MAX_CANDIDATES).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Reads a row, if it has one of the words that select items.
    fn candidate(
        &self,
        search: &Search,
        row: &Row<'_>,
        terms: &[String],
        finding: &[usize],
    ) -> Result<Option<Candidate>, StoreError> {
        let text = Words::of(&self.column::<String>(row, 2)?);
        let (counts, len) = (text.count(terms), text.len());
        if !finding.iter().any(|term| counts[*term] > 0) {
            return Ok(None);
        }
        rows::check(self.place, row, 5)?;
        let fits = self.fits(search, row, 1)?;
        let place = (self.column(row, 3)?, self.column(row, 4)?);
        Ok(Some(Candidate { id: self.column(row, 0)?, fits, place, counts, len }))
    }

    /// Adds the words of a new item to the counts, or removes those of a deleted one.
    pub(super) fn count_words(
        &self,
        namespace: &str,
        words: &[String],
        more: bool,
    ) -> Result<(), StoreError> {
        let sql = if more {
            "INSERT INTO store_terms VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET items = items + 1"
        } else {
            "UPDATE store_terms SET items = items - 1 WHERE term = ?1 AND namespace = ?2"
        };
        for word in words.iter().collect::<BTreeSet<_>>() {
            self.execute(sql, (word, namespace))?;
            if !more {
                let gone = "DELETE FROM store_terms WHERE term = ?1 AND namespace = ?2 AND items <= 0";
                self.execute(gone, (word, namespace))?;
            }
        }
        Ok(())
    }

    fn count(&self, row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.column::<i64>(row, column)?).unwrap_or(0))
    }
}

/// Returns the columns of a [`Candidate`]. Values are long and are read only for filters.
fn columns(search: &Search) -> String {
    let value = if search.filter.is_empty() { "NULL" } else { "value" };
    format!("id, {value}, text, namespace, key, {}", intact(search))
}

/// The namespaces of a scope, as in [`IN_SCOPE`].
const NAMESPACES: &str =
    "namespace >= :low AND namespace < :high AND (namespace = :low OR namespace >= :dot)";
