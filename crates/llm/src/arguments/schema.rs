//! A whole JSON Schema.

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::type_name;

#[derive(Clone, Debug)]
pub(super) struct Schema(Validator);

impl Schema {
    pub(super) fn compile(schema: &Value, formats: bool) -> Result<Self, String> {
        jsonschema::options()
            .should_validate_formats(formats)
            .build(schema)
            .map(Self)
            .map_err(|cause| format!("is not a valid JSON Schema: {}", cause.masked()))
    }

    pub(super) fn problems<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = String> + 'a {
        self.0.iter_errors(value).map(|error| describe(&error))
    }
}

/// Describes one problem: the field, its expected and its actual type. Never the value, which may be long.
fn describe(error: &ValidationError<'_>) -> String {
    let problem = match error.kind() {
        ValidationErrorKind::Required { property } => {
            format!("`{}` is missing", property.as_str().unwrap_or_default())
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(expected) => expected.to_string(),
                TypeKind::Multiple(set) => {
                    set.iter().map(|expected| expected.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            format!("expected {expected}, got {}", type_name(error.instance()))
        }
        ValidationErrorKind::Format { format } => format!("is not a valid {format}"),
        ValidationErrorKind::Enum { options } => format!("expected one of {options}"),
        _ => error.masked().to_string(),
    };
    // Converts a JSON pointer to the model's notation: `/to/city` is `to.city`.
    match error.instance_path().to_string().trim_start_matches('/').replace('/', ".") {
        path if path.is_empty() => problem,
        path => format!("`{path}`: {problem}"),
    }
}
