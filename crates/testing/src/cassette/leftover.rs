//! The last check of what is stored: every text is decoded in all usual ways, and must not contain a secret.
//!
//! Start at [`leftover`].

use serde_json::Value;

use super::{
    decode,
    pieces::joined,
    secrets::{LONG, Removals},
};

/// The number of encodings one inside of another that are decoded.
const DEPTH: usize = 4;

/// The shortest text that may be Base64 or hexadecimal digits of a secret.
const MIN_CODE_LENGTH: usize = 8;

/// The shortest secret that is looked for in decoded data.
const MIN_LENGTH_IN_CODE: usize = 6;

/// Returns the encodings under which a text still has a secret, outermost first; `None` if it has none.
pub(super) fn leftover(text: &str, removals: &Removals) -> Option<Vec<&'static str>> {
    let secrets: Vec<&str> = removals.secrets().collect();
    if secrets.is_empty() {
        return None;
    }
    look(text, &secrets, DEPTH)
}

fn look(text: &str, secrets: &[&str], depth: usize) -> Option<Vec<&'static str>> {
    let long = |secret: &&&str| secret.len() >= LONG;
    if secrets.iter().any(|secret| text.contains(secret)) {
        return Some(Vec::new());
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let bare = squeezed(text);
    if secrets.iter().filter(long).any(|secret| bare.contains(&squeezed(secret))) {
        return Some(vec!["text without spaces"]);
    }
    if depth == 0 {
        return None;
    }
    let deeper = |how: &'static str, decoded: &str| {
        let mut found = look(decoded, secrets, depth - 1)?;
        found.insert(0, how);
        Some(found)
    };
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let mut strings = Vec::new();
        collect(&value, &mut strings);
        let each = strings.iter().filter(|string| **string != text);
        if let Some(found) = each.clone().find_map(|string| deeper("a string of JSON", string)) {
            return Some(found);
        }
        let all: String = each.map(|string| string.as_str()).collect();
        if secrets.iter().filter(long).any(|secret| all.contains(*secret)) {
            return Some(vec!["adjacent strings of JSON"]);
        }
    }
    let mut all = String::new();
    for (path, whole) in joined(text) {
        if path.is_empty() {
            continue;
        }
        if let Some(found) = deeper("a text in pieces", &whole) {
            return Some(found);
        }
        all.push_str(&whole);
    }
    if secrets.iter().filter(long).any(|secret| all.contains(*secret)) {
        return Some(vec!["texts in pieces"]);
    }
    let decoded = [
        ("a text with JSON escapes", unescaped(text)),
        ("a text with percent escapes", decode::percent(text, false)),
        ("a text of a form", decode::percent(text, true)),
        ("a text with HTML escapes", without_entities(text)),
    ];
    let found =
        decoded.iter().find_map(|(how, decoded)| if decoded == text { None } else { deeper(how, decoded) });
    // A short secret may be part of any data.
    let secrets: Vec<&str> =
        secrets.iter().copied().filter(|secret| secret.len() >= MIN_LENGTH_IN_CODE).collect();
    found.or_else(|| {
        codes(&bare).find_map(|(how, decoded)| {
            let mut found = look(&decoded, &secrets, depth - 1)?;
            found.insert(0, how);
            Some(found)
        })
    })
}

/// Returns the decoded words of a text without spaces that may be Base64 or hexadecimal digits.
fn codes(text: &str) -> impl Iterator<Item = (&'static str, String)> {
    let is_code = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    let words = text.split(move |c| !is_code(c)).filter(|word| word.len() >= MIN_CODE_LENGTH);
    words.flat_map(|word| {
        let hex: Option<Vec<u8>> = word
            .as_bytes()
            .chunks(2)
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
            .collect();
        // A word may begin before its code.
        let base64 = (0..4).filter_map(|skip| {
            let code = word.get(skip..)?;
            // One last character has no byte.
            let code = if code.len() % 4 == 1 { &code[..code.len() - 1] } else { code };
            Some(("Base64", decode::base64(code)?))
        });
        let decoded = base64.chain(hex.map(|bytes| ("hexadecimal digits", bytes)));
        decoded.map(|(how, bytes)| (how, String::from_utf8_lossy(&bytes).into_owned())).collect::<Vec<_>>()
    })
}

/// Adds the strings and the names of a value, in order.
fn collect(value: &Value, strings: &mut Vec<String>) {
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, strings)),
        Value::Object(fields) => {
            strings.extend(fields.keys().cloned());
            fields.values().for_each(|value| collect(value, strings));
        }
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => strings.push(number.to_string()),
    }
}

/// Decodes the JSON escapes of a text that is not JSON as a whole.
fn unescaped(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
            continue;
        }
        let digits = rest.strip_prefix('u').and_then(|digits| digits.get(..4));
        if let Some(unit) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            units.push(unit);
            rest = &rest[5..];
        } else if let Some(escaped) = rest.chars().next() {
            let c = match escaped {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            };
            units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
            rest = &rest[escaped.len_utf8()..];
        }
    }
    String::from_utf16_lossy(&units)
}

fn without_entities(text: &str) -> String {
    let mut parts = text.split('&');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(';').and_then(|(name, rest)| Some((decode::entity(name)?, rest))) {
            Some((c, rest)) => {
                decoded.push(c);
                decoded.push_str(rest);
            }
            None => {
                decoded.push('&');
                decoded.push_str(part);
            }
        }
    }
    decoded
}
