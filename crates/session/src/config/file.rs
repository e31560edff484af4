//! Configuration files.
//!
//! Start at [`read`].

use std::{
    fs,
    io::{self, Read},
    ops::Range,
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Value};
use superstep::{agent::ReactConfig, llm::variables};
use toml::{
    Deserializer, Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    config::{configuration::Configuration, misfit::InvalidSetting, tools},
    error::SessionError,
    suggest::closest,
};

/// Maximum size of a configuration file in bytes.
pub(crate) const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Reads a configuration file.
///
/// # Errors
/// The file cannot be read, is not valid TOML, or has a setting that cannot be used; with the position of it.
pub fn read(file: &Path) -> Result<Configuration, SessionError> {
    let failed = |what: String| SessionError::usage(format!("the configuration `{}` {what}", file.display()));
    parse(&text(file).map_err(failed)?).map_err(failed)
}

/// Reads the text of a file.
///
/// # Errors
/// The problem, as the end of a sentence that begins with the name of the file.
pub fn text(file: &Path) -> Result<String, String> {
    let unread = |cause: io::Error| format!("cannot be read: {cause}");
    let about = fs::metadata(file).map_err(unread)?;
    if !about.is_file() {
        // Opening a pipe waits for its writer, and a device may never end.
        return Err("is not a regular file".to_owned());
    }
    let mut text = String::new();
    fs::File::open(file)
        .and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text))
        .map_err(unread)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err("is longer than 1 MiB".to_owned());
    }
    Ok(text)
}

pub fn parse(text: &str) -> Result<Configuration, String> {
    let tree = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', ", ");
        format!("is not valid TOML: {}{message}", position(text, error.span()))
    })?;
    let (span, root) = (tree.span(), tree.into_inner());
    let known = known_fields();
    if let Some((name, _)) = root.iter().find(|(name, _)| !known.contains(&name.get_ref().to_string())) {
        let known: Vec<_> = known.iter().map(String::as_str).collect();
        return Err(misfit(text, Some(name.span()), "", &unknown(name.get_ref(), &known)));
    }
    let read = Configuration::deserialize(Deserializer::from(Spanned::new(span, root.clone())));
    let read = read.map_err(|error| {
        let mut path = Vec::new();
        if let Some(span) = error.span() {
            path_to(span.start, &root, &mut path);
        }
        misfit(text, error.span(), &path.join("."), &in_words(error.message()))
    })?;
    let checked = read.check().and_then(|()| {
        tools::check(read.tools.as_deref().unwrap_or_default(), &read.mcp)
            .map_err(|problem| InvalidSetting::at("tools", problem))
    });
    checked.map_err(|InvalidSetting { at, problem }| {
        misfit(text, span_of(&at, &problem, &root), "", &in_words(&problem))
    })?;
    read.secret_variables().for_each(variables::withhold);
    Ok(read)
}

/// Returns the settings of a text as they are written.
///
/// # Errors
/// It is not valid TOML.
pub(crate) fn table(text: &str) -> Result<Map<String, Value>, String> {
    toml::from_str(text).map_err(|error| format!("is not valid TOML: {}", error.message()))
}

/// The names of all settings: those of the program, and those of the agent.
fn known_fields() -> Vec<String> {
    let agent = match serde_json::to_value(ReactConfig::default()) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a struct of settings is a JSON object"),
    };
    Configuration::FIELDS
        .into_iter()
        .map(str::to_owned)
        .chain(agent.into_iter().map(|(name, _)| name))
        .collect()
}

/// The text of an error with a position, and a path unless the problem has it.
fn misfit(text: &str, span: Option<Range<usize>>, path: &str, problem: &str) -> String {
    let path = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
    format!("does not fit: {}{path}{problem}", position(text, span))
}

/// The line and the column of an error. The line itself is not shown: it may contain a secret.
fn position(text: &str, span: Option<Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return String::new() };
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {}, column {column}: ", before.matches('\n').count() + 1)
}

/// Appends the names that lead to the value at this offset, or to the table with the key at it. Returns whether
/// there is one.
fn path_to(offset: usize, table: &DeTable<'_>, path: &mut Vec<String>) -> bool {
    for (name, value) in table {
        if name.span().contains(&offset) {
            return true;
        }
        path.push(name.get_ref().to_string());
        let tables = match value.get_ref() {
            DeValue::Table(table) => vec![table],
            DeValue::Array(entries) => {
                entries.iter().filter_map(|entry| entry.get_ref().as_table()).collect()
            }
            _ => Vec::new(),
        };
        let is_inside = tables.into_iter().any(|table| path_to(offset, table, path));
        if is_inside || value.span().contains(&offset) {
            return true;
        }
        path.pop();
    }
    false
}

