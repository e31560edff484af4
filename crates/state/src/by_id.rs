//! A list whose items have ids, cheap to clone at any length.
//!
//! Start at [`ById`]; [`Merges`] is the type of its writes.

use std::{fmt, marker::PhantomData, ops::Index};

use rpds::{HashTrieMapSync, VectorSync};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use crate::Items;

/// An item with an id.
pub trait HasId {
    /// Returns the id; empty if it has none yet.
    fn id(&self) -> &str;

    /// Sets the id.
    fn set_id(&mut self, id: String);
}

/// Access to the ids of a list's items, for item types of another crate. [`OwnId`] uses the items' own
/// [`HasId`].
pub trait IdOf<T>: Send + Sync + 'static {
    /// Returns the item's id; empty if it has none yet.
    fn id(item: &T) -> &str;

    /// Sets the id of the item.
    fn set_id(item: &mut T, id: String);
}

/// The ids of items that implement [`HasId`].
#[derive(Clone, Copy, Debug)]
pub enum OwnId {}

impl<T: HasId> IdOf<T> for OwnId {
    fn id(item: &T) -> &str {
        item.id()
    }

    fn set_id(item: &mut T, id: String) {
        item.set_id(id);
    }
}

/// A list of items with unique ids, in insertion order, with structural sharing.
///
/// The usual type of a merge-by-id channel. `K` gives access to the ids. An item without an id gets one that
/// is unique in the list: `auto-0`, `auto-1`, .. The id of a removed item may be reused. Set explicit ids for
/// items that are referenced from elsewhere.
///
/// # Source
/// The behaviour of langgraph's `add_messages`.
// `K` selects the id, because `Message` belongs to a crate that knows no graphs, so that no crate can implement a
// trait of this one for it.
pub struct ById<T, K = OwnId> {
    items: VectorSync<T>,
    positions: HashTrieMapSync<String, usize>,
    ids: PhantomData<fn() -> K>,
}

/// One operation on a [`ById`]. Its serialized form is JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Merge<T> {
    /// Removes the item with this id. An unknown id is an error.
    Remove {
        /// The item's id.
        #[serde(rename = "$remove")]
        id: String,
    },
    /// Removes every item.
    RemoveAll {
        /// Distinguishes the operation from an item; always the same value.
        #[serde(rename = "$remove_all")]
        marker: Always,
    },
    /// Replaces the item with the same id in place, or appends it. An item without an id gets one.
    Put(T),
}

impl<T> Merge<T> {
    /// Removes the item with this id.
    pub fn remove(id: impl Into<String>) -> Self {
        Self::Remove { id: id.into() }
    }

    /// Removes every item.
    pub fn remove_all() -> Self {
        Self::RemoveAll { marker: Always }
    }
}

// Not derived: while serde tries the variants of an untagged enum, it buffers the value without 128-bit
// integers and without the type of map keys. Items that contain those would be stored and could not be read.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Merge<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, deny_unknown_fields)]
        enum Removal {
            One {
                #[serde(rename = "$remove")]
                id: String,
            },
            All {
                #[serde(rename = "$remove_all")]
                marker: Always,
            },
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let json = json.get();
        let removal = json.contains("$remove").then(|| serde_json::from_str(json));
        match removal {
            Some(Ok(Removal::One { id })) => Ok(Self::Remove { id }),
            Some(Ok(Removal::All { marker })) => Ok(Self::RemoveAll { marker }),
            Some(Err(_)) | None => serde_json::from_str(json).map(Self::Put).map_err(D::Error::custom),
        }
    }
}

/// The value `true`, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "bool", into = "bool")]
pub struct Always;

impl TryFrom<bool> for Always {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Ok(Self) } else { Err("only `true` has a meaning here") }
    }
}

impl From<Always> for bool {
    fn from(_: Always) -> Self {
        true
    }
}

/// A write to a merge-by-id channel: operations, applied in order.
///
/// Items alone convert into it, and so do [`Merge`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "T: DeserializeOwned"))]
pub struct Merges<T>(pub Vec<Merge<T>>);

