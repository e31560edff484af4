//! The size of a value as JSON, without writing it.
//!
//! Start at [`Size`].

use std::fmt::{self, Write as _};

use serde::{
    Serialize,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant, Serializer,
    },
};
use serde_json::Error;

/// A serializer that adds the length of the JSON that `serde_json` would write, except for escaped characters. The cost of a
/// text does not depend on its length.
pub(super) struct Size<'a> {
    bytes: &'a mut usize,
    /// `true` for the key of an object, which must be a text.
    is_key: bool,
}

impl<'a> Size<'a> {
    pub(super) fn new(bytes: &'a mut usize) -> Self {
        Self { bytes, is_key: false }
    }

    fn add(self, bytes: usize) -> Result<(), Error> {
        // A key is quoted, whatever it is.
        *self.bytes += bytes + if self.is_key { 3 } else { 0 };
        Ok(())
    }

    fn print(self, value: impl fmt::Display) -> Result<(), Error> {
        let mut printed = DisplayLength(0);
        // Counting never fails, but the value's own `Display` may.
        write!(printed, "{value}").map_err(Error::custom)?;
        self.add(printed.0)
    }

    /// Begins a list or an object, or a value that cannot be a key.
    fn begin(self, bytes: usize) -> Result<Self, Error> {
        if self.is_key {
            return Err(Error::custom("key must be a string"));
        }
        *self.bytes += bytes;
        Ok(self)
    }

    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        *self.bytes += 1;
        value.serialize(Size::new(self.bytes))
    }

    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        *self.bytes += name.len() + 3;
        self.element(value)
    }
}

/// The number of bytes that a `Display` writes.
struct DisplayLength(usize);

impl fmt::Write for DisplayLength {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

macro_rules! printed {
    ($($method:ident($value:ty))*) => {
        $(fn $method(self, value: $value) -> Result<(), Error> {
            self.print(value)
        })*
    };
}

impl<'a> Serializer for Size<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    printed! {
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_f32(f32) serialize_f64(f64) serialize_bool(bool)
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        *self.bytes += value.len() + if self.is_key { 3 } else { 2 };
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.begin(value.len() * 4 + 2).map(drop)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self.begin(0)?)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.begin(4).map(drop)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.begin(1)?.field(variant, value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Error> {
        self.begin(1)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Error> {
        self.begin(1)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.begin(1)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.begin(variant.len() + 6)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Error> {
        self.begin(1)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.begin(1)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.begin(variant.len() + 6)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        let is_key = self.is_key;
        let bytes = Size { bytes: self.bytes, is_key: false };
        *bytes.bytes += if is_key { 3 } else { 2 };
        bytes.print(value)
    }
}

macro_rules! lists {
    ($($form:ident: $method:ident)*) => {
        $(impl $form for Size<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

macro_rules! structs {
    ($($form:ident)*) => {
        $(impl $form for Size<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

lists! {
    SerializeSeq: serialize_element
    SerializeTuple: serialize_element
    SerializeTupleStruct: serialize_field
    SerializeTupleVariant: serialize_field
}

structs! { SerializeStruct SerializeStructVariant }

impl SerializeMap for Size<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(Size { bytes: self.bytes, is_key: true })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.element(value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::{Value, json};

    use super::Size;

    fn size(value: &impl Serialize) -> usize {
        let mut bytes = 0;
        value.serialize(Size::new(&mut bytes)).unwrap();
        bytes
    }

    #[derive(Serialize)]
    enum Shape {
        Unit,
        Newtype(i64),
        Tuple(u8, bool),
        Struct { name: String, nested: Option<Box<Shape>> },
    }

    #[test]
    fn is_the_length_of_the_json_without_escapes() {
        let nested = Some(Box::new(Shape::Newtype(-12)));
        let values = [
            Shape::Unit,
            Shape::Newtype(i64::MIN),
            Shape::Tuple(0, false),
            Shape::Struct { name: "größer".to_owned(), nested },
            Shape::Struct { name: String::new(), nested: None },
        ];
        for value in values {
            assert_eq!(size(&value), serde_json::to_string(&value).unwrap().len());
        }
        let keys = BTreeMap::from([(1_u64, 1.5_f64), (20, -0.25)]);
        assert_eq!(size(&keys), serde_json::to_string(&keys).unwrap().len());
        assert_eq!(size(&'x'), 3);
        assert_eq!(size(&std::net::Ipv4Addr::LOCALHOST), r#""127.0.0.1""#.len());
    }

    #[test]
    fn a_key_that_is_not_a_text_is_refused_as_by_the_writer() {
        let refused = BTreeMap::from([(vec![1], 1)]);
        assert!(serde_json::to_string(&refused).is_err());
        assert!(refused.serialize(Size::new(&mut 0)).is_err());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-zß ]{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let entries = prop::collection::btree_map("[a-z]{0,8}", inner.clone(), 0..6);
            prop_oneof![
                prop::collection::vec(inner, 0..6).prop_map(Value::from),
                entries.prop_map(|entries| json!(entries)),
            ]
        })
    }

    /// Returns the number of lists and objects without elements, of which only one bracket is counted.
    fn empty(value: &Value) -> usize {
        match value {
            Value::Array(values) if values.is_empty() => 1,
            Value::Array(values) => values.iter().map(empty).sum(),
            Value::Object(entries) if entries.is_empty() => 1,
            Value::Object(entries) => entries.values().map(empty).sum(),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn is_the_length_of_any_json_but_for_empty_lists(value in json()) {
            prop_assert_eq!(size(&value) + empty(&value), value.to_string().len());
        }
    }
}
