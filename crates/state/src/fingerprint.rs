//! Fingerprints: short texts that distinguish values without storing them.
//!
//! Start at [`fingerprint`].

use std::{
    cell::Cell,
    fmt::{self, Display},
};

use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

// Not a hash of the JSON. The order of a map's entries does not count, a long state is read up to a limit only, nothing is
// allocated, and a second mode distinguishes values that are equal in JSON (`None` and `Some(None)`, NaN and `null`), by which
// an update that would change when it is read back is rejected. JSON with sorted keys would need a copy of each state. Half of
// the file is what serde's trait requires; the rest is short.

/// Returns a short text that is equal for equal values and differs for different ones, barring hash
/// collisions.
///
/// The order of the entries of a map and of the fields of a struct does not count. The text is stable: it may
/// be stored and compared by a later program. It does not resist deliberate collisions.
///
/// # Errors
/// If the value cannot be serialized.
///
/// # Source
/// XXH3 of each text and number, combined upward into those of their containers.
pub fn fingerprint(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    Fingerprint::of(value).map(|print| print.to_string())
}

/// A [`fingerprint`] as a number. Its `Display` is the text.
///
/// The fingerprint of a list is computed from those of its elements, without the elements.
///
/// ```
/// use superstep_state::{Fingerprint, fingerprint};
///
/// let each = ["a", "b"].map(|text| Fingerprint::of(text).unwrap());
/// assert_eq!(Fingerprint::of_list(each).to_string(), fingerprint(&["a", "b"]).unwrap());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the fingerprint of a value.
    ///
    /// # Errors
    /// If the value cannot be serialized.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let room = Cell::new(usize::MAX);
        value.serialize(Printer { room: &room, begun: None, exact: false }).map(Self)
    }

    /// Returns the fingerprint of a list from those of its elements.
    pub fn of_list(elements: impl IntoIterator<Item = Self>) -> Self {
        let (read, print) = elements
            .into_iter()
            .fold((0, Kind::List as u64), |(read, print), Self(element)| (read + 1, mixed(element, print)));
        Self(mixed(read, print))
    }
}

impl Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Returns the fingerprint of a value that distinguishes values which are equal in JSON: `None` and
/// `Some(None)`, and floats that are not numbers. The order of lists is ignored, since the order of a set may
/// vary.
///
/// `None` if the value does not serialize.
pub(crate) fn exact(serialize: impl FnOnce(Printer<'_>) -> Result<u64, Error>) -> Option<u64> {
    let room = Cell::new(usize::MAX);
    serialize(Printer { room: &room, begun: None, exact: true }).ok()
}

/// Returns the exact fingerprint of a value.
pub(crate) fn exact_of(value: &(impl Serialize + ?Sized)) -> Option<u64> {
    exact(|printer| value.serialize(printer))
}

/// Returns the fingerprint of about the first `most` bytes of a value, together with the length of the whole.
///
/// # Shape
/// The beginning of a list, a text or a struct is read. For a larger map, whose order is ignored, only the
/// number of entries is used. Equal values have equal outlines.
///
/// `None` if the value does not serialize.
pub fn outline(most: usize, serialize: impl FnOnce(Printer<'_>) -> Result<u64, Error>) -> Option<String> {
    let (room, begun) = (Cell::new(most), Cell::new(None));
    let whole = serialize(Printer { room: &room, begun: Some(&begun), exact: false });
    whole.ok().or_else(|| begun.get()).map(|print| Fingerprint(print).to_string())
}

/// A serializer that computes the fingerprint of a value.
#[derive(Clone, Copy)]
pub struct Printer<'a> {
    /// The number of bytes that may still be read.
    room: &'a Cell<usize>,
    /// The sum when the budget is used up; only for the outermost value.
    begun: Option<&'a Cell<Option<u64>>>,
    /// `true` to distinguish values that are equal in JSON.
    exact: bool,
}

/// The type of a number.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Null,
    Bool,
    Integer,
    /// Beyond the range of `i128`.
    Large,
    Float,
    Text,
    Bytes,
    List,
    Map,
    Some,
}

