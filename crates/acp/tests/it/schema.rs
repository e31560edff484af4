//! The schema of the protocol, made strict: fields that it does not name are errors.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("../fixtures/schema.json")).unwrap();
    let Value::Object(mut all) = schema["$defs"].clone() else { panic!("the schema has definitions") };
    for definition in all.values_mut() {
        close(definition);
    }
    all
});

/// The definitions by side and method: `("agent", "session/new")` has that of its request and that of its response.
static METHODS: LazyLock<BTreeMap<(&str, &str), Vec<&str>>> = LazyLock::new(|| {
    let mut methods: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, definition) in &*DEFINITIONS {
        if let (Some(side), Some(method)) = (definition["x-side"].as_str(), definition["x-method"].as_str()) {
            methods.entry((side, method)).or_default().push(name.as_str());
        }
    }
    methods
});

/// Forbids other fields in all objects that are fields or items.
fn close(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.values_mut().for_each(close_object);
    }
    if let Some(items) = schema.get_mut("items") {
        close_object(items);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
    }
}

fn close_object(schema: &mut Value) {
    close(schema);
    let Value::Object(schema) = schema else { return };
    let is_any = !["type", "$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| schema.contains_key(*key));
    if !is_any && !schema.contains_key("additionalProperties") {
        schema.insert("unevaluatedProperties".to_owned(), json!(false));
    }
}

/// The compiled definitions.
static VALIDATORS: LazyLock<Mutex<BTreeMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

fn validator(definition: &str) -> Arc<Validator> {
    assert!(DEFINITIONS.contains_key(definition), "the schema has no `{definition}`");
    let compile = || {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": &*DEFINITIONS,
            "$ref": format!("#/$defs/{definition}"),
            "unevaluatedProperties": false,
        });
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    };
    VALIDATORS.lock().unwrap().entry(definition.to_owned()).or_insert_with(compile).clone()
}

/// Validates a value.
pub(crate) fn validate(definition: &str, value: &Value) {
    let problems: Vec<_> = validator(definition).iter_errors(value).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{value} is not a valid `{definition}`: {problems:#?}");
}

/// Validates the parameters of a request or notification.
pub(crate) fn validate_params(side: &str, method: &str, params: &Value) {
    validate(of(side, method, false), params);
}

/// Validates the result of a request.
pub(crate) fn validate_result(side: &str, method: &str, result: &Value) {
    validate(of(side, method, true), result);
}

fn of(side: &str, method: &str, is_result: bool) -> &'static str {
    let both = METHODS.get(&(side, method)).unwrap_or_else(|| panic!("{side} has no method `{method}`"));
    let found = both.iter().find(|name| name.ends_with("Response") == is_result);
    found.unwrap_or_else(|| panic!("`{method}` has no such definition"))
}

#[test]
fn an_unknown_field_and_a_missing_one_are_found() {
    let update = |update: Value| json!({ "sessionId": "s", "update": update });
    let valid = update(json!({ "sessionUpdate": "current_mode_update", "currentModeId": "ask" }));
    validate("SessionNotification", &valid);
    let wrong = [
        json!({ "sessionUpdate": "current_mode_update", "modeId": "ask" }),
        json!({ "sessionUpdate": "current_mode_update", "currentModeId": "ask", "modeId": "ask" }),
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "", "priority": "medium", "status": "done" }] }),
    ];
    for wrong in wrong {
        let found = std::panic::catch_unwind(|| validate("SessionNotification", &update(wrong.clone())));
        assert!(found.is_err(), "{wrong}");
    }
}
