//! Compression of JSON by references to the long texts of another JSON document.
//!
//! A text that the other document has too becomes `{"$at": "/pointer"}`; a value that looks like this is
//! escaped as `{"$as": …}`.

use std::collections::BTreeMap;

use serde::de::Error;
use serde_json::{Map, Value};

/// The minimum length of a replaced text: a shorter one costs no more than a pointer.
const MIN_LENGTH: usize = 40;

/// The maximum number of bytes of restored texts.
const MAX_RESTORED_BYTES: usize = 256 << 20;

const AT: &str = "$at";

const AS: &str = "$as";

/// Replaces long texts that `beside`, a JSON text, has as well.
pub(crate) fn pack(mut json: Value, beside: &str) -> Value {
    let beside: Value = match has_long(&json) {
        true => serde_json::from_str(beside).unwrap_or_default(),
        false => Value::Null,
    };
    let mut texts = BTreeMap::new();
    collect(&beside, &mut String::new(), &mut texts);
    replace(&mut json, &texts);
    json
}

/// Restores the texts.
///
/// # Errors
/// If they would exceed [`MAX_RESTORED_BYTES`]: a few bytes could otherwise fill the memory.
pub(crate) fn unpack(mut json: Value, beside: &Value) -> Result<Value, serde_json::Error> {
    let mut left = Some(MAX_RESTORED_BYTES);
    restore(&mut json, beside, &mut left);
    match left {
        Some(_) => Ok(json),
        None => Err(serde_json::Error::custom(format!(
            "it refers to more than {MAX_RESTORED_BYTES} bytes of text"
        ))),
    }
}

/// Restores the texts. `left` is the number of bytes that may still be restored; `None` if there were more.
fn restore(json: &mut Value, beside: &Value, left: &mut Option<usize>) {
    let marked = json.as_object().filter(|entries| entries.len() == 1);
    match marked.and_then(|entries| entries.iter().next()) {
        Some((name, Value::String(pointer))) if name == AT => {
            // Only texts were replaced.
            let text = beside.pointer(pointer).and_then(Value::as_str);
            *left = left.and_then(|left| left.checked_sub(text.map_or(0, str::len)));
            *json = text.filter(|_| left.is_some()).into();
            return;
        }
        Some((name, _)) if name == AS => *json = json[AS].take(),
        _ => {}
    }
    each_mut(json, |value| restore(value, beside, left));
}

/// Passes the values in a list or object to a function.
fn each_mut(json: &mut Value, mut change: impl FnMut(&mut Value)) {
    match json {
        Value::Array(items) => items.iter_mut().for_each(change),
        Value::Object(entries) => entries.values_mut().for_each(&mut change),
        _ => {}
    }
}

fn has_long(json: &Value) -> bool {
    match json {
        Value::String(text) => text.len() >= MIN_LENGTH,
        Value::Array(items) => items.iter().any(has_long),
        Value::Object(entries) => entries.values().any(has_long),
        _ => false,
    }
}

/// Collects the long texts with their pointers; of equal ones the first. `path` is the pointer of `json`.
fn collect<'a>(json: &'a Value, path: &mut String, texts: &mut BTreeMap<&'a str, String>) {
    let length = path.len();
    match json {
        Value::String(text) if text.len() >= MIN_LENGTH => {
            texts.entry(text).or_insert_with(|| path.clone());
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                path.push_str(&format!("/{position}"));
                collect(item, path, texts);
                path.truncate(length);
            }
        }
        Value::Object(entries) => {
            for (name, value) in entries {
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                collect(value, path, texts);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn replace(json: &mut Value, texts: &BTreeMap<&str, String>) {
    if let Some(path) = json.as_str().and_then(|text| texts.get(text)) {
        *json = marked(AT, path.as_str().into());
        return;
    }
    each_mut(json, |value| replace(value, texts));
    let is_mark = |entries: &Map<String, Value>| entries.contains_key(AT) || entries.contains_key(AS);
    if json.as_object().is_some_and(|entries| entries.len() == 1 && is_mark(entries)) {
        *json = marked(AS, json.take());
    }
}

fn marked(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn there_and_back(json: &Value, beside: &Value) -> Value {
        let packed = pack(json.clone(), &beside.to_string());
        assert_eq!(unpack(packed.clone(), beside).unwrap(), *json);
        packed
    }

    #[test]
    fn a_long_text_is_stored_once() {
        let long = "all that the model said, which is not to be stored twice";
        let beside = json!({"messages": [{"a/b~": long}]});
        let packed = there_and_back(&json!({"said": [long, "short"]}), &beside);
        assert_eq!(packed, json!({"said": [{"$at": "/messages/0/a~1b~0"}, "short"]}));
    }

    #[test]
    fn forged_packed_values_do_not_exhaust_memory() {
        let beside = json!({"long": "x".repeat(1 << 20)});
        let at = |pointer: &str| json!({ "$at": pointer });
        assert_eq!(unpack(at(""), &beside).unwrap(), Value::Null);
        let bomb = Value::Array(vec![at("/long"); 10_000]);
        let error = unpack(bomb, &beside).unwrap_err().to_string();
        assert_eq!(error, "it refers to more than 268435456 bytes of text");
    }

    #[test]
    fn values_that_look_packed_are_not_unpacked() {
        let beside = json!({"secret": "x"});
        for json in [
            json!({"$at": "/secret"}),
            json!({"$as": {"$at": "/secret"}}),
            json!([{"$as": {"$as": [{"$at": "/secret"}]}}]),
            json!({"$as": 1}),
            json!({"$at": "/secret", "b": 1}),
        ] {
            there_and_back(&json, &beside);
        }
    }
}
