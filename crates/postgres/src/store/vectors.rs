//! Queries by meaning with the extension pgvector, where it is installed in the database.
//!
//! The extension selects candidates, and their scores are computed here from the items, as without it: the result is the same to the last
//! digit. Its vectors are in a table of their own, which is made with the first vector that is put; items without a row in it are compared
//! one by one. So the extension can be installed or removed at any time, and programs that do not know it can write to the same schema.
//!
//! Start at [`Items::pgvector`].

// No index of the extension is used: its indexes approximate, its distances are sums of 32-bit floats, and the stores
// promise one ranking.
use superstep_checkpoint::store::{Search, StoreError, Vector};

use super::{
    Stop,
    items::{Bounds, ITEM, ItemRow, Items, Near},
    pgvector::{Pgvector, dimensions},
};
use crate::{location::Location, query::Query};

/// The number of dimensions that the type `vector` has at most.
const DIMENSIONS: usize = 16_000;

impl Items<'_> {
    /// Finds the extension for a vector; `None` if it is not installed, may not be used, or does not have such vectors.
    pub(super) async fn pgvector(&self, vector: &Vector) -> Result<Option<Pgvector>, Stop> {
        let direction = &vector.direction;
        if direction.len() > DIMENSIONS || !direction.iter().all(|x| x.is_finite()) {
            return Ok(None);
        }
        let sql =
            "SELECT quote_ident(n.nspname), coalesce(has_table_privilege(c.oid, 'SELECT') AND a.attname IS NOT NULL, false),
                coalesce(has_table_privilege(c.oid, 'INSERT') AND a.attname IS NOT NULL, false),
                a.attname IS NULL AND (c.oid IS NULL OR pg_has_role(c.relowner, 'USAGE') AND EXISTS (
                    SELECT FROM pg_catalog.pg_constraint k
                    WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid = 'store_items'::regclass
                )) AND has_schema_privilege(current_schema(), 'CREATE') AND has_table_privilege('store_items', 'REFERENCES')
             FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
             LEFT JOIN pg_catalog.pg_class c ON c.oid = to_regclass(quote_ident(current_schema()) || '.store_vectors')
             LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'embedding' AND NOT a.attisdropped
             WHERE e.extname = 'vector' AND has_schema_privilege(n.oid, 'USAGE')";
        let Some(row) = Query::of(sql, &[]).row(self.session.client()).await? else { return Ok(None) };
        Ok(Some(Pgvector {
            schema: row.try_get(0)?,
            is_readable: row.try_get(1)?,
            is_writable: row.try_get(2)?,
            is_creatable: row.try_get(3)?,
        }))
    }

    /// Stores the vector of an item for the extension, if it is installed and may be used.
    pub(super) async fn index(&self, item: i64, vector: &Vector) -> Result<(), Stop> {
        let Some(pgvector) = self.pgvector(vector).await? else { return Ok(()) };
        let Pgvector { schema, is_writable, is_creatable, .. } = pgvector;
        if is_creatable {
            // A table without its column, but with its reference to the items, is left of a removed extension.
            let table = format!(
                "DROP TABLE IF EXISTS store_vectors; CREATE TABLE store_vectors (
                    item bigint PRIMARY KEY REFERENCES store_items (id) ON DELETE CASCADE,
                    embedding {schema}.vector NOT NULL
                )"
            );
            self.session.client().batch_execute(&table).await?;
        } else if !is_writable {
            return Ok(());
        }
        let sql = format!("INSERT INTO store_vectors (item, embedding) VALUES ($1, $2::{schema}.vector)");
        Query::of(sql, &[&item, &vector.direction]).rows(self.session.client()).await?;
        Ok(())
    }

    /// Returns the items that the extension finds nearest: at least as many as the search skips and wants, and all whose scores may be
    /// as good as theirs.
    pub(super) async fn nearest(
        &self,
        pgvector: &Pgvector,
        now_ms: i64,
        search: &Search,
        meant: &Vector,
    ) -> Result<Vec<Near>, Stop> {
        let wanted = search.offset.saturating_add(search.limit);
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        let (bounds, client, schema) = (Bounds::of(search), self.session.client(), &pgvector.schema);
        let dimensions = dimensions(meant);
        // The product of vectors of length 1 is their cosine. It is an error for vectors of another model's length.
        let nearest = format!(
            "DECLARE nearest NO SCROLL CURSOR FOR SELECT {ITEM}, CASE WHEN {schema}.vector_dims(v.embedding) = $1
                 THEN v.embedding OPERATOR({schema}.<#>) $2::{schema}.vector END AS distance
             FROM store_items i JOIN store_vectors v ON v.item = i.id
             WHERE i.model = $3 AND {schema}.vector_dims(v.embedding) = $1 AND "
        );
        let mut query = Query::of(nearest, &[&dimensions, &meant.direction, &meant.model]);
        bounds.select(&mut query, &now_ms);
        query.push(" ORDER BY distance", &[]).rows(client).await?;
        let fetch = Query::of("FETCH 256 FROM nearest", &[]);
        let tolerance = tolerance(meant.direction.len());
        let (mut near, mut last) = (Vec::new(), f64::INFINITY);
        'pages: loop {
            let rows = fetch.rows(client).await?;
            for row in &rows {
                let (item, distance): (_, f64) = (ItemRow::read(self.place, row)?, row.try_get("distance")?);
                if distance > last + 2.0 * tolerance {
                    break 'pages;
                }
                let score = item.score(self.place, meant)?;
                let score = score.filter(|score| (score + distance).abs() <= tolerance);
                let score = score.ok_or_else(|| strange(self.place, item.id))?;
                if item.fits(self.place, search)? {
                    near.push(Near::new(&item, score));
                    if near.len() == wanted {
                        last = distance;
                    }
                }
            }
            if rows.is_empty() {
                break;
            }
        }
        client.batch_execute("CLOSE nearest").await?;
        Ok(near)
    }
}

/// Returns the greatest difference between a score and the distance that the extension computes with floats of 32 bits.
fn tolerance(dimensions: usize) -> f64 {
    let dimensions = u32::try_from(dimensions).map_or(f64::MAX, f64::from);
    (dimensions + 8.0) * f64::from(f32::EPSILON)
}

/// Creates the error of a vector that is not that of its item.
fn strange(place: &Location, item: i64) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "the store in database `{place}` is damaged: row {item} of `store_vectors` is not the vector of its item; delete that row, \
             and the item is compared without it"
        ),
        source: None,
    }
}
