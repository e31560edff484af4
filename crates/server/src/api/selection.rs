//! The parts of a state that a client requests.
//!
//! Start at [`Selection`].

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::extract::Query;
use crate::error::ApiError;

/// The fields of a state, of which `values.KEY` is one channel of its values.
const FIELDS: [&str; 8] =
    ["values", "next", "tasks", "checkpoint", "metadata", "created_at", "parent_checkpoint", "interrupts"];

/// The fields that remain of a state; all of them without a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Option<Vec<String>>")]
pub(super) struct Selection(Option<Vec<String>>);

impl JsonSchema for Selection {
    fn schema_name() -> Cow<'static, str> {
        "Selection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<Vec<String>>::json_schema(generator)
    }
}

impl TryFrom<Option<Vec<String>>> for Selection {
    type Error = String;

    fn try_from(fields: Option<Vec<String>>) -> Result<Self, String> {
        let is_known = |field: &String| FIELDS.contains(&&**field) || field.starts_with("values.");
        if let Some(unknown) = fields.iter().flatten().find(|field| !is_known(field)) {
            return Err(format!("unknown field `{unknown}`; use {} or values.KEY", FIELDS.join(", ")));
        }
        Ok(Self(fields))
    }
}

impl Selection {
    /// Reads the fields that are repeated in a query.
    ///
    /// # Errors
    /// 422 for an unknown field.
    pub(super) fn of_query(query: &Query) -> Result<Self, ApiError> {
        let fields: Vec<String> = query.all("select").map(str::to_owned).collect();
        let fields = (!fields.is_empty()).then_some(fields);
        Self::try_from(fields).map_err(|problem| ApiError::invalid(format!("select: {problem}")))
    }

    /// Returns the selected part of a state.
    pub(super) fn of_state(&self, state: Value) -> Value {
        let Some(fields) = &self.0 else { return state };
        let Value::Object(mut state) = state else { return state };
        let keys: Vec<&str> = fields.iter().filter_map(|field| field.strip_prefix("values.")).collect();
        let has = |name: &str| fields.iter().any(|field| field == name);
        if let Some(Value::Object(values)) = state.get_mut("values").filter(|_| !has("values")) {
            values.retain(|name, _| keys.contains(&&**name));
        }
        let is_selected = |name: &str| has(name) || (name == "values" && !keys.is_empty());
        state.into_iter().filter(|(name, _)| is_selected(name)).collect::<Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selected(fields: &[&str]) -> Value {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        let selection = Selection::try_from(Some(fields)).unwrap();
        selection.of_state(json!({ "values": { "a": 1, "b": 2 }, "next": ["n"], "checkpoint_id": "k" }))
    }

    #[test]
    fn only_selected_fields_and_channels_remain() {
        assert_eq!(selected(&["values.a"]), json!({ "values": { "a": 1 } }));
        assert_eq!(selected(&["next", "values.none"]), json!({ "values": {}, "next": ["n"] }));
        assert_eq!(selected(&["values", "values.a"]), json!({ "values": { "a": 1, "b": 2 } }));
        assert_eq!(Selection::default().of_state(json!({ "next": [] })), json!({ "next": [] }));
        assert!(Selection::try_from(Some(vec!["value".to_owned()])).is_err());
    }
}
