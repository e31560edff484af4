//! The extension field `_meta`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The extension field `_meta`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Meta(pub Map<String, Value>);

impl Meta {
    /// Creates `{"superstep": value}`.
    pub fn of_superstep(value: Value) -> Self {
        Self(Map::from_iter([("superstep".to_owned(), value)]))
    }

    /// Returns a field of superstep: `checkpoint` of a fork, `decision` of an answered permission.
    pub fn superstep(&self, field: &str) -> Option<&Value> {
        self.0.get("superstep")?.get(field)
    }

    /// Returns the parent span of the request, in the format of W3C Trace Context.
    pub fn traceparent(&self) -> Option<&str> {
        self.0.get("traceparent")?.as_str()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
