//! Updates of states that are structs: their metadata for the derive, and their JSON form.
//!
//! The form is written and read entry by entry, so that a state can pass on the entries of a flattened state.
//!
//! Start at [`Fixed`].

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};
use superstep_engine::ChannelSet;

use crate::{
    Channel,
    stored_update::keys::{CLEAR, RECORDED, THEN},
    update_chain::Later,
};

// The JSON form is not derived. An outer update passes its entries to inner ones, and their `clear` and `$then` must be merged.
// Serde's flatten buffers its input, knows neither, and cannot be combined with rejecting unknown entries.

/// An update whose channels are known at compile time. Implemented by `#[derive(State)]`.
#[diagnostic::on_unimplemented(
    message = "a state with the updates `{Self}` cannot be flattened",
    label = "not the updates of a struct",
    note = "`flatten` takes a struct with `#[derive(State)]`, whose channels are known when the program is compiled"
)]
pub trait Fixed: Default {
    /// The number of channels.
    const COUNT: usize;

    /// All current and former names of the channels.
    const NAMES: &'static [&'static str];

    /// Returns the channels, by position.
    fn channels() -> &'static [Channel];

    /// See [`State::written`](crate::State::written).
    fn written(&self) -> ChannelSet;

    /// See [`State::exclusive`](crate::State::exclusive).
    fn exclusive(&self) -> ChannelSet;

    /// See [`State::restrict`](crate::State::restrict).
    fn restrict(&mut self, channels: ChannelSet);

    /// Writes an entry for each write, without following updates.
    ///
    /// # Errors
    /// If a write has no JSON form.
    fn write_entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;

    /// Reads the next value if `name` names a channel. Returns whether it does.
    ///
    /// # Errors
    /// If the value does not fit, or the channel already has a write.
    fn read_entry<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;

    /// Returns the cleared channels, without those of following updates.
    fn cleared(&self) -> ChannelSet;

    /// Clears a channel, so that it starts from its default.
    fn clear(&mut self, channel: usize);

    /// Returns whether other updates follow.
    fn has_following(&self) -> bool;

    /// Writes the following updates, in order.
    ///
    /// # Errors
    /// If a write has no JSON form.
    fn write_later<Q: SerializeSeq>(&self, list: &mut Q) -> Result<(), Q::Error>;

    /// Returns the channels whose writes differ in another update, as far as their types can be compared.
    fn differing(&self, other: &Self) -> ChannelSet;

    /// Returns the following updates, except those that only a flattened state has.
    fn later(&mut self) -> &mut Later<Self>;
}

/// Two values of one type, compared if possible: `(&Pair(a, b)).differ()` finds [`Comparable`] first.
pub struct Pair<'a, T>(pub &'a T, pub &'a T);

/// Values that can be compared.
pub trait Comparable {
    /// Returns whether they differ.
    fn differ(&self) -> bool;
}

impl<T: PartialEq> Comparable for Pair<'_, T> {
    fn differ(&self) -> bool {
        self.0 != self.1
    }
}

/// Values of any type.
pub trait Incomparable {
    /// Returns `false`, because they may be equal.
    fn differ(&self) -> bool;
}

impl<T> Incomparable for &Pair<'_, T> {
    fn differ(&self) -> bool {
        false
    }
}

/// Writes the entry of a channel, if there is a write.
///
/// # Errors
/// If the write has no JSON form.
pub fn write<T: Serialize, M: SerializeMap>(
    write: &Option<T>,
    name: &'static str,
    map: &mut M,
) -> Result<(), M::Error> {
    write.as_ref().map_or(Ok(()), |write| map.serialize_entry(name, write))
}

/// Reads the entry of a channel. `null` is the write `None`, not the absence of a write.
///
/// # Errors
/// If it does not fit, or if there is a write already.
pub fn read<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    write: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    match write {
        Some(_) => Err(A::Error::duplicate_field(name)),
        None => map.next_value().map(|read| *write = Some(read)),
    }
}

