//! Operations on items inside a transaction.

use std::{collections::BTreeMap, error::Error};

use superstep_checkpoint::{
    internal::{Cell, best, candidates, fused, row_sum, vector_bytes, vector_of},
    store::{Answer, Found, Item, Namespace, NewItem, ReadyQuery, Search, Step, StoreError, Vector, words},
};
use tokio_postgres::Row;

use super::{
    Stop,
    pgvector::{Pgvector, dimensions},
};
use crate::{
    location::Location,
    query::{Param, Query, run_all},
    session::Session,
};

/// The items of a database in its current transaction.
pub(super) struct Items<'t> {
    pub(super) session: &'t Session,
    pub(super) place: &'t Location,
}

/// The items that a scan reads.
#[derive(Clone, Copy)]
enum Of<'a> {
    All,
    /// The items with a vector of a model.
    Model(&'a String),
    /// The items with a vector of a model for which pgvector has no vector with as many dimensions.
    Unindexed(&'a Vector, &'a Pgvector),
}

/// An item with its score, and its namespace and key.
pub(super) struct Near {
    id: i64,
    score: f64,
    place: (Vec<u8>, Vec<u8>),
}

impl Near {
    pub(super) fn new(row: &ItemRow<'_>, score: f64) -> Self {
        Self { id: row.id, score, place: (row.namespace.to_owned(), row.key.to_owned()) }
    }
}

/// The id of an item, and its score.
pub(super) type Hit = (i64, Option<f64>);

/// The scope of a search: the namespaces from `low` to below `high`, without those that only share a prefix of letters.
pub(super) struct Bounds {
    low: Vec<u8>,
    dot: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Bounds {
    pub(super) fn of(search: &Search) -> Self {
        match &search.within {
            // `/` follows `.` in order.
            Some(outer) => {
                let [dot, high] = ['.', '/'].map(|end| format!("{outer}{end}").into_bytes());
                Self { low: outer.as_str().into(), dot, high: Some(high) }
            }
            None => Self { low: Vec::new(), dot: Vec::new(), high: None },
        }
    }

    /// Appends the condition that an item `i` is in the scope and alive.
    pub(super) fn select<'q>(&'q self, query: &mut Query<'q>, now_ms: &'q i64) {
        query.push("(i.expires_ms IS NULL OR i.expires_ms > ?)", &[now_ms]);
        let Some(high) = &self.high else { return };
        // The index has the first bytes.
        let scope = " AND substring(i.namespace FROM 1 FOR 128) >= substring(? FROM 1 FOR 128)
            AND substring(i.namespace FROM 1 FOR 128) <= substring(? FROM 1 FOR 128)
            AND i.namespace < ? AND (i.namespace = ? OR i.namespace >= ?)";
        query.push(scope, &[&self.low, high, high, &self.low, &self.dot]);
    }
}

/// The columns of a row `i` that [`ItemRow::read`] reads.
pub(super) const ITEM: &str =
    "i.id, i.namespace, i.key, i.created_ms, i.updated_ms, i.ttl_ms, i.expires_ms, i.words, i.value,
    i.model, i.vector, i.text, i.checksum";

/// A row of the table `store_items`.
#[derive(Clone, Copy)]
pub(super) struct ItemRow<'r> {
    pub(super) id: i64,
    pub(super) namespace: &'r [u8],
    pub(super) key: &'r [u8],
    created_ms: i64,
    updated_ms: i64,
    ttl_ms: Option<i64>,
    expires_ms: Option<i64>,
    words: i64,
    value: &'r str,
    model: Option<&'r str>,
    vector: Option<&'r [u8]>,
    pub(super) text: &'r str,
}

impl<'r> ItemRow<'r> {
    /// Reads a row that is intact.
    pub(super) fn read(place: &Location, row: &'r Row) -> Result<Self, Stop> {
        let found = Self {
            id: row.try_get(0)?,
            namespace: row.try_get(1)?,
            key: row.try_get(2)?,
            created_ms: row.try_get(3)?,
            updated_ms: row.try_get(4)?,
            ttl_ms: row.try_get(5)?,
            expires_ms: row.try_get(6)?,
            words: row.try_get(7)?,
            value: row.try_get(8)?,
            model: row.try_get(9)?,
            vector: row.try_get(10)?,
            text: row.try_get(11)?,
        };
        if found.sum() == row.try_get::<_, i64>(12)? {
            Ok(found)
        } else {
            Err(changed(place, found.id).into())
        }
    }

