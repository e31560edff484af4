//! Entries of a line that no type knows. Parts that are copied are compared as text, so that a line of many small values needs
//! no memory for each of them.
//!
//! Start at [`unknown`].

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// Returns the path of the first value of a line that is not in what was read of it.
///
/// # Errors
/// If the line is not JSON that a [`Value`] can have: it is nested too deep, or has a number or an escape that is not valid.
pub(super) fn unknown(line: &str, known: &str) -> serde_json::Result<Option<String>> {
    serde_json::from_str::<Skimmed>(line)?;
    compare(serde_json::from_str(line)?, serde_json::from_str(known)?, String::new())
}

fn compare(given: &RawValue, known: &RawValue, path: String) -> serde_json::Result<Option<String>> {
    let (given, known) = (given.get(), known.get());
    if given == known {
        return Ok(None);
    }
    match (given.as_bytes().first(), known.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => {
            let (given, known): (Entries<'_>, Entries<'_>) =
                (serde_json::from_str(given)?, serde_json::from_str(known)?);
            for (name, value) in given {
                let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                let found = match known.get(&name) {
                    Some(known) => compare(value, known, path)?,
                    None => Some(path),
                };
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
        (Some(b'['), Some(b'[')) => {
            let (given, known): (Vec<&RawValue>, Vec<&RawValue>) =
                (serde_json::from_str(given)?, serde_json::from_str(known)?);
            if given.len() != known.len() {
                return Ok(Some(path));
            }
            for (nth, (given, known)) in given.into_iter().zip(known).enumerate() {
                let found = compare(given, known, format!("{path}[{nth}]"))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
        _ => {
            let (given, known): (Value, Value) = (serde_json::from_str(given)?, serde_json::from_str(known)?);
            Ok((given != known).then_some(path))
        }
    }
}

type Entries<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// JSON that was read like a [`Value`], and dropped.
struct Skimmed;

impl<'de> Deserialize<'de> for Skimmed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Skimmed {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while let Some(Self) = values.next_element()? {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while let Some((Self, Self)) = entries.next_entry()? {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_is_not_known_is_named() {
        for (line, known, wanted) in [
            (r#"{"a":1, "b":[2, {"c":3}]}"#, r#"{"b":[2,{"c":3}],"a":1}"#, None),
            (r#"{"a":1.0,"s":"\u0041"}"#, r#"{"a":1.0,"s":"A","more":1}"#, None),
            (r#"{"a":1,"b":[2, {"c":3}]}"#, r#"{"a":1,"b":[2,{"d":3}]}"#, Some("b[1].c")),
            (r#"{"a":[1, 2]}"#, r#"{"a":[1]}"#, Some("a")),
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":2}}"#, Some("a.b")),
            (r#"{"a":[]}"#, r#"{"a":{}}"#, Some("a")),
        ] {
            assert_eq!(unknown(line, known).unwrap().as_deref(), wanted, "{line}");
        }
    }

    /// Also parts that are copied: a program could not read them.
    #[test]
    fn json_that_no_value_can_have_is_an_error() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for (line, wanted) in [
            (&*deep, "recursion limit exceeded"),
            ("[1e999]", "number out of range"),
            (r#"["\ud800"]"#, "hex escape"),
        ] {
            let error = unknown(line, line).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
