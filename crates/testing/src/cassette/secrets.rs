//! The secrets that a cassette must not contain.
//!
//! Start at [`Removals`].

#[cfg(feature = "record")]
use std::collections::BTreeMap;
use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::wire::Received;

/// The text in place of a secret.
pub(super) const REMOVED: &str = "[removed]";

/// The parts of the names of headers whose values are secrets.
const SECRET_HEADERS: [&str; 7] = ["auth", "cookie", "key", "organization", "project", "secret", "token"];

/// The schemes of `Authorization`, which are not secrets.
const SCHEMES: [&str; 6] = ["apikey", "basic", "bearer", "digest", "negotiate", "token"];

/// The names of fields whose texts are secrets, in JSON and in forms.
const SECRET_FIELDS: [&str; 18] = [
    "access-key",
    "access-token",
    "api-key",
    "apikey",
    "auth-token",
    "authorization",
    "client-secret",
    "cookie",
    "id-token",
    "passwd",
    "password",
    "private-key",
    "proxy-authorization",
    "refresh-token",
    "secret-key",
    "session-token",
    "set-cookie",
    "x-api-key",
];

/// The names of the parameters of a query whose values are secrets, besides the [fields](SECRET_FIELDS).
const SECRET_PARAMETERS: [&str; 8] =
    ["auth", "code", "key", "secret", "sig", "signature", "subscription-key", "token"];

/// The shortest part of a header or of a query that is removed from bodies; a shorter one may be part of other words.
const MIN_LENGTH: usize = 6;

/// The shortest value of a field of a body that is removed elsewhere.
const MIN_FIELD_LENGTH: usize = 8;

/// The texts that are removed from all that is stored.
#[derive(Clone, Default)]
pub(super) struct Removals {
    secrets: BTreeSet<String>,
    /// The secrets as they are and with the escapes of JSON, longer ones first: a part of another secret must not leave the rest
    /// of it.
    forms: Vec<String>,
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.secrets.len())
    }
}

impl Removals {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        let mut removals = Self::default();
        removals.add(secrets);
        removals
    }

    /// Returns these and the secrets of a request.
    pub(super) fn with(&self, received: &Received) -> Self {
        let mut removals = self.clone();
        removals.add(of_request(received));
        removals
    }

    /// Adds secrets; returns whether any of them is new.
    pub(super) fn add(&mut self, secrets: impl IntoIterator<Item = String>) -> bool {
        let before = self.secrets.len();
        for secret in secrets {
            if secret.is_empty() || secret == REMOVED || !self.secrets.insert(secret.clone()) {
                continue;
            }
            // JSON of a tool's arguments is a string of JSON.
            let once = escaped(&secret);
            self.forms.extend([escaped(&once), once, secret]);
        }
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        self.forms.dedup();
        self.secrets.len() > before
    }

    /// Returns a text without them.
    pub(super) fn of(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(after) = self.forms.iter().find_map(|form| rest.strip_prefix(form.as_str())) {
                clean.push_str(REMOVED);
                rest = after;
            } else {
                clean.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        clean
    }

    /// Returns a request line without them, and without the values of its query, which are keys for some servers.
    pub(super) fn of_line(&self, line: &str) -> String {
        let line = self.of(line);
        let Some((path, query)) = line.split_once('?') else { return line };
        let names = query.split('&').map(|entry| match entry.split_once('=') {
            Some((name, _)) => format!("{name}={REMOVED}"),
            None => entry.to_owned(),
        });
        format!("{path}?{}", names.collect::<Vec<_>>().join("&"))
    }

    /// Returns whether a text has a secret: as it is, in a string of its JSON, or split over the events of a stream.
    #[cfg(feature = "record")]
    pub(super) fn is_left_in(&self, text: &str) -> bool {
        if self.secrets.iter().any(|secret| text.contains(secret)) {
            return true;
        }
        let mut strings = BTreeMap::new();
        let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
        match serde_json::from_str(text) {
            Ok(value) => collect(&value, "", &mut strings),
            Err(_) => lines
                .filter_map(|line| serde_json::from_str(line).ok())
                .for_each(|value| collect(&value, "", &mut strings)),
        }
        // A string is shorter than its JSON, so that this ends.
        strings.values().any(|string| self.is_left_in(string))
    }
}

