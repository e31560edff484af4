//! The number of checks that a schema requires. References can multiply them beyond any time limit, because a
//! validation cannot be interrupted.

use std::{borrow::Cow, cell::OnceCell, collections::HashMap};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::{objects, patterns};

/// The maximum number of checks of one value. A million take less than a second.
pub(super) const MAX_CHECKS: usize = 1_000_000;

/// The maximum number of different checks that are counted.
const MAX_COUNTED: usize = 300_000;

/// The maximum depth of nested checks: of a value that JSON permits, with some references at each level.
const MAX_DEPTH: usize = 600;

/// The maximum length of a field's name in bytes, if the schema has checks of names.
const MAX_NAME_LENGTH: usize = 1024;

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
    /// The schemas with a name of their own.
    anchors: OnceCell<HashMap<&'a str, &'a Value>>,
}

/// A thing that a schema checks.
#[derive(Clone, Copy)]
enum Checked<'v> {
    /// Validates nothing yet: the schema is checked by itself.
    Nothing,
    /// A field's name.
    Name,
    Value(&'v Value),
}

impl<'v> Checked<'v> {
    fn value(self) -> Option<&'v Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Nothing | Self::Name => None,
        }
    }

    /// Returns a number that identifies it while the value lives.
    fn key(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Name => 1,
            Self::Value(value) => address(value),
        }
    }
}

/// The target of a reference.
enum Target<'a> {
    Schema(&'a Value),
    MetaSchema,
    Unknown,
}

