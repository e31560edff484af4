//! A list that is cheap to clone at any length.

use std::{fmt, ops::Index, vec};

use rpds::VectorSync;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Items;

/// An append-only list with structural sharing: the costs of a clone and of an append do not depend on its
/// length.
///
/// The usual type of an append channel. It compares with arrays, slices and vectors:
/// ```
/// # use superstep_state::Log;
/// let log: Log<String> = Log::from(["read".to_owned(), "answered".to_owned()]);
/// assert_eq!(log, ["read", "answered"]);
/// ```
#[derive(Clone)]
pub struct Log<T>(VectorSync<T>);

impl<T> Log<T> {
    /// Creates a log without items.
    pub fn new() -> Self {
        Self(VectorSync::new_sync())
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it has no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the item at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)
    }

    /// Returns the newest item.
    pub fn last(&self) -> Option<&T> {
        self.0.last()
    }

    /// Returns the items, oldest first.
    pub fn iter(&self) -> Items<'_, T> {
        Items::of(&self.0)
    }

    /// Appends an item.
    pub fn push(&mut self, item: T) {
        self.0.push_back_mut(item);
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T> IntoIterator for &'a Log<T> {
    type Item = &'a T;
    type IntoIter = Items<'a, T>;

    fn into_iter(self) -> Items<'a, T> {
        self.iter()
    }
}

/// Clones the items, which other logs may share.
impl<T: Clone> IntoIterator for Log<T> {
    type Item = T;
    type IntoIter = vec::IntoIter<T>;

    fn into_iter(self) -> vec::IntoIter<T> {
        self.iter().cloned().collect::<Vec<_>>().into_iter()
    }
}

impl<T> Extend<T> for Log<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

impl<T> FromIterator<T> for Log<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut log = Self::new();
        log.extend(items);
        log
    }
}

impl<T> From<Vec<T>> for Log<T> {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T, const N: usize> From<[T; N]> for Log<T> {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T> Index<usize> for Log<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.0[index]
    }
}

impl<T: PartialEq> PartialEq for Log<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq> Eq for Log<T> {}

impl<T: PartialEq<U>, U, const N: usize> PartialEq<[U; N]> for Log<T> {
    fn eq(&self, other: &[U; N]) -> bool {
        *self == other[..]
    }
}

impl<T: PartialEq<U>, U> PartialEq<[U]> for Log<T> {
    fn eq(&self, other: &[U]) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(own, other)| own == other)
    }
}

impl<T: PartialEq<U>, U> PartialEq<&[U]> for Log<T> {
    fn eq(&self, other: &&[U]) -> bool {
        *self == **other
    }
}

impl<T: PartialEq<U>, U> PartialEq<Vec<U>> for Log<T> {
    fn eq(&self, other: &Vec<U>) -> bool {
        *self == other[..]
    }
}

impl<T: fmt::Debug> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Serialize> Serialize for Log<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Log<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_compares_with_lists_of_comparable_items() {
        let log = Log::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(log, ["a", "b"]);
        assert_eq!(log, ["a", "b"][..]);
        assert_eq!(log, &["a", "b"][..]);
        assert_eq!(log, vec!["a", "b"]);
        assert_eq!(log, ["a".to_owned(), "b".to_owned()]);
        assert_ne!(log, ["a"]);
        assert_ne!(log, ["a", "b", "c"]);
        assert_ne!(log, ["b", "a"]);
        assert_eq!(Log::<u8>::new(), Vec::<u8>::new());
    }

    #[test]
    fn a_log_is_iterated_by_reference_and_by_value() {
        let log = Log::from([1, 2, 3]);
        let mut sum = 0;
        for number in &log {
            sum += number;
        }
        assert_eq!((sum, log.iter().len()), (6, 3));
        assert_eq!(log.iter().rev().collect::<Vec<_>>(), [&3, &2, &1]);
        assert_eq!(log.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
