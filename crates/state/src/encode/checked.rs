//! A JSON writer whose output can be read back as an equal value.
//!
//! serde writes three kinds of values that cannot be read back: a value nested deeper than readers allow; a
//! float that is not finite, which JSON writes as `null`; and `Some` of a value that is `null` in JSON, which
//! is read as `None`.
//!
//! Start at [`serialize`].

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use serde::{
    de::DeserializeOwned,
    ser::{
        Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
    },
};
use serde_json::{Error, Value};

use crate::{RawJson, fingerprint::exact_of};

/// The maximum nesting of lists and objects in a stored value: a list of numbers is one level.
///
/// JSON readers stop at 127 levels, and the stored form around a value adds some.
pub const MAX_DEPTH: usize = 100;

/// The maximum nesting of values without a level in JSON, such as an `Option` in an `Option`.
const MAX_NESTING: usize = 4 * MAX_DEPTH;

/// The maximum nesting of a value that reducers made from writes. It is stored as well.
const MAX_FOLDED: usize = MAX_DEPTH + 10;

/// The treatment of values that cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The value is an error.
    Strict,
    /// The value is written, and the second part of the result reports it.
    Lenient,
    /// Like `Strict`, for an update, whose channels have the values.
    Update,
    /// Like `Strict`, for the value of a channel.
    Folded,
}

/// An error about a value, with its path.
#[derive(Debug)]
pub(super) struct Unstorable {
    /// The names and positions on the path to it, from the outermost value inwards.
    pub path: Vec<String>,
    /// The error at this path.
    pub error: Error,
}

impl Unstorable {
    /// Converts to one error. The first `skipped` steps of the path are named elsewhere.
    pub(super) fn into_error(self, skipped: usize) -> Error {
        match self.path.get(skipped..).unwrap_or_default() {
            [] => self.error,
            path => {
                let path: String = path.iter().map(|step| format!("/{step}")).collect();
                Error::custom(format!("at `{path}`: {}", self.error))
            }
        }
    }
}

