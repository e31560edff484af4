//! A budget on the schemas that apply to one value, which references multiply.
//!
//! Forty definitions, each of which refers twice to the one before it, are 2^40 checks, and a validation cannot be interrupted.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The maximum number of schemas that apply to the same value, with those that references lead to.
const MAX_SCHEMAS: usize = 10_000;

/// The maximum depth of schemas that apply to the same value, in references and in keywords such as `allOf`.
const MAX_DEPTH: usize = 200;

/// The number of schemas of which JSON Schema itself consists.
const META_SCHEMA: usize = 500;

/// Counts as this many applications of the other keywords, each of which marks fields as evaluated.
const UNEVALUATED: usize = 8;

/// Checks a schema before it is compiled.
///
/// # Errors
/// The problem, as the end of a sentence about the schema.
pub(super) fn check(root: &Value) -> Result<(), String> {
    let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-03", "draft-04"].iter().any(|old| draft.contains(old));
    let mut weights = Weights { root, known: HashMap::new() };
    for (value, fields) in objects(root) {
        // A validator resolves references from such a base, and this budget does not.
        let text = |field: &str| fields.get(field).and_then(Value::as_str);
        let has_base = ["$id", if is_old { "id" } else { "$id" }]
            .iter()
            .any(|field| text(field).is_some_and(|id| !id.starts_with('#')));
        if !std::ptr::eq(value, root) && (has_base || text("$schema").is_some()) {
            return Err(
                "contains another schema with an `$id` or `$schema` of its own, which is not supported"
                    .into(),
            );
        }
        weights.of(value, 0)?;
    }
    Ok(())
}

/// Returns the number of regular expressions of a schema.
pub(super) fn patterns(schema: &Value) -> usize {
    let number = |(_, fields): (&Value, &Map<String, Value>)| {
        let named = fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        named + usize::from(fields.contains_key("pattern"))
    };
    objects(schema).map(number).sum()
}

/// The numbers of schemas that apply to the same value as one of them, by its address; `None` while it is counted.
struct Weights<'a> {
    root: &'a Value,
    known: HashMap<usize, Option<usize>>,
}

impl<'a> Weights<'a> {
    fn of(&mut self, schema: &'a Value, depth: usize) -> Result<usize, String> {
        let Some(fields) = schema.as_object() else { return Ok(1) };
        let address = std::ptr::from_ref(schema).addr();
        match self.known.get(&address) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => return Err("refers to itself for the same value, without end".into()),
            None => self.known.insert(address, None),
        };
        if depth > MAX_DEPTH {
            return Err(format!("nests more than {MAX_DEPTH} schemas for one value"));
        }
        let mut weight = 1_usize;
        for schema in in_place(fields) {
            weight = weight.saturating_add(self.of(schema, depth + 1)?);
        }
        let references = ["$ref", "$dynamicRef", "$recursiveRef"];
        for reference in references.into_iter().filter_map(|field| fields.get(field)?.as_str()) {
            for target in self.targets(reference)? {
                weight = weight.saturating_add(self.of(target, depth + 1)?);
            }
            weight = weight.saturating_add(if is_meta_schema(reference) { META_SCHEMA } else { 0 });
        }
        if ["unevaluatedProperties", "unevaluatedItems"].iter().any(|field| fields.contains_key(*field)) {
            weight = weight.saturating_mul(UNEVALUATED);
        }
        if weight > MAX_SCHEMAS {
            return Err(format!(
                "applies more than {MAX_SCHEMAS} schemas to one value, which its references multiply"
            ));
        }
        self.known.insert(address, Some(weight));
        Ok(weight)
    }

    /// Returns the schemas to which a reference may lead: those with an anchor may be several.
    fn targets(&self, reference: &str) -> Result<Vec<&'a Value>, String> {
        let own = self.root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let own = own.filter(|id| !id.contains('#'));
        let local = own.and_then(|id| reference.strip_prefix(id)).unwrap_or(reference);
        if is_meta_schema(local) {
            return Ok(Vec::new());
        }
        let found: Vec<_> = match local.strip_prefix('#') {
            None if local.is_empty() => vec![self.root],
            None => Vec::new(),
            Some("") => vec![self.root],
            Some(pointer) if pointer.starts_with('/') => {
                let pointer = percent_decode_str(pointer).decode_utf8().unwrap_or_default();
                self.root.pointer(&pointer).into_iter().collect()
            }
            Some(name) => {
                let is_named = |fields: &Map<String, Value>| {
                    let text = |field: &str| fields.get(field).and_then(Value::as_str);
                    [text("$anchor"), text("$dynamicAnchor"), text("$id").and_then(|id| id.strip_prefix('#'))]
                        .contains(&Some(name))
                };
                objects(self.root).filter(|(_, fields)| is_named(fields)).map(|(value, _)| value).collect()
            }
        };
        if found.is_empty() { Err(format!("refers to `{reference}`, which is not in it")) } else { Ok(found) }
    }
}

