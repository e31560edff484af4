//! Looking for floats that JSON cannot say.

use std::fmt;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Whether a float in `value` is no number, so that JSON has `null` in its place. Writes nothing, and is much quicker
/// than to read what was written.
pub(super) fn has_no_number(value: &impl Serialize) -> bool {
    let mut found = Found(false);
    // A value that cannot be walked through may have anything.
    value.serialize(&mut found).is_err() || found.0
}

struct Found(bool);

macro_rules! skip {
    ($($method:ident($($value:ty),*))*) => {
        $(fn $method(self $(, _: $value)*) -> Result<(), fmt::Error> {
            Ok(())
        })*
    };
}

impl Serializer for &mut Found {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn serialize_f32(self, value: f32) -> Result<(), fmt::Error> {
        self.0 |= !value.is_finite();
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), fmt::Error> {
        self.0 |= !value.is_finite();
        Ok(())
    }

    skip! {
        serialize_bool(bool) serialize_char(char) serialize_str(&str) serialize_bytes(&[u8])
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_none() serialize_unit() serialize_unit_struct(&'static str)
        serialize_unit_variant(&'static str, u32, &'static str)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        Ok(self)
    }
}

macro_rules! walk {
    ($($kind:ident: $method:ident($($key:ty)?))*) => {
        $(impl $kind for &mut Found {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), fmt::Error> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), fmt::Error> {
                Ok(())
            }
        })*
    };
}

walk! {
    SerializeSeq: serialize_element()
    SerializeTuple: serialize_element()
    SerializeTupleStruct: serialize_field()
    SerializeTupleVariant: serialize_field()
    SerializeStruct: serialize_field(&'static str)
    SerializeStructVariant: serialize_field(&'static str)
}

impl SerializeMap for &mut Found {
    type Ok = ();
    type Error = fmt::Error;

    // A float is no key, but a key may be anything that the map's own form makes of it.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), fmt::Error> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), fmt::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    enum Shape {
        Point(f32, f32),
        Circle { radius: Option<f64> },
        Only(Vec<f64>),
        Nothing,
    }

    #[test]
    fn a_float_that_is_no_number_is_found_wherever_it_is() {
        assert!(has_no_number(&f64::NAN));
        assert!(has_no_number(&(1, f32::INFINITY)));
        assert!(has_no_number(&Shape::Point(0.0, f32::NEG_INFINITY)));
        assert!(has_no_number(&Shape::Circle { radius: Some(f64::NAN) }));
        assert!(has_no_number(&Shape::Only(vec![1.0, f64::NAN])));
        assert!(has_no_number(&BTreeMap::from([("a", BTreeMap::from([("b", f64::NAN)]))])));
    }

    #[test]
    fn nulls_that_were_meant_are_none() {
        let shapes =
            [Shape::Point(1.0, 2.0), Shape::Circle { radius: None }, Shape::Only(vec![]), Shape::Nothing];
        assert!(!has_no_number(&shapes));
        assert!(!has_no_number(
            &json!({ "text": null, "list": [1, 2.5, "x", true, null], "of": { "n": null } })
        ));
    }
}
