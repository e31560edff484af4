//! Names and numbers, each as its own type.

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

/// The name of the start of every run. It has outgoing edges only.
pub const START: &str = "__start__";

/// The name of the end of a branch. It has incoming edges only.
pub const END: &str = "__end__";

/// A node's name, as the user wrote it. Checkpoints refer to nodes by name. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for NodeName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl PartialEq<str> for NodeName {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for NodeName {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A node of one [`Topology`](crate::Topology). The order of indexes is the order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// Returns the index as a position in lists that have one entry per node.
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

/// One run of one node in one superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The superstep, counted from 0 on each thread.
    pub step: i64,
    /// The place among the tasks of the superstep, which are sorted by node name.
    pub slot: u32,
}

/// A set of channels, by their position in the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelSet(u128);

impl ChannelSet {
    /// The maximum number of channels of a state.
    pub const CAPACITY: usize = 128;

    /// The set with no channel.
    pub const EMPTY: Self = Self(0);

    /// Adds the channel at `position`.
    ///
    /// # Panics
    /// If `position` is not below [`ChannelSet::CAPACITY`]; the derive of a state checks that at compile time.
    pub fn insert(&mut self, position: usize) {
        assert!(position < Self::CAPACITY, "a state has at most {} channels", Self::CAPACITY);
        self.0 |= 1 << position;
    }

    /// Returns whether the channel at `position` is in the set.
    pub fn contains(self, position: usize) -> bool {
        position < Self::CAPACITY && self.0 & (1 << position) != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the channels in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the channels in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set of a state that has these channels from position `start` on, and others before them.
    #[must_use]
    pub fn moved(self, start: usize) -> Self {
        Self(u32::try_from(start).ok().and_then(|by| self.0.checked_shl(by)).unwrap_or(0))
    }

    /// Returns the channels at these positions, as the set of a state that has no others.
    #[must_use]
    pub fn part(self, positions: Range<usize>) -> Self {
        let inside = self.iter().filter(|position| positions.contains(position));
        inside.map(|position| position - positions.start).collect()
    }

    /// Returns the positions in the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let position = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(position)
        })
    }
}

impl FromIterator<usize> for ChannelSet {
    fn from_iter<I: IntoIterator<Item = usize>>(positions: I) -> Self {
        let mut set = Self::EMPTY;
        for position in positions {
            set.insert(position);
        }
        set
    }
}