/// The kind of a value that is not read completely.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Begun {
    Text = 64,
    List,
    Map,
}

fn mixed(a: u64, b: u64) -> u64 {
    xxh3_64_with_seed(&a.to_le_bytes(), b)
}

impl<'a> Printer<'a> {
    fn inner(self) -> Self {
        Self { begun: None, ..self }
    }

    /// Sets the outermost value's sum for the case that the budget does not cover the rest.
    fn begin(self, print: impl FnOnce() -> u64) {
        if let Some(begun) = self.begun {
            begun.set(Some(print()));
        }
    }

    fn take(self, bytes: usize) -> Result<(), Error> {
        let room = self.room.get().checked_sub(bytes).ok_or_else(|| Error::custom("it is too long"))?;
        self.room.set(room);
        Ok(())
    }

    fn bytes(self, kind: Kind, bytes: &[u8]) -> Result<u64, Error> {
        let beginning = &bytes[..bytes.len().min(self.room.get())];
        if beginning.len() < bytes.len() {
            self.begin(|| mixed(xxh3_64_with_seed(beginning, Begun::Text as u64), bytes.len() as u64));
        }
        self.take(bytes.len())?;
        Ok(xxh3_64_with_seed(bytes, kind as u64))
    }

    fn list(self, length: Option<usize>) -> List<'a> {
        let length = length.unwrap_or_default() as u64;
        self.begin(|| mixed(length, Begun::List as u64));
        List { printer: self, variant: None, length, read: 0, print: Kind::List as u64 }
    }

    fn map(self, length: usize) -> Entries<'a> {
        self.begin(|| mixed(length as u64, Begun::Map as u64));
        Entries { printer: self, variant: None, read: 0, key: 0, sum: 0 }
    }

    /// Returns the fingerprint of `{variant: content}`.
    fn variant(self, variant: &str, content: u64) -> Result<u64, Error> {
        let key = self.inner().bytes(Kind::Text, variant.as_bytes())?;
        Ok(Entries { printer: self, variant: None, read: 1, key, sum: mixed(key, content) }.print())
    }
}

/// The elements of a list, as far as they were read.
pub struct List<'a> {
    printer: Printer<'a>,
    variant: Option<&'static str>,
    length: u64,
    read: u64,
    print: u64,
}

impl List<'_> {
    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.printer.take(1)?;
        let element = value.serialize(self.printer.inner())?;
        self.print = if self.printer.exact {
            self.print.wrapping_add(mixed(element, Kind::List as u64))
        } else {
            mixed(element, self.print)
        };
        self.read += 1;
        self.printer.begin(|| mixed(mixed(self.length, Begun::List as u64), self.print));
        Ok(())
    }

    fn whole(self) -> Result<u64, Error> {
        let print = mixed(self.read, self.print);
        self.variant.map_or(Ok(print), |variant| self.printer.variant(variant, print))
    }
}

/// The entries of a map or the fields of a struct, as far as they were read.
pub struct Entries<'a> {
    printer: Printer<'a>,
    variant: Option<&'static str>,
    read: u64,
    key: u64,
    /// The sum over all entries, so that their order does not count.
    sum: u64,
}

impl Entries<'_> {
    fn field(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.key = self.printer.inner().bytes(Kind::Text, name.as_bytes())?;
        self.value(value)?;
        // The fields of a struct have a fixed order; the entries of a map may not.
        self.printer.begin(|| mixed(self.sum, Begun::Map as u64));
        Ok(())
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let value = value.serialize(self.printer.inner())?;
        self.sum = self.sum.wrapping_add(mixed(self.key, value));
        self.read += 1;
        Ok(())
    }

    fn print(self) -> u64 {
        mixed(mixed(self.read, self.sum), Kind::Map as u64)
    }

    fn whole(self) -> Result<u64, Error> {
        let (printer, variant, print) = (self.printer, self.variant, self.print());
        variant.map_or(Ok(print), |variant| printer.variant(variant, print))
    }
}

