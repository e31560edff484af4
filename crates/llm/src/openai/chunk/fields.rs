//! Fields and elements of unread JSON.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Calls `each` with the name and the unread value of each field of an object, except for null. Another value has no fields.
///
/// Of equal names the last one should count. A typed reader would reject the whole object for one unexpected field.
pub(super) fn each_field<'a>(json: &'a str, each: impl FnMut(Cow<'a, str>, &'a RawValue)) {
    // What is not an object is left unread.
    let _ = serde_json::Deserializer::from_str(json).deserialize_map(Fields(each));
}

/// Returns the elements of a list. An object counts as its only element; null and values of other types are left out.
///
/// The position is that in the list.
pub(super) fn objects(raw: &RawValue) -> Vec<(usize, &RawValue)> {
    let elements = match raw.get().as_bytes().first() {
        Some(b'{') => vec![raw],
        Some(b'[') => serde_json::from_str(raw.get()).unwrap_or_default(),
        _ => Vec::new(),
    };
    elements.into_iter().enumerate().filter(|(_, element)| element.get().starts_with('{')).collect()
}

/// Returns the content of a string.
pub(super) fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

struct Fields<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue)> Visitor<'de> for Fields<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            if value.get() != "null" {
                (self.0)(name, value);
            }
        }
        Ok(())
    }
}

/// A name, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(name: D) -> Result<Self, D::Error> {
        name.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// Replaces `NaN` and infinities, which some servers write although JSON has none, by null. `None` if there are none.
pub(super) fn without_nan(data: &str) -> Option<String> {
    let (mut fixed, mut rest, mut in_string) = (String::new(), data, false);
    while let Some(at) = rest.find(['"', '\\', 'N', 'I', '-']) {
        let (before, here) = rest.split_at(at);
        fixed.push_str(before);
        let number = ["NaN", "Infinity", "-Infinity"].into_iter().find(|name| here.starts_with(name));
        let length = match (number, here.as_bytes()[0]) {
            (Some(name), _) if !in_string => {
                fixed.push_str("null");
                rest = &here[name.len()..];
                continue;
            }
            // An escape, which is one character in a string.
            (_, b'\\') => 1 + here[1..].chars().next().map_or(0, char::len_utf8),
            (_, b'"') => {
                in_string = !in_string;
                1
            }
            _ => 1,
        };
        fixed.push_str(&here[..length]);
        rest = &here[length..];
    }
    fixed.push_str(rest);
    (fixed != data).then_some(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_an_object_is_read_and_nothing_of_other_values() {
        let fields = |json: &str| {
            let mut seen = Vec::new();
            each_field(json, |name, value| seen.push(format!("{name}={}", value.get())));
            seen
        };
        assert_eq!(
            fields(r#"{"a":1,"b":null,"\u0063":{"d":[]},"a":"\ud83d"}"#),
            ["a=1", r#"c={"d":[]}"#, r#"a="\ud83d""#]
        );
        for other in ["null", "[1]", "\"a\"", "7", "{}"] {
            assert_eq!(fields(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn the_objects_of_a_list_have_their_positions() {
        let of = |json: &str| {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            objects(raw).into_iter().map(|(at, value)| format!("{at}:{}", value.get())).collect::<Vec<_>>()
        };
        assert_eq!(of(r#"[null, {"a":1}, 7, {}]"#), [r#"1:{"a":1}"#, "3:{}"]);
        assert_eq!(of(r#"{"a":1}"#), [r#"0:{"a":1}"#]);
        assert_eq!(of("\"\""), [""; 0]);
    }

    #[test]
    fn numbers_that_json_does_not_have_are_null_outside_of_strings() {
        let fixed = without_nan(r#"{"a":NaN,"b":[-Infinity,Infinity,-1],"c":"NaN \" NaN \\"}"#);
        assert_eq!(fixed.unwrap(), r#"{"a":null,"b":[null,null,-1],"c":"NaN \" NaN \\"}"#);
        assert_eq!(without_nan(r#"{"a":"NaN","\"":-1}"#), None);
    }
}
