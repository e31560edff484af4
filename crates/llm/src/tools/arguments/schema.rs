//! A whole JSON Schema.

use jsonschema::{
    PatternOptions, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::{MAX_PROBLEMS, budget, type_name};

/// The maximum number of steps back of one regular expression in one text.
const MAX_BACKTRACKS: usize = 20_000;

/// The maximum size of a regular expression, and of all of a schema together, in bytes.
const MAX_PATTERN_BYTES: usize = 8 << 20;
const MAX_PATTERNS_BYTES: usize = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct Schema {
    validator: Validator,
}

impl Schema {
    pub(super) fn compile(schema: &Value, formats: bool) -> Result<Self, String> {
        budget::check(schema)?;
        let each = (MAX_PATTERNS_BYTES / budget::patterns(schema).max(1)).min(MAX_PATTERN_BYTES);
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS).size_limit(each);
        let validator = jsonschema::options()
            .should_validate_formats(formats)
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|cause| format!("is not a valid JSON Schema: {}", cause.masked()))?;
        Ok(Self { validator })
    }

    /// Returns the problems, of which only the first ones are described, because the others are only counted.
    pub(super) fn problems<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = String> + 'a {
        let described = |at: usize, error: &ValidationError<'_>| (at < MAX_PROBLEMS).then(|| describe(error));
        let errors = self.validator.iter_errors(value).enumerate();
        errors.map(move |(at, error)| described(at, &error).unwrap_or_default())
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
        ValidationErrorKind::FalseSchema => {
            let keyword = error.schema_path().to_string();
            let of_all = ["/additionalProperties", "/propertyNames"].iter().any(|all| keyword.ends_with(all));
            if of_all { "no fields are expected" } else { "is not expected" }.to_owned()
        }
        _ => error.masked().to_string(),
    };
    // Converts a JSON pointer to the model's notation: `/to/city` is `to.city`.
    match error.instance_path().to_string().trim_start_matches('/').replace('/', ".") {
        path if path.is_empty() => problem,
        path => format!("`{path}`: {problem}"),
    }
}
