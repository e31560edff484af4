//! Values in outline and in parts, so that a page never has a whole state.
//!
//! Start at [`part`].

use serde_json::{Map, Value};

use super::types::{Entry, JsonKind, Part};
use crate::{api::extract::Query, error::ApiError};

/// The maximum size of a preview, in bytes.
const PREVIEW: usize = 256;

/// The number of entries in a part.
const ENTRIES: usize = 100;

/// The number of characters of a text in a part.
const TEXT: usize = 32_768;

/// Returns an entry in outline.
pub(crate) fn entry(key: impl Into<String>, value: &Value) -> Entry {
    let (kind, count) = match value {
        Value::Null => (JsonKind::Null, 0),
        Value::Bool(_) => (JsonKind::Boolean, 0),
        Value::Number(_) => (JsonKind::Number, 0),
        Value::String(text) => (JsonKind::Text, text.chars().count()),
        Value::Array(items) => (JsonKind::List, items.len()),
        Value::Object(entries) => (JsonKind::Object, entries.len()),
    };
    let (preview, bytes) = preview(value, PREVIEW);
    let is_cut = bytes > PREVIEW;
    Entry { key: key.into(), kind, bytes, count, preview, is_cut }
}

/// Returns a part of a value from an offset on.
pub(crate) fn part(key: &str, value: &Value, offset: usize) -> Part {
    let mut part = Part { value: entry(key, value), entries: Vec::new(), text: None, offset, next: None };
    let until = match value {
        Value::Array(items) => {
            let shown = items.iter().enumerate().skip(offset).take(ENTRIES);
            part.entries = shown.map(|(at, item)| entry(at.to_string(), item)).collect();
            offset.saturating_add(ENTRIES)
        }
        Value::Object(entries) => {
            let shown = entries.iter().skip(offset).take(ENTRIES);
            part.entries = shown.map(|(name, value)| entry(name.clone(), value)).collect();
            offset.saturating_add(ENTRIES)
        }
        Value::String(text) => {
            part.text = Some(text.chars().skip(offset).take(TEXT).collect());
            offset.saturating_add(TEXT)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            part.text = Some(value.to_string());
            usize::MAX
        }
    };
    part.next = (until < part.value.count).then_some(until);
    part
}

/// Returns the part that a request names by `channel`, `pointer` and `offset`.
///
/// # Errors
/// 404 if there is no such value.
pub(super) fn part_of(values: &Map<String, Value>, query: &Query) -> Result<Part, ApiError> {
    let channel = query.get("channel").ok_or_else(|| ApiError::invalid("channel: expected a name"))?;
    let (pointer, offset) = (query.get("pointer").unwrap_or_default(), query.number("offset")?.unwrap_or(0));
    let found = values.get(channel).and_then(|value| value.pointer(pointer));
    let found = found.ok_or_else(|| ApiError::not_found("value", &format!("{channel}{pointer}")))?;
    let key = pointer.rsplit('/').next().filter(|key| !key.is_empty()).unwrap_or(channel);
    Ok(part(key, found, offset))
}

/// Returns the beginning of the JSON of a value, at most about so many bytes, and the size of the whole.
pub(crate) fn preview(value: &Value, max: usize) -> (String, usize) {
    let mut json = value.to_string();
    let bytes = json.len();
    shorten(&mut json, max);
    (json, bytes)
}

/// Shortens a text to at most so many bytes.
pub(crate) fn shorten(text: &mut String, max: usize) -> bool {
    if text.len() <= max {
        return false;
    }
    let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_read_in_parts() {
        let list = Value::from((0..250).collect::<Vec<_>>());
        let first = part("c", &list, 0);
        assert_eq!((first.entries.len(), first.next, first.value.count), (100, Some(100), 250));
        let last = part("c", &list, 200);
        assert_eq!((last.entries.len(), last.next, &*last.entries[0].key), (50, None, "200"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = part("c", &json!("é".repeat(TEXT + 1)), 0);
        assert_eq!((text.text.unwrap().chars().count(), text.next), (TEXT, Some(TEXT)));
        let outline = entry("c", &json!("é".repeat(300)));
        assert!(outline.is_cut && outline.preview.len() <= PREVIEW);
        assert_eq!((outline.count, outline.bytes), (300, 602));
    }
}
