//! Compression of JSON by references to the long texts of another JSON document.
//!
//! A text that the other document has too becomes `{"$at": "/pointer"}`; a value that looks like this is
//! escaped as `{"$as": …}`.

use std::{cell::Cell, collections::BTreeMap};

use serde::de::Error;
use serde_json::{Map, Value};

/// The minimum length of a replaced text: a shorter one costs no more than a pointer.
const SHORTEST: usize = 40;

/// The maximum number of bytes of restored texts.
const LARGEST: usize = 256 << 20;

const AT: &str = "$at";

const AS: &str = "$as";

/// Replaces long texts that `beside`, a JSON text, has as well.
pub(crate) fn pack(json: Value, beside: &str) -> Value {
    if !has_long(&json) {
        return replace(json, &BTreeMap::new());
    }
    let beside: Value = serde_json::from_str(beside).unwrap_or_default();
    let mut texts = BTreeMap::new();
    collect(&beside, &mut String::new(), &mut texts);
    replace(json, &texts)
}

/// Restores the texts.
///
/// # Errors
/// If they would exceed [`LARGEST`]: a few bytes could otherwise fill the memory.
pub(crate) fn unpack(json: Value, beside: &Value) -> Result<Value, serde_json::Error> {
    let left = Cell::new(Some(LARGEST));
    let unpacked = put_in(json, beside, &left);
    match left.get() {
        Some(_) => Ok(unpacked),
        None => Err(serde_json::Error::custom(format!("it refers to more than {LARGEST} bytes of text"))),
    }
}

/// Restores the texts. `left` is the number of bytes that may still be restored; `None` if there were more.
fn put_in(json: Value, beside: &Value, left: &Cell<Option<usize>>) -> Value {
    match json {
        Value::Array(items) => items.into_iter().map(|item| put_in(item, beside, left)).collect(),
        Value::Object(mut entries) => match entries.iter().next() {
            Some((name, Value::String(pointer))) if name == AT && entries.len() == 1 => {
                // Only texts were replaced.
                let Some(Value::String(text)) = beside.pointer(pointer) else { return Value::Null };
                left.set(left.get().and_then(|left| left.checked_sub(text.len())));
                left.get().map_or(Value::Null, |_| text.as_str().into())
            }
            Some((name, _)) if name == AS && entries.len() == 1 => {
                inside(entries.remove(AS).unwrap_or_default(), |value| put_in(value, beside, left))
            }
            _ => inside(Value::Object(entries), |value| put_in(value, beside, left)),
        },
        other => other,
    }
}

/// Applies a function to the values of an object.
fn inside(json: Value, change: impl Fn(Value) -> Value) -> Value {
    match json {
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(name, value)| (name, change(value))).collect())
        }
        other => change(other),
    }
}

fn has_long(json: &Value) -> bool {
    match json {
        Value::String(text) => text.len() >= SHORTEST,
        Value::Array(items) => items.iter().any(has_long),
        Value::Object(entries) => entries.values().any(has_long),
        _ => false,
    }
}

fn collect<'a>(json: &'a Value, way: &mut String, texts: &mut BTreeMap<&'a str, String>) {
    let length = way.len();
    match json {
        Value::String(text) if text.len() >= SHORTEST => {
            texts.entry(text).or_insert_with(|| way.clone());
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                way.push_str(&format!("/{position}"));
                collect(item, way, texts);
                way.truncate(length);
            }
        }
        Value::Object(entries) => {
            for (name, value) in entries {
                way.push('/');
                way.push_str(&name.replace('~', "~0").replace('/', "~1"));
                collect(value, way, texts);
                way.truncate(length);
            }
        }
        _ => {}
    }
}

fn replace(json: Value, texts: &BTreeMap<&str, String>) -> Value {
    match json {
        Value::String(text) => match texts.get(text.as_str()) {
            Some(way) => Value::Object(Map::from_iter([(AT.to_owned(), way.clone().into())])),
            None => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| replace(item, texts)).collect(),
        Value::Object(entries) => {
            let looks_packed = entries.len() == 1 && entries.keys().all(|name| name == AT || name == AS);
            let replaced = inside(Value::Object(entries), |value| replace(value, texts));
            match looks_packed {
                true => Value::Object(Map::from_iter([(AS.to_owned(), replaced)])),
                false => replaced,
            }
        }
        other => other,
    }
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
    fn a_long_text_is_kept_once() {
        let long = "all that the model said, which is not to be stored twice";
        let beside = json!({"messages": [{"a/b~": long}]});
        let packed = there_and_back(&json!({"said": [long, "short"]}), &beside);
        assert_eq!(packed, json!({"said": [{"$at": "/messages/0/a~1b~0"}, "short"]}));
    }

    #[test]
    fn what_somebody_made_up_does_not_fill_the_memory() {
        let beside = json!({"long": "x".repeat(1 << 20)});
        let at = |pointer: &str| json!({ "$at": pointer });
        assert_eq!(unpack(at(""), &beside).unwrap(), Value::Null);
        let bomb = Value::Array(vec![at("/long"); 10_000]);
        let error = unpack(bomb, &beside).unwrap_err().to_string();
        assert_eq!(error, "it refers to more than 268435456 bytes of text");
    }

    #[test]
    fn what_looks_packed_is_not_taken_for_it() {
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
