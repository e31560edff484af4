//! The lines of a cassette's file.
//!
//! Start at [`Exchange`].

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json, value::RawValue};

use crate::wire::Received;

/// The text in place of a secret.
const REMOVED: &str = "[removed]";

/// The parts of the names of headers whose values are secrets.
const SECRET_HEADERS: [&str; 7] = ["auth", "cookie", "key", "organization", "project", "secret", "token"];

/// The headers of replies that clients read.
#[cfg(feature = "record")]
const STORED_HEADERS: [&str; 3] = ["content-type", "retry-after", "retry-after-ms"];

/// The shortest value of a header that is removed from bodies; a shorter one may be part of other words.
const SHORTEST: usize = 8;

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

/// A reply.
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
    pub(super) fn of(
        status: u16,
        headers: impl Iterator<Item = (String, String)>,
        body: &str,
        removals: &Removals,
    ) -> Self {
        let stored = headers.filter(|(name, _)| STORED_HEADERS.contains(&name.as_str()));
        let headers: BTreeMap<_, _> = stored.map(|(name, value)| (name, removals.of(&value))).collect();
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
        match reply.headers.is_empty() {
            true => writeln!(f, r#"{{"status":{}}}"#, reply.status)?,
            false => writeln!(f, r#"{{"status":{},"headers":{}}}"#, reply.status, json!(reply.headers))?,
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

/// The texts that are removed from all that is stored.
#[derive(Clone, Debug)]
pub(super) struct Removals(Vec<String>);

impl Removals {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        Self(Vec::new()).and(secrets)
    }

    /// Adds the secrets in the headers of a request.
    pub(super) fn with(&self, headers: &BTreeMap<String, String>) -> Self {
        let is_secret = |name: &str| SECRET_HEADERS.iter().any(|part| name.contains(part));
        let secrets = headers.iter().filter(|(name, _)| is_secret(name));
        // The value without its scheme, as in `Bearer key`; the values of cookies.
        let parts = secrets.flat_map(|(_, value)| value.split([' ', ';', '=', ',']).chain([value.as_str()]));
        let long = parts.map(str::trim).filter(|part| part.len() >= SHORTEST);
        self.clone().and(long.map(str::to_owned))
    }

    fn and(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            // As it stands in JSON, too.
            let escaped = Value::from(secret.as_str()).to_string();
            self.0.extend([escaped[1..escaped.len() - 1].to_owned(), secret]);
        }
        // A part of another secret must not leave the rest of it.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.dedup();
        self
    }

    /// Returns a text without them.
    pub(super) fn of(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, REMOVED))
    }

    /// Returns a request line without them, and without the values of its query, which are keys for some servers.
    fn of_line(&self, line: &str) -> String {
        let line = self.of(line);
        let Some((path, query)) = line.split_once('?') else { return line };
        let names = query.split('&').map(|entry| match entry.split_once('=') {
            Some((name, _)) => format!("{name}={REMOVED}"),
            None => entry.to_owned(),
        });
        format!("{path}?{}", names.collect::<Vec<_>>().join("&"))
    }
}
