//! Values of any type, made from bytes: the `Deserialize` of a type asks for its parts.
//!
//! Start at [`Source`].

use std::slice;

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
        value::{Error, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use superstep_graph::state::Channel;

/// The characters of texts, the simplest first.
const CHARS: [char; 12] = ['a', 'b', 'Z', '0', ' ', '-', '"', '\\', '\n', 'é', '漢', '😀'];

/// The longest list and text, and the depth below which lists are empty.
const MAX_LENGTH: u8 = 4;
const MAX_DEPTH: usize = 6;

/// Bytes that decide the parts of a value. After their end all are 0, which is the simplest part.
pub(super) struct Source<'a> {
    bytes: slice::Iter<'a, u8>,
    depth: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), depth: 0 }
    }

    fn next(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or_default()
    }

    /// Returns a number: small ones mostly, because they collide and are at the edges of conditions.
    fn number(&mut self) -> i64 {
        match self.next() {
            byte @ 0..200 => i64::from(byte % 20) - i64::from(byte / 100) * 10,
            200..240 => i64::from(i16::from_le_bytes([self.next(), self.next()])),
            _ => i64::from_le_bytes([0; 8].map(|_: u8| self.next())),
        }
    }

    fn length(&mut self) -> usize {
        let length = usize::from(self.next() % (MAX_LENGTH + 1));
        if self.depth > MAX_DEPTH { 0 } else { length }
    }

    fn text(&mut self) -> String {
        let length = self.length();
        (0..length).map(|_| self.char()).collect()
    }

    fn char(&mut self) -> char {
        CHARS[usize::from(self.next()) % CHARS.len()]
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }
}

/// Reads an update that writes some of these channels.
pub(super) fn read_update<'de, U: Deserialize<'de>>(
    channels: &[Channel],
    source: &mut Source<'_>,
) -> Result<U, Error> {
    let written: Vec<_> =
        channels.iter().filter(|channel| !channel.untracked).filter(|_| source.next() % 2 == 1).collect();
    U::deserialize(Update { names: written.iter().map(|channel| &*channel.name).collect(), source })
}

/// The entries of an update.
struct Update<'s, 'a> {
    names: Vec<&'s str>,
    source: &'s mut Source<'a>,
}

impl<'de> Deserializer<'de> for Update<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { names: self.names.into_iter(), source: self.source })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $type:ty)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            // A number outside of the type is cut to it.
            visitor.$visit(self.number() as $type)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Source<'_> {
    type Error = Error;

    numbers! {
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_u128 visit_u128 u128
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next() % 4 {
            0 => visitor.visit_unit(),
            1 => self.deserialize_bool(visitor),
            2 => self.deserialize_i64(visitor),
            _ => self.deserialize_string(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.next() % 2 == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // Exact in both sizes, so that it is read back as it was.
        visitor.visit_f64(f64::from(self.number() as i16) / 4.0)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char(self.char())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.text().into_bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.next() % 2 == 1 && self.depth <= MAX_DEPTH {
            self.deeper(|source| visitor.visit_some(source))
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.length();
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        self.deeper(|source| visitor.visit_seq(Items { left, source }))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.length();
        self.deeper(|source| visitor.visit_map(Items { left, source }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deeper(|source| visitor.visit_map(Fields { names: fields.iter().copied(), source }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let count = variants.len().max(1);
        let variant = variants.get(usize::from(self.next()) % count).copied().unwrap_or_default();
        self.deeper(|source| visitor.visit_enum(Variant { variant, source }))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// The items of a list, or the entries of a map.
struct Items<'s, 'a> {
    left: usize,
    source: &'s mut Source<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.source).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.source)
    }
}

struct Fields<'s, 'a, I> {
    names: I,
    source: &'s mut Source<'a>,
}

impl<'de, 'n, I: Iterator<Item = &'n str>> MapAccess<'de> for Fields<'_, '_, I> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.source)
    }
}

/// A variant of an enum.
struct Variant<'s, 'a> {
    variant: &'static str,
    source: &'s mut Source<'a>,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.source)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.source.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { names: fields.iter().copied(), source: self.source })
    }
}
