//! Validation of argument text against a tool's schema.

#[cfg(feature = "json-schema")]
mod budget;
#[cfg(any(test, not(feature = "json-schema")))]
mod required;
#[cfg(feature = "json-schema")]
mod schema;

use serde_json::{Map, Value};

#[cfg(not(feature = "json-schema"))]
use self::required::Schema;
#[cfg(feature = "json-schema")]
use self::schema::Schema;
use crate::{
    ToolSpec,
    texts::nesting::{MAX_PARSED, values},
};

/// The maximum number of problems in one error.
const MAX_PROBLEMS: usize = 5;

/// The reason why argument text cannot be passed to its tool. The detail is written for the model.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolCallError {
    /// The text is not valid JSON.
    #[error("{detail}")]
    NotJson {
        /// The place of the syntax error.
        detail: String,
    },
    /// The text is JSON, but does not match the schema.
    #[error("{detail}")]
    Invalid {
        /// The invalid fields and their expected values.
        detail: String,
    },
}

crate::debug_by_chain!(ToolCallError);

impl ToolCallError {
    fn invalid(detail: impl Into<String>) -> Self {
        Self::Invalid { detail: detail.into() }
    }
}

/// Parses `text` as arguments of the tool `spec`.
///
/// Compiles the schema each time; an [`ArgumentCheck`] or a [`ToolRegistry`](crate::ToolRegistry) does that
/// once.
///
/// # Errors
/// As [`ArgumentCheck::check`]; also [`ToolCallError::Invalid`] if the schema itself is invalid.
pub fn check_arguments(spec: &ToolSpec, text: &str) -> Result<Value, ToolCallError> {
    match ArgumentCheck::new(spec) {
        Ok(check) => check.check(text),
        Err(detail) => Err(ToolCallError::invalid(format!("the schema of `{}` {detail}", spec.name))),
    }
}

/// The compiled argument schema of one tool.
///
/// With feature `json-schema` the whole schema is checked. Without it only the fields of the object are: those that are
/// `required`, their `type` and `enum`, and unknown ones of a closed schema. The types of a [`FnTool`](crate::FnTool) and of
/// a `#[tool]` are then checked by serde when the tool reads its arguments, and a [`Tool`](crate::Tool) that takes raw JSON
/// has to check the values inside of its fields.
#[derive(Clone, Debug)]
pub struct ArgumentCheck {
    schema: Schema,
    needs_fields: bool,
}

impl ArgumentCheck {
    /// Compiles the schema of `spec`.
    ///
    /// # Errors
    /// The problem of the schema, as the end of a sentence that begins with it.
    pub fn new(spec: &ToolSpec) -> Result<Self, String> {
        Self::compile(spec, false)
    }

