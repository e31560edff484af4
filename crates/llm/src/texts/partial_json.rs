//! Parsing of incomplete JSON.

use serde_json::Value;

use crate::texts::nesting::MAX_PARSED;

/// Parses the value of an incomplete JSON text: open parts are closed, and undecided parts, such as a number
/// that may continue, are left out. Text before the first brace or bracket is skipped. `None` if there is no
/// value yet, and for more than 100,000 values.
///
/// ```
/// # use superstep_llm::text::partial_json;
/// # use serde_json::json;
/// assert_eq!(partial_json(r#"{"city": "Par"#), Some(json!({"city": "Par"})));
/// assert_eq!(partial_json(r#"{"city": "Paris", "inhabitants": 2"#), Some(json!({"city": "Paris"})));
/// assert_eq!(partial_json("Well,"), None);
/// ```
pub fn partial_json(text: &str) -> Option<Value> {
    let text = &text[text.find(['{', '['])?..];
    let (mut open, mut in_string, mut escaped) = (Vec::new(), false, false);
    // The number of values, from above.
    let mut values = 1;
    // The position of the last escape; of a surrogate pair, the first.
    let mut escape = 0;
    // The end of the complete part. No bracket follows, so that the parts open there are open at the end.
    let mut whole = 0;
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if in_string => {
                escaped = true;
                let is_second = at == escape + 6 && is_first_half(&text.as_bytes()[escape..]);
                escape = if is_second { escape } else { at };
            }
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => {
                values += 1;
                open.push(if char == '{' { '}' } else { ']' });
                whole = at + 1;
            }
            '}' | ']' => {
                if open.pop() != Some(char) {
                    return None;
                }
                whole = at + 1;
                if open.is_empty() {
                    break;
                }
            }
            ',' => {
                values += 1;
                whole = at;
            }
            _ => {}
        }
        if values > MAX_PARSED {
            return None;
        }
    }
    let ends_whole = text.trim_end().ends_with('"');
    let growing = if in_string {
        closed(without_escape(text, escape), "\"", &open)
    } else if ends_whole && !open.is_empty() {
        closed(text, "", &open)
    } else {
        None
    };
    growing.or_else(|| closed(&text[..whole], "", &open))
}

fn closed(text: &str, quote: &str, open: &[char]) -> Option<Value> {
    let ends: String = open.iter().rev().collect();
    serde_json::from_str(&format!("{text}{quote}{ends}")).ok()
}

/// Returns the text without an incomplete escape at its end, which begins at `escape`.
fn without_escape(text: &str, escape: usize) -> &str {
    let last = &text.as_bytes()[escape..];
    let length = match last {
        [b'\\', b'u', ..] if is_first_half(last) => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        _ => 0,
    };
    if last.len() < length { &text[..escape] } else { text }
}

/// Returns whether an escape is a high surrogate, which a low one must follow.
fn is_first_half(escape: &[u8]) -> bool {
    matches!(escape, [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'A' | b'b' | b'B', ..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_very_many_values_are_not_parsed() {
        let list = |count: usize| format!(r#"{{"a": [{}"#, "0,".repeat(count));
        assert!(partial_json(&list(MAX_PARSED - 10)).is_some());
        assert_eq!(partial_json(&list(MAX_PARSED)), None);
        let text = format!(r#"{{"a": "{}"#, "[1, {2}, ".repeat(MAX_PARSED));
        assert!(partial_json(&text).is_some(), "signs in a text are no values");
    }

    #[test]
    fn every_beginning_of_a_value_is_a_part_of_it() {
        let whole = json!({
            "name": "a \"b\" \\ \u{e9}\n", "n": -12.5, "list": [1, {"x": null}, [], true], "last": {},
        });
        let text = serde_json::to_string_pretty(&whole).unwrap();
        let mut seen = Value::Null;
        for (at, _) in text.char_indices() {
            if let Some(value) = partial_json(&text[..at]) {
                assert!(is_part(&value, &whole), "{value} of {}", &text[..at]);
                assert!(seen.is_null() || is_part(&seen, &value), "{seen} before {value}");
                seen = value;
            }
        }
        assert_eq!(partial_json(&text), Some(whole));
    }

    #[test]
    fn a_text_never_shrinks_with_any_escape() {
        for (text, whole) in [
            (r#"["C:\\users\\\u0041", 1]"#, "C:\\users\\A"),
            (r#"["C:\\ud83d", 1]"#, "C:\\ud83d"),
            (r#"["hi \ud83d\ude00\uD83D\uDE00! \n\u00e9", 1]"#, "hi \u{1f600}\u{1f600}! \n\u{e9}"),
        ] {
            let mut seen = String::new();
            for at in 2..text.len() - 4 {
                let Some(Value::Array(value)) = partial_json(&text[..at]) else { panic!("{}", &text[..at]) };
                let value = value[0].as_str().unwrap();
                assert!(value.starts_with(&seen), "{seen} before {value}");
                seen = value.to_owned();
            }
            assert_eq!(seen, whole);
        }
    }

    fn is_part(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() <= whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
            }
            (Value::Object(part), Value::Object(whole)) => {
                part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| is_part(part, whole)))
            }
            (part, whole) => part == whole,
        }
    }

    #[test]
    fn incomplete_values_are_omitted() {
        for (text, value) in [
            (r#"{"a":tr"#, json!({})),
            (r#"{"a":1"#, json!({})),
            (r#"{"a":1,"#, json!({"a": 1})),
            (r#"{"a":1,"b"#, json!({"a": 1})),
            (r#"{"a":1,"b":"#, json!({"a": 1})),
            (r#"{"a":"x\"#, json!({"a": "x"})),
            (r#"{"a":"x\u00"#, json!({"a": "x"})),
            ("```json\n[\"x\", \"y\"", json!(["x", "y"])),
            (r#"{"a":[1,2],"b":[3"#, json!({"a": [1, 2], "b": []})),
        ] {
            assert_eq!(partial_json(text), Some(value), "{text}");
        }
        for text in ["", "12", "\"x", "{]", "no"] {
            assert_eq!(partial_json(text), None, "{text}");
        }
    }
}
