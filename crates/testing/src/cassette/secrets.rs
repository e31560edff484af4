//! The secrets that a cassette must not contain, in all forms in which a text may have them.
//!
//! Start at [`Removals`].

use std::{collections::BTreeSet, fmt, ops::Range};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::Value;

use super::decode;
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

/// The shortest secret that is searched for across the lines of a text, and without its spaces.
#[cfg(feature = "record")]
pub(super) const LONG: usize = 8;

/// The shortest encoded form; a shorter one may be part of other data.
const MIN_CODE_LENGTH: usize = 6;

/// The number of escapes of a URL one inside of another that are matched.
const MAX_ESCAPES: usize = 2;

/// The texts that are removed from all that is stored.
#[derive(Clone, Default)]
pub(super) struct Removals {
    secrets: BTreeSet<String>,
    /// Longer ones first: a part of another secret must not leave the rest of it.
    forms: Vec<Form>,
}

/// A secret as a text may have it.
#[derive(Clone, PartialEq, Eq)]
struct Form {
    chars: Vec<char>,
    /// The length of the secret.
    length: usize,
    /// Part of a longer code, such as Base64 of `user:key`, which is removed as a whole.
    is_code: bool,
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

    #[cfg(feature = "record")]
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(String::as_str)
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
            self.forms.extend(forms(&secret));
        }
        self.forms.sort_by_key(|form| std::cmp::Reverse(form.chars.len()));
        self.forms.dedup();
        self.secrets.len() > before
    }

    /// Returns a text without them.
    pub(super) fn of(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut end = 0;
        for found in self.find(text, 0) {
            clean.push_str(&text[end..found.start]);
            clean.push_str(REMOVED);
            end = found.end;
        }
        clean + &text[end..]
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

    /// Returns the places of secrets of at least this length, in order and apart from each other.
    pub(super) fn find(&self, text: &str, least: usize) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            // All forms begin with a literal character, or with the beginning of an escape.
            let can_escape = matches!(first, '\\' | '%' | '&' | '+');
            let forms = self
                .forms
                .iter()
                .filter(|form| form.length >= least && (can_escape || form.chars.first() == Some(&first)));
            let mut ends = forms.filter_map(|form| {
                let end = end_of(text, at, &form.chars)?;
                Some(if form.is_code { code_around(text, at..end) } else { at..end })
            });
            match ends.next() {
                Some(mut place) => {
                    // A code may begin in the code before it.
                    while let Some(last) = found.pop_if(|last| last.end >= place.start) {
                        place.start = place.start.min(last.start);
                    }
                    at = place.end;
                    found.push(place);
                }
                None => at += first.len_utf8(),
            }
        }
        found
    }
}

/// Returns the forms of a secret that differ by more than escapes.
fn forms(secret: &str) -> Vec<Form> {
    // A run of backslashes is matched as one, because each encoding doubles it.
    let mut chars: Vec<char> = secret.chars().collect();
    chars.dedup_by(|right, left| *right == '\\' && *left == '\\');
    let length = secret.len();
    let mut forms = vec![Form { chars, length, is_code: false }];
    let mut code = |code: String| {
        if code.len() >= MIN_CODE_LENGTH {
            forms.push(Form { chars: code.chars().collect(), length, is_code: true });
        }
    };
    for offset in 0..3 {
        // The characters that do not depend on the bytes before and after the secret.
        let bytes = [&[0; 3][..offset], secret.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(&bytes);
        let end = bytes.len() * 8 / 6;
        let core = encoded.get([0, 2, 3][offset]..end).unwrap_or_default();
        code(core.to_owned());
        code(core.replace('+', "-").replace('/', "_"));
    }
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    code(hex.to_uppercase());
    code(hex);
    forms
}

/// Returns the end of a text's part that has these characters, in the longest form.
fn end_of(text: &str, at: usize, chars: &[char]) -> Option<usize> {
    let (mut ends, mut next) = (vec![at], Vec::new());
    for c in chars {
        for at in ends.drain(..) {
            add_ends(text, at, *c, &mut next);
        }
        if *c == '\\' {
            // A run of them is matched as one.
            let mut nth = 0;
            while let Some(at) = next.get(nth).copied() {
                add_ends(text, at, *c, &mut next);
                nth += 1;
            }
        }
        next.sort_unstable();
        next.dedup();
        std::mem::swap(&mut ends, &mut next);
        if ends.is_empty() {
            break;
        }
    }
    ends.pop()
}

/// Adds the ends of a character at a place of a text: as it is, or as an escape of JSON of any depth, of a URL or of HTML. The same
/// text may be both, such as `%25`.
fn add_ends(text: &str, at: usize, c: char, ends: &mut Vec<usize>) {
    let bare = text[at..].trim_start_matches('\\');
    let escapes = text.len() - at - bare.len();
    let end = |rest: &str| text.len() - rest.len();
    if c == '\\' && escapes > 0 {
        ends.push(end(bare));
    }
    ends.extend(bare.strip_prefix(c).map(end));
    if escapes > 0 {
        let short = match c {
            '\n' => bare.strip_prefix('n'),
            '\r' => bare.strip_prefix('r'),
            '\t' => bare.strip_prefix('t'),
            _ => None,
        };
        ends.extend(short.map(end));
        let mut rest = bare;
        let units = c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| {
            let digits = rest.trim_start_matches('\\').strip_prefix('u')?;
            let (digits, after) = digits.split_at_checked(4)?;
            rest = after;
            (u16::from_str_radix(digits, 16).ok()? == *unit).then_some(())
        });
        ends.extend(units.map(|()| end(rest)));
    }
    if c == ' ' {
        ends.extend(bare.strip_prefix('+').map(end));
    }
    // An escape of an escape has `25` for its `%`.
    for depth in 0..=MAX_ESCAPES {
        let mut rest = bare;
        let bytes = c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| {
            let digits =
                (0..depth).try_fold(rest.strip_prefix('%')?, |digits, _| digits.strip_prefix("25"))?;
            let (digits, after) = digits.split_at_checked(2)?;
            rest = after;
            (u8::from_str_radix(digits, 16).ok()? == byte).then_some(())
        });
        ends.extend(bytes.map(|()| end(rest)));
    }
    let entity = bare.strip_prefix('&').and_then(|entity| entity.split_once(';'));
    ends.extend(entity.filter(|(name, _)| decode::entity(name) == Some(c)).map(|(_, rest)| end(rest)));
}

