//! Matching of a call's arguments against a pattern.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use superstep_llm::{Subject, Tool};

use super::{
    Fit, addresses, commands,
    glob::fits_text,
    paths::{self, ResolvedPath},
};

/// The way to compare an argument whose tool does not report its subject.
#[derive(Clone, Copy)]
enum Kind {
    Path,
    Address,
    Command,
    Text,
}

/// Prefixes or suffixes of argument names that denote files.
const PATHS: [&str; 10] =
    ["path", "paths", "file", "files", "filename", "dir", "directory", "folder", "source", "destination"];
const ADDRESSES: [&str; 5] = ["url", "urls", "uri", "uris", "href"];
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// Matches a pattern against an argument of a call.
pub(super) fn fit(pattern: &str, argument: &str, tool: Option<&dyn Tool>, args: &Value) -> Fit {
    let subject = tool.map(|tool| catch_unwind(AssertUnwindSafe(|| tool.subject(argument, args))));
    match subject {
        Some(Ok(Some(subject))) => of_subject(pattern, &subject),
        Some(Err(_)) => Fit::Maybe,
        Some(Ok(None)) | None => guessed(pattern, argument, tool, args),
    }
}

fn of_subject(pattern: &str, subject: &Subject) -> Fit {
    match subject {
        Subject::Path { root, below, whole, any_case } => {
            paths::fit(pattern, &ResolvedPath { root, below, whole: *whole, any_case: *any_case })
        }
        Subject::Url(address) => addresses::fit(pattern, address),
        Subject::Command(command) => commands::fit(pattern, command),
        Subject::Text(text) => Fit::of(fits_text(pattern, text), || false),
        _ => Fit::Maybe,
    }
}

/// Guesses the kind from the argument's name and the pattern, for a tool that does not report it.
fn guessed(pattern: &str, argument: &str, tool: Option<&dyn Tool>, args: &Value) -> Fit {
    let schema = tool.map(|tool| &tool.spec().parameters["properties"][argument]);
    let kind = Kind::of(pattern, argument, schema);
    match &args[argument] {
        Value::Null => match schema.map(|schema| (schema, &schema["default"])) {
            None | Some((Value::Null, _)) => Fit::No,
            // The tool's default path is unknown.
            Some((_, Value::Null)) if matches!(kind, Kind::Text) => Fit::No,
            Some((_, Value::Null)) => Fit::Maybe,
            Some((_, default)) => of_value(pattern, kind, default),
        },
        value => of_value(pattern, kind, value),
    }
}

impl Kind {
    fn of(pattern: &str, argument: &str, schema: Option<&Value>) -> Self {
        let name = argument.to_lowercase();
        let has = |names: &[&str]| {
            let words = || name.split(['_', '-', '.']);
            words().any(|word| names.contains(&word))
                || names
                    .iter()
                    .any(|known| known.len() > 3 && (name.ends_with(known) || name.starts_with(known)))
        };
        let is_address = schema.is_some_and(|schema| schema["format"] == "uri");
        if is_address || has(&ADDRESSES) || pattern.contains("://") {
            Self::Address
        } else if has(&COMMANDS) {
            Self::Command
        } else if has(&PATHS) || pattern.contains('/') {
            Self::Path
        } else {
            Self::Text
        }
    }
}

fn of_value(pattern: &str, kind: Kind, value: &Value) -> Fit {
    let as_json = || value.to_string();
    match (kind, value) {
        (_, Value::String(text)) => of_text(pattern, kind, text),
        (_, Value::Array(_) | Value::Object(_)) if as_json() == pattern => Fit::Yes,
        (Kind::Text, Value::Array(_) | Value::Object(_)) if matches!(pattern, "*" | "**") => Fit::Yes,
        (_, Value::Array(entries)) => Fit::of_all(entries.iter().map(|entry| of_value(pattern, kind, entry))),
        (_, Value::Object(fields)) => {
            let parts = Fit::of_all(fields.values().map(|field| of_value(pattern, kind, field)));
            // The field that the pattern applies to is ambiguous.
            match parts {
                Fit::No => Fit::of(false, || fits_text(pattern, &as_json())),
                Fit::Maybe | Fit::Yes => Fit::Maybe,
            }
        }
        _ => Fit::of(fits_text(pattern, &as_json()), || false),
    }
}

fn of_text(pattern: &str, kind: Kind, text: &str) -> Fit {
    match kind {
        Kind::Path => paths::fit_written(pattern, text),
        Kind::Address => addresses::fit(pattern, text),
        Kind::Command => commands::fit(pattern, text),
        Kind::Text => Fit::of(fits_text(pattern, text), || false),
    }
}
