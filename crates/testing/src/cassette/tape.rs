//! The lines of a cassette's file.
//!
//! Start at [`Exchange`].

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json, value::RawValue};

use super::secrets::Removals;
use crate::wire::Received;

/// The headers of replies that clients read.
#[cfg(feature = "record")]
const STORED_HEADERS: [&str; 3] = ["content-type", "retry-after", "retry-after-ms"];

/// A request and its reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exchange {
    pub(super) request: Recorded,
    pub(super) reply: Reply,
}

/// A request without its headers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recorded {
    /// The method and the path.
    pub(super) line: String,
    /// The body: JSON, or a text; null if it is empty.
    pub(super) body: Value,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    body: Body,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Body {
    #[default]
    Empty,
    /// JSON, byte for byte.
    Json(String),
    Text(String),
    Events(Vec<Event>),
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// One line of data that is JSON, byte for byte.
    Json(String),
    /// One line of data.
    Data(String),
    /// The text of an event with more than that.
    Other(String),
}

impl Recorded {
    pub(super) fn of(received: &Received, removals: &Removals) -> Self {
        let line = removals.of_line(&received.line);
        let text = removals.of(&received.text);
        let body = match serde_json::from_str(&text) {
            Ok(json) => json,
            Err(_) if text.is_empty() => Value::Null,
            Err(_) => text.into(),
        };
        Self { line, body }
    }
}

impl Reply {
    /// Creates the reply to a request that fails.
    pub(super) fn error(message: &str) -> Self {
        let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
        let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
        Self { status: 400, headers, body: Body::Json(error.to_string()) }
    }

    /// Creates a reply as it is stored.
    #[cfg(feature = "record")]
    pub(super) fn of(status: u16, headers: &[(String, String)], body: &str, removals: &Removals) -> Self {
        let stored = headers.iter().filter(|(name, _)| STORED_HEADERS.contains(&name.as_str()));
        let headers: BTreeMap<_, _> =
            stored.map(|(name, value)| (name.clone(), removals.of(value))).collect();
        let text = removals.of(body);
        let is_stream = headers.get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let body = match is_json(&text) {
            _ if is_stream => Body::Events(events(&text)),
            _ if text.is_empty() => Body::Empty,
            true => Body::Json(text),
            false => Body::Text(text),
        };
        Self { status, headers, body }
    }

    /// Returns the bytes of the body.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match &self.body {
            Body::Empty => Vec::new(),
            Body::Json(text) | Body::Text(text) => text.clone().into_bytes(),
            Body::Events(events) => {
                let text = events.iter().map(|event| match event {
                    Event::Json(data) | Event::Data(data) => format!("data: {data}\n\n"),
                    Event::Other(text) => format!("{text}\n\n"),
                });
                text.collect::<String>().into_bytes()
            }
        }
    }
}

#[cfg(feature = "record")]
impl Exchange {
    /// Checks that nothing of it is a secret.
    ///
    /// # Errors
    /// The place of the first secret.
    pub(super) fn check(&self, removals: &Removals) -> Result<(), String> {
        let Self { request, reply } = self;
        let of_events = |at: usize, event: &Event| {
            let (Event::Json(text) | Event::Data(text) | Event::Other(text)) = event;
            (format!("event {} of the reply", at + 1), text.clone())
        };
        let events = if let Body::Events(events) = &reply.body { &events[..] } else { &[] };
        let mut places = vec![
            ("the request line".to_owned(), request.line.clone()),
            ("the body of the request".to_owned(), request.body.to_string()),
        ];
        places.extend(
            reply
                .headers
                .iter()
                .map(|(name, value)| (format!("the header `{name}` of the reply"), value.clone())),
        );
        places.extend(events.iter().enumerate().map(|(at, event)| of_events(at, event)));
        places
            .push(("the body of the reply".to_owned(), String::from_utf8_lossy(&reply.bytes()).into_owned()));
        match places.into_iter().find(|(_, text)| removals.is_left_in(text)) {
            Some((place, _)) => Err(place),
            None => Ok(()),
        }
    }
}