/// Serializes a value. Returns the serializer's result, and whether a part of the value would be read back as
/// another value.
pub(super) fn serialize<S: Serializer<Error = Error>>(
    serializer: S,
    mode: Mode,
    value: impl FnOnce(Checked<'_, S>) -> Result<S::Ok, Error>,
) -> Result<(S::Ok, bool), Unstorable> {
    let notes = Notes::new(mode);
    let done =
        value(Checked { inner: serializer, notes: &notes, depth: 0, nesting: 0, place: Position::Plain });
    let mut path = notes.path.into_inner();
    path.reverse();
    match done {
        Ok(done) => Ok((done, notes.doubtful.get())),
        Err(error) => Err(Unstorable { path, error }),
    }
}

/// Appends a value. Returns whether a part of it is read back as another value.
pub(super) fn write(
    value: &(impl Serialize + ?Sized),
    mode: Mode,
    written: &mut Vec<u8>,
) -> Result<bool, Unstorable> {
    write_with(mode, written, |checked| value.serialize(checked))
}

/// The serializer that appends JSON.
pub(super) type Writer<'a, 'w> = &'a mut serde_json::Serializer<&'w mut Vec<u8>>;

/// Appends the value that `value` serializes; see [`write`].
pub(super) fn write_with<'w>(
    mode: Mode,
    written: &'w mut Vec<u8>,
    value: impl FnOnce(Checked<'_, Writer<'_, 'w>>) -> Result<(), Error>,
) -> Result<bool, Unstorable> {
    let written = &mut serde_json::Serializer::new(written);
    serialize(written, mode, value).map(|((), doubtful)| doubtful)
}

/// Returns the JSON of a value that can be read back as an equal value.
///
/// # Errors
/// The part that cannot be stored, with its path.
pub fn to_string(value: &(impl Serialize + ?Sized)) -> Result<RawJson, Error> {
    let mut written = Vec::new();
    write(value, Mode::Strict, &mut written).map_err(|error| error.into_error(0))?;
    Ok(RawJson::written(written))
}

/// Converts to a [`Value`] under the same rules as [`to_string`].
pub fn to_value(value: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    let written = serialize(serde_json::value::Serializer, Mode::Strict, |checked| value.serialize(checked));
    written.map(|(value, _)| value).map_err(|error| error.into_error(0))
}

/// Returns a [`Value`] that will later be read as a `T`, and the `T` read from it.
///
/// # Errors
/// If reading fails or returns another value.
pub fn to_value_of<T: Serialize + DeserializeOwned>(value: &T) -> Result<Value, Error> {
    let written = serialize(serde_json::value::Serializer, Mode::Lenient, |checked| value.serialize(checked));
    let (json, doubtful) = written.map_err(|error| error.into_error(0))?;
    if doubtful || cfg!(debug_assertions) {
        // The error of the writer, if there is one, is clearer than the reader's.
        let read = T::deserialize(&json).map_err(|error| to_string(value).err().unwrap_or(error))?;
        same(value, &read)?;
    }
    Ok(json)
}

/// Checks that the value read back equals the original.
///
/// # Errors
/// The lost part, with its path if known.
pub(super) fn same<T: Serialize>(value: &T, read: &T) -> Result<(), Error> {
    if exact_of(value) == exact_of(read) {
        return Ok(());
    }
    to_string(value)?;
    Err(Error::custom(OTHER))
}

/// The error text for a value that changes at an unknown place.
pub(super) const OTHER: &str =
    "it is read back as another value: part of it is not stored, or two parts of it are one in JSON";

/// Checks the nesting of a value.
///
/// # Errors
/// If it is too deep.
pub fn check_depth(value: &Value) -> Result<(), Error> {
    if is_deeper(value, MAX_DEPTH) { Err(too_deep(MAX_DEPTH)) } else { Ok(()) }
}

/// Returns whether a value has more than this many levels.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let inside = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(values) => levels == 0 || values.iter().any(inside),
        Value::Object(entries) => levels == 0 || entries.values().any(inside),
        _ => false,
    }
}

/// Returns the number of levels of a JSON text.
fn depth_of(json: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut bytes) = (0_usize, 0, false, json.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => drop(bytes.next()),
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn too_deep<E: serde::ser::Error>(levels: usize) -> E {
    E::custom(format_args!("it is nested deeper than {levels} levels, the limit of stored values"))
}

struct Notes {
    strict: bool,
    /// The maximum number of levels.
    levels: usize,
    doubtful: Cell<bool>,
    /// The path from an error up to the root, innermost step first.
    path: RefCell<Vec<String>>,
}

impl Notes {
    fn new(mode: Mode) -> Self {
        let levels = match mode {
            Mode::Strict | Mode::Lenient => MAX_DEPTH,
            Mode::Update => MAX_DEPTH + 1,
            Mode::Folded => MAX_FOLDED,
        };
        let (doubtful, path) = (Cell::new(false), RefCell::default());
        Self { strict: mode == Mode::Strict, levels, doubtful, path }
    }

    /// Adds a step to the path of an error.
    fn at<T, E>(&self, done: Result<T, E>, step: impl FnOnce() -> String) -> Result<T, E> {
        if done.is_err() {
            self.path.borrow_mut().push(step());
        }
        done
    }
}

/// The position of a value in its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Plain,
    /// Directly in a `Some`.
    Some,
    /// In a [`RawValue`](serde_json::value::RawValue) or a number of any precision, as text.
    Raw,
}

/// The beginning of the names by which serde identifies types that are written as their text.
const AS_TEXT: &str = "$serde_json::private::";

/// A serializer that delegates to another one and checks that the values can be read back.
#[derive(Clone, Copy)]
pub(super) struct Checked<'a, S> {
    inner: S,
    notes: &'a Notes,
    depth: usize,
    nesting: usize,
    place: Position,
}

