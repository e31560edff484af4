//! Rows in memory, written through to a store.
//!
//! Start at [`Table`].

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use superstep_graph::{
    Store,
    store::{Index, Namespace, PutOptions, Search},
};
use tokio::sync::Mutex;

use crate::error::{ApiError, ServerError};

/// The first label of the namespaces of rows. The endpoints of the store refuse it.
pub(crate) const LABEL: &str = "superstep-server";

/// The number of rows that are read at once.
const PAGE: usize = 500;

/// A table of rows by id. One process owns it.
pub(crate) struct Table<R> {
    rows: RwLock<BTreeMap<String, R>>,
    store: Arc<dyn Store>,
    namespace: Namespace,
    /// Orders the writes to the store as those to the memory.
    writing: Mutex<()>,
}

impl<R: Clone + Serialize + DeserializeOwned + Send + Sync> Table<R> {
    /// Reads a table.
    ///
    /// # Errors
    /// [`ServerError::Rows`] and [`ServerError::InvalidRow`].
    pub(crate) async fn open(store: Arc<dyn Store>, table: &'static str) -> Result<Self, ServerError> {
        let unread = |source| ServerError::Rows { source };
        let namespace = Namespace::new([LABEL, table]).map_err(unread)?;
        let mut rows = BTreeMap::new();
        loop {
            let search = Search { limit: PAGE, offset: rows.len(), ..Search::within(&namespace) };
            let found = store.search(search).await.map_err(unread)?;
            let is_last = found.len() < PAGE;
            for found in found {
                let key = found.item.key;
                let row = serde_json::from_value(found.item.value)
                    .map_err(|source| ServerError::InvalidRow { table, key: key.clone(), source })?;
                rows.insert(key, row);
            }
            if is_last {
                break;
            }
        }
        Ok(Self { rows: RwLock::new(rows), store, namespace, writing: Mutex::new(()) })
    }

    pub(crate) fn get(&self, id: &str) -> Option<R> {
        self.read().get(id).cloned()
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.read().contains_key(id)
    }

    /// Returns the rows that fit, by id.
    pub(crate) fn list(&self, fits: impl Fn(&R) -> bool) -> Vec<R> {
        self.read().values().filter(|row| fits(row)).cloned().collect()
    }

    /// Returns the rows whose ids begin so, by id.
    pub(crate) fn under(&self, prefix: &str) -> Vec<R> {
        let rows = self.read();
        let range = rows.range(prefix.to_owned()..);
        range.take_while(|(id, _)| id.starts_with(prefix)).map(|(_, row)| row.clone()).collect()
    }

    /// Returns the number of rows that fit.
    #[cfg(feature = "crons")]
    pub(crate) fn count(&self, fits: impl Fn(&R) -> bool) -> usize {
        self.read().values().filter(|row| fits(row)).count()
    }

    /// Returns the least value of all rows that have one, with the id of its row.
    #[cfg(feature = "crons")]
    pub(crate) fn least<K: Ord>(&self, value: impl Fn(&R) -> Option<K>) -> Option<(K, String)> {
        let rows = self.read();
        let (least, id) = rows.iter().filter_map(|(id, row)| Some((value(row)?, id))).min()?;
        Some((least, id.clone()))
    }

    /// Stores a row.
    ///
    /// # Errors
    /// The errors of the store; nothing is changed then.
    pub(crate) async fn put(&self, id: &str, row: R) -> Result<(), ApiError> {
        let _ordered = self.writing.lock().await;
        self.store_row(id, row).await
    }

    /// Stores a row if there is none of this id. Returns the row that there is.
    ///
    /// # Errors
    /// The errors of the store; nothing is changed then.
    pub(crate) async fn add(&self, id: &str, row: R) -> Result<Option<R>, ApiError> {
        let _ordered = self.writing.lock().await;
        match self.get(id) {
            Some(existing) => Ok(Some(existing)),
            None => self.store_row(id, row).await.map(|()| None),
        }
    }

    /// Changes a row. Returns the new one; `None` if there is none of this id.
    ///
    /// # Errors
    /// The errors of the store; nothing is changed then.
    pub(crate) async fn change(&self, id: &str, change: impl FnOnce(&mut R)) -> Result<Option<R>, ApiError> {
        let _ordered = self.writing.lock().await;
        let Some(mut row) = self.get(id) else { return Ok(None) };
        change(&mut row);
        self.store_row(id, row.clone()).await?;
        Ok(Some(row))
    }

    /// Deletes a row, if there is one.
    ///
    /// # Errors
    /// The errors of the store; nothing is changed then.
    pub(crate) async fn delete(&self, id: &str) -> Result<Option<R>, ApiError> {
        let _ordered = self.writing.lock().await;
        if !self.has(id) {
            return Ok(None);
        }
        self.store.delete(&self.namespace, id).await?;
        Ok(self.write().remove(id))
    }

    async fn store_row(&self, id: &str, row: R) -> Result<(), ApiError> {
        let json = serde_json::to_value(&row).expect("a row has a JSON form");
        // No query searches rows.
        let options = PutOptions::new().index(Index::Nothing);
        self.store.put_with(&self.namespace, id, json, options).await?;
        self.write().insert(id.to_owned(), row);
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, R>> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, R>> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an object has all of these entries; an entry that is an object, its entries.
pub(crate) fn contains(object: &Map<String, Value>, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(name, wanted)| match (object.get(name), wanted) {
        (Some(Value::Object(object)), Value::Object(wanted)) => contains(object, wanted),
        (found, wanted) => found == Some(wanted),
    })
}
