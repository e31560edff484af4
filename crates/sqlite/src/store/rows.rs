//! Defensive reading of rows of `store_items`: any program may have changed them.

use std::error::Error;

use rusqlite::Row;
use superstep_checkpoint::{
    internal::vector_of,
    store::{Item, Namespace, StoreError, Vector},
};

use crate::{location::Location, stored::CHECKSUM};

/// The columns of an [`item`].
pub(super) const ITEM: &str = "namespace, key, created_ms, updated_ms, expires_ms, value";

/// The checksum of a row.
pub(super) const SUM: &str = "row_sum(
    'item', id, namespace, key, created_ms, updated_ms, ttl_ms, expires_ms, words, value, model, vector
)";

/// Rejects a row that is not intact, by a column that compares its checksum.
pub(super) fn check(place: &Location, row: &Row<'_>, column: usize) -> Result<(), StoreError> {
    match row.get(column) {
        Ok(Some(true)) => Ok(()),
        _ => Err(changed(place, row.get("id").ok())),
    }
}

/// Creates the error of a row that was changed.
pub(super) fn changed(place: &Location, id: Option<i64>) -> StoreError {
    let row = id.map_or_else(|| "a row".to_owned(), |id| format!("row {id}"));
    StoreError::Corrupt {
        what: format!(
            "the store in {place} is damaged: {row} of `store_items`; remove it, or restore the file from a backup"
        ),
        source: Some(CHECKSUM.into()),
    }
}

pub(super) fn item(place: &Location, row: &Row<'_>) -> Result<Item, StoreError> {
    let number = |column| row.get(column).map_err(|cause| damaged(place, "a number", cause));
    Ok(Item {
        namespace: namespace(place, row, 0)?,
        key: row.get(1).map_err(|cause| damaged(place, "a key", cause))?,
        value: value(place, row, 5)?,
        created_ms: number(2)?,
        updated_ms: number(3)?,
        expires_ms: row.get(4).map_err(|cause| damaged(place, "a number", cause))?,
    })
}

pub(super) fn namespace(place: &Location, row: &Row<'_>, column: usize) -> Result<Namespace, StoreError> {
    let text: String = row.get(column).map_err(|cause| damaged(place, "a namespace", cause))?;
    Namespace::parse(&text).map_err(|cause| damaged(place, "a namespace", cause))
}

pub(super) fn value(place: &Location, row: &Row<'_>, column: usize) -> Result<serde_json::Value, StoreError> {
    let text = row.get_ref(column).map_err(|cause| damaged(place, "a value", cause))?;
    let text = text.as_str().map_err(|cause| damaged(place, "a value", cause))?;
    serde_json::from_str(text).map_err(|cause| damaged(place, "a value", cause))
}

pub(super) fn vector(
    place: &Location,
    row: &Row<'_>,
    column: usize,
    model: &str,
) -> Result<Vector, StoreError> {
    let bytes = row.get_ref(column).map_err(|cause| damaged(place, "a vector", cause))?;
    let bytes = bytes.as_blob().map_err(|cause| damaged(place, "a vector", cause))?;
    let found = vector_of(model, bytes);
    found.ok_or_else(|| damaged(place, "a vector", "it is not made of floats of 32 bits"))
}

fn damaged(place: &Location, part: &str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "the store in {place} is damaged: superstep did not write {part} in `store_items`; remove the row, or \
             restore the file from a backup"
        ),
        source: Some(cause.into()),
    }
}
