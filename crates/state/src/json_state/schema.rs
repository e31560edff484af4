//! JSON Schemas of writes.

use serde_json::Value;

/// A compiled schema.
#[cfg(feature = "json-schema")]
pub(super) struct Schema(jsonschema::Validator);

#[cfg(feature = "json-schema")]
impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that begins with the schema.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(schema);
        validator.map(Self).map_err(|cause| format!("is not a valid JSON Schema: {}", cause.masked()))
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The place in the value, as a JSON pointer, and the problem. The value, which may be long, is not
    /// repeated.
    pub(super) fn check(&self, value: &Value) -> Result<(), (String, String)> {
        // Only the write, not the folded value: that would cost as much as the history is long, and would blame the
        // last writer for earlier writes. Stored values are not validated again, so that a stricter schema does not
        // make old threads unreadable.
        match self.0.iter_errors(value).next() {
            None => Ok(()),
            Some(error) => Err((error.instance_path().to_string(), error.masked().to_string())),
        }
    }
}

/// Does not exist without the feature.
#[cfg(not(feature = "json-schema"))]
pub(super) enum Schema {}

#[cfg(not(feature = "json-schema"))]
impl Schema {
    pub(super) fn new(_: &Value) -> Result<Self, String> {
        Err("would be ignored: this program is built without the feature `json-schema`".into())
    }

    pub(super) fn check(&self, _: &Value) -> Result<(), (String, String)> {
        match *self {}
    }
}
