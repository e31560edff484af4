//! Secrets that are split over the events of a stream, or over the lines of a text.
//!
//! Start at [`without_split_secrets`].

use std::{collections::BTreeMap, ops::Range};

use serde_json::Value;

use super::secrets::{LONG, REMOVED, Removals};

/// A part of a text that a reader appends to others.
struct Piece {
    /// The place of the part in the body; that of a string of JSON includes the quotes.
    place: Range<usize>,
    text: String,
}

/// The path of the lines that are not JSON.
const PLAIN: &str = "";

/// Returns the lines of a body without the secrets that are split over them: the texts at one path of each line's JSON are
/// read as one text, and so are lines that are not JSON.
pub(super) fn without_split_secrets(body: &str, removals: &Removals) -> String {
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    for (path, pieces) in pieces(body) {
        let is_plain = path == PLAIN;
        let whole: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        let found = removals.find(&whole, if is_plain { LONG } else { 0 });
        if found.is_empty() {
            continue;
        }
        let mut begin = 0;
        for piece in pieces {
            let end = begin + piece.text.len();
            let mut at = begin;
            let mut text = String::new();
            for secret in found.iter().filter(|secret| secret.start < end && secret.end > begin) {
                text.push_str(&whole[at..secret.start.max(at)]);
                // It is removed where it begins, and its rest is left out.
                if secret.start >= begin {
                    text.push_str(REMOVED);
                }
                at = secret.end.min(end);
            }
            if at > begin {
                text.push_str(&whole[at..end]);
                changes.push((piece.place, if is_plain { text } else { Value::from(text).to_string() }));
            }
            begin = end;
        }
    }
    changes.sort_by_key(|(place, _)| place.start);
    let mut clean = String::with_capacity(body.len());
    let mut at = 0;
    for (place, text) in changes {
        clean.push_str(&body[at..place.start]);
        clean.push_str(&text);
        at = place.end;
    }
    clean + &body[at..]
}

/// Returns the texts of a body with more than one line that its reader may join, by their path.
pub(super) fn joined(body: &str) -> impl Iterator<Item = (String, String)> {
    let join = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| piece.text).collect();
    pieces(body).into_iter().map(move |(path, pieces)| (path, join(pieces)))
}

fn pieces(body: &str) -> BTreeMap<String, Vec<Piece>> {
    let mut pieces: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
    if serde_json::from_str::<Value>(body).is_ok() {
        return pieces;
    }
    let mut begin = 0;
    for line in body.split_inclusive('\n') {
        let text = line.trim_end_matches(['\n', '\r']);
        let data = text.strip_prefix("data:").map_or(text, |data| data.strip_prefix(' ').unwrap_or(data));
        let place = begin + text.len() - data.len()..begin + text.len();
        begin += line.len();
        match serde_json::from_str::<Value>(data) {
            Ok(value) => {
                let mut scan = Scan { json: data, at: 0, start: place.start, pieces: &mut pieces };
                scan.value(&value, "/");
            }
            Err(_) if data.is_empty() => {}
            Err(_) => {
                pieces.entry(PLAIN.to_owned()).or_default().push(Piece { place, text: data.to_owned() })
            }
        }
    }
    pieces
}

/// A walk through valid JSON that finds the places of its strings.
struct Scan<'a> {
    json: &'a str,
    at: usize,
    /// The place of the JSON in the body.
    start: usize,
    pieces: &'a mut BTreeMap<String, Vec<Piece>>,
}

impl Scan<'_> {
    /// Goes to the next one of these characters, which is not in a string, and behind it.
    fn next(&mut self, of: &[char]) -> Option<char> {
        let found = self.json[self.at..].find(of)?;
        self.at += found + 1;
        self.json[..self.at].chars().next_back()
    }

    /// Goes behind the string that begins next, and returns its place.
    fn string(&mut self) -> Option<Range<usize>> {
        self.next(&['"'])?;
        let begin = self.at - 1;
        while self.next(&['"', '\\'])? == '\\' {
            self.at += self.json[self.at..].chars().next()?.len_utf8();
        }
        Some(begin..self.at)
    }

    /// Goes behind a value. A stream's lists have the places of their elements in a field `index`.
    fn value(&mut self, value: &Value, path: &str) -> Option<()> {
        match value {
            Value::String(text) => {
                let place = self.string()?;
                let place = self.start + place.start..self.start + place.end;
                let piece = Piece { place, text: text.clone() };
                self.pieces.entry(path.to_owned()).or_default().push(piece);
            }
            Value::Array(items) => {
                self.next(&['['])?;
                for (nth, item) in items.iter().enumerate() {
                    let index = item["index"].as_u64().map_or(nth.to_string(), |index| index.to_string());
                    self.value(item, &format!("{path}{index}/"))?;
                }
                self.next(&[']'])?;
            }
            Value::Object(fields) => {
                self.next(&['{'])?;
                for _ in 0..fields.len() {
                    let name = self.string()?;
                    let name: String = serde_json::from_str(&self.json[name]).ok()?;
                    self.next(&[':'])?;
                    self.value(&fields[&name], &format!("{path}{name}/"))?;
                }
                self.next(&['}'])?;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Some(())
    }
}