impl<'a> Work<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { root, counted: HashMap::new(), unknown: Vec::new(), anchors: OnceCell::new() }
    }

    /// Checks every part of the schema by itself.
    pub(super) fn check_schema(&mut self) -> Result<(), Problem> {
        self.check_names()?;
        let (mut waiting, mut seen) = (vec![self.root], std::collections::HashSet::new());
        while let Some(schema) = waiting.pop() {
            if !seen.insert(address(schema)) {
                continue;
            }
            self.count(schema, Checked::Nothing, 0)?;
            let Some(fields) = schema.as_object() else { continue };
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

    /// Rejects schemas within the schema that have a base of their own, from which a validator resolves references in them, and
    /// anchors with the same name.
    fn check_names(&self) -> Result<(), Problem> {
        let draft = self.root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let bases: &[&str] = match ["draft-03", "draft-04"].iter().any(|old| draft.contains(old)) {
            true => &["$id", "id"],
            false => &["$id"],
        };
        let mut names = std::collections::HashSet::new();
        for (value, fields) in objects(self.root) {
            let text = |field: &str| fields.get(field).and_then(Value::as_str);
            let is_base = |field: &&str| text(field).is_some_and(|id| !id.starts_with('#'));
            if !std::ptr::eq(value, self.root) && (bases.iter().any(is_base) || text("$schema").is_some()) {
                return Err(
                    "contains another schema with an `$id` or `$schema` of its own, which is not supported"
                        .to_owned(),
                );
            }
            if let Some(name) = anchors(fields).find(|name| !names.insert(*name)) {
                return Err(format!("has two schemas with the anchor `{name}`"));
            }
        }
        Ok(())
    }

    /// Checks the schema with a value.
    pub(super) fn check_value(&mut self, value: &Value) -> Result<(), Problem> {
        self.count(self.root, Checked::Value(value), 0).map(drop)
    }

    fn count(&mut self, schema: &'a Value, checked: Checked<'_>, depth: usize) -> Result<usize, Problem> {
        let Some(fields) = schema.as_object() else { return Ok(1) };
        let (key, value) = ((address(schema), checked.key()), checked.value());
        match self.counted.get(&key) {
            Some(Some(count)) => return Ok(*count),
            Some(None) => return Err("refers to itself for the same value, without end".to_owned()),
            None => drop(self.counted.insert(key, None)),
        }
        if depth > MAX_DEPTH {
            return Err(format!("nests more than {MAX_DEPTH} checks"));
        }
        let applied = self.count_in_place(fields, checked, depth + 1)?;
        // To find the fields that are left, the others are checked again.
        let again =
            match (fields.contains_key("unevaluatedProperties"), fields.contains_key("unevaluatedItems")) {
                (false, false) => 1,
                _ => 2 + value.map_or(0, size),
            };
        let below = value.map_or(Ok(0), |value| self.count_below(fields, value, depth + 1))?;
        let count = applied.saturating_mul(again).saturating_add(below).saturating_add(own(fields, checked));
        if count > MAX_CHECKS || self.counted.len() > MAX_COUNTED {
            return Err(format!(
                "takes more than {MAX_CHECKS} checks, which its references or patterns multiply"
            ));
        }
        self.counted.insert(key, Some(count));
        Ok(count)
    }

    /// Counts the checks of the same value.
    fn count_in_place(
        &mut self,
        fields: &'a Map<String, Value>,
        checked: Checked<'_>,
        depth: usize,
    ) -> Result<usize, Problem> {
        let mut count = 0_usize;
        for schema in in_place(fields) {
            count = count.saturating_add(self.count(schema, checked, depth)?);
        }
        for reference in references(fields) {
            count = count.saturating_add(match self.resolve(reference) {
                Target::Schema(schema) => self.count(schema, checked, depth)?,
                Target::MetaSchema => META_SCHEMA + checked.value().map_or(0, size) * META_SCHEMA,
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
            count = count.saturating_add(work.count(schema, Checked::Value(value), depth)?);
            if count > MAX_CHECKS {
                return Err(format!("takes more than {MAX_CHECKS} checks"));
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
                    let longest = values.keys().map(String::len).max().unwrap_or_default();
                    if longest > MAX_NAME_LENGTH {
                        return Err(format!(
                            "checks names, of which one has more than {MAX_NAME_LENGTH} bytes"
                        ));
                    }
                    let each = self.count(schema, Checked::Name, depth)?;
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

    /// Resolves a reference as the validator does.
    fn resolve(&self, reference: &str) -> Target<'a> {
        let own = self.root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let own = own.filter(|id| !id.contains('#'));
        let local = own.and_then(|id| reference.strip_prefix(id)).unwrap_or(reference);
        if ["http://json-schema.org/", "https://json-schema.org/"].iter().any(|site| local.starts_with(site))
        {
            return Target::MetaSchema;
        }
        let found = match local.strip_prefix('#') {
            None if local.is_empty() => Some(self.root),
            None => None,
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => {
                let decoded: Option<Cow<'_, str>> = percent_decode_str(pointer).decode_utf8().ok();
                decoded.and_then(|pointer| self.root.pointer(&pointer))
            }
            Some(name) => self.anchors.get_or_init(|| anchored(self.root)).get(name).copied(),
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
fn own(fields: &Map<String, Value>, checked: Checked<'_>) -> usize {
    let has = |field: &str| fields.contains_key(field);
    let length = |field: &str| fields.get(field).map_or(0, size);
    let value = checked.value();
    let pattern = fields.get("pattern").and_then(Value::as_str).map_or(0, |pattern| match checked {
        Checked::Nothing => patterns::count(pattern, 0),
        Checked::Name => patterns::count(pattern, MAX_NAME_LENGTH),
        Checked::Value(Value::String(text)) => patterns::count(pattern, text.len()),
        Checked::Value(_) => 0,
    });
    let names = match (fields.get("patternProperties"), value) {
        (Some(Value::Object(named)), Some(Value::Object(values))) => {
            let names: Vec<usize> = values.keys().map(String::len).collect();
            named.keys().map(|pattern| patterns::count_all(pattern, &names)).fold(0, usize::saturating_add)
        }
        _ => 0,
    };
    let unique = if has("uniqueItems") { value.map_or(0, size) } else { 0 };
    let single = 1 + fields.len() + unique + length("enum") + length("required");
    single.saturating_add(pattern).saturating_add(names)
}

/// Returns the number of entries of a list or an object.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

/// Returns the names by which references mean a schema.
fn anchors(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    let names = [text("$anchor"), text("$dynamicAnchor"), text("$id").and_then(|id| id.strip_prefix('#'))];
    names.into_iter().flatten()
}

fn anchored(root: &Value) -> HashMap<&str, &Value> {
    objects(root).flat_map(|(value, fields)| anchors(fields).map(move |name| (name, value))).collect()
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
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
            let wanted =
                format!("takes more than {MAX_CHECKS} checks, which its references or patterns multiply");
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
                "the schema takes more than {MAX_CHECKS} checks, which its references or patterns multiply for these arguments; pass less"
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
        let many = format!("takes more than {MAX_CHECKS} checks, which its references or patterns multiply");
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
            (
                json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}, "b": {"$dynamicAnchor": "x"}}}),
                "has two schemas with the anchor `x`",
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

    #[test]
    fn many_references_to_anchors_are_counted_in_linear_time() {
        let anchors: Map<String, Value> =
            (0..2_000).map(|at| (format!("a{at}"), json!({ "$anchor": format!("n{at}") }))).collect();
        let items: Vec<_> = (0..2_000).map(|at| json!({ "$ref": format!("#n{at}") })).collect();
        let check = compiled(
            json!({"type": "object", "properties": {"a": {"items": {"allOf": items}}}, "$defs": anchors}),
        )
        .unwrap();
        let error = check.check(&json!({ "a": vec![0; 1_000] }).to_string()).unwrap_err().to_string();
        assert!(error.contains("takes more than"), "{error}");
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
        let many = |pattern: &str, text: &str| {
            let checked = compiled(with(pattern)).unwrap().check(&json!({ "a": text }).to_string());
            checked.unwrap_err().to_string().contains("takes more than")
        };
        assert!(!many(r"^(a|a)*\1b", &"a".repeat(500)), "it takes too many steps back");
        for pattern in [r"^(a|a)*\1b", "(?!x)a*b", "1[01]{8000}x"] {
            assert!(many(pattern, &"a".repeat(50_000)), "{pattern}");
        }
        for names in [
            json!({"patternProperties": {"(?!x)a*b": {}}}),
            json!({"propertyNames": {"allOf": [{"pattern": "x"}]}}),
        ] {
            let mut parameters = json!({"type": "object"});
            parameters.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
            let error = compiled(parameters).unwrap().check(&json!({"a".repeat(50_000): 1}).to_string());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("takes more than") || error.contains("checks names"), "{error}");
        }
        let text = "x ".repeat(50_000);
        assert!(compiled(with(r"^(?!\s*$).+")).unwrap().check(&json!({ "a": text }).to_string()).is_ok());
        assert!(compiled(with(r"^(\w{1000}){1000}$")).is_err());
        assert!(
            compiled(with(r"^(?!\.)[\w.]+@[\w.]+$")).unwrap().check(r#"{"a":"ada@example.org"}"#).is_ok()
        );
    }
}
