//! The number of checks that a schema requires. References can multiply them beyond any time limit, because a
//! validation cannot be interrupted.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The maximum number of checks of one value. A million take less than a second.
pub(super) const MOST: usize = 1_000_000;

/// The maximum number of different checks that are counted.
const MOST_COUNTED: usize = 300_000;

/// The maximum depth of nested checks: of a value that JSON permits, with some references at each level.
const DEEPEST: usize = 600;

/// The count of a regular expression.
const PATTERN: usize = 100;

/// The count of one of the schemas of JSON Schema itself.
const META_SCHEMA: usize = 500;

/// The reason why a schema cannot be used, as the end of a sentence about it.
type Problem = String;

/// A counter for a schema. Each pair of a part of the schema and a part of the value is counted once.
pub(super) struct Work<'a> {
    root: &'a Value,
    /// The checks of a part of the schema for a part of the value; `None` while they are counted.
    counted: HashMap<(usize, usize), Option<usize>>,
    /// The references to other documents, or to nothing.
    pub(super) unknown: Vec<String>,
}

/// The target of a reference.
enum Target<'a> {
    Schema(&'a Value),
    MetaSchema,
    Unknown,
}

impl<'a> Work<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { root, counted: HashMap::new(), unknown: Vec::new() }
    }

    /// Checks every part of the schema by itself.
    pub(super) fn check_schema(&mut self) -> Result<(), Problem> {
        let (mut waiting, mut seen) = (vec![self.root], std::collections::HashSet::new());
        while let Some(schema) = waiting.pop() {
            if !seen.insert(address(schema)) {
                continue;
            }
            self.count(schema, None, 0)?;
            let Some(fields) = schema.as_object() else { continue };
            let id = fields.get("$id").and_then(Value::as_str);
            if !std::ptr::eq(schema, self.root) && id.is_some_and(|id| !id.starts_with('#')) {
                return Err(
                    "contains another schema with an `$id` of its own, which is not supported".to_owned()
                );
            }
            waiting.extend(in_place(fields));
            waiting.extend(references(fields).filter_map(|reference| match self.resolve(reference) {
                Target::Schema(schema) => Some(schema),
                Target::MetaSchema | Target::Unknown => None,
            }));
            let maps = ["properties", "patternProperties"]
                .iter()
                .filter_map(|field| fields.get(*field)?.as_object());
            waiting.extend(maps.flat_map(Map::values));
            let lists = ["prefixItems", "items"].iter().filter_map(|field| fields.get(*field)?.as_array());
            waiting.extend(lists.flatten());
            waiting
                .extend(OF_CHILDREN.iter().chain(&["propertyNames"]).filter_map(|field| fields.get(*field)));
        }
        Ok(())
    }

    /// Checks the schema with a value.
    pub(super) fn check_value(&mut self, value: &Value) -> Result<(), Problem> {
        self.count(self.root, Some(value), 0).map(drop)
    }

    fn count(&mut self, schema: &'a Value, value: Option<&Value>, depth: usize) -> Result<usize, Problem> {
        let Some(fields) = schema.as_object() else { return Ok(1) };
        let key = (address(schema), value.map_or(0, address));
        match self.counted.get(&key) {
            Some(Some(count)) => return Ok(*count),
            Some(None) => return Err("refers to itself for the same value, without end".to_owned()),
            None => drop(self.counted.insert(key, None)),
        }
        if depth > DEEPEST {
            return Err(format!("nests more than {DEEPEST} checks"));
        }
        let applied = self.count_in_place(fields, value, depth + 1)?;
        // To find the fields that are left, the others are checked again.
        let again =
            match (fields.contains_key("unevaluatedProperties"), fields.contains_key("unevaluatedItems")) {
                (false, false) => 1,
                _ => 2 + value.map_or(0, size),
            };
        let below = value.map_or(Ok(0), |value| self.count_below(fields, value, depth + 1))?;
        let count = applied.saturating_mul(again).saturating_add(below).saturating_add(own(fields, value));
        if count > MOST || self.counted.len() > MOST_COUNTED {
            return Err(format!("takes more than {MOST} checks, which its references multiply"));
        }
        self.counted.insert(key, Some(count));
        Ok(count)
    }

    /// Counts the checks of the same value.
    fn count_in_place(
        &mut self,
        fields: &'a Map<String, Value>,
        value: Option<&Value>,
        depth: usize,
    ) -> Result<usize, Problem> {
        let mut count = 0_usize;
        for schema in in_place(fields) {
            count = count.saturating_add(self.count(schema, value, depth)?);
        }
        for reference in references(fields) {
            count = count.saturating_add(match self.resolve(reference) {
                Target::Schema(schema) => self.count(schema, value, depth)?,
                Target::MetaSchema => META_SCHEMA + value.map_or(0, size) * META_SCHEMA,
                Target::Unknown => {
                    self.unknown.push(reference.to_owned());
                    1
                }
            });
        }
        Ok(count)
    }

    /// Counts the checks of the parts of a value.
    fn count_below(
        &mut self,
        fields: &'a Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<usize, Problem> {
        let mut count = 0_usize;
        let list = |field: &str| fields.get(field).and_then(Value::as_array);
        let map = |field: &str| fields.get(field).and_then(Value::as_object);
        let mut add = |work: &mut Self, schema: &'a Value, value: &Value| -> Result<(), Problem> {
            count = count.saturating_add(work.count(schema, Some(value), depth)?);
            if count > MOST {
                return Err(format!("takes more than {MOST} checks"));
            }
            Ok(())
        };
        match value {
            Value::Object(values) => {
                for (name, value) in values {
                    let known = map("properties").and_then(|known| known.get(name));
                    known.map_or(Ok(()), |schema| add(self, schema, value))?;
                    for schema in map("patternProperties").into_iter().flat_map(Map::values) {
                        add(self, schema, value)?;
                    }
                    for field in ["additionalProperties", "unevaluatedProperties"] {
                        if let Some(schema) = fields.get(field).filter(|_| known.is_none()) {
                            add(self, schema, value)?;
                        }
                    }
                }
                if let Some(schema) = fields.get("propertyNames") {
                    let each = self.count(schema, None, depth)?;
                    count = count.saturating_add(each.saturating_mul(values.len()));
                }
            }
            Value::Array(values) => {
                let first = list("prefixItems").or(list("items")).map_or(&[][..], Vec::as_slice);
                for (at, value) in values.iter().enumerate() {
                    first.get(at).map_or(Ok(()), |schema| add(self, schema, value))?;
                    for field in ["items", "additionalItems", "contains", "unevaluatedItems"] {
                        if let Some(schema) = fields.get(field).filter(|schema| !schema.is_array()) {
                            add(self, schema, value)?;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(count)
    }

    fn resolve(&self, reference: &str) -> Target<'a> {
        let own = self.root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let local = own.and_then(|id| reference.strip_prefix(id)).unwrap_or(reference);
        if ["http://json-schema.org/", "https://json-schema.org/"].iter().any(|site| local.starts_with(site))
        {
            return Target::MetaSchema;
        }
        let found = match local.strip_prefix('#') {
            None if local.is_empty() => Some(self.root),
            None => None,
            Some(fragment) => match fragment.is_empty() || fragment.starts_with('/') {
                true => self.root.pointer(fragment),
                false => anchored(self.root, fragment),
            },
        };
        found.map_or(Target::Unknown, Target::Schema)
    }
}

/// The keywords with one schema for parts of the value.
const OF_CHILDREN: [&str; 6] = [
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "additionalItems",
    "contains",
    "unevaluatedItems",
];

/// Returns the schemas that apply to the same value.
fn in_place(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|field| fields.get(field)?.as_array());
    let single = ["not", "if", "then", "else"].into_iter().filter_map(|field| fields.get(field));
    let maps =
        ["dependentSchemas", "dependencies"].into_iter().filter_map(|field| fields.get(field)?.as_object());
    lists.flatten().chain(single).chain(maps.flat_map(Map::values))
}

fn references(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    ["$ref", "$dynamicRef", "$recursiveRef"].into_iter().filter_map(|field| fields.get(field)?.as_str())
}

/// Counts the checks by keywords of the schema itself.
fn own(fields: &Map<String, Value>, value: Option<&Value>) -> usize {
    let has = |field: &str| fields.contains_key(field);
    let length = |field: &str| fields.get(field).map_or(0, size);
    let pattern = match value {
        _ if !has("pattern") => 0,
        None => PATTERN,
        Some(Value::String(text)) => PATTERN + text.len() / PATTERN,
        Some(_) => 0,
    };
    let names = length("patternProperties") * PATTERN * value.and_then(Value::as_object).map_or(0, Map::len);
    let unique = if has("uniqueItems") { value.map_or(0, size) } else { 0 };
    1 + fields.len() + pattern + names + unique + length("enum") + length("required")
}

/// Returns the number of entries of a list or an object.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

fn anchored<'a>(root: &'a Value, name: &str) -> Option<&'a Value> {
    let mut waiting = vec![root];
    while let Some(value) = waiting.pop() {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let is_named = [text("$anchor"), text("$dynamicAnchor")].contains(&Some(name))
            || text("$id").and_then(|id| id.strip_prefix('#')) == Some(name);
        match value {
            _ if is_named => return Some(value),
            Value::Object(fields) => waiting.extend(fields.values()),
            Value::Array(values) => waiting.extend(values),
            _ => {}
        }
    }
    None
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns the number of regular expressions.
pub(super) fn patterns(schema: &Value) -> usize {
    let (mut waiting, mut count) = (vec![schema], 0);
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(fields) => {
                count += usize::from(fields.contains_key("pattern"));
                count += fields.get("patternProperties").map_or(0, size);
                waiting.extend(fields.values());
            }
            Value::Array(values) => waiting.extend(values),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ArgumentCheck;
    use super::*;
    use crate::ToolSpec;

    fn compiled(parameters: Value) -> Result<ArgumentCheck, String> {
        ArgumentCheck::new(&ToolSpec { name: "t".into(), description: String::new(), parameters })
    }

    /// A chain of definitions, each of which applies the one before it twice, as `each` writes it.
    fn doubled(length: usize, each: impl Fn(Value, Value) -> Value) -> Value {
        let mut defs = Map::new();
        defs.insert("d0".to_owned(), json!({"type": "object"}));
        for at in 1..=length {
            let before = json!({ "$ref": format!("#/$defs/d{}", at - 1) });
            defs.insert(format!("d{at}"), each(before.clone(), before));
        }
        json!({"type": "object", "$defs": defs, "$ref": format!("#/$defs/d{length}")})
    }

    #[test]
    fn references_that_multiply_checks_are_an_error_of_the_schema() {
        let both: [fn(Value, Value) -> Value; 4] = [
            |one, two| json!({"allOf": [one, two]}),
            |one, two| json!({"oneOf": [one, {"not": two}]}),
            |one, two| json!({"if": one, "then": two}),
            |one, two| json!({"anyOf": [one], "dependentSchemas": {"a": two}}),
        ];
        for each in both {
            let wanted = format!("takes more than {MOST} checks, which its references multiply");
            assert_eq!(compiled(doubled(39, each)).unwrap_err(), wanted);
            assert!(compiled(doubled(5, each)).unwrap().check(r#"{"a":1}"#).is_ok());
        }
        // The references of a part lead into the whole.
        let in_property = json!({"type": "object", "properties": {"a": doubled(39, both[0])}});
        assert!(compiled(in_property).is_err());
    }

    #[test]
    fn references_that_multiply_with_the_value_are_an_error_of_the_call() {
        let again = json!({"properties": {"a": {"$ref": "#"}}});
        let check = compiled(json!({"type": "object", "allOf": [again, again]})).unwrap();
        let nested = |depth: usize| "{\"a\":".repeat(depth) + "{}" + &"}".repeat(depth);
        assert!(check.check(&nested(8)).is_ok());
        let error = check.check(&nested(60)).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the schema takes more than {MOST} checks, which its references multiply for these arguments; pass less"
            )
        );
    }

    #[test]
    fn a_schema_without_end_is_an_error() {
        for parameters in [
            json!({"type": "object", "allOf": [{"$ref": "#"}]}),
            json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            assert_eq!(compiled(parameters).unwrap_err(), "refers to itself for the same value, without end");
        }
        let chain = (1..700).fold(json!({"type": "object"}), |inner, _| json!({"not": inner}));
        assert!(compiled(json!({"type": "object", "not": chain})).unwrap_err().contains("nests more than"));
    }

    #[test]
    fn references_lead_into_the_schema_alone() {
        for (reference, wanted) in [
            ("#", Ok(())),
            ("#/$defs/a", Ok(())),
            ("#a", Ok(())),
            ("https://json-schema.org/draft/2020-12/schema", Ok(())),
        ] {
            let parameters = json!({
                "type": "object",
                "$defs": {"a": {"$anchor": "a", "type": "object"}},
                "properties": {"x": {"$ref": reference}},
            });
            assert_eq!(compiled(parameters).map(drop), wanted, "{reference}");
        }
        let other =
            json!({"type": "object", "properties": {"x": {"$id": "https://a.example/x", "type": "string"}}});
        assert!(compiled(other).unwrap_err().contains("an `$id` of its own"));
    }

    /// Trees and lists of variants are ordinary.
    #[test]
    fn ordinary_recursive_schemas_are_not_limited() {
        let kinds: Vec<_> = ["and", "or", "not", "is"]
            .map(|kind| json!({"type": "object", "properties": {"kind": {"const": kind}, "of": {"type": "array", "items": {"$ref": "#/$defs/f"}}}, "required": ["kind"]}))
            .into();
        let check = compiled(json!({
            "type": "object",
            "properties": {"filter": {"$ref": "#/$defs/f"}, "ids": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}},
            "$defs": {"f": {"anyOf": kinds}},
        }))
        .unwrap();
        let filter = (0..7).fold(json!({"kind": "is"}), |inner, _| json!({"kind": "and", "of": [inner]}));
        let ids: Vec<_> = (0..50_000).collect();
        assert!(check.check(&json!({"filter": filter, "ids": ids}).to_string()).is_ok());
    }

    #[test]
    fn regular_expressions_are_bounded_in_steps_and_size() {
        let with = |pattern: &str| json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let check = compiled(with(r"^(a|a)*\1b")).unwrap();
        assert!(check.check(&json!({"a": "a".repeat(5_000)}).to_string()).is_err());
        assert!(compiled(with(r"^(\w{1000}){1000}$")).is_err());
        assert!(
            compiled(with(r"^(?!\.)[\w.]+@[\w.]+$")).unwrap().check(r#"{"a":"ada@example.org"}"#).is_ok()
        );
    }
}
