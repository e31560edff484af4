//! A channel that is ready after all participants have arrived.
//!
//! Start at [`Barrier`].

use std::{collections::BTreeSet, fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{ReduceError, Reducer, Route};

/// The arrived variants of an enum that derives [`Route`]. It is ready when all have arrived.
///
/// Use it for arrivals as data: written by nodes in any superstep, and readable. To run a node after several
/// others, [`add_join`](crate::StateGraph::add_join) is enough. It stays ready until it is cleared.
///
/// ```
/// use superstep_graph::{Route, State, state::{Barrier, reduce}};
///
/// #[derive(Route, Clone, Copy, Debug, PartialEq)]
/// enum Reviewer {
///     Legal,
///     Security,
/// }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Review {
///     #[channel(barrier)]
///     approvals: Barrier<Reviewer>,
/// }
///
/// let half = reduce(&Review::default(), [Review::update().approvals(Reviewer::Security)])?;
/// assert!(!half.approvals.is_ready());
/// assert_eq!(half.approvals.missing().collect::<Vec<_>>(), [Reviewer::Legal]);
/// let whole = reduce(&half, [Review::update().approvals([Reviewer::Legal, Reviewer::Security])])?;
/// assert!(whole.approvals.is_ready());
/// # Ok::<(), superstep_graph::state::FoldError>(())
/// ```
pub struct Barrier<R> {
    /// The arrived variants, by position in [`Route::ALL`].
    arrived: BTreeSet<usize>,
    names: PhantomData<fn() -> R>,
}

/// A write to a [`Barrier`]: the arrivals. Earlier arrivals remain.
///
/// Its JSON form is the list of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived<R>(pub Vec<R>);

/// Records arrivals; see [`Barrier`].
#[derive(Debug)]
pub enum Arrive {}

impl<R: Route> Reducer<Barrier<R>> for Arrive {
    type Write = Arrived<R>;

    fn reduce(value: &mut Barrier<R>, write: Arrived<R>) -> Result<(), ReduceError> {
        value.arrived.extend(write.0.into_iter().map(R::index));
        Ok(())
    }
}

impl<R: Route> Barrier<R> {
    /// Returns whether all variants have arrived.
    pub fn is_ready(&self) -> bool {
        self.arrived.len() == R::ALL.len()
    }

    /// Returns whether this variant has arrived.
    pub fn has(&self, name: R) -> bool {
        self.arrived.contains(&name.index())
    }

    /// Returns the arrived variants, in their order.
    pub fn arrived(&self) -> impl Iterator<Item = R> {
        R::ALL.iter().copied().filter(|name| self.has(*name))
    }

    /// Returns the missing variants, in their order.
    pub fn missing(&self) -> impl Iterator<Item = R> {
        R::ALL.iter().copied().filter(|name| !self.has(*name))
    }
}

impl<R> From<R> for Arrived<R> {
    fn from(name: R) -> Self {
        Self(vec![name])
    }
}

impl<R, const N: usize> From<[R; N]> for Arrived<R> {
    fn from(names: [R; N]) -> Self {
        Self(names.into())
    }
}

impl<R> From<Vec<R>> for Arrived<R> {
    fn from(names: Vec<R>) -> Self {
        Self(names)
    }
}

impl<R> Clone for Barrier<R> {
    fn clone(&self) -> Self {
        Self { arrived: self.arrived.clone(), names: PhantomData }
    }
}

impl<R> Default for Barrier<R> {
    fn default() -> Self {
        Self { arrived: BTreeSet::new(), names: PhantomData }
    }
}

impl<R> PartialEq for Barrier<R> {
    fn eq(&self, other: &Self) -> bool {
        self.arrived == other.arrived
    }
}

impl<R> Eq for Barrier<R> {}

impl<R: Route> fmt::Debug for Barrier<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.arrived().map(R::label)).finish()
    }
}

impl<R: Route> Serialize for Barrier<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.arrived().map(R::label))
    }
}

impl<'de, R: Route> Deserialize<'de> for Barrier<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Arrived(names) = Arrived::<R>::deserialize(deserializer)?;
        Ok(Self { arrived: names.into_iter().map(R::index).collect(), names: PhantomData })
    }
}

impl<R: Route> Serialize for Arrived<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|name| name.label()))
    }
}

impl<'de, R: Route> Deserialize<'de> for Arrived<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let find = |label: String| {
            let found = R::ALL.iter().copied().find(|name| name.label() == label);
            found.ok_or_else(|| D::Error::custom(format!("the barrier has no name `{label}`")))
        };
        let labels = Vec::<String>::deserialize(deserializer)?;
        labels.into_iter().map(find).collect::<Result<_, _>>().map(Self)
    }
}
