//! Compression of JSON by references to the long texts of another JSON document.
//!
//! A text that the other document has too becomes `{"$at": "/pointer"}`; a value that looks like this is
//! escaped as `{"$as": …}`.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// The minimum length of a replaced text: a shorter one costs no more than a pointer.
const MIN_LENGTH: usize = 40;

/// The maximum number of bytes of restored texts.
const MAX_RESTORED_BYTES: usize = 256 << 20;

const AT: &str = "$at";

const AS: &str = "$as";

/// Replaces long texts that `beside`, a JSON text, has as well.
pub(crate) fn pack(mut json: Value, beside: &str) -> Value {
    let mut texts = Vec::new();
    collect(&json, &mut texts);
    let pointers = pointers(&texts, beside);
    replace(&mut json, &mut pointers.into_iter());
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

/// Collects the long texts, in the order of [`replace`].
fn collect<'a>(json: &'a Value, texts: &mut Vec<&'a str>) {
    match json {
        Value::String(text) if is_long(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

fn is_long(text: &str) -> bool {
    text.len() >= MIN_LENGTH
}

/// Returns the pointer of each text in a JSON text, if it is there.
fn pointers(texts: &[&str], json: &str) -> Vec<Option<String>> {
    if texts.is_empty() {
        return Vec::new();
    }
    let places = texts.iter().map(|text| (*text, None)).collect();
    let mut search = Search { places, path: Vec::new() };
    let searched = search.deserialize(&mut serde_json::Deserializer::from_str(json));
    // A reader finds nothing in a text that is nested too deeply.
    let places = if searched.is_ok() { search.places } else { BTreeMap::new() };
    texts.iter().map(|text| places.get(text)?.as_deref().map(pointer)).collect()
}

/// Returns the JSON pointer of a path.
fn pointer(path: &[Step<'_>]) -> String {
    path.iter().fold(String::new(), |pointer, step| match step {
        Step::Position(position) => format!("{pointer}/{position}"),
        Step::Name(name) => format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")),
    })
}

/// A step from a list or object into one of its values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step<'de> {
    Position(usize),
    Name(Cow<'de, str>),
}

/// The search for long texts while a JSON text is read, which copies nothing.
struct Search<'a, 'de> {
    /// The texts and their paths; of equal texts the path that comes first in the order of names and positions.
    places: BTreeMap<&'a str, Option<Vec<Step<'de>>>>,
    /// The path of the value that is being read.
    path: Vec<Step<'de>>,
}

/// The name of an entry.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for &mut Search<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Search<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if is_long(text)
            && let Some(place) = self.places.get_mut(text)
            && place.as_ref().is_none_or(|place| self.path < *place)
        {
            *place = Some(self.path.clone());
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for position in 0.. {
            self.path.push(Step::Position(position));
            let item = items.next_element_seed(&mut *self)?;
            self.path.pop();
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = entries.next_key()? {
            self.path.push(Step::Name(name));
            entries.next_value_seed(&mut *self)?;
            self.path.pop();
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

/// Replaces the long texts that have a pointer, and escapes what looks replaced. `pointers` has an item for each long text.
fn replace(json: &mut Value, pointers: &mut impl Iterator<Item = Option<String>>) {
    if json.as_str().is_some_and(is_long) {
        if let Some(pointer) = pointers.next().flatten() {
            *json = marked(AT, pointer.into());
        }
        return;
    }
    each_mut(json, |value| replace(value, pointers));
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
    fn of_equal_texts_the_first_is_referred_to_in_the_order_of_names() {
        let long = "one of two texts that are equal, in the same update";
        let beside = format!(r#"{{"b":["{long}"],"a\u0062":[0.5,-1,null,true,{{"c":"{long}"}},"{long}"]}}"#);
        let packed = pack(json!([long, long]), &beside);
        assert_eq!(packed, json!([{"$at": "/ab/4/c"}, {"$at": "/ab/4/c"}]));
    }

    #[test]
    fn beside_an_update_that_cannot_be_read_nothing_is_replaced() {
        let long = "a text that stands before something that cannot be read";
        for rest in ["[".repeat(200) + &"]".repeat(200), "?".to_owned()] {
            let beside = format!(r#"["{long}",{rest}]"#);
            assert_eq!(pack(json!([long]), &beside), json!([long]));
        }
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