impl<T> From<Vec<T>> for Merges<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items.into_iter().map(Merge::Put).collect())
    }
}

impl<T, const N: usize> From<[T; N]> for Merges<T> {
    fn from(items: [T; N]) -> Self {
        Self(items.into_iter().map(Merge::Put).collect())
    }
}

impl<T, const N: usize> From<[Merge<T>; N]> for Merges<T> {
    fn from(merges: [Merge<T>; N]) -> Self {
        Self(merges.into())
    }
}

/// The error of an operation on an unknown id.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no item has the id `{0}`, so it cannot be removed")]
pub struct UnknownId(pub String);

crate::debug_by_chain!(UnknownId);

impl<T: Clone, K: IdOf<T>> ById<T, K> {
    /// Creates a list without items.
    pub fn new() -> Self {
        Self { items: VectorSync::new_sync(), positions: HashTrieMapSync::new_sync(), ids: PhantomData }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the item with this id.
    pub fn get(&self, id: &str) -> Option<&T> {
        self.positions.get(id).and_then(|&position| self.items.get(position))
    }

    /// Returns the position of the item with this id, from 0.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(id).copied()
    }

    /// Returns the newest item.
    pub fn last(&self) -> Option<&T> {
        self.items.last()
    }

    /// Returns the items in their order.
    pub fn iter(&self) -> Items<'_, T> {
        Items::of(&self.items)
    }

    /// Applies operations in order.
    ///
    /// # Errors
    /// [`UnknownId`] if an item to be removed does not exist; the operations before it are applied.
    pub fn merge(&mut self, merges: Merges<T>) -> Result<(), UnknownId> {
        for merge in merges.0 {
            match merge {
                Merge::Put(item) => self.put(item),
                Merge::Remove { id } => self.remove(&id)?,
                Merge::RemoveAll { .. } => *self = Self::new(),
            }
        }
        Ok(())
    }

    fn put(&mut self, mut item: T) {
        if K::id(&item).is_empty() {
            K::set_id(&mut item, self.unused_id());
        }
        match self.positions.get(K::id(&item)).copied() {
            Some(position) => drop(self.items.set_mut(position, item)),
            None => {
                self.positions.insert_mut(K::id(&item).to_owned(), self.items.len());
                self.items.push_back_mut(item);
            }
        }
    }

    fn remove(&mut self, id: &str) -> Result<(), UnknownId> {
        if !self.positions.contains_key(id) {
            return Err(UnknownId(id.to_owned()));
        }
        *self = self.items.iter().filter(|item| K::id(item) != id).cloned().collect();
        Ok(())
    }

    /// Returns an id that depends on the items alone, so that a replay finds the same.
    fn unused_id(&self) -> String {
        let mut number = self.len();
        loop {
            let id = format!("auto-{number}");
            if !self.positions.contains_key(&id) {
                return id;
            }
            number += 1;
        }
    }
}

impl<'a, T: Clone, K: IdOf<T>> IntoIterator for &'a ById<T, K> {
    type Item = &'a T;
    type IntoIter = Items<'a, T>;

    fn into_iter(self) -> Items<'a, T> {
        self.iter()
    }
}

impl<T: Clone, K: IdOf<T>> Default for ById<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, K: IdOf<T>> FromIterator<T> for ById<T, K> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::new();
        for item in items {
            list.put(item);
        }
        list
    }
}

impl<T, K> Clone for ById<T, K> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), positions: self.positions.clone(), ids: PhantomData }
    }
}

impl<T, K> Index<usize> for ById<T, K> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.items[index]
    }
}

impl<T: PartialEq, K> PartialEq for ById<T, K> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq, K> Eq for ById<T, K> {}

impl<T: fmt::Debug, K> fmt::Debug for ById<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items.iter()).finish()
    }
}

impl<T: Serialize, K> Serialize for ById<T, K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter())
    }
}

impl<'de, T: Deserialize<'de> + Clone, K: IdOf<T>> Deserialize<'de> for ById<T, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<T>::deserialize(deserializer).map(|items| items.into_iter().collect())
    }
}
