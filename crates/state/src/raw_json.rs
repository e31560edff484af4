//! Values that are stored as JSON and need not be parsed.
//!
//! Start at [`RawJson`].

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value::RawValue};

/// A JSON text.
///
/// A conversion from a string does not check it; [`check`](Self::check) does, unless a JSON reader or writer
/// produced the text.
///
/// # Stored form
/// A JSON string with the text.
#[derive(Clone)]
pub struct RawJson {
    text: String,
    /// `true` if a JSON reader or writer produced the text.
    is_json: bool,
}

impl RawJson {
    /// Creates the text of bytes that a JSON serializer wrote.
    pub(crate) fn written(json: Vec<u8>) -> Self {
        Self { text: String::from_utf8(json).expect("JSON is UTF-8"), is_json: true }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text without the space around it, if it is JSON. A text that a JSON reader or writer produced is
    /// not parsed.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn check(&self) -> serde_json::Result<&str> {
        if self.is_json {
            Ok(&self.text)
        } else {
            serde_json::from_str::<&RawValue>(&self.text).map(RawValue::get)
        }
    }

    /// Adds an entry to an object.
    pub(crate) fn add_entry(&mut self, name: &str, value: &Value) {
        // A text that is not an object becomes invalid, and is then refused when it is stored.
        self.is_json &= self.text.starts_with('{') && self.text.ends_with('}');
        self.text.pop();
        let comma = if self.text.len() > 1 { "," } else { "" };
        let value = serde_json::to_string(value).expect("a value becomes JSON");
        self.text.extend([comma, "\"", name, "\":", &value, "}"]);
    }

    /// Returns the text, as the string that it is.
    pub fn into_string(self) -> String {
        self.text
    }
}

impl Deref for RawJson {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<String> for RawJson {
    fn from(json: String) -> Self {
        Self { text: json, is_json: false }
    }
}

impl From<&str> for RawJson {
    fn from(json: &str) -> Self {
        json.to_owned().into()
    }
}

impl From<&RawValue> for RawJson {
    fn from(json: &RawValue) -> Self {
        Self { text: json.get().to_owned(), is_json: true }
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(json: Box<RawValue>) -> Self {
        Self { text: Box::<str>::from(json).into_string(), is_json: true }
    }
}

impl From<&Value> for RawJson {
    fn from(json: &Value) -> Self {
        Self { text: json.to_string(), is_json: true }
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RawJson {}

impl Hash for RawJson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for RawJson {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RawJson {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl PartialEq<str> for RawJson {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for RawJson {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
