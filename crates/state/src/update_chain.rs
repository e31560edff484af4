//! Updates that are folded one after the other as one.
//!
//! Start at [`Update::then`].

use std::{fmt, slice, vec};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Update;

/// The updates that are folded right after the one that has this list. Nearly always the list is empty, which
/// is a null pointer.
///
/// Its JSON form is the list, as the entry `$then` of the first update.
pub struct Later<U>(
    #[expect(clippy::box_collection, reason = "an update is as small as can be")] Option<Box<Vec<U>>>,
);

impl<U> Later<U> {
    /// Returns whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the last update.
    ///
    /// # Panics
    /// If the chain is empty.
    pub fn last_mut(&mut self) -> &mut U {
        self.0.as_mut().and_then(|list| list.last_mut()).expect("there are later updates")
    }

    /// Iterates over the updates in order.
    pub fn iter(&self) -> slice::Iter<'_, U> {
        self.0.as_deref().map_or(&[][..], Vec::as_slice).iter()
    }
}

impl<U: Update> Later<U> {
    /// Appends an update that has no following updates of its own.
    pub fn push(&mut self, update: U) {
        self.0.get_or_insert_default().push(update);
    }
}

impl<U> IntoIterator for Later<U> {
    type Item = U;
    type IntoIter = vec::IntoIter<U>;

    fn into_iter(self) -> vec::IntoIter<U> {
        self.0.map_or_else(Vec::new, |list| *list).into_iter()
    }
}

impl<U: Clone> Clone for Later<U> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<U> Default for Later<U> {
    fn default() -> Self {
        Self(None)
    }
}

impl<U: fmt::Debug> fmt::Debug for Later<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<U: Serialize> Serialize for Later<U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, U: Deserialize<'de>> Deserialize<'de> for Later<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(deserializer)?;
        Ok(Self((!list.is_empty()).then(|| Box::new(list))))
    }
}