impl<'a, S: Serializer> Checked<'a, S> {
    /// Wraps a nested value, `levels` deeper.
    fn nested<'v, T: ?Sized>(
        &self,
        value: &'v T,
        levels: usize,
        place: Position,
    ) -> Result<Nested<'a, 'v, T>, S::Error> {
        let (notes, depth, nesting) = (self.notes, self.depth + levels, self.nesting + 1);
        self.check(depth)?;
        Ok(Nested { value, notes, depth, nesting, place })
    }

    /// Begins a list or an object, `levels` deeper.
    fn begin<C>(
        self,
        levels: usize,
        begin: impl FnOnce(S) -> Result<C, S::Error>,
    ) -> Result<Compound<'a, C>, S::Error> {
        let (notes, depth, nesting) = (self.notes, self.depth + levels, self.nesting + 1);
        self.check(depth)?;
        Ok(Compound { inner: begin(self.inner)?, notes, depth, nesting, next: 0, place: Position::Plain })
    }

    fn check(&self, depth: usize) -> Result<(), S::Error> {
        if depth > self.notes.levels || self.nesting > MAX_NESTING {
            Err(too_deep(MAX_DEPTH))
        } else {
            Ok(())
        }
    }

    /// Reports a value that is read back as another one.
    fn lossy(&self, what: impl FnOnce() -> String) -> Result<(), S::Error> {
        if self.notes.strict {
            return Err(S::Error::custom(what()));
        }
        self.notes.doubtful.set(true);
        Ok(())
    }

    /// Reports a value that becomes `null` in JSON.
    fn null(&self, what: &str) -> Result<(), S::Error> {
        match self.place {
            Position::Some => {
                self.lossy(|| format!("`Some({what})` is `null` in JSON and would be read back as `None`"))
            }
            Position::Plain | Position::Raw => Ok(()),
        }
    }

    /// Reports an integer that some readers treat as a float: those of `#[serde(flatten)]` and of internally
    /// tagged enums.
    fn wide(&self, fits: bool) {
        if !fits {
            self.notes.doubtful.set(true);
        }
    }

    fn float(&self, float: f64) -> Result<(), S::Error> {
        if float.is_finite() {
            Ok(())
        } else {
            self.lossy(|| format!("{float} is not a number in JSON and would be read back as `null`"))
        }
    }
}

/// A value inside of another one.
struct Nested<'a, 'v, T: ?Sized> {
    value: &'v T,
    notes: &'a Notes,
    depth: usize,
    nesting: usize,
    place: Position,
}

impl<T: Serialize + ?Sized> Serialize for Nested<'_, '_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value, notes, depth, nesting, place } = *self;
        value.serialize(Checked { inner: serializer, notes, depth, nesting, place })
    }
}

macro_rules! plain {
    ($($method:ident($value:ty))*) => {
        $(fn $method(self, value: $value) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        })*
    };
}

