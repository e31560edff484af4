//! The comparison of a recorded response with one of ours.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use uuid::Uuid;

/// The differences that were found, and the ids of ours that stand for the placeholders of the recording.
pub(crate) struct Comparison {
    pub(crate) differences: Vec<String>,
    topic: String,
    request: String,
    /// The thread of the request; ids of checkpoints and tasks are unique there.
    thread: String,
    ids: BTreeMap<String, Known>,
}

/// An id of ours.
struct Known {
    id: String,
    thread: String,
}

/// A part of a recorded text.
enum Piece<'a> {
    Text(&'a str),
    /// `<T1>`, with the kind `T`.
    Place(&'a str, &'a str),
}

/// Returns the parts of a text: `/threads/<T1>/state` has three.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, place, after)) = next_place(rest) {
        pieces.extend([
            Piece::Text(before),
            Piece::Place(place, place.trim_matches(|char: char| !char.is_alphabetic())),
        ]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn next_place(text: &str) -> Option<(&str, &str, &str)> {
    let is_kind = |kind: &str| ["T", "R", "A", "K", "M", "I", "U", "TIME", "E", "N", "MS"].contains(&kind);
    text.match_indices('<').find_map(|(start, _)| {
        let end = start + text[start..].find('>')? + 1;
        let place = &text[start..end];
        let kind = place[1..place.len() - 1].trim_end_matches(|char: char| char.is_ascii_digit());
        is_kind(kind).then(|| (&text[..start], place, &text[end..]))
    })
}

impl Comparison {
    pub(crate) fn new(topic: &str) -> Self {
        let (differences, ids) = (Vec::new(), BTreeMap::new());
        Self { differences, topic: topic.to_owned(), request: String::new(), thread: String::new(), ids }
    }

    /// Begins an exchange, which later differences name.
    pub(crate) fn begin(&mut self, method: &str, path: &str) {
        self.request = format!("{}: {method} {path}", self.topic);
        self.thread = next_place(path).map(|(_, place, _)| place.to_owned()).unwrap_or_default();
    }

    /// Returns recorded text with our ids in the place of placeholders; ids of threads, runs and assistants that no response had are made up.
    pub(crate) fn shown(&mut self, text: &str) -> String {
        let mut shown = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => shown.push_str(text),
                Piece::Place(place, kind)
                    if ["T", "R", "A"].contains(&kind) || self.ids.contains_key(place) =>
                {
                    let new = || Known { id: Uuid::now_v7().to_string(), thread: self.thread.clone() };
                    shown.push_str(&self.ids.entry(place.to_owned()).or_insert_with(new).id);
                }
                Piece::Place(place, _) => self.differ(place, &"an id", &"none"),
            }
        }
        shown
    }

    pub(crate) fn status(&mut self, recorded: u16, ours: u16) {
        self.json("status", &recorded.into(), &ours.into());
    }

    /// Compares events by their order: those with equal labels are of the same place.
    pub(crate) fn events(&mut self, recorded: &[Value], ours: &[Value]) {
        let labels = |events: &[Value]| events.iter().map(label).collect::<Vec<_>>();
        let (theirs, own) = (labels(recorded), labels(ours));
        let (mut missing, mut extra) = (Vec::new(), Vec::new());
        for change in capture_diff_slices(Algorithm::Myers, &theirs, &own) {
            if let DiffOp::Equal { old_index, new_index, len } = change {
                for at in 0..len {
                    self.json(&theirs[old_index + at], &recorded[old_index + at], &ours[new_index + at]);
                }
                continue;
            }
            missing.extend(change.old_range());
            extra.extend(change.new_range());
        }
        for at in missing {
            match extra.iter().position(|extra| own[*extra] == theirs[at]) {
                Some(elsewhere) => {
                    self.differ(&theirs[at], &"here", &"elsewhere");
                    self.json(&theirs[at], &recorded[at], &ours[extra.remove(elsewhere)]);
                }
                None => self.differ(&theirs[at], &recorded[at]["data"], &"no event"),
            }
        }
        for at in extra {
            self.differ(&own[at], &"no event", &ours[at]["data"]);
        }
    }

    /// Compares JSON by its keys, types and values.
    pub(crate) fn json(&mut self, path: &str, recorded: &Value, ours: &Value) {
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => self.object(path, recorded, ours),
            (Value::Array(theirs), Value::Array(own)) if theirs.len() == own.len() => {
                for (at, (theirs, own)) in theirs.iter().zip(own).enumerate() {
                    self.json(&format!("{path}[{at}]"), theirs, own);
                }
            }
            (Value::String(text), Value::Number(_)) if ["<MS>", "<N>"].contains(&&**text) => {}
            (Value::String(theirs), Value::String(own)) if self.is_text(theirs, own) => {}
            _ if recorded == ours => {}
            _ => self.differ(path, recorded, ours),
        }
    }

    fn object(&mut self, path: &str, recorded: &Map<String, Value>, ours: &Map<String, Value>) {
        let mut rest: Vec<_> = ours.keys().collect();
        for (key, value) in recorded {
            let path = format!("{path}.{key}");
            match rest.iter().position(|own| self.is_text(key, own)) {
                Some(at) => self.json(&path, value, &ours[rest.remove(at)]),
                None => self.differ(&path, value, &"no key"),
            }
        }
        for key in rest {
            self.differ(&format!("{path}.{key}"), &"no key", &ours[key]);
        }
    }

    /// Returns whether ours is the recorded text, with an id of ours for each placeholder, always the same one.
    fn is_text(&mut self, recorded: &str, ours: &str) -> bool {
        let (mut rest, mut found) = (ours, BTreeMap::new());
        let mut pieces = pieces(recorded).into_iter().peekable();
        while let Some(piece) = pieces.next() {
            let (place, kind) = match piece {
                Piece::Text(text) => match rest.strip_prefix(text) {
                    Some(after) => {
                        rest = after;
                        continue;
                    }
                    None => return false,
                },
                Piece::Place(place, kind) => (place, kind),
            };
            let end = match pieces.peek() {
                Some(Piece::Text(text)) if !text.is_empty() => rest.find(text),
                _ => Some(rest.len()),
            };
            let Some((own, after)) = end.map(|end| rest.split_at(end)) else { return false };
            rest = after;
            let is_right = match kind {
                "TIME" => own.parse::<Timestamp>().is_ok(),
                "E" => !own.is_empty(),
                _ => match self.ids.get(place).map(|known| &known.id).or(found.get(place)) {
                    Some(known) => known == own,
                    None => {
                        let is_own = |(other, known): (&String, &Known)| {
                            other[..2] == place[..2] && known.id == own && known.thread == self.thread
                        };
                        !own.is_empty() && !self.ids.iter().any(is_own)
                    }
                },
            };
            if !is_right {
                return false;
            }
            if !["TIME", "E"].contains(&kind) {
                found.insert(place.to_owned(), own.to_owned());
            }
        }
        let found = found.into_iter();
        self.ids.extend(found.map(|(place, id)| (place, Known { id, thread: self.thread.clone() })));
        rest.is_empty()
    }

    fn differ(&mut self, path: &str, recorded: &dyn Shown, ours: &dyn Shown) {
        self.differences.push(format!("{} {path}: {} → {}", self.request, recorded.shown(), ours.shown()));
    }
}

/// A side of a difference.
trait Shown {
    fn shown(&self) -> String;
}

impl Shown for &str {
    fn shown(&self) -> String {
        (*self).to_owned()
    }
}

impl Shown for Value {
    fn shown(&self) -> String {
        self.to_string().chars().take(300).collect()
    }
}

/// Returns the kind of an event: its name, and for the thread protocol its namespace, and the event and the block of its data, and the text
/// of a message.
fn label(event: &Value) -> String {
    let level = |level: &str| level.split(':').next().unwrap().to_owned();
    let name = event["event"].as_str().unwrap().split('|').map(level).collect::<Vec<_>>().join("|");
    let params = &event["data"]["params"];
    let namespace = params["namespace"].as_array().into_iter().flatten();
    let namespace = namespace.map(|name| format!(" {}", level(name.as_str().unwrap()))).collect::<String>();
    let kind = params["data"]["event"].as_str().map(|kind| format!(" {kind}")).unwrap_or_default();
    let block = params["data"]["index"].as_u64().map(|block| format!(" {block}")).unwrap_or_default();
    let text = event["data"][0]["content"].as_str().map(|text| format!(" `{text}`")).unwrap_or_default();
    format!("{name}{namespace}{kind}{block}{text}")
}