/// Returns a text with the escapes of JSON.
fn escaped(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// Appends the strings of a value to those of other values at the same path. A stream's lists have the places of their elements
/// in a field `index`.
#[cfg(feature = "record")]
fn collect(value: &Value, path: &str, strings: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) => strings.entry(path.to_owned()).or_default().push_str(text),
        Value::Array(items) => {
            for (nth, item) in items.iter().enumerate() {
                let nth = item["index"].as_u64().unwrap_or(nth as u64);
                collect(item, &format!("{path}/{nth}"), strings);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, &format!("{path}/{name}"), strings);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the secrets in the headers, the query and the fields of a request.
pub(super) fn of_request(received: &Received) -> Vec<String> {
    let mut secrets =
        of_headers(received.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let query = received.line.split_once('?').map_or("", |(_, query)| query);
    secrets.extend(of_parameters(query, |name| is_secret_field(name) || is_named(&SECRET_PARAMETERS, name)));
    secrets.extend(of_body(&received.text));
    secrets
}

/// Returns the secrets in headers.
pub(super) fn of_headers<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in headers {
        let is_secret = SECRET_HEADERS.iter().any(|part| name.contains(part)) && !name.contains("ratelimit");
        if !is_secret {
            continue;
        }
        let value_of = |pair: &str| pair.split_once('=').map_or(pair, |(_, value)| value).trim().to_owned();
        match name {
            // The attributes of a cookie are not secrets.
            "set-cookie" => secrets.extend(value.split(';').next().map(value_of)),
            "cookie" => secrets.extend(value.split(';').map(value_of)),
            _ => {
                // The value without its scheme, as in `Bearer key`.
                let parts = value.split([' ', ';', '=', ',']).chain([value]).map(str::trim);
                secrets.extend(parts.map(str::to_owned));
            }
        }
    }
    let is_scheme = |secret: &String| SCHEMES.contains(&&*secret.to_lowercase());
    secrets.retain(|secret| secret.len() >= MIN_LENGTH && !is_scheme(secret));
    secrets
}

/// Returns the values of parameters with names of secrets.
fn of_parameters(query: &str, is_secret: impl Fn(&str) -> bool) -> Vec<String> {
    let pairs = query.split('&').filter_map(|entry| entry.split_once('='));
    let values = pairs.filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
    values.filter(|value| value.len() >= MIN_LENGTH).map(str::to_owned).collect()
}

/// Returns the secrets in the fields of a body: JSON, lines of JSON, events, or a form.
pub(super) fn of_body(text: &str) -> Vec<String> {
    fn add(value: &Value, is_secret: bool, secrets: &mut Vec<String>) {
        match value {
            Value::String(text) if is_secret => secrets.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| add(item, is_secret, secrets)),
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| add(value, is_secret_field(name), secrets));
            }
            _ => {}
        }
    }
    let mut secrets = Vec::new();
    match serde_json::from_str(text) {
        Ok(value) => add(&value, false, &mut secrets),
        Err(_) => {
            let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
            lines
                .filter_map(|line| serde_json::from_str(line).ok())
                .for_each(|value| add(&value, false, &mut secrets));
            secrets.extend(of_parameters(text, is_secret_field));
        }
    }
    // A plain word is no key, and may be part of the other texts.
    secrets.retain(|secret| secret.len() >= MIN_FIELD_LENGTH && !secret.chars().all(char::is_alphabetic));
    secrets
}

fn is_secret_field(name: &str) -> bool {
    is_named(&SECRET_FIELDS, name)
}

fn is_named(names: &[&str], name: &str) -> bool {
    names.contains(&&*name.to_lowercase().replace('_', "-"))
}

#[cfg(all(test, feature = "record"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_removed_as_it_is_and_with_the_escapes_of_json() {
        let secret = "sk\"ve\\ry-é-17";
        let removals = Removals::new(vec![secret.into(), "sk".into()]);
        let arguments = json!({ "key": secret }).to_string();
        for text in
            [format!("it is {secret}."), arguments.clone(), json!({ "arguments": arguments }).to_string()]
        {
            let clean = removals.of(&text);
            assert!(clean.contains(REMOVED) && !removals.is_left_in(&clean), "{clean} of {text}");
            assert!(!clean.contains("17"), "{clean} of {text}");
        }
    }

    #[test]
    fn a_secret_in_pieces_or_with_other_escapes_is_found_by_the_last_check() {
        let removals = Removals::new(vec!["sk-very-secret/17".into()]);
        for text in [
            "data: {\"delta\":\"sk-very\"}\n\ndata: {\"delta\":\"-secret/17\"}\n",
            r#"{"a":["sk-very-secret\/17"]}"#,
            r#"{"arguments":"{\"a\":\"sk-very-secret\u002f17\"}"}"#,
        ] {
            assert_eq!(removals.of(text), text);
            assert!(removals.is_left_in(text), "{text}");
        }
        assert!(!removals.is_left_in("the secret is safe"));
    }

    #[test]
    fn the_keys_of_a_request_are_its_secrets() {
        let headers = [
            ("authorization", "Basic YWRhOmh1bnRlcjI="),
            ("cookie", "theme=a; sid=abcdefgh"),
            ("x-ratelimit-tokens", "1500000"),
            ("accept", "application/json"),
        ];
        let received = Received {
            line: "GET /v1?api_key=a%2Fb%2Fc%2Fd&token=tttttt&page=1234567".into(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            text: r#"{"client_secret":"s3cr3t-value","password":"password","text":"an ordinary text"}"#
                .into(),
            body: Value::Null,
        };
        let secrets: BTreeSet<String> = of_request(&received).into_iter().collect();
        let expected = [
            "Basic YWRhOmh1bnRlcjI=",
            "YWRhOmh1bnRlcjI",
            "a%2Fb%2Fc%2Fd",
            "abcdefgh",
            "s3cr3t-value",
            "tttttt",
        ];
        assert_eq!(secrets.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(of_headers([("set-cookie", "sid=qrstuvwx; Path=/; HttpOnly")].into_iter()), ["qrstuvwx"]);
        assert_eq!(format!("{:?}", Removals::new(vec!["key".into()])), "1 secrets");
    }
}