/// The key that a path leads to, or the unknown field that the problem names below it.
fn span_of(path: &str, problem: &str, table: &DeTable<'_>) -> Option<Range<usize>> {
    let field = problem.split_once("unknown field `").and_then(|(_, rest)| rest.split('`').next());
    let (mut table, mut span) = (Some(table), None);
    for name in path.split('.').chain(field) {
        let found = table.and_then(|table| table.iter().find(|(known, _)| known.get_ref() == name));
        let Some((key, value)) = found else { break };
        (table, span) = (value.get_ref().as_table(), Some(key.span()));
    }
    span
}

/// Replaces the names of serde and Rust in an error.
fn in_words(message: &str) -> String {
    let message = &message.replace("invalid type: map,", "invalid type: table,");
    let message = &message.replace("invalid type: sequence,", "invalid type: list,");
    match message.rsplit_once(", expected ") {
        Some((found, "a map")) => format!("{found}, expected a table"),
        Some((found, "a sequence")) => format!("{found}, expected a list"),
        Some((found, "a boolean")) => format!("{found}, expected `true` or `false`"),
        Some((found, "u8" | "u16" | "u32" | "u64" | "usize")) => {
            format!("{found}, expected a whole number from 0 on")
        }
        Some((found, "f32" | "f64")) => format!("{found}, expected a number"),
        None if message == "wanted string or table" => "expected a name in quotes".to_owned(),
        Some((found, expected)) if expected.starts_with("struct ") => format!("{found}, expected a table"),
        _ => with_suggestion(message),
    }
}

/// Replaces the list of all fields behind an unknown one with the field that was probably meant.
fn with_suggestion(message: &str) -> String {
    let parts = message.split_once("unknown field `").and_then(|(before, rest)| {
        let (name, known) = rest.split_once("`, expected ")?;
        Some((before, name, known.split('`').skip(1).step_by(2).collect::<Vec<_>>()))
    });
    match parts {
        Some((before, name, known)) => format!("{before}{}", unknown(name, &known)),
        None => message.to_owned(),
    }
}

