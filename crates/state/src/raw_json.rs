//! Values that are stored as JSON and need not be parsed.
//!
//! Start at [`RawJson`].

use std::{fmt, ops::Deref};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON text. A conversion from a string does not check its form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(String);

impl RawJson {
    /// The text of bytes that a JSON serializer wrote.
    pub(crate) fn written(json: Vec<u8>) -> Self {
        Self(String::from_utf8(json).expect("JSON is UTF-8"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, as the string that it is.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for RawJson {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for RawJson {
    fn from(json: String) -> Self {
        Self(json)
    }
}

impl From<&str> for RawJson {
    fn from(json: &str) -> Self {
        Self(json.to_owned())
    }
}

impl From<&RawValue> for RawJson {
    fn from(json: &RawValue) -> Self {
        Self(json.get().to_owned())
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(json: Box<RawValue>) -> Self {
        Self(Box::<str>::from(json).into_string())
    }
}

impl PartialEq<str> for RawJson {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for RawJson {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