    fn sum(&self) -> i64 {
        let optional = |number: Option<i64>| number.map_or(Cell::Null, Cell::Integer);
        row_sum(&[
            Cell::Text(b"item"),
            Cell::Integer(self.id),
            Cell::Bytes(self.namespace),
            Cell::Bytes(self.key),
            Cell::Integer(self.created_ms),
            Cell::Integer(self.updated_ms),
            optional(self.ttl_ms),
            optional(self.expires_ms),
            Cell::Integer(self.words),
            Cell::Text(self.value.as_bytes()),
            self.model.map_or(Cell::Null, |model| Cell::Text(model.as_bytes())),
            self.vector.map_or(Cell::Null, Cell::Bytes),
            Cell::Text(self.text.as_bytes()),
        ])
    }

    pub(super) fn lives(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }

    pub(super) fn fits(&self, place: &Location, search: &Search) -> Result<bool, StoreError> {
        if search.filter.is_empty() {
            return Ok(true);
        }
        let value = value(place, self.value)?;
        Ok(search.filter.iter().all(|filter| filter.matches(&value)))
    }

    fn item(&self, place: &Location) -> Result<Item, StoreError> {
        let key = std::str::from_utf8(self.key).map_err(|cause| damaged(place, "a key", cause))?;
        Ok(Item {
            namespace: namespace(place, self.namespace)?,
            key: key.to_owned(),
            value: value(place, self.value)?,
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            expires_ms: self.expires_ms,
        })
    }

    /// Returns the cosine of its vector and another one; `None` if they cannot be compared.
    pub(super) fn score(&self, place: &Location, meant: &Vector) -> Result<Option<f64>, StoreError> {
        Ok(self.direction(place)?.and_then(|vector| vector.cosine(meant)))
    }

    fn direction(&self, place: &Location) -> Result<Option<Vector>, StoreError> {
        let (Some(model), Some(bytes)) = (self.model, self.vector) else { return Ok(None) };
        let vector = vector_of(model, bytes);
        vector.map(Some).ok_or_else(|| damaged(place, "a vector", "it is not made of floats of 32 bits"))
    }
}