macro_rules! integers {
    ($($method:ident: $integer:ty,)*) => {$(
        fn $method(self, value: $integer) -> Result<u64, Error> {
            self.bytes(Kind::Integer, &i128::from(value).to_le_bytes())
        }
    )*};
}

macro_rules! lists {
    ($($form:ident::$method:ident,)*) => {$(
        impl $form for List<'_> {
            type Ok = u64;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(self) -> Result<u64, Error> {
                self.whole()
            }
        }
    )*};
}

macro_rules! structs {
    ($($form:ident),*) => {$(
        impl $form for Entries<'_> {
            type Ok = u64;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.field(name, value)
            }

            fn end(self) -> Result<u64, Error> {
                self.whole()
            }
        }
    )*};
}

impl<'a> Serializer for Printer<'a> {
    type Ok = u64;
    type Error = Error;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Entries<'a>;
    type SerializeStructVariant = Entries<'a>;

    fn serialize_bool(self, value: bool) -> Result<u64, Error> {
        self.bytes(Kind::Bool, &[value.into()])
    }

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_u128(self, value: u128) -> Result<u64, Error> {
        match i128::try_from(value) {
            Ok(value) => self.serialize_i128(value),
            Err(_) => self.bytes(Kind::Large, &value.to_le_bytes()),
        }
    }

    fn serialize_f32(self, value: f32) -> Result<u64, Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<u64, Error> {
        match value.is_finite() || self.exact {
            true => self.bytes(Kind::Float, &value.to_bits().to_le_bytes()),
            // As in JSON.
            false => self.serialize_unit(),
        }
    }

    fn serialize_char(self, value: char) -> Result<u64, Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<u64, Error> {
        self.bytes(Kind::Text, value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<u64, Error> {
        self.bytes(Kind::Bytes, value)
    }

    fn serialize_none(self) -> Result<u64, Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<u64, Error> {
        let print = value.serialize(self)?;
        Ok(if self.exact { mixed(print, Kind::Some as u64) } else { print })
    }

    fn serialize_unit(self) -> Result<u64, Error> {
        self.bytes(Kind::Null, &[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<u64, Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<u64, Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<u64, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<u64, Error> {
        let content = value.serialize(self.inner())?;
        self.variant(variant, content)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List<'a>, Error> {
        Ok(self.list(length))
    }

    fn serialize_tuple(self, length: usize) -> Result<List<'a>, Error> {
        Ok(self.list(Some(length)))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<List<'a>, Error> {
        Ok(self.list(Some(length)))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<List<'a>, Error> {
        Ok(List { variant: Some(variant), ..self.list(Some(length)) })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Entries<'a>, Error> {
        Ok(self.map(length.unwrap_or_default()))
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Entries<'a>, Error> {
        Ok(self.map(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Entries<'a>, Error> {
        Ok(Entries { variant: Some(variant), ..self.map(length) })
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<u64, Error> {
        self.serialize_str(&value.to_string())
    }
}

lists! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element, SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

structs! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Entries<'_> {
    type Ok = u64;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = key.serialize(self.printer.inner())?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.value(value)
    }

    fn end(self) -> Result<u64, Error> {
        self.whole()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap};

    use serde_json::{Value, json};

    use super::*;

    fn of(value: impl Serialize) -> String {
        fingerprint(&value).expect("it serializes")
    }

    fn outline_of(most: usize, value: impl Serialize) -> Option<String> {
        outline(most, |printer| value.serialize(printer))
    }

    /// A count of its elements that were read.
    struct Counted<'a>(usize, &'a Cell<usize>);

    impl Serialize for Counted<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut list = serializer.serialize_seq(Some(self.0))?;
            for number in 0..self.0 {
                self.1.set(self.1.get() + 1);
                list.serialize_element(&number)?;
            }
            list.end()
        }
    }

    #[test]
    fn the_order_of_entries_does_not_count_and_everything_else_does() {
        struct Backwards<'a>(&'a BTreeMap<&'a str, Value>);
        impl Serialize for Backwards<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().rev())
            }
        }
        let map = BTreeMap::from([("a", json!([1, 2])), ("b", json!({"c": null, "d": "x"}))]);
        assert_eq!(of(Backwards(&map)), of(&map));

