//! Reducers: rules that fold writes into a channel.
//!
//! Start at [`Reducer`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    error::Error,
    hash::{BuildHasher, Hash},
};

use crate::{ById, IdOf, Log, Merges};

/// The built-in reducers by the keywords of `#[channel(..)]`.
pub mod reducers {
    pub use super::{
        AnyValue as any_value, Append as append, Ephemeral as ephemeral, LastValue as last_value, Max as max,
        MergeById as merge_by_id, Sum as sum, Topic as topic, Union as union,
    };
}

/// The error of a reducer that rejects a write.
pub type ReduceError = Box<dyn Error + Send + Sync>;

/// A rule by which writes fold into a channel of type `T`.
///
/// Choose one per field with `#[channel(..)]`; for a custom rule, implement this trait and name the type with
/// `#[channel(with = MyRule)]`.
///
/// # Determinism
/// The result depends on the value and the write only. Stored writes are folded again when a checkpoint is
/// loaded.
#[diagnostic::on_unimplemented(
    message = "the reducer `{Self}` does not fit a channel of type `{T}`",
    label = "not for a channel of this type",
    note = "`docs/state.md` lists the channel types of each reducer; for a rule of your own, implement `Reducer` \
        and use `#[channel(with = MyRule)]`"
)]
pub trait Reducer<T> {
    /// The type of a write; often `T` itself.
    type Write;

    /// `true` if the channel accepts one write per superstep.
    const EXCLUSIVE: bool = false;

    /// `true` if the channel is reset to its default at the end of the next superstep.
    const EPHEMERAL: bool = false;

    /// Folds one write into the value.
    ///
    /// # Errors
    /// If the write is not possible. The whole superstep is then rejected, and a partly changed value is
    /// dropped.
    fn reduce(value: &mut T, write: Self::Write) -> Result<(), ReduceError>;
}

/// Replaces the value by the write; one write per superstep. The default.
#[derive(Debug)]
pub enum LastValue {}

impl<T> Reducer<T> for LastValue {
    type Write = T;
    const EXCLUSIVE: bool = true;

    fn reduce(value: &mut T, write: T) -> Result<(), ReduceError> {
        *value = write;
        Ok(())
    }
}

/// Like [`LastValue`], but several tasks of a superstep may write: the write of the last of them counts, in the order in
/// which their updates are folded. For values that are equal in all writes.
#[derive(Debug)]
pub enum AnyValue {}

impl<T> Reducer<T> for AnyValue {
    type Write = T;

    fn reduce(value: &mut T, write: T) -> Result<(), ReduceError> {
        *value = write;
        Ok(())
    }
}

/// Like [`LastValue`], but only the next superstep sees the value.
#[derive(Debug)]
pub enum Ephemeral {}

impl<T> Reducer<T> for Ephemeral {
    type Write = T;
    const EXCLUSIVE: bool = true;
    const EPHEMERAL: bool = true;

    fn reduce(value: &mut T, write: T) -> Result<(), ReduceError> {
        *value = write;
        Ok(())
    }
}

/// Appends writes: items to a [`Log`] or a `Vec`, text to a `String`.
#[derive(Debug)]
pub enum Append {}

impl<T> Reducer<Log<T>> for Append {
    type Write = Vec<T>;

    fn reduce(value: &mut Log<T>, write: Vec<T>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}

impl<T> Reducer<Vec<T>> for Append {
    type Write = Vec<T>;

    fn reduce(value: &mut Vec<T>, write: Vec<T>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}

impl Reducer<String> for Append {
    type Write = String;

    fn reduce(value: &mut String, write: String) -> Result<(), ReduceError> {
        value.push_str(&write);
        Ok(())
    }
}

/// Like [`Append`], but only the next superstep sees the items, those of all tasks of one superstep together.
///
/// Use [`Append`] for a topic that retains all items.
#[derive(Debug)]
pub enum Topic {}

impl<T> Reducer<Log<T>> for Topic {
    type Write = Vec<T>;
    const EPHEMERAL: bool = true;

    fn reduce(value: &mut Log<T>, write: Vec<T>) -> Result<(), ReduceError> {
        Append::reduce(value, write)
    }
}

impl<T> Reducer<Vec<T>> for Topic {
    type Write = Vec<T>;
    const EPHEMERAL: bool = true;

    fn reduce(value: &mut Vec<T>, write: Vec<T>) -> Result<(), ReduceError> {
        Append::reduce(value, write)
    }
}

/// Replaces items with a known id and appends others; see [`ById`].
#[derive(Debug)]
pub enum MergeById {}

impl<T: Clone, K: IdOf<T>> Reducer<ById<T, K>> for MergeById {
    type Write = Merges<T>;

    fn reduce(value: &mut ById<T, K>, write: Merges<T>) -> Result<(), ReduceError> {
        value.merge(write).map_err(Into::into)
    }
}

/// Adds up writes. Integers stay integers; a sum that does not fit is an error.
#[derive(Debug)]
pub enum Sum {}

macro_rules! sum {
    ($($int:ty)*; $($float:ty)*) => {
        $(impl Reducer<$int> for Sum {
            type Write = $int;

            fn reduce(value: &mut $int, write: $int) -> Result<(), ReduceError> {
                let sum = value.checked_add(write);
                *value = sum.ok_or_else(|| format!("{value} + {write} does not fit {}", stringify!($int)))?;
                Ok(())
            }
        })*
        $(impl Reducer<$float> for Sum {
            type Write = $float;

            fn reduce(value: &mut $float, write: $float) -> Result<(), ReduceError> {
                let sum = *value + write;
                // A value that is not finite itself is rejected where it is written.
                if value.is_finite() && write.is_finite() && !sum.is_finite() {
                    return Err(format!("{value} + {write} does not fit {}", stringify!($float)).into());
                }
                *value = sum;
                Ok(())
            }
        })*
    };
}

sum!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize; f32 f64);

/// Retains the greatest write.
///
/// The default of the type takes part, which for numbers is 0. If writes may be less than that, use an
/// `Option`: `None` is less than any `Some`.
#[derive(Debug)]
pub enum Max {}

impl<T: PartialOrd> Reducer<T> for Max {
    type Write = T;

    fn reduce(value: &mut T, write: T) -> Result<(), ReduceError> {
        if write > *value {
            *value = write;
        }
        Ok(())
    }
}

/// Unites sets and merges maps; for a key in both, the written value wins.
///
/// A `HashSet` or `HashMap` is stored and shown in no particular order; use a `BTreeSet` or `BTreeMap` where that matters.
#[derive(Debug)]
pub enum Union {}

impl<T: Ord> Reducer<BTreeSet<T>> for Union {
    type Write = BTreeSet<T>;

    fn reduce(value: &mut BTreeSet<T>, write: BTreeSet<T>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}

impl<K: Ord, V> Reducer<BTreeMap<K, V>> for Union {
    type Write = BTreeMap<K, V>;

    fn reduce(value: &mut BTreeMap<K, V>, write: BTreeMap<K, V>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}

impl<T: Eq + Hash, H: BuildHasher> Reducer<HashSet<T, H>> for Union {
    type Write = HashSet<T, H>;

    fn reduce(value: &mut HashSet<T, H>, write: HashSet<T, H>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}

impl<K: Eq + Hash, V, H: BuildHasher> Reducer<HashMap<K, V, H>> for Union {
    type Write = HashMap<K, V, H>;

    fn reduce(value: &mut HashMap<K, V, H>, write: HashMap<K, V, H>) -> Result<(), ReduceError> {
        value.extend(write);
        Ok(())
    }
}
