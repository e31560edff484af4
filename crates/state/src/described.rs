//! JSON Schemas of channels, of the types that have one.
//!
//! Start at [`Shape`].

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{ById, Log};

/// The type of a channel or of its writes: `(&shape).schema(generator)` finds [`Described`] first.
pub struct Shape<T>(PhantomData<fn() -> T>);

impl<T> Shape<T> {
    /// Returns the type of a value.
    pub fn of_value(_: &T) -> Self {
        Self(PhantomData)
    }

    /// Returns the type of the writes in a field of an update.
    pub fn of_write<U>(_: fn(&U) -> &Option<T>) -> Self {
        Self(PhantomData)
    }
}

/// Types that have a schema.
pub trait Described {
    /// Returns the schema; `None` if the type has none.
    fn schema(&self, generator: &mut SchemaGenerator) -> Option<Schema>;
}

impl<T: JsonSchema> Described for Shape<T> {
    fn schema(&self, generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }
}

/// All types.
pub trait Undescribed {
    /// Returns `None`.
    fn schema(&self, generator: &mut SchemaGenerator) -> Option<Schema>;
}

impl<T> Undescribed for &Shape<T> {
    fn schema(&self, _: &mut SchemaGenerator) -> Option<Schema> {
        None
    }
}

/// Implements [`JsonSchema`] for a list.
macro_rules! lists {
    ($($list:ty, $($of:ident),*;)*) => {$(
        impl<T: JsonSchema $(, $of)*> JsonSchema for $list {
            fn inline_schema() -> bool {
                Vec::<T>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                Vec::<T>::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                Vec::<T>::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                Vec::<T>::json_schema(generator)
            }
        }
    )*};
}

lists! {
    Log<T>,;
    ById<T, K>, K;
}
