//! Sections that `true` and `false` switch on and off.
//!
//! Start at [`Switch`].

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
    ser::Error,
};
use serde_json::Value;

/// A section that may be absent, off, or on with its settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Switch<T> {
    /// The configuration does not have the section.
    #[default]
    Absent,
    Off,
    /// `true` for the default settings, or a table.
    On(T),
}

impl<T> Switch<T> {
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Returns the settings, if the section is on.
    pub fn on(&self) -> Option<&T> {
        match self {
            Self::On(settings) => Some(settings),
            Self::Absent | Self::Off => None,
        }
    }
}

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Switched<T>(PhantomData<T>);
        impl<'de, T: Default + Deserialize<'de>> Visitor<'de> for Switched<T> {
            type Value = Switch<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table")
            }

            fn visit_bool<E>(self, is_on: bool) -> Result<Self::Value, E> {
                Ok(if is_on { Switch::On(T::default()) } else { Switch::Off })
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(table)).map(Switch::On)
            }
        }
        deserializer.deserialize_any(Switched(PhantomData))
    }
}

impl<T: Default + Serialize> Serialize for Switch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Off => serializer.serialize_bool(false),
            Self::On(settings) => Sparse(settings).serialize(serializer),
        }
    }
}

/// Settings of which only those that differ from the default are serialized: a thread follows the defaults of the
/// program that runs it.
pub(crate) struct Sparse<'a, T>(pub &'a T);

impl<T: Default + Serialize> Serialize for Sparse<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |settings: &T| serde_json::to_value(settings).map_err(S::Error::custom);
        let mut own = value(self.0)?;
        if let (Value::Object(own), Value::Object(usual)) = (&mut own, value(&T::default())?) {
            own.retain(|name, value| usual.get(name) != Some(value));
        }
        own.serialize(serializer)
    }
}
