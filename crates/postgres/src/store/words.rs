//! Searching for words inside a transaction.
//!
//! The server finds the items that have a word; this program counts and ranks, so that the result is that of the other stores.

use superstep_checkpoint::{
    internal::{self, ranked},
    store::{MAX_CANDIDATES, Scope, Search, Words, finding},
};

use super::{
    Stop,
    items::{Bounds, Hit, ITEM, ItemRow, Items},
};
use crate::query::Query;

// One ranking for all stores: the words and scores are those of the store in memory. PostgreSQL finds the items that have a
// word, by an index of its own; its dictionaries would make results depend on the server's language.

/// An item that has one of the words, with its namespace and key.
type Candidate = internal::Candidate<(Vec<u8>, Vec<u8>)>;

impl Items<'_> {
    pub(super) async fn with_words(
        &self,
        now_ms: i64,
        search: &Search,
        terms: &[String],
    ) -> Result<Vec<Hit>, Stop> {
        let bounds = Bounds::of(search);
        let having = self.having(now_ms, &bounds, terms).await?;
        let finding = finding(&having);
        if finding.is_empty() {
            return Ok(Vec::new());
        }
        let scope = self.scope(now_ms, &bounds).await?;
        let found = self.candidates(now_ms, search, &bounds, terms, &finding).await?;
        Ok(ranked(found, &having, scope, search))
    }

    /// Returns the number of live items in the scope, and of their words.
    async fn scope(&self, now_ms: i64, bounds: &Bounds) -> Result<Scope, Stop> {
        let sql = "SELECT count(*), coalesce(sum(i.words), 0)::bigint FROM store_items i WHERE ";
        let mut query = Query::of(sql, &[]);
        bounds.select(&mut query, &now_ms);
        let row = query.only(self.session.client()).await?;
        Ok(Scope { items: unsigned(row.try_get(0)?), words: unsigned(row.try_get(1)?) })
    }

    /// Returns the number of live items in the scope with each word.
    async fn having(&self, now_ms: i64, bounds: &Bounds, terms: &[String]) -> Result<Vec<u64>, Stop> {
        let sql = "SELECT w.nth, count(*) FROM unnest($1) WITH ORDINALITY AS w (term, nth)
            JOIN store_words s ON s.term = sha256(convert_to(w.term, 'UTF8')) JOIN store_items i ON i.id = s.item WHERE ";
        let mut query = Query::of(sql, &[&terms]);
        bounds.select(&mut query, &now_ms);
        query.push(" GROUP BY w.nth", &[]);
        let mut having = vec![0; terms.len()];
        for row in query.rows(self.session.client()).await? {
            let (nth, count): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if let Some(place) = usize::try_from(nth - 1).ok().and_then(|nth| having.get_mut(nth)) {
                *place = unsigned(count);
            }
        }
        Ok(having)
    }

    /// Returns the items that have one of the words that select items, those that were put last.
    async fn candidates(
        &self,
        now_ms: i64,
        search: &Search,
        bounds: &Bounds,
        terms: &[String],
        finding: &[usize],
    ) -> Result<Vec<Candidate>, Stop> {
        let wanted: Vec<&str> = finding.iter().map(|term| terms[*term].as_str()).collect();
        let most = i64::try_from(MAX_CANDIDATES).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT {ITEM} FROM store_items i WHERE i.id IN (
                 SELECT DISTINCT s.item FROM unnest($1) AS w JOIN store_words s ON s.term = sha256(convert_to(w, 'UTF8'))
                 JOIN store_items i ON i.id = s.item WHERE "
        );
        let mut query = Query::of(sql, &[&wanted]);
        bounds.select(&mut query, &now_ms);
        query.push(" ORDER BY s.item DESC LIMIT ?)", &[&most]);
        let mut found = Vec::new();
        for row in query.rows(self.session.client()).await? {
            let row = ItemRow::read(self.place, &row)?;
            let text = Words::of(row.text);
            let (counts, len) = (text.count(terms), text.len());
            if finding.iter().any(|term| counts[*term] > 0) {
                let place = (row.namespace.to_owned(), row.key.to_owned());
                found.push(Candidate { id: row.id, fits: row.fits(self.place, search)?, place, counts, len });
            }
        }
        Ok(found)
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
