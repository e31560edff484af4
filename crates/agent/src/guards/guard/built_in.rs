//! The built-in guards: the size of a text, its JSON schema, and secrets in it.

use std::{future::ready, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::{ToolSpec, calls::ArgumentCheck};

use super::{Guard, View};
use crate::state::guarding::{GuardAt, Verdict};

/// The treatment of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSecret {
    /// Blocks the text.
    Block,
    /// Replaces each secret by `[secret]`. Arguments of a tool call are blocked.
    Redact,
}

impl Guard {
    /// Creates the guard `input_size`, `output_size` or `tool_size`, which blocks texts of more than `max` characters.
    pub fn size(at: GuardAt, max: usize) -> Self {
        Self::new(named(at, "size"), at, move |view| {
            let length = view.text.chars().count();
            let reply = || format!("The text has {length} characters; {max} are allowed.");
            ready(Ok(if length > max { Verdict::Block { reply: reply() } } else { Verdict::Pass }))
        })
    }

    /// Creates the guard `input_schema`, `output_schema` or `tool_schema`, which blocks texts that are not JSON of this schema.
    ///
    /// With feature `json-schema` of the models' crate the whole schema is checked, otherwise the fields of the object.
    ///
    /// # Errors
    /// The problem of the schema, which must be of type `object`.
    pub fn schema(at: GuardAt, schema: Value) -> Result<Self, String> {
        let spec = ToolSpec { name: "text".into(), description: "".into(), parameters: schema };
        let check = Arc::new(ArgumentCheck::new(&spec)?);
        Ok(Self::new(named(at, "schema"), at, move |view| {
            let problem = check.check(&view.text).err();
            let reply = |problem| format!("The text does not match the required JSON schema: {problem}");
            ready(Ok(problem.map_or(Verdict::Pass, |problem| Verdict::Block { reply: reply(problem) })))
        }))
    }

    /// Creates the guard `input_secrets`, `output_secrets` or `tool_secrets`, which finds keys of known providers, private keys in PEM form,
    /// and the given texts of at least 8 bytes. It finds no secret of another form.
    pub fn secrets<T: Into<String>>(at: GuardAt, on: OnSecret, texts: impl IntoIterator<Item = T>) -> Self {
        let texts = texts.into_iter().map(T::into).filter(|text: &String| text.len() >= MIN_TEXT);
        let texts: Arc<[String]> = texts.collect();
        Self::new(named(at, "secrets"), at, move |View { text, .. }| {
            let found = secrets(&text, &texts);
            ready(Ok(match on {
                _ if found.is_empty() => Verdict::Pass,
                OnSecret::Redact => Verdict::Rewrite(redacted(&text, found)),
                OnSecret::Block => Verdict::Block { reply: "The text contains a secret.".to_owned() },
            }))
        })
    }
}

fn named(at: GuardAt, kind: &str) -> String {
    let at = match at {
        GuardAt::Input => "input",
        GuardAt::Output => "output",
        GuardAt::Tool => "tool",
    };
    format!("{at}_{kind}")
}

/// Minimum length of a given text in bytes: shorter ones occur in ordinary texts.
const MIN_TEXT: usize = 8;

/// The beginnings of keys, and the minimum number of bytes behind each.
const KEYS: [(&str, usize); 15] = [
    ("sk-", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 35),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("hf_", 30),
    ("npm_", 30),
    ("sk_live_", 20),
    ("rk_live_", 20),
];

const PEM: (&str, &str) = ("-----BEGIN ", "PRIVATE KEY-----");

/// Returns the places of secrets, which may overlap.
fn secrets(text: &str, texts: &[String]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for secret in texts {
        found.extend(text.match_indices(secret.as_str()).map(|(at, _)| at..at + secret.len()));
    }
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    for (begin, least) in KEYS {
        for (at, _) in text.match_indices(begin) {
            let is_inside = text[..at].bytes().next_back().is_some_and(is_key);
            let rest = &text.as_bytes()[at + begin.len()..];
            let length = rest.iter().take_while(|byte| is_key(**byte)).count();
            if length >= least && !is_inside {
                found.push(at..at + begin.len() + length);
            }
        }
    }
    for (at, _) in text.match_indices(PEM.0) {
        let line = text[at..].split_inclusive('\n').next().unwrap_or_default();
        if line.contains(PEM.1) {
            let behind = at + line.len();
            let end = text[behind..].find("-----END ").map(|end| behind + end);
            // A key that is cut off has no end.
            let end =
                end.map_or(text.len(), |end| text[end..].find('\n').map_or(text.len(), |line| end + line));
            found.push(at..end);
        }
    }
    found
}

/// Returns the text without these places.
fn redacted(text: &str, mut found: Vec<Range<usize>>) -> String {
    found.sort_by_key(|place| place.start);
    let (mut new, mut end) = (String::with_capacity(text.len()), 0);
    for place in found {
        if place.start >= end {
            new.push_str(&text[end..place.start]);
            new.push_str("[secret]");
        }
        end = end.max(place.end);
    }
    new.push_str(&text[end..]);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_words_are_not() {
        let key = format!("sk-{}", "a1".repeat(12));
        let redact = |text: &str| redacted(text, secrets(text, &["correct horse".to_owned()]));
        assert_eq!(redact(&format!("use {key}, please")), "use [secret], please");
        assert_eq!(redact("say correct horse twice: correct horse"), "say [secret] twice: [secret]");
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nend";
        assert_eq!(redact(pem), "[secret]\nend");
        assert_eq!(redact("-----BEGIN PRIVATE KEY-----\nabc"), "[secret]");
        for text in
            ["task-a1a1a1a1a1a1a1a1a1a1a1a1a1", "sk-short", "-----BEGIN PUBLIC KEY-----\nabc", "AKIA é"]
        {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn overlapping_secrets_are_one_place() {
        assert_eq!(redacted("0123456789", vec![4..9, 2..5]), "01[secret]9");
        assert_eq!(redacted("0123456789", vec![2..9, 4..5]), "01[secret]9");
    }
}