/// Writes an update as JSON: an entry for each write, `clear`, and `$then`.
pub fn serialize<U: Fixed, S: Serializer>(update: &U, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    write_first(update, &mut map)?;
    if update.has_following() {
        map.serialize_entry(THEN, &FollowingUpdates(update))?;
    }
    map.end()
}

fn write_first<U: Fixed, M: SerializeMap>(update: &U, map: &mut M) -> Result<(), M::Error> {
    update.write_entries(map)?;
    let cleared = update.cleared();
    if cleared.is_empty() { Ok(()) } else { map.serialize_entry(CLEAR, &Names::<U>(cleared, PhantomData)) }
}

/// An update without following ones.
pub struct First<'a, U>(pub &'a U);

/// The entries that follow an update.
struct FollowingUpdates<'a, U>(&'a U);

/// The names of the stored channels.
struct Names<U>(ChannelSet, PhantomData<fn() -> U>);

impl<U: Fixed> Serialize for First<'_, U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_first(self.0, &mut map)?;
        map.end()
    }
}

impl<U: Fixed> Serialize for FollowingUpdates<'_, U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        self.0.write_later(&mut list)?;
        list.end()
    }
}

impl<U: Fixed> Serialize for Names<U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let channels = self.0.iter().map(|position| &U::channels()[position]);
        serializer.collect_seq(channels.filter(|channel| !channel.untracked).map(|channel| &*channel.name))
    }
}

/// Reads an update that [`serialize`] wrote.
///
/// # Errors
/// If an entry names no channel or does not fit.
pub fn deserialize<'de, U: Fixed + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<U, D::Error> {
    deserializer.deserialize_map(Entries(PhantomData))
}

struct Entries<U>(PhantomData<fn() -> U>);

impl<'de, U: Fixed + Deserialize<'de>> Visitor<'de> for Entries<U> {
    type Value = U;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an update: an object with an entry for each channel that is written")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<U, A::Error> {
        let mut update = U::default();
        let (mut cleared, mut later) = (None::<Vec<Name<'de>>>, None::<Later<U>>);
        while let Some(Name(name)) = map.next_key()? {
            match &*name {
                CLEAR => read(&mut cleared, CLEAR, &mut map)?,
                THEN => read(&mut later, THEN, &mut map)?,
                RECORDED => drop(map.next_value::<IgnoredAny>()?),
                name if update.read_entry(name, &mut map)? => {}
                name => return Err(A::Error::unknown_field(name, U::NAMES)),
            }
        }
        for Name(name) in cleared.unwrap_or_default() {
            let position = U::channels().iter().position(|channel| channel.is_called(&name));
            let none = || A::Error::custom(format!("no channel is named `{name}`"));
            update.clear(position.ok_or_else(none)?);
        }
        *update.later() = later.unwrap_or_default();
        Ok(update)
    }
}

/// A name that need not be copied.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a channel")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The channels that an update clears before its writes are folded.
pub struct Cleared<U>(ChannelSet, PhantomData<fn() -> U>);

impl<U> Cleared<U> {
    /// Adds the channel at `position`.
    pub fn insert(&mut self, position: usize) {
        self.0.insert(position);
    }

    /// Returns whether the channel at `position` is cleared.
    pub fn contains(&self, position: usize) -> bool {
        self.0.contains(position)
    }

    /// Adds the channels of another update.
    pub fn extend(&mut self, other: &Self) {
        self.0 = self.0.union(other.0);
    }

    /// Leaves out all but these.
    pub fn retain(&mut self, channels: ChannelSet) {
        self.0 = self.0.intersection(channels);
    }

    /// Returns whether no channel is cleared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the channels as a set.
    pub fn channels(&self) -> ChannelSet {
        self.0
    }
}

impl<U> Clone for Cleared<U> {
    fn clone(&self) -> Self {
        Self(self.0, PhantomData)
    }
}

impl<U> Default for Cleared<U> {
    fn default() -> Self {
        Self(ChannelSet::EMPTY, PhantomData)
    }
}

impl<U> PartialEq for Cleared<U> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<U: Fixed> fmt::Debug for Cleared<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|position| &*U::channels()[position].name)).finish()
    }
}