/// Splits a stream into its events.
#[cfg(feature = "record")]
fn events(text: &str) -> Vec<Event> {
    let text = text.replace("\r\n", "\n");
    let events = text.split("\n\n").map(|event| event.trim_matches('\n')).filter(|event| !event.is_empty());
    let event = |event: &str| match event.strip_prefix("data:") {
        Some(data) if !data.contains('\n') => {
            let data = data.strip_prefix(' ').unwrap_or(data).to_owned();
            if is_json(&data) { Event::Json(data) } else { Event::Data(data) }
        }
        _ => Event::Other(event.to_owned()),
    };
    events.map(event).collect()
}

/// Returns whether a text is JSON that fits in a line.
#[cfg(feature = "record")]
fn is_json(text: &str) -> bool {
    !text.contains('\n') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The first line of a file.
#[cfg(feature = "record")]
pub(super) const HEAD: &str = "{\"cassette\":1}\n";

/// The lines of an exchange.
#[cfg(feature = "record")]
impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { request, reply } = self;
        let text = |text: &str| Value::from(text);
        match &request.body {
            Value::Null => writeln!(f, r#"{{"request":{}}}"#, text(&request.line))?,
            body => writeln!(f, r#"{{"request":{},"body":{body}}}"#, text(&request.line))?,
        }
        if reply.headers.is_empty() {
            writeln!(f, r#"{{"status":{}}}"#, reply.status)?;
        } else {
            writeln!(f, r#"{{"status":{},"headers":{}}}"#, reply.status, json!(reply.headers))?;
        }
        match &reply.body {
            Body::Empty => Ok(()),
            Body::Json(json) => writeln!(f, r#"{{"body":{json}}}"#),
            Body::Text(body) => writeln!(f, r#"{{"text":{}}}"#, text(body)),
            Body::Events(events) => events.iter().try_for_each(|event| match event {
                Event::Json(json) => writeln!(f, r#"{{"data":{json}}}"#),
                Event::Data(data) => writeln!(f, r#"{{"data_text":{}}}"#, text(data)),
                Event::Other(event) => writeln!(f, r#"{{"event":{}}}"#, text(event)),
            }),
        }
    }
}

/// Reads the exchanges of a file.
///
/// # Errors
/// The first line that is invalid, with its number.
pub(super) fn read(text: &str) -> Result<Vec<Exchange>, String> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let invalid = |what: &dyn std::fmt::Display| format!("line {number}: {what}");
        let mut entries: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(line).map_err(|error| invalid(&error))?;
        if number == 1 {
            match entries.get("cassette").map(|version| version.get()) {
                Some("1") => continue,
                _ => return Err(invalid(&"a cassette begins with {\"cassette\":1}")),
            }
        }
        let mut entry = |name: &str| entries.remove(name);
        if let Some(request) = entry("request") {
            let body = entry("body")
                .map_or(Ok(Value::Null), |body| parsed(&body))
                .map_err(|error| invalid(&error))?;
            let line = parsed(&request).map_err(|error| invalid(&error))?;
            exchanges.push(Exchange { request: Recorded { line, body }, reply: Reply::default() });
            continue;
        }
        let Some(Exchange { reply, .. }) = exchanges.last_mut() else {
            return Err(invalid(&"a reply without a request"));
        };
        if let Some(status) = entry("status") {
            reply.status = parsed(&status).map_err(|error| invalid(&error))?;
            if let Some(headers) = entry("headers") {
                reply.headers = parsed(&headers).map_err(|error| invalid(&error))?;
            }
        } else if let Some(body) = entry("body") {
            reply.body = Body::Json(body.get().to_owned());
        } else if let Some(text) = entry("text") {
            reply.body = Body::Text(parsed(&text).map_err(|error| invalid(&error))?);
        } else {
            let event = match (entry("data"), entry("data_text"), entry("event")) {
                (Some(data), ..) => Event::Json(data.get().to_owned()),
                (_, Some(data), _) => Event::Data(parsed(&data).map_err(|error| invalid(&error))?),
                (.., Some(event)) => Event::Other(parsed(&event).map_err(|error| invalid(&error))?),
                _ => return Err(invalid(&"not a line of a cassette")),
            };
            match &mut reply.body {
                Body::Events(events) => events.push(event),
                body => *body = Body::Events(vec![event]),
            }
        }
    }
    Ok(exchanges)
}

fn parsed<T: DeserializeOwned>(json: &RawValue) -> serde_json::Result<T> {
    serde_json::from_str(json.get())
}
