//! The `required` fields of a JSON Schema, for builds without `json-schema`.

use serde_json::Value;

#[derive(Clone, Debug)]
pub(super) struct Schema(Vec<String>);

impl Schema {
    /// Formats need the whole schema.
    pub(super) fn compile(schema: &Value, _: bool) -> Result<Self, String> {
        let Some(required) = schema.get("required") else { return Ok(Self(Vec::new())) };
        let names =
            required.as_array().map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)));
        let names = names.and_then(Iterator::collect);
        names.map(Self).ok_or_else(|| "is not a valid JSON Schema: `required` is not a list of names".into())
    }

    pub(super) fn problems<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = String> + 'a {
        self.0.iter().filter(|name| value.get(name).is_none()).map(|name| format!("`{name}` is missing"))
    }
}