/// Returns the whole code around a part of it.
fn code_around(text: &str, part: Range<usize>) -> Range<usize> {
    let is_code = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
    let after = text[part.end..].trim_start_matches(is_code);
    let before = &text[..part.start];
    let mut start = before.trim_end_matches(is_code).len();
    if text[..start].ends_with('\\') && start < part.start {
        // The letter of an escape.
        start += 1;
    }
    start..text.len() - after.len()
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
                secrets.extend(value.split([' ', ',']).flat_map(basic));
            }
        }
    }
    let is_scheme = |secret: &String| SCHEMES.contains(&&*secret.to_lowercase());
    secrets.retain(|secret| secret.len() >= MIN_LENGTH && !is_scheme(secret));
    secrets
}

/// Returns the name with the password, and the password, of Basic authentication.
fn basic(code: &str) -> Vec<String> {
    let decoded = decode::base64(code).and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(decoded) = decoded else { return Vec::new() };
    match decoded.split_once(':') {
        Some((_, password)) => vec![password.to_owned(), decoded.clone()],
        None => Vec::new(),
    }
}

/// Returns the values of parameters with names of secrets, as they are and decoded.
fn of_parameters(query: &str, is_secret: impl Fn(&str) -> bool) -> Vec<String> {
    let pairs = query.split('&').filter_map(|entry| entry.split_once('='));
    let values = pairs.filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
    let values = values.flat_map(|value| [value.to_owned(), decode::percent(value, true)]);
    values.filter(|value| value.len() >= MIN_LENGTH).collect()
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
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    use super::{super::leftover::leftover, *};

    /// Returns all usual forms of a text.
    fn encodings(text: &str) -> Vec<(&'static str, String)> {
        let json = Value::from(text).to_string();
        let units =
            |prefix: &str| text.encode_utf16().map(|unit| format!("{prefix}u{unit:04X}")).collect::<String>();
        let percent =
            |percent: &str| text.bytes().map(|byte| format!("{percent}{byte:02X}")).collect::<String>();
        vec![
            ("plain", text.to_owned()),
            ("json", json.clone()),
            ("json with slashes", json.replace('/', "\\/")),
            ("json in json", Value::from(json).to_string()),
            ("units", format!("\"{}\"", units("\\"))),
            ("units in json", format!("\"{}\"", units("\\\\"))),
            ("percent", percent("%")),
            ("percent in percent", percent("%25")),
            ("percent in lower case", percent("%").to_lowercase()),
            ("form", percent("%").replace("%20", "+")),
            ("html", text.chars().map(|c| format!("&#{};", u32::from(c))).collect()),
            ("html in hex", text.chars().map(|c| format!("&#x{:x};", u32::from(c))).collect()),
            ("base64", STANDARD.encode(text)),
            ("base64 of urls", URL_SAFE.encode(text)),
            ("base64 in json", Value::from(STANDARD.encode(text)).to_string().replace('/', "\\/")),
            ("hex", text.bytes().map(|byte| format!("{byte:02x}")).collect()),
            ("upper hex", text.bytes().map(|byte| format!("{byte:02X}")).collect()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_usual_form_of_a_secret_stays(
            secret in "[ -~é€😀\\\\\"/%&+]{8,24}",
            before in "[a-zA-Z0-9 :\\\\\"/é]{0,9}",
            after in "[a-zA-Z0-9 :\\\\\"/é]{0,9}",
        ) {
            let removals = Removals::new(vec![secret.clone()]);
            for (form, text) in encodings(&format!("{before}{secret}{after}")) {
                let clean = removals.of(&text);
                prop_assert_ne!(&clean, &text, "{}", form);
                prop_assert_eq!(leftover(&clean, &removals), None, "{}: {} of {}", form, clean, text);
            }
        }
    }

    #[test]
    fn a_form_within_a_form_is_found_by_the_last_check() {
        let removals = Removals::new(vec!["sk-very-secret-17".into()]);
        let code = STANDARD.encode(STANDARD.encode("x sk-very-secret-17 y"));
        assert_eq!(removals.of(&code), code);
        assert_eq!(leftover(&code, &removals), Some(vec!["Base64", "Base64"]));
        let spaced = "sk-very-\nsecret-17";
        assert_eq!(leftover(spaced, &removals), Some(vec!["text without spaces"]));
        assert_eq!(leftover("the secret is safe", &removals), None);
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
            "a/b/c/d",
            "abcdefgh",
            "ada:hunter2",
            "hunter2",
            "s3cr3t-value",
            "tttttt",
        ];
        assert_eq!(secrets.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(of_headers([("set-cookie", "sid=qrstuvwx; Path=/; HttpOnly")].into_iter()), ["qrstuvwx"]);
        assert_eq!(format!("{:?}", Removals::new(vec!["key".into()])), "1 secrets");
    }
}