impl Items<'_> {
    pub(super) async fn apply(&self, now_ms: i64, step: &Step) -> Result<Answer, Stop> {
        Ok(match step {
            Step::Get { namespace, key, refresh } => {
                Answer::Item(self.get(now_ms, namespace, key, *refresh).await?)
            }
            Step::Put(new) => {
                self.put(now_ms, new).await?;
                Answer::Done
            }
            Step::Delete { namespace, key } => {
                if let Some(row) = self.find(namespace, key).await? {
                    self.remove(&vec![ItemRow::read(self.place, &row)?.id]).await?;
                }
                Answer::Done
            }
            Step::Search { search, query, refresh } => {
                let hits = match query {
                    None => self.all(now_ms, search).await?,
                    Some(ReadyQuery::Words(terms)) => self.with_words(now_ms, search, terms).await?,
                    Some(ReadyQuery::Meaning(meant)) => self.with_meaning(now_ms, search, meant).await?,
                    Some(ReadyQuery::Hybrid { terms, meant, at_least }) => {
                        let all = candidates(search);
                        let words = self.with_words(now_ms, &all, terms).await?;
                        fused(words, self.with_meaning(now_ms, &all, meant).await?, *at_least, search)
                    }
                };
                Answer::Found(self.load(now_ms, &hits, *refresh).await?)
            }
            Step::List(which) => {
                let sql =
                    "SELECT DISTINCT namespace FROM store_items WHERE expires_ms IS NULL OR expires_ms > $1";
                let rows = Query::of(sql, &[&now_ms]).rows(self.session.client()).await?;
                let names = rows.iter().map(|row| Ok(namespace(self.place, row.try_get(0)?)?));
                Answer::Namespaces(which.pick(names.collect::<Result<Vec<_>, Stop>>()?))
            }
        })
    }

    /// Removes expired items.
    pub(super) async fn sweep(&self, now_ms: i64) -> Result<usize, Stop> {
        let query = Query::of("SELECT id FROM store_items WHERE expires_ms <= $1", &[&now_ms]);
        let rows = query.rows(self.session.client()).await?;
        let over = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        self.remove(&over).await?;
        Ok(over.len())
    }

    async fn get(
        &self,
        now_ms: i64,
        namespace: &Namespace,
        key: &str,
        refresh: bool,
    ) -> Result<Option<Item>, Stop> {
        let Some(row) = self.find(namespace, key).await? else { return Ok(None) };
        let found = ItemRow::read(self.place, &row)?;
        match found.lives(now_ms) {
            true if refresh => {
                let found = self.load(now_ms, &[(found.id, None)], true).await?;
                Ok(found.into_iter().next().map(|found| found.item))
            }
            true => Ok(Some(found.item(self.place)?)),
            false => Ok(None),
        }
    }

    async fn put(&self, now_ms: i64, new: &NewItem) -> Result<(), Stop> {
        let before = self.find(&new.namespace, &new.key).await?;
        let before = before.as_ref().map(|row| ItemRow::read(self.place, row)).transpose()?;
        if let Some(before) = before {
            self.remove(&vec![before.id]).await?;
        }
        let id =
            Query::of("SELECT nextval('store_puts')", &[]).only(self.session.client()).await?.try_get(0)?;
        let living = before.filter(|before| before.lives(now_ms));
        let (value, words) = (new.value.to_string(), words(&new.text).collect::<Vec<_>>());
        let vector = new.vector.as_ref().map(vector_bytes);
        let row = ItemRow {
            id,
            namespace: new.namespace.as_str().as_bytes(),
            key: new.key.as_bytes(),
            created_ms: living.map_or(now_ms, |before| before.created_ms),
            updated_ms: NewItem::updated_ms(now_ms, living.map(|before| before.updated_ms)),
            ttl_ms: new.ttl_ms,
            expires_ms: new.ttl_ms.map(|ttl| now_ms.saturating_add(ttl)),
            words: i64::from(new.words().len()),
            value: &value,
            model: new.vector.as_ref().map(|vector| vector.model.as_str()),
            vector: vector.as_deref(),
            text: &words.join(" "),
        };
        let ItemRow {
            created_ms, updated_ms, ttl_ms, expires_ms, words: count, value, model, vector, ..
        } = &row;
        let params: [&dyn Param; 13] = [
            &row.id,
            &row.namespace,
            &row.key,
            created_ms,
            updated_ms,
            ttl_ms,
            expires_ms,
            count,
            value,
            model,
            vector,
            &row.text,
            &row.sum(),
        ];
        let sql = "INSERT INTO store_items (id, namespace, key, created_ms, updated_ms, ttl_ms, expires_ms, words, value, model,
                vector, text, checksum)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let query = Query::of(sql, &params);
        query.rows(self.session.client()).await?;
        if let Some(vector) = &new.vector {
            self.index(row.id, vector).await?;
        }
        if !words.is_empty() {
            let sql = "INSERT INTO store_words (term, item)
                SELECT DISTINCT sha256(convert_to(w, 'UTF8')), $1 FROM unnest($2) AS w";
            let query = Query::of(sql, &[&row.id, &words]);
            query.rows(self.session.client()).await?;
        }
        Ok(())
    }

    /// Returns the row of an item, expired or not.
    async fn find(&self, namespace: &Namespace, key: &str) -> Result<Option<Row>, Stop> {
        let (namespace, key) = (namespace.as_str().as_bytes(), key.as_bytes());
        let sql = format!(
            "SELECT {ITEM} FROM store_items i WHERE sha256(namespace) = sha256($1) AND sha256(key) = sha256($2)"
        );
        Ok(Query::of(sql, &[&namespace, &key]).row(self.session.client()).await?)
    }

    async fn remove(&self, ids: &Vec<i64>) -> Result<(), Stop> {
        for table in ["store_words WHERE item", "store_items WHERE id"] {
            Query::of(format!("DELETE FROM {table} = ANY($1)"), &[ids]).rows(self.session.client()).await?;
        }
        Ok(())
    }

    /// Reads the items that were found, and restarts their lifetimes with `refresh`.
    async fn load(&self, now_ms: i64, hits: &[Hit], refresh: bool) -> Result<Vec<Found>, Stop> {
        if hits.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = hits.iter().map(|(id, _)| *id).collect();
        let sql = format!("SELECT {ITEM} FROM store_items i WHERE id = ANY($1)");
        let rows = Query::of(sql, &[&ids]).rows(self.session.client()).await?;
        let (mut items, mut refreshed) = (BTreeMap::new(), Vec::new());
        for row in &rows {
            let mut row = ItemRow::read(self.place, row)?;
            if let (true, Some(ttl)) = (refresh, row.ttl_ms) {
                row.expires_ms = Some(now_ms.saturating_add(ttl));
                refreshed.push((row.id, row.expires_ms, row.sum()));
            }
            items.insert(row.id, row.item(self.place)?);
        }
        let updates: Vec<_> = refreshed
            .iter()
            .map(|(id, expires_ms, sum)| {
                Query::of(
                    "UPDATE store_items SET expires_ms = $2, checksum = $3 WHERE id = $1",
                    &[id, expires_ms, sum],
                )
            })
            .collect();
        run_all(&updates, self.session.client()).await?;
        let found = hits.iter().map(|(id, score)| {
            let item = items.remove(id).ok_or_else(|| changed(self.place, *id))?;
            Ok(Found { item, score: *score })
        });
        found.collect()
    }

    async fn all(&self, now_ms: i64, search: &Search) -> Result<Vec<Hit>, Stop> {
        let mut hits = Vec::new();
        let mut skipped = 0;
        self.each(now_ms, search, Of::All, |row| {
            if hits.len() == search.limit {
                return Ok(false);
            }
            if row.fits(self.place, search)? {
                if skipped < search.offset {
                    skipped += 1;
                } else {
                    hits.push((row.id, None));
                }
            }
            Ok(true)
        })
        .await?;
        Ok(hits)
    }

    async fn with_meaning(&self, now_ms: i64, search: &Search, meant: &Vector) -> Result<Vec<Hit>, Stop> {
        let pgvector = self.pgvector(meant).await?.filter(|pgvector| pgvector.is_readable);
        let mut near = match &pgvector {
            Some(pgvector) => self.nearest(pgvector, now_ms, search, meant).await?,
            None => Vec::new(),
        };
        // All items, or those that were put where the extension was not used.
        let of = match &pgvector {
            Some(pgvector) => Of::Unindexed(meant, pgvector),
            None => Of::Model(&meant.model),
        };
        self.each(now_ms, search, of, |row| {
            if row.fits(self.place, search)?
                && let Some(score) = row.score(self.place, meant)?
            {
                near.push(Near::new(&row, score));
            }
            Ok(true)
        })
        .await?;
        // In the order of equal scores.
        near.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(best(near.into_iter().map(|near| (near.id, near.score)).collect(), search))
    }

    /// Reads the items in the scope of a search in order, page by page, until the callback stops.
    async fn each(
        &self,
        now_ms: i64,
        search: &Search,
        of: Of<'_>,
        mut read: impl FnMut(ItemRow<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), Stop> {
        let (bounds, client) = (Bounds::of(search), self.session.client());
        // The server sorts once.
        let found = format!("DECLARE found NO SCROLL CURSOR FOR SELECT {ITEM} FROM store_items i WHERE ");
        let mut query = Query::of(found, &[]);
        bounds.select(&mut query, &now_ms);
        if let Of::Model(model) | Of::Unindexed(Vector { model, .. }, _) = of {
            query.push(" AND i.model = ?", &[model]);
        }
        let length;
        if let Of::Unindexed(meant, Pgvector { schema, .. }) = of {
            length = dimensions(meant);
            let unindexed = format!(
                " AND NOT EXISTS (SELECT FROM store_vectors v WHERE v.item = i.id AND {schema}.vector_dims(v.embedding) = ?)"
            );
            query.push(&unindexed, &[&length]);
        }
        query.push(" ORDER BY i.namespace, i.key", &[]).rows(client).await?;
        let fetch = Query::of("FETCH 256 FROM found", &[]);
        'pages: loop {
            let rows = fetch.rows(client).await?;
            for row in &rows {
                if !read(ItemRow::read(self.place, row)?)? {
                    break 'pages;
                }
            }
            if rows.is_empty() {
                break;
            }
        }
        Ok(client.batch_execute("CLOSE found").await?)
    }
}

fn namespace(place: &Location, name: &[u8]) -> Result<Namespace, StoreError> {
    let text = std::str::from_utf8(name).map_err(|cause| damaged(place, "a namespace", cause))?;
    Namespace::parse(text).map_err(|cause| damaged(place, "a namespace", cause))
}

fn value(place: &Location, json: &str) -> Result<serde_json::Value, StoreError> {
    serde_json::from_str(json).map_err(|cause| damaged(place, "a value", cause))
}

/// Creates the error of a row that was changed.
fn changed(place: &Location, id: i64) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "the store in database `{place}` is damaged: row {id} of `store_items`; remove it, or restore the database from a backup"
        ),
        source: Some(crate::stored::CHECKSUM.into()),
    }
}

fn damaged(place: &Location, part: &str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "the store in database `{place}` is damaged: superstep did not write {part} in `store_items`; remove the row, or restore the \
             database from a backup"
        ),
        source: Some(cause.into()),
    }
}