fn is_meta_schema(reference: &str) -> bool {
    ["http://json-schema.org/", "https://json-schema.org/"].iter().any(|site| reference.starts_with(site))
}

/// Returns the schemas that apply to the same value.
fn in_place(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|field| fields.get(field)?.as_array());
    let single = ["not", "if", "then", "else"].into_iter().filter_map(|field| fields.get(field));
    let maps =
        ["dependentSchemas", "dependencies"].into_iter().filter_map(|field| fields.get(field)?.as_object());
    lists.flatten().chain(single).chain(maps.flat_map(Map::values))
}

/// Returns all objects in a schema, also those that are not schemas, and their fields.
fn objects(root: &Value) -> impl Iterator<Item = (&Value, &Map<String, Value>)> {
    let mut waiting = vec![root];
    std::iter::from_fn(move || {
        loop {
            let value = waiting.pop()?;
            match value {
                Value::Object(fields) => {
                    waiting.extend(fields.values());
                    return Some((value, fields));
                }
                Value::Array(values) => waiting.extend(values),
                _ => {}
            }
        }
    })
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
            let wanted = format!(
                "applies more than {MAX_SCHEMAS} schemas to one value, which its references multiply"
            );
            assert_eq!(compiled(doubled(39, each)).unwrap_err(), wanted);
            assert!(compiled(doubled(5, each)).unwrap().check(r#"{"a":1}"#).is_ok());
        }
        // The references of a part lead into the whole.
        let in_property = json!({"type": "object", "properties": {"a": doubled(39, both[0])}});
        assert!(compiled(in_property).is_err());
    }

    #[test]
    fn a_schema_without_end_is_refused() {
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
        assert!(compiled(other).unwrap_err().contains("an `$id` or `$schema` of its own"));
    }

    /// A reference that is counted has to be the one that is checked.
    #[test]
    fn references_are_resolved_as_the_validator_does() {
        let expensive = |definitions: &str| {
            let mut defs = Map::from_iter([("d0".to_owned(), json!({"type": "object"}))]);
            for at in 1..=39 {
                let before = json!({ "$ref": format!("#/{definitions}d{}", at - 1) });
                defs.insert(format!("d{at}"), json!({"allOf": [before, before]}));
            }
            Value::Object(defs)
        };
        let plain = json!({"type": "object"});
        let with = |schema: Value, fields: Value| {
            let (Value::Object(mut all), Value::Object(fields)) = (schema, fields) else { unreachable!() };
            all.extend(fields);
            Value::Object(all)
        };
        let base = "contains another schema with an `$id` or `$schema` of its own, which is not supported";
        let many =
            format!("applies more than {MAX_SCHEMAS} schemas to one value, which its references multiply");
        let old = "http://json-schema.org/draft-04/schema#";
        let to_last = json!([{"$ref": "#/definitions/d39"}]);
        let inner = json!({"id": "http://x/y", "definitions": expensive("definitions/"), "allOf": to_last});
        for (parameters, wanted) in [
            (
                json!({"$defs": expensive("$defs/"), "%24defs": {"d39": plain}, "$ref": "#/%24defs/d39"}),
                &*many,
            ),
            (json!({"$schema": old, "allOf": [inner], "definitions": {"d39": plain}}), base),
            (json!({"allOf": [with(inner, json!({"$schema": old}))], "definitions": {"d39": plain}}), base),
            (
                json!({
                    "$ref": "#/$defs/z/allOf/0",
                    "$defs": {"z": with(expensive(""), json!({"$id": "http://x/z", "allOf": [{"$ref": "#/d39"}]}))},
                    "d39": plain,
                }),
                base,
            ),
        ] {
            assert_eq!(
                compiled(with(plain.clone(), parameters.clone())).unwrap_err(),
                wanted,
                "{parameters}"
            );
        }
        // Names that only look like these.
        let ordinary = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://a.example/t",
            "type": "object",
            "properties": {"id": {"type": "string"}, "$id": {"$ref": "#/$defs/a%3Cb%3E"}},
            "$defs": {"a<b>": {"type": "string", "default": {"id": "x"}}},
        });
        let check = compiled(ordinary).unwrap();
        assert!(check.check(r#"{"$id":"x"}"#).is_ok() && check.check(r#"{"$id":1}"#).is_err());
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
    fn regular_expressions_are_bounded_in_size_and_in_steps_back() {
        let with = |pattern: &str| json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        assert!(compiled(with(r"^(\w{1000}){1000}$")).is_err());
        for (pattern, text, is_valid) in [
            (r"^(a|a)*\1b", "a".repeat(500), false),
            (r"^(?!\s*$).+", "x ".repeat(50_000), true),
            (r"^(?!\.)[\w.]+@[\w.]+$", "ada@example.org".to_owned(), true),
        ] {
            let checked = compiled(with(pattern)).unwrap().check(&json!({ "a": text }).to_string());
            assert_eq!(checked.is_ok(), is_valid, "{pattern}");
        }
    }
}