    /// Compiles the schema of `spec`, and also checks the `format` of texts, such as `email`, `uri` and `date`: for values
    /// that a user enters. Unknown formats are ignored, and without feature `json-schema` all are.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_formats(spec: &ToolSpec) -> Result<Self, String> {
        Self::compile(spec, true)
    }

    fn compile(spec: &ToolSpec, formats: bool) -> Result<Self, String> {
        let schema = &spec.parameters;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err("does not have `\"type\": \"object\"`; arguments are named fields".into());
        }
        let needs_fields =
            schema.get("required").and_then(Value::as_array).is_some_and(|fields| !fields.is_empty());
        Ok(Self { schema: Schema::compile(schema, formats)?, needs_fields })
    }

    /// Parses `text` as arguments.
    ///
    /// Blank text is `{}` for a tool without required arguments. The schema decides about unknown fields.
    ///
    /// # Errors
    /// [`ToolCallError::NotJson`] for broken text, [`ToolCallError::Invalid`] for any other mismatch.
    pub fn check(&self, text: &str) -> Result<Value, ToolCallError> {
        let value = if text.trim().is_empty() && !self.needs_fields {
            Value::Object(Map::new())
        } else if text.trim().is_empty() {
            return Err(ToolCallError::invalid(format!(
                "expected an object, got nothing; {}",
                self.missing()
            )));
        } else if values(text) > MAX_PARSED {
            return Err(ToolCallError::invalid(format!("has more than {MAX_PARSED} values; pass less")));
        } else {
            serde_json::from_str(text)
                .map_err(|cause| ToolCallError::NotJson { detail: cause.to_string() })?
        };
        if !value.is_object() {
            return Err(ToolCallError::invalid(format!("expected an object, got {}", type_name(&value))));
        }
        let mut problems = self.schema.problems(&value);
        let mut named = problems.by_ref().take(MAX_PROBLEMS).collect::<Vec<_>>().join("; ");
        let more = problems.count();
        if named.is_empty() {
            return Ok(value);
        }
        if more > 0 {
            named.push_str(&format!("; and {more} more"));
        }
        Err(ToolCallError::invalid(named))
    }

    fn missing(&self) -> String {
        let empty = Value::Object(Map::new());
        self.schema.problems(&empty).take(MAX_PROBLEMS).collect::<Vec<_>>().join("; ")
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(parameters: Value, text: &str) -> Result<Value, ToolCallError> {
        check_arguments(&ToolSpec { name: "add".into(), description: String::new(), parameters }, text)
    }

    fn add() -> Value {
        json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}},
            "required": ["a"],
        })
    }

    fn invalid(detail: &str) -> Result<Value, ToolCallError> {
        Err(ToolCallError::Invalid { detail: detail.into() })
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn a_wrong_type_names_the_field_and_the_expected_type() {
        assert_eq!(check(add(), r#"{"a":"two","b":3}"#), invalid("`a`: expected integer, got a string"));
        assert_eq!(
            check(add(), r#"{"b":"two"}"#),
            invalid("`a` is missing; `b`: expected null or integer, got a string")
        );
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn formats_are_checked_of_what_a_user_enters() {
        for (format, good, bad) in [
            ("email", "ada@example.com", "ada"),
            ("uri", "https://example.com/a", "example"),
            ("date", "2026-02-28", "2026-02-30"),
            ("date-time", "2026-02-28T12:00:00Z", "2026-02-28"),
            ("unheard-of", "x", ""),
        ] {
            let parameters = json!({"type":"object","properties":{"a":{"type":"string","format":format}}});
            let spec = ToolSpec { name: "ask".into(), description: String::new(), parameters };
            let (plain, strict) =
                (ArgumentCheck::new(&spec).unwrap(), ArgumentCheck::with_formats(&spec).unwrap());
            let [good, bad] = [good, bad].map(|text| json!({ "a": text }).to_string());
            assert!(strict.check(&good).is_ok() && plain.check(&bad).is_ok(), "{format}");
            let wrong = if format == "unheard-of" { continue } else { strict.check(&bad) };
            assert_eq!(wrong, invalid(&format!("`a`: is not a valid {format}")));
        }
    }

    #[test]
    fn arguments_of_very_many_values_are_not_parsed() {
        let values = |number: usize| format!(r#"{{"a":1,"b":[{}]}}"#, vec!["0"; number].join(","));
        let schema = json!({"type": "object"});
        assert!(check(schema.clone(), &values(MAX_PARSED - 10)).is_ok());
        assert_eq!(
            check(schema.clone(), &values(MAX_PARSED)),
            invalid("has more than 100000 values; pass less")
        );
        let text = json!({ "content": r#"1,[{"2"},"#.repeat(MAX_PARSED) });
        assert!(check(schema, &text.to_string()).is_ok(), "signs in a text are no values");
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn a_nested_field_is_named_by_its_path() {
        let schema = json!({"type":"object","properties":{"to":{"type":"array","items":{"enum":["a","b"]}}}});
        assert_eq!(check(schema, r#"{"to":["a","c"]}"#), invalid("`to.1`: expected one of [\"a\",\"b\"]"));
    }

    #[test]
    fn invalid_json_is_distinguished_from_a_wrong_value() {
        let detail = "key must be a string at line 1 column 2".into();
        assert_eq!(check(add(), "{x:1"), Err(ToolCallError::NotJson { detail }));
        assert_eq!(check(add(), "[1]"), invalid("expected an object, got an array"));
        assert_eq!(check(add(), "null"), invalid("expected an object, got null"));
    }

    #[test]
    fn blank_text_means_no_arguments() {
        assert_eq!(check(json!({"type":"object","properties":{}}), ""), Ok(json!({})));
        assert_eq!(check(json!({"type":"object","required":[]}), " \n"), Ok(json!({})));
        assert_eq!(check(add(), ""), invalid("expected an object, got nothing; `a` is missing"));
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn an_unknown_field_is_refused_only_by_a_closed_schema() {
        let extra = r#"{"a":1,"c":2}"#;
        assert_eq!(check(add(), extra), Ok(json!({"a":1,"c":2})));
        let mut closed = add();
        closed["additionalProperties"] = json!(false);
        let detail = check(closed, extra).unwrap_err().to_string();
        assert!(detail.contains("'c'"), "{detail}");
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn an_unknown_field_of_a_schema_without_fields_is_explained() {
        let detail = |schema, text| check(schema, text).unwrap_err().to_string();
        let closed = json!({"type": "object", "additionalProperties": false});
        assert_eq!(detail(closed, r#"{"zone":"UTC"}"#), "no fields are expected");
        let never = json!({"type": "object", "properties": {"x": false}});
        assert_eq!(detail(never, r#"{"x":{}}"#), "`x`: is not expected");
    }

    #[test]
    fn many_problems_are_counted() {
        let names: Vec<String> = (0..7).map(|at| format!("f{at}")).collect();
        let detail = check(json!({"type":"object","required":names}), "{}").unwrap_err().to_string();
        assert!(detail.ends_with("`f4` is missing; and 2 more"), "{detail}");
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn an_invalid_schema_is_reported() {
        let detail =
            check(json!({"type":"object","properties":{"a":{"type":"int"}}}), "{}").unwrap_err().to_string();
        assert!(detail.starts_with("the schema of `add` is not a valid JSON Schema: "), "{detail}");
    }
}