        let values = [
            json!([1, 2]),
            json!([2, 1]),
            json!([12]),
            json!([1, 2, []]),
            json!([[1, 2]]),
            json!([]),
            json!({}),
            json!(null),
            json!(false),
            json!(0),
            json!(0.0),
            json!(""),
            json!({"a": 1, "b": 2}),
            json!({"a": 2, "b": 1}),
            json!({"a": {"b": 1}}),
            json!({"a": {}, "b": 1}),
            json!([{"a": 1}, {"b": 2}]),
            json!([{"a": 1, "b": 2}]),
            json!("1"),
            json!(1),
            json!(1.0),
            json!(u64::MAX),
            json!(-1),
        ];
        let all: std::collections::BTreeSet<String> = values.iter().map(of).collect();
        assert_eq!(all.len(), values.len());
    }

    #[test]
    fn a_struct_has_the_fingerprint_of_its_json() {
        #[derive(Serialize)]
        enum Choice {
            Unit,
            New(u8),
            Pair(i8, char),
            Struct { text: &'static str },
        }
        #[derive(Serialize)]
        struct All {
            choices: [Choice; 4],
            some: Option<f64>,
            none: Option<f64>,
            unit: (),
        }
        let choices =
            [Choice::Unit, Choice::New(1), Choice::Pair(-1, 'x'), Choice::Struct { text: "long enough" }];
        let all = All { choices, some: Some(0.5), none: None, unit: () };
        assert_eq!(of(serde_json::to_value(&all).unwrap()), of(all));
    }

    #[test]
    fn fingerprints_are_stable() {
        assert_eq!(of(json!({"b": [true, null, 1, 0.5], "a": "é"})), "abd6e13a71b8289d");
    }

    #[test]
    fn the_outline_of_a_short_value_is_its_fingerprint() {
        let value = json!({"a": [1, 2, {"b": "c"}]});
        assert_eq!(outline_of(1_000, &value), Some(of(&value)));
    }

    #[test]
    fn of_a_long_list_the_beginning_and_the_length_count() {
        let read = Cell::new(0);
        let print = outline_of(1_000, Counted(100_000, &read));
        assert!(read.get() < 100, "{}", read.get());
        assert_ne!(print, outline_of(1_000, Counted(100_001, &read)));
        let numbers = |first: u32| (first..first + 1_000).collect::<Vec<_>>();
        assert_ne!(outline_of(1_000, numbers(0)), outline_of(1_000, numbers(1)));
        assert_ne!(outline_of(1_000, numbers(0)), Some(of(numbers(0))));
    }

    #[test]
    fn of_a_long_text_struct_or_map_something_counts_as_well() {
        let text = "x".repeat(2_000);
        assert_ne!(outline_of(1_000, &text), outline_of(1_000, text.clone() + "x"));
        assert_ne!(outline_of(1_000, &text), outline_of(1_000, text.replacen('x', "y", 1)));
        #[derive(Serialize)]
        struct Two<'a> {
            number: u8,
            text: &'a str,
        }
        let two = |number| outline_of(1_000, Two { number, text: &text });
        assert!(two(1).is_some() && two(1) == two(1) && two(1) != two(2));
        let map = |many: u32| outline_of(1_000, (0..many).map(|key| (key, key)).collect::<BTreeMap<_, _>>());
        assert!(map(1_000).is_some() && map(1_000) == map(1_000) && map(1_000) != map(1_001));
    }
}
