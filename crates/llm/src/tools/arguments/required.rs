//! The parts of a JSON Schema that are checked in builds without `json-schema`: the `required` fields, and of each field
//! its `type` and its `enum`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::type_name;

#[derive(Clone, Debug)]
pub(super) struct Schema {
    required: Vec<String>,
    fields: BTreeMap<String, Field>,
    /// Other fields are not allowed.
    closed: bool,
}

#[derive(Clone, Debug)]
struct Field {
    /// Empty if every type is allowed.
    types: Vec<String>,
    options: Option<Value>,
}

impl Schema {
    /// Formats need the whole schema.
    pub(super) fn compile(schema: &Value, _: bool) -> Result<Self, String> {
        let names = |list: &Value| -> Option<Vec<String>> {
            list.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let required = match schema.get("required") {
            None => Vec::new(),
            Some(required) => {
                names(required).ok_or("is not a valid JSON Schema: `required` is not a list of names")?
            }
        };
        let field = |(name, schema): (&String, &Value)| {
            let types = match &schema["type"] {
                Value::String(one) => vec![one.clone()],
                several => names(several).unwrap_or_default(),
            };
            let options = schema.get("enum").filter(|options| options.is_array()).cloned();
            (name.clone(), Field { types, options })
        };
        let fields = schema["properties"].as_object().into_iter().flatten().map(field).collect();
        let closed = schema["additionalProperties"] == false && schema.get("patternProperties").is_none();
        Ok(Self { required, fields, closed })
    }

    pub(super) fn problems<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = String> + 'a {
        let missing = self.required.iter().filter(|name| value.get(name).is_none());
        let missing = missing.map(|name| format!("`{name}` is missing"));
        let given = value.as_object().into_iter().flatten();
        missing.chain(given.filter_map(|(name, value)| match self.fields.get(name) {
            Some(field) => field.problem(value).map(|problem| format!("`{name}`: {problem}")),
            None => self.closed.then(|| format!("`{name}` is not a field")),
        }))
    }
}

impl Field {
    fn problem(&self, value: &Value) -> Option<String> {
        if !self.types.is_empty() && !self.types.iter().any(|kind| is_of(kind, value)) {
            return Some(format!("expected {}, got {}", self.types.join(" or "), type_name(value)));
        }
        let options = self.options.as_ref()?;
        let is_known =
            options.as_array().is_some_and(|options| options.iter().any(|option| is_equal(option, value)));
        (!is_known).then(|| format!("expected one of {options}"))
    }
}

/// Returns whether two values are equal by JSON Schema, for which `1` and `1.0` are the same number.
fn is_equal(one: &Value, other: &Value) -> bool {
    one == other || one.is_number() && other.is_number() && one.as_f64() == other.as_f64()
}

/// Returns whether a value has this type; an unknown type allows all.
fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_checked_by_type_and_choice() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "text": {"type": ["string", "null"]},
                "mode": {"enum": ["a", "b"]},
                "any": {"$ref": "#/$defs/x"},
            },
            "required": ["n"],
            "additionalProperties": false,
        });
        let problems = |value: Value| {
            Schema::compile(&schema, false).unwrap().problems(&value).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(problems(json!({"n": 1, "text": null, "mode": "a", "any": [1]})), "");
        assert_eq!(problems(json!({"n": 2.0})), "");
        assert_eq!(problems(json!({"n": 1.5})), "`n`: expected integer, got a number");
        assert_eq!(
            problems(json!({"text": 7})),
            "`n` is missing; `text`: expected string or null, got a number"
        );
        assert_eq!(problems(json!({"n": 1, "mode": "c"})), "`mode`: expected one of [\"a\",\"b\"]");
        assert_eq!(problems(json!({"n": 1, "other": 1})), "`other` is not a field");
    }
}