impl<'a, S: Serializer> Serializer for Checked<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Compound<'a, S::SerializeSeq>;
    type SerializeTuple = Compound<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Compound<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Compound<'a, S::SerializeTupleVariant>;
    type SerializeMap = Compound<'a, S::SerializeMap>;
    type SerializeStruct = Compound<'a, S::SerializeStruct>;
    type SerializeStructVariant = Compound<'a, S::SerializeStructVariant>;

    plain! {
        serialize_bool(bool) serialize_char(char) serialize_bytes(&[u8])
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
    }

    fn serialize_i128(self, value: i128) -> Result<S::Ok, S::Error> {
        self.wide(i64::try_from(value).is_ok());
        self.inner.serialize_i128(value)
    }

    fn serialize_u128(self, value: u128) -> Result<S::Ok, S::Error> {
        self.wide(u64::try_from(value).is_ok());
        self.inner.serialize_u128(value)
    }

    fn serialize_str(self, value: &str) -> Result<S::Ok, S::Error> {
        if self.place == Position::Raw {
            self.check(self.depth + depth_of(value))?;
            return self.inner.serialize_str(value);
        }
        self.inner.serialize_str(value)
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        self.float(value.into())?;
        self.inner.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        self.float(value)?;
        self.inner.serialize_f64(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.null("None")?;
        self.inner.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.null("null")?;
        self.inner.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.null(name)?;
        self.inner.serialize_unit_struct(name)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let nested = self.nested(value, 0, Position::Some)?;
        self.inner.serialize_some(&nested)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let nested = self.nested(value, 0, self.place)?;
        self.inner.serialize_newtype_struct(name, &nested)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let nested = self.nested(value, 1, Position::Plain)?;
        let notes = self.notes;
        notes.at(self.inner.serialize_newtype_variant(name, index, variant, &nested), || variant.to_owned())
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.begin(1, |inner| inner.serialize_seq(length))
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.begin(1, |inner| inner.serialize_tuple(length))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.begin(1, |inner| inner.serialize_tuple_struct(name, length))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.begin(2, |inner| inner.serialize_tuple_variant(name, index, variant, length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.begin(1, |inner| inner.serialize_map(length))
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        let is_text = name.starts_with(AS_TEXT);
        let place = if is_text { Position::Raw } else { Position::Plain };
        let begun = self.begin(usize::from(!is_text), |inner| inner.serialize_struct(name, length))?;
        Ok(Compound { place, ..begun })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.begin(2, |inner| inner.serialize_struct_variant(name, index, variant, length))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Collects the elements of a list or the entries of an object.
pub(super) struct Compound<'a, C> {
    inner: C,
    notes: &'a Notes,
    depth: usize,
    nesting: usize,
    /// The position of the next element.
    next: usize,
    place: Position,
}

impl<'a, C> Compound<'a, C> {
    fn nested<'v, T: ?Sized>(&self, value: &'v T) -> Nested<'a, 'v, T> {
        Nested { value, notes: self.notes, depth: self.depth, nesting: self.nesting, place: self.place }
    }
}

macro_rules! lists {
    ($($form:ident: $method:ident)*) => {
        $(impl<C: $form> $form for Compound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let (nested, position) = (self.nested(value), self.next);
                self.next += 1;
                self.notes.at(self.inner.$method(&nested), || position.to_string())
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

macro_rules! structs {
    ($($form:ident)*) => {
        $(impl<C: $form> $form for Compound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                let nested = self.nested(value);
                self.notes.at(self.inner.serialize_field(name, &nested), || name.to_owned())
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
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

impl<C: SerializeMap> Compound<'_, C> {
    /// Rejects a key without a value and a value without a key, which the writer does not notice. `next` is the number of
    /// keys, 0 or 1, that wait for their value.
    fn pair(&mut self, waiting: usize) -> Result<(), C::Error> {
        if self.next != waiting {
            return Err(C::Error::custom(
                "its `Serialize` writes a key without a value, or a value without a key",
            ));
        }
        self.next = 1 - waiting;
        Ok(())
    }
}

impl<C: SerializeMap> SerializeMap for Compound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.pair(0)?;
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.pair(1)?;
        let nested = self.nested(value);
        self.notes.at(self.inner.serialize_value(&nested), || "?".to_owned())
    }

    fn serialize_entry<K: Serialize + ?Sized, T: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &T,
    ) -> Result<(), C::Error> {
        let nested = self.nested(value);
        self.notes.at(self.inner.serialize_entry(key, &nested), || match serde_json::to_value(key) {
            Ok(Value::String(key)) => key,
            Ok(key) => key.to_string(),
            Err(_) => "?".to_owned(),
        })
    }

    fn end(mut self) -> Result<C::Ok, C::Error> {
        self.pair(0)?;
        self.inner.end()
    }
}
