//! Reads JSON that is still being written.

use serde_json::Value;

/// The value that the beginning of a JSON text has so far: what is open is closed, and what cannot be told yet, such as a number
/// that may go on, is left out. Whatever stands before the first brace or bracket is skipped. `None` if there is no value yet.
///
/// ```
/// # use superstep_llm::partial_json;
/// # use serde_json::json;
/// assert_eq!(partial_json(r#"{"city": "Par"#), Some(json!({"city": "Par"})));
/// assert_eq!(partial_json(r#"{"city": "Paris", "inhabitants": 2"#), Some(json!({"city": "Paris"})));
/// assert_eq!(partial_json("Well,"), None);
/// ```
pub fn partial_json(text: &str) -> Option<Value> {
    let text = &text[text.find(['{', '['])?..];
    let (mut open, mut in_string, mut escaped) = (Vec::new(), false, false);
    // Up to where everything is whole, and what is open there.
    let mut whole = (0, Vec::new());
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => {
                open.push(if char == '{' { '}' } else { ']' });
                whole = (at + 1, open.clone());
            }
            '}' | ']' => {
                if open.pop() != Some(char) {
                    return None;
                }
                whole = (at + 1, open.clone());
                if open.is_empty() {
                    break;
                }
            }
            ',' => whole = (at, open.clone()),
            _ => {}
        }
    }
    let ends_whole = text.trim_end().ends_with('"');
    let growing = match in_string {
        true => closed(without_escape(text, escaped), "\"", &open),
        false if ends_whole && !open.is_empty() => closed(text, "", &open),
        false => None,
    };
    growing.or_else(|| closed(&text[..whole.0], "", &whole.1))
}

fn closed(text: &str, quote: &str, open: &[char]) -> Option<Value> {
    let ends: String = open.iter().rev().collect();
    serde_json::from_str(&format!("{text}{quote}{ends}")).ok()
}

/// The text without an escape at its end that is not whole.
fn without_escape(text: &str, escaped: bool) -> &str {
    if escaped {
        return &text[..text.len() - 1];
    }
    match text.rfind("\\u") {
        Some(at) if text.len() - at < 6 => &text[..at],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn what_cannot_be_told_yet_is_left_out() {
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
