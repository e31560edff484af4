//! The types of the protocol, as far as superstep uses it. Unknown fields of the client are ignored.

#![expect(missing_docs, reason = "the fields have the names and meanings of the specification")]

mod content;
mod initialize;
mod meta;
mod question;
mod rpc;
mod session;
mod update;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

pub use self::{content::*, initialize::*, meta::*, question::*, rpc::*, session::*, update::*};

/// Reads a value, or its default if it has another type: the protocol requires this of optional fields.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// Reads a value, or its default for `null`.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Returns whether a capability is an object, which may be empty.
fn is_present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(from)?.is_object())
}
