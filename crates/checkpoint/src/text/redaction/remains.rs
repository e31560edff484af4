//! Replaced values that are still somewhere else in the text.
//!
//! Start at [`Remains`].

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{super::lines::Line, Redaction, redacting::MARKER};

/// The number of bytes by which a text is found as a part of another one; a shorter one is found as a whole.
const PART: usize = 16;

/// The minimum number of bytes of such a text: shorter ones, such as `ok`, are equal by chance.
const WHOLE: usize = 8;

/// The texts that were replaced, by their fingerprints, and the places where they still are.
#[derive(Default)]
pub(super) struct Remains {
    whole: HashSet<u64>,
    /// The lengths and fingerprints of texts, by their beginnings.
    parts: HashMap<[u8; PART], Vec<(usize, u64)>>,
    places: BTreeSet<String>,
}

impl Remains {
    /// Notes the texts of a value that was replaced.
    pub(super) fn replaced(&mut self, value: &Value) {
        self.note(value, false);
    }

    /// Notes the texts of a value. Those in the entries of an object are noted if they have a space: others are often names and ids,
    /// which are elsewhere as well.
    fn note(&mut self, value: &Value, is_entry: bool) {
        match value {
            Value::String(text) if is_entry && !text.contains(char::is_whitespace) => {}
            Value::String(text) => {
                let text = text.as_bytes();
                if text.len() >= WHOLE {
                    self.whole.insert(xxh3_64(text));
                }
                if let Some(begin) = text.first_chunk() {
                    let ends = self.parts.entry(*begin).or_default();
                    let end = (text.len(), xxh3_64(text));
                    if !ends.contains(&end) {
                        ends.push(end);
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.note(value, is_entry)),
            Value::Object(entries) => entries.values().for_each(|value| self.note(value, true)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Looks for replaced texts, and for the secrets of the rules, in a line as it is written.
    pub(super) fn inspect(&mut self, rules: &Redaction, line: &Line, json: &[u8]) -> serde_json::Result<()> {
        let channel = match line {
            Line::Channel(line) => Some(line.channel.as_str()),
            _ => None,
        };
        let value: Value = serde_json::from_slice(json)?;
        let mut places = mem::take(&mut self.places);
        self.walk(rules, &value, &mut Vec::new(), &mut |path| {
            places.insert(place(path, channel));
        });
        self.places = places;
        Ok(())
    }

    /// Returns the places, in order.
    pub(super) fn into_places(self) -> Vec<String> {
        self.places.into_iter().collect()
    }

    fn walk<'v>(
        &self,
        rules: &Redaction,
        value: &'v Value,
        path: &mut Vec<&'v str>,
        found: &mut impl FnMut(&[&str]),
    ) {
        match value {
            Value::String(text) if self.has(rules, text) => found(path),
            Value::Number(number) if rules.secrets.iter().any(|secret| secret.is_in(&number.to_string())) => {
                found(path);
            }
            Value::Array(values) => values.iter().for_each(|value| self.walk(rules, value, path, found)),
            Value::Object(entries) if entries.contains_key(MARKER) => {}
            Value::Object(entries) => {
                let is_line = path.is_empty();
                for (name, value) in entries.iter().filter(|(name, _)| !is_line || *name != "mark") {
                    path.push(name);
                    if self.has(rules, name) {
                        found(path);
                    }
                    self.walk(rules, value, path, found);
                    path.pop();
                }
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn has(&self, rules: &Redaction, text: &str) -> bool {
        if rules.secrets.iter().any(|secret| secret.is_in(text)) {
            return true;
        }
        let text = text.as_bytes();
        if self.whole.contains(&xxh3_64(text)) && text.len() >= WHOLE {
            return true;
        }
        if self.parts.is_empty() {
            return false;
        }
        text.windows(PART).enumerate().any(|(at, begin)| {
            let begin: &[u8; PART] = begin.try_into().expect("the windows have this length");
            let is_there = |(length, print): &(usize, u64)| {
                text.get(at..at + length).is_some_and(|part| xxh3_64(part) == *print)
            };
            self.parts.get(begin).is_some_and(|ends| ends.iter().any(is_there))
        })
    }
}

/// Returns the name of a place in a line: its channel, or the path of the entry.
fn place(path: &[&str], channel: Option<&str>) -> String {
    match (path, channel) {
        (["value", ..], Some(channel)) => format!("channel `{channel}`"),
        (["update", channel, ..], None) => format!("channel `{channel}`"),
        _ => format!("entry `{}`", path[..path.len().min(3)].join(".")),
    }
}