/// The error for an unknown field: with the field that was probably meant, or all that are known.
fn unknown(name: &str, known: &[&str]) -> String {
    match closest(name, known) {
        Some(near) => format!("unknown field `{name}`; did you mean `{near}`?"),
        None => format!("unknown field `{name}`; known fields are `{}`", known.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, wanted: &str) {
        assert_eq!(parse(text), Err(wanted.to_owned()), "{text}");
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_one_that_was_meant() {
        for (text, wanted) in [
            ("parts = true\ntols = []", "line 2, column 1: unknown field `tols`; did you mean `tools`?"),
            (
                "[db]\nsynchronus = \"full\"",
                "line 2, column 1: `db`: unknown field `synchronus`; did you mean `synchronous`?",
            ),
            (
                "db.synchronus = \"full\"",
                "line 1, column 4: `db`: unknown field `synchronus`; did you mean `synchronous`?",
            ),
            (
                "[memory]\nstor = \"file\"",
                "line 2, column 1: `memory`: unknown field `stor`; did you mean `store`?",
            ),
            ("[dream]\nturn = 1", "line 2, column 1: `dream`: unknown field `turn`; did you mean `turns`?"),
            (
                "[models.main]\nmodel = \"m\"\ntimeouts = { idle = 3 }",
                "line 3, column 14: `models.main.timeouts`: unknown field `idle`; did you mean `idle_ms`?",
            ),
            ("[models]\nmian = {}", "line 2, column 1: `models`: unknown field `mian`; did you mean `main`?"),
            (
                "[[models.fallback]]\nmodel = \"a\"\n[[models.fallback]]\nmodl = \"b\"",
                "line 4, column 1: `models.fallback`: unknown field `modl`; did you mean `model`?",
            ),
            (
                "[mcp.files]\ncomand = \"x\"",
                "line 2, column 1: `mcp.files`: unknown field `comand`; did you mean `command`?",
            ),
            (
                "[limit]\nmaximum = 3",
                "line 2, column 1: `limit`: unknown field `maximum`; did you mean `max`?",
            ),
        ] {
            refused(text, &format!("does not fit: {wanted}"));
        }
        let known = parse("[xyz]").unwrap_err();
        let own = "does not fit: line 1, column 2: unknown field `xyz`; known fields are `preset`, `mode`, \
                   `models`, `tools`, `mcp`, `memory`, `dream`, `shell`, `web`, `instructions`, `snapshots`, `guardrails`, `db`, `approval`, ";
        assert!(known.starts_with(own), "{known}");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_rejected_with_the_expected_type() {
        let table = "expected a table";
        for (text, wanted) in [
            ("preset = 1", "line 1, column 10: `preset`: invalid type: integer `1`, expected a string".to_owned()),
            ("mode = 1", "line 1, column 8: `mode`: expected a name in quotes".to_owned()),
            ("snapshots = 3", "line 1, column 13: `snapshots`: invalid type: integer `3`, expected `true` or `false`".to_owned()),
            ("models = 3", format!("line 1, column 10: `models`: invalid type: integer `3`, {table}")),
            ("mcp = [1]", format!("line 1, column 7: `mcp`: invalid type: list, {table}")),
            ("db = \"full\"", format!("line 1, column 6: `db`: invalid type: string \"full\", {table}")),
            (
                "memory = 3",
                "line 1, column 10: `memory`: invalid type: integer `3`, expected `true`, `false` or a table".to_owned(),
            ),
            (
                "dream = \"yes\"",
                "line 1, column 9: `dream`: invalid type: string \"yes\", expected `true`, `false` or a table".to_owned(),
            ),
            (
                "[memory]\nretrieve = -1",
                "line 2, column 12: `memory.retrieve`: invalid value: integer `-1`, expected a whole number from 0 on".to_owned(),
            ),
            (
                "[models.main]\ntemperature = \"hot\"",
                "line 2, column 15: `models.main.temperature`: invalid type: string \"hot\", expected a number".to_owned(),
            ),
            (
                "models.fallback = 1",
                "line 1, column 19: `models.fallback`: invalid type: integer `1`, expected a table, or a list of tables".to_owned(),
            ),
            (
                "[permissions]\ntool = \"a\"",
                "line 1, column 2: `permissions`: invalid type: table, expected a list".to_owned(),
            ),
            ("permissions = [{ tool = \"a\", then = \"maybe\" }]",
             "line 1, column 1: `permissions`, entry 1: unknown variant `maybe`, expected one of `allow`, `ask`, `deny`".to_owned()),
        ] {
            refused(text, &format!("does not fit: {wanted}"));
        }
    }

    #[test]
    fn values_that_only_later_checks_reject_have_their_position() {
        let files =
            "`dream`: it edits `MEMORY.md`, which takes a memory in files; set `memory.store = \"file\"`";
        for (text, wanted) in [
            ("dream = true\nmemory = false", format!("line 1, column 1: {files}")),
            ("memory = { store = \"sqlite\" }\n[dream]", format!("line 2, column 2: {files}")),
            ("[memory]\nuser = \" \"", "line 2, column 1: `memory.user`: a user needs a name".to_owned()),
            (
                "tools = [\"read\", \"mcp.files\"]",
                "line 1, column 1: `tools`: unknown tool or group of tools `mcp.files`; see `superstep tools`"
                    .to_owned(),
            ),
        ] {
            refused(text, &format!("does not fit: {wanted}"));
        }
        refused("limit = [", "is not valid TOML: line 1, column 10: unclosed array, expected `]`");
    }

    #[test]
    fn a_secret_in_a_wrong_place_is_not_repeated() {
        for text in [
            "[models.main]\napi_key = \"sk-secret\"",
            "api_key = \"sk-secret\"",
            "[models.main\nkey = \"sk-secret\"",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("sk-secret"), "{error}");
        }
    }

    #[test]
    fn a_thread_stores_settings_that_differ_from_the_defaults_and_reads_them_again() {
        let text = "preset = \"harness\"\nmode = \"react\"\ntools = [\"read\"]\ninstructions = false\nsnapshots = false\nshell.env = [\"NAME\"]\nweb = { private_hosts = [\"*.a\"] }\nmemory = { tools = false }\n\
                    [dream]\nturns = 5\n[db]\nsynchronous = \"full\"\n[guardrails]\nsecrets = \"redact\"\nhold = true\n[limit]\nmax = 3\n\
                    [models.main]\nmodel = \"m\"\ntemperature = 0.7\n[[models.fallback]]\nmodel = \"n\"\n\
                    [mcp.files]\ncommand = \"x\"";
        let read = parse(text).unwrap();
        let stored = serde_json::to_value(&read).unwrap();
        let wanted = serde_json::json!({
            "preset": "harness",
            "mode": "react",
            "tools": ["read"],
            "instructions": false,
            "snapshots": false,
            "shell": { "env": ["NAME"] },
            "web": { "private_hosts": ["*.a"] },
            "memory": { "tools": false },
            "dream": { "turns": 5 },
            "guardrails": { "secrets": "redact", "hold": true },
            "db": { "synchronous": "full" },
            "limit": { "max": 3 },
            "models": { "main": { "model": "m", "temperature": 0.7 }, "fallback": [{ "model": "n" }] },
            "mcp": { "files": { "command": "x" } },
        });
        assert_eq!(stored, wanted);
        let stored = stored.as_object().unwrap().clone();
        assert_eq!(Configuration::of_thread(stored, None).unwrap(), read);
        assert_eq!(serde_json::to_value(parse("").unwrap()).unwrap(), serde_json::json!({}));
        let switches = parse("memory = false\ndream = true").map(|read| read.memory);
        assert!(switches.is_err(), "dreams edit a memory");
    }
}
