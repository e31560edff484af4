//! Operations on items inside a transaction.

use rusqlite::{Connection, Params, Row, params, types::Value as Sql};
use superstep_checkpoint::{
    internal::{best, candidates, fused, vector_bytes},
    store::{Answer, Found, Item, Namespace, NewItem, ReadyQuery, Search, Step, StoreError, Vector, words},
};

use super::rows::{self, ITEM, SUM};
use crate::{error, location::Location};

/// The items of a database in its current transaction.
pub(super) struct Items<'t> {
    pub(super) connection: &'t Connection,
    pub(super) place: &'t Location,
}

/// The scope of a search: the items from `low` to below `high` that live at `now_ms`, without namespaces that
/// only share a prefix of letters.
pub(super) const IN_SCOPE: &str =
    "namespace >= :low AND namespace < :high AND (namespace = :low OR namespace >= :dot)
    AND (expires_ms IS NULL OR expires_ms > :now)";

/// The times of an item.
#[derive(Clone, Copy)]
struct Times {
    id: i64,
    created_ms: i64,
    updated_ms: i64,
    expires_ms: Option<i64>,
}

impl Times {
    fn lives(self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// The id of an item, and its score.
pub(super) type Hit = (i64, Option<f64>);

impl Items<'_> {
    pub(super) fn apply(&self, now_ms: i64, step: &Step) -> Result<Answer, StoreError> {
        Ok(match step {
            Step::Get { namespace, key, refresh } => {
                Answer::Item(self.get(now_ms, namespace, key, *refresh)?)
            }
            Step::Put(new) => {
                self.put(now_ms, new)?;
                Answer::Done
            }
            Step::Delete { namespace, key } => {
                if let Some(Times { id, .. }) = self.find(namespace, key)? {
                    self.remove(namespace.as_str(), id)?;
                }
                Answer::Done
            }
            Step::Search { search, query, refresh } => {
                let hits = match query {
                    None => self.all(now_ms, search)?,
                    Some(ReadyQuery::Words(terms)) => self.with_words(now_ms, search, terms)?,
                    Some(ReadyQuery::Meaning(meant)) => self.with_meaning(now_ms, search, meant)?,
                    Some(ReadyQuery::Hybrid { terms, meant, at_least }) => {
                        let all = candidates(search);
                        let words = self.with_words(now_ms, &all, terms)?;
                        fused(words, self.with_meaning(now_ms, &all, meant)?, *at_least, search)
                    }
                };
                let found = hits
                    .into_iter()
                    .map(|(id, score)| Ok(Found { item: self.load(now_ms, id, *refresh)?, score }));
                Answer::Found(found.collect::<Result<_, StoreError>>()?)
            }
            Step::List(which) => {
                let sql =
                    "SELECT DISTINCT namespace FROM store_items WHERE expires_ms IS NULL OR expires_ms > ?1";
                let names = self.query(sql, [now_ms], |row| rows::namespace(self.place, row, 0))?;
                Answer::Namespaces(which.pick(names))
            }
        })
    }

    /// Removes expired items.
    pub(super) fn sweep(&self, now_ms: i64) -> Result<usize, StoreError> {
        let over = "SELECT id, namespace FROM store_items WHERE expires_ms <= ?1";
        let over =
            self.query(over, [now_ms], |row| Ok((self.column(row, 0)?, self.column::<String>(row, 1)?)))?;
        for (id, namespace) in &over {
            self.remove(namespace, *id)?;
        }
        Ok(over.len())
    }

    fn get(
        &self,
        now_ms: i64,
        namespace: &Namespace,
        key: &str,
        refresh: bool,
    ) -> Result<Option<Item>, StoreError> {
        match self.find(namespace, key)? {
            Some(found) if found.lives(now_ms) => self.load(now_ms, found.id, refresh).map(Some),
            Some(_) => Ok(None),
            None => {
                // The index of keys may lack rows of another one.
                let there =
                    "SELECT id FROM store_items INDEXED BY store_scopes WHERE namespace = ?1 AND key = ?2";
                let there = self.query(there, (namespace.as_str(), key), |row| self.column::<i64>(row, 0))?;
                there.first().map_or(Ok(None), |id| Err(rows::changed(self.place, Some(*id))))
            }
        }
    }

    fn put(&self, now_ms: i64, new: &NewItem) -> Result<(), StoreError> {
        let before = self.find(&new.namespace, &new.key)?;
        let living = before.filter(|before| before.lives(now_ms));
        let created_ms = living.map_or(now_ms, |before| before.created_ms);
        let updated_ms = NewItem::updated_ms(now_ms, living.map(|before| before.updated_ms));
        let expires_ms = new.ttl_ms.map(|ttl| now_ms.saturating_add(ttl));
        let value = new.value.to_string();
        let vector = new.vector.as_ref().map(vector_bytes);
        let model = new.vector.as_ref().map(|vector| vector.model.as_str());
        let text = words(&new.text).collect::<Vec<_>>();
        let count = new.words().len();
        if let Some(Times { id, .. }) = before {
            self.remove(new.namespace.as_str(), id)?;
        }
        let next = "SELECT coalesce(max(id), 0) + 1 FROM store_items";
        let id: i64 = self.query(next, [], |row| self.column::<i64>(row, 0))?.into_iter().sum();
        self.execute(
            "INSERT INTO store_items (
                 id, namespace, key, created_ms, updated_ms, ttl_ms, expires_ms, words, value, model, vector, checksum
             ) VALUES (
                 ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                 row_sum('item', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             )",
            params![
                id,
                new.namespace.as_str(),
                new.key,
                created_ms,
                updated_ms,
                new.ttl_ms,
                expires_ms,
                count,
                value,
                model,
                vector
            ],
        )?;
        let id = self.connection.last_insert_rowid();
        self.execute(
            "INSERT INTO store_totals VALUES (?1, 1, ?2)
                ON CONFLICT (namespace) DO UPDATE SET items = items + 1, words = words + excluded.words",
            (new.namespace.as_str(), count),
        )?;
        if count > 0 {
            self.execute("INSERT INTO store_words (rowid, text) VALUES (?1, ?2)", (id, text.join(" ")))?;
            self.count_words(new.namespace.as_str(), &text, true)?;
        }
        Ok(())
    }

    /// Returns the row of an item, expired or not.
    fn find(&self, namespace: &Namespace, key: &str) -> Result<Option<Times>, StoreError> {
        let sql = format!(
            "SELECT id, created_ms, updated_ms, expires_ms, checksum IS {SUM} FROM store_items
             WHERE namespace = ?1 AND key = ?2"
        );
        let found = self.query(&sql, (namespace.as_str(), key), |row| {
            rows::check(self.place, row, 4)?;
            Ok(Times {
                id: self.column(row, 0)?,
                created_ms: self.column(row, 1)?,
                updated_ms: self.column(row, 2)?,
                expires_ms: self.column(row, 3)?,
            })
        })?;
        Ok(found.into_iter().next())
    }

    fn remove(&self, namespace: &str, id: i64) -> Result<(), StoreError> {
        let text = "SELECT text FROM store_words WHERE rowid = ?1";
        for text in self.query(text, [id], |row| self.column::<String>(row, 0))? {
            self.count_words(namespace, &words(&text).collect::<Vec<_>>(), false)?;
            self.execute("DELETE FROM store_words WHERE rowid = ?1", [id])?;
        }
        // The file has triggers for this, for programs of older versions; this one runs no code of a file.
        self.execute(
            "UPDATE store_totals SET items = items - 1, words = words - (SELECT words FROM store_items WHERE id = ?2)
             WHERE namespace = ?1",
            (namespace, id),
        )?;
        self.execute("DELETE FROM store_totals WHERE namespace = ?1 AND items <= 0", [namespace])?;
        self.execute("DELETE FROM store_items WHERE id = ?1", [id]).map(drop)
    }

    fn load(&self, now_ms: i64, id: i64, refresh: bool) -> Result<Item, StoreError> {
        let sql = format!("SELECT {ITEM}, checksum IS {SUM}, id FROM store_items WHERE id = ?1");
        let read = || {
            let mut items = self.query(&sql, [id], |row| {
                rows::check(self.place, row, 6)?;
                rows::item(self.place, row)
            })?;
            Ok::<_, StoreError>(
                items.pop().expect("an item that was found is there until the transaction ends"),
            )
        };
        let item = read()?;
        if !refresh {
            return Ok(item);
        }
        // `min`, because SQLite converts large integers to floats.
        let sql =
            "UPDATE store_items SET expires_ms = ?2 + min(ttl_ms, ?3) WHERE id = ?1 AND ttl_ms IS NOT NULL";
        self.execute(sql, (id, now_ms, i64::MAX - now_ms.max(0)))?;
        self.execute(&format!("UPDATE store_items SET checksum = {SUM} WHERE id = ?1"), [id])?;
        read()
    }

    fn all(&self, now_ms: i64, search: &Search) -> Result<Vec<Hit>, StoreError> {
        let intact = intact(search);
        let sql =
            format!("SELECT id, value, {intact} FROM store_items WHERE {IN_SCOPE} ORDER BY namespace, key");
        let mut hits = Vec::new();
        let mut skipped = 0;
        self.each(&sql, search, &[(":now", &now_ms)], |row| {
            if hits.len() == search.limit {
                return Ok(false);
            }
            rows::check(self.place, row, 2)?;
            if self.fits(search, row, 1)? {
                if skipped < search.offset {
                    skipped += 1;
                } else {
                    hits.push((self.column(row, 0)?, None));
                }
            }
            Ok(true)
        })?;
        Ok(hits)
    }

    fn with_meaning(&self, now_ms: i64, search: &Search, meant: &Vector) -> Result<Vec<Hit>, StoreError> {
        let sql = format!(
            "SELECT id, value, vector, checksum IS {SUM} FROM store_items
             WHERE model = :wanted AND {IN_SCOPE} ORDER BY namespace, key"
        );
        let mut hits = Vec::new();
        self.each(&sql, search, &[(":wanted", &meant.model), (":now", &now_ms)], |row| {
            rows::check(self.place, row, 3)?;
            if self.fits(search, row, 1)?
                && let Some(score) = rows::vector(self.place, row, 2, &meant.model)?.cosine(meant)
            {
                hits.push((self.column(row, 0)?, score));
            }
            Ok(true)
        })?;
        Ok(best(hits, search))
    }

    pub(super) fn fits(&self, search: &Search, row: &Row<'_>, column: usize) -> Result<bool, StoreError> {
        if search.filter.is_empty() {
            return Ok(true);
        }
        let value = rows::value(self.place, row, column)?;
        Ok(search.filter.iter().all(|filter| filter.matches(&value)))
    }

    /// Reads the rows of a query in the scope of a search until the callback stops.
    pub(super) fn each(
        &self,
        sql: &str,
        search: &Search,
        given: &[(&str, &dyn rusqlite::ToSql)],
        mut read: impl FnMut(&Row<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let refused = |cause| self.refused(cause);
        let mut query = self.connection.prepare_cached(sql).map_err(refused)?;
        let (low, dot, high) = match &search.within {
            // `/` follows `.` in order.
            Some(outer) => (outer.to_string(), format!("{outer}."), Sql::Text(format!("{outer}/"))),
            // Every text is ordered before every blob.
            None => (String::new(), String::new(), Sql::Blob(Vec::new())),
        };
        let scope: [(&str, &dyn rusqlite::ToSql); 3] = [(":low", &low), (":dot", &dot), (":high", &high)];
        let mut rows = query.query(&*[&scope[..], given].concat()).map_err(refused)?;
        while let Some(row) = rows.next().map_err(refused)? {
            if !read(row)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let refused = |cause| self.refused(cause);
        let mut query = self.connection.prepare_cached(sql).map_err(refused)?;
        let mut rows = query.query(params).map_err(refused)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(refused)? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut done| done.execute(params));
        done.map_err(|cause| self.refused(cause))
    }

    pub(super) fn column<T: rusqlite::types::FromSql>(
        &self,
        row: &Row<'_>,
        column: usize,
    ) -> Result<T, StoreError> {
        row.get(column).map_err(|cause| self.refused(cause))
    }

    fn refused(&self, cause: rusqlite::Error) -> StoreError {
        error::database(self.place, "use the store", cause).into()
    }
}

/// Returns the SQL that tests the columns on which a search depends; the found rows are fully checked when
/// they are read.
pub(super) fn intact(search: &Search) -> String {
    if search.filter.is_empty() { "1".to_owned() } else { format!("checksum IS {SUM}") }
}
