//! `superstep config`: the settings of a new thread, each with its origin.
//!
//! Start at [`config`].

use std::{env, path::Path};

use serde::Serialize;
use serde_json::{Map, Value};
use superstep::{
    llm::instructions::FileProblem,
    tools::{FoundFile, FoundFiles, FoundKind},
};
use superstep_session::{
    config::{
        defaults::{Defaults, DefaultsFile, Owner},
        file,
        instructions::{self, TrustedFiles},
        location::Location,
        model::{Environment, ModelInputs, Origin},
        names::VARIABLE,
        settings::{Given, StoredSettings},
        wire::Wire,
    },
    error::SessionError,
    text::{brief, printable_line},
};

use crate::{
    args::{command_line::ConfigArgs, shared::AGENT},
    output::{
        exit::Exit,
        note::print_note,
        table::{formatted, lines, new_table, print},
    },
};

/// Maximum number of characters of a value in a table.
const MAX_SHOWN: usize = 60;

/// A setting.
#[derive(Serialize)]
struct Setting {
    name: String,
    value: Value,
    /// `flag`, `environment`, `config`, `project`, `user` or `default`.
    source: &'static str,
    /// The variable, the file, or the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// Lists the settings of a new thread, or confirms those of a folder.
pub(crate) fn config(args: ConfigArgs) -> Result<Exit, SessionError> {
    let ConfigArgs { trust, json, cwd, agent } = args;
    let location = Location::new(AGENT, None, cwd)?;
    let defaults = Defaults::load(&location.cwd)?;
    let unconfirmed = defaults.unconfirmed();
    let read = || {
        let reader = instructions::reader(&location.cwd, &TrustedFiles::default())?;
        Ok::<_, SessionError>(reader.found_with_nested())
    };
    if trust {
        return confirm(&defaults, &read()?);
    }
    let given = agent.given(Some(&location.cwd))?;
    let configuration = given.configuration(&StoredSettings::default(), &defaults, "the command line has")?;
    let off = instructions::reason_off(&configuration);
    let found = if off.is_none() { read()? } else { FoundFiles::default() };
    let mut settings = settings(&given, &defaults)?;
    if let Some(file) = unconfirmed {
        let of_file = leaves(&file.settings()?);
        let path = file.path.display().to_string();
        settings.extend(of_file.into_iter().map(|(name, value)| {
            let from = Some(path.clone());
            Setting { name, value, source: "project, not confirmed", from }
        }));
    }
    settings.extend(found.files.iter().map(of_file));
    off.iter().for_each(|reason| print_note(reason));
    if json {
        return print(&lines(settings));
    }
    let mut table = new_table(&["SETTING", "VALUE", "SOURCE"]);
    for Setting { name, value, source, from } in settings {
        let value = match value {
            Value::String(text) => brief(&text, MAX_SHOWN),
            Value::Null => "-".to_owned(),
            other => brief(&other.to_string(), MAX_SHOWN),
        };
        // The narrow tables of usual terminals have one row for each setting of a preset.
        let from = match from.map(|from| printable_line(&from)) {
            Some(from) if source == "default" => from,
            Some(from) => format!("{source} {from}"),
            None => source.to_owned(),
        };
        table.add_row([printable_line(&name), value, from]);
    }
    let printed = print(&formatted(table));
    if let Some(file) = unconfirmed {
        let path = file.path.display();
        print_note(&format!(
            "`{path}` is not used until you confirm it; if its settings are what you want: superstep config --trust"
        ));
    }
    for FileProblem { path, problem } in &found.problems {
        print_note(&format!("{} {problem}", printable_line(path)));
    }
    instructions::note(&location.cwd, &found).iter().for_each(|note| print_note(&note.text));
    printed
}

/// Returns the row of a file with instructions or a skill.
fn of_file(file: &FoundFile) -> Setting {
    let FoundFile { path, hash, bytes, kind, is_of_user, is_confirmed } = file;
    let name = match kind {
        FoundKind::Instructions(_) => "instructions".to_owned(),
        FoundKind::Nested => "instructions below".to_owned(),
        FoundKind::Skill(skill) => format!("skill {}", skill.name),
    };
    let source = match (is_of_user, is_confirmed) {
        (true, _) => "user",
        (false, true) => "project",
        (false, false) => "project, not confirmed",
    };
    let from = Some(format!("{bytes} bytes, {}", &hash[..12]));
    Setting { name, value: path.to_string_lossy().into(), source, from }
}

/// Confirms the files of a folder.
fn confirm(defaults: &Defaults, found: &FoundFiles) -> Result<Exit, SessionError> {
    let mut text = String::new();
    if let Some(file) = defaults.unconfirmed() {
        file.confirm()?;
        text.push_str(&format!("new threads of this folder begin with `{}`\n", file.path.display()));
    }
    for file in instructions::unconfirmed(found) {
        text.push_str(&format!("`{}` is read from now on\n", printable_line(&file.path.to_string_lossy())));
    }
    instructions::confirm(found)?;
    let has_any = defaults.files.iter().any(|file| file.owner == Owner::Project)
        || found.files.iter().any(|file| !file.is_of_user);
    match has_any {
        _ if !text.is_empty() => print(&text),
        true => print("the settings of this folder are confirmed already\n"),
        false => Err(SessionError::usage(
            "this folder has no `superstep.toml` to confirm, no `AGENTS.md` and no skill",
        )),
    }
}

/// Returns the settings of a new thread.
fn settings(given: &Given, defaults: &Defaults) -> Result<Vec<Setting>, SessionError> {
    let (thread, environment) = (&StoredSettings::default(), &Environment::read()?);
    let config = &given.configuration(thread, defaults, "the command line has")?;
    let inputs = ModelInputs { given, thread, environment, config, defaults };
    let layers = Layers::of(given, defaults)?;
    let react = config.react(false).map_err(|wrong| SessionError::usage(wrong.to_string()))?;
    let preset = config.preset.clone().unwrap_or_else(|| "default".to_owned());

    let model = inputs.model_name();
    let wire = model.as_ref().map(|(_, name)| Wire::of(name)).unwrap_or_default();
    let (key, server) = wire.variables();
    let mut all = vec![database()];
    all.push(named("model", model, &layers, "OPENAI_MODEL"));
    all.push(named("base_url", inputs.server_address(wire), &layers, server));
    all.push(key_of(given, key));
    let effective = map(config);
    let mut set = leaves(&effective);
    if !effective.contains_key("preset") {
        set.push(("preset".to_owned(), preset.as_str().into()));
    }
    set.retain(|(name, _)| !matches!(&**name, "models.main.model" | "models.main.base_url"));
    let usual = leaves(&map(&react)).into_iter().filter(|(name, _)| {
        // A list that is set replaces the usual one, and an entry of the file has its own row.
        !set.iter().any(|(known, _)| known == name || is_within(name, known) || is_within(known, name))
    });
    let usual: Vec<_> = usual.collect();
    all.extend(set.into_iter().map(|(name, value)| {
        let (source, from) = layers.find(&name);
        Setting { name, value, source, from }
    }));
    all.extend(usual.into_iter().map(|(name, value)| {
        let from = Some(format!("preset {preset}"));
        Setting { name, value, source: "default", from }
    }));
    all[4..].sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

fn is_within(name: &str, table: &str) -> bool {
    name.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

fn database() -> Setting {
    let is_set = env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let (value, source, from) = match is_set {
        // It may have a password.
        Some(_) => ("(not shown)", "environment", Some(VARIABLE.to_owned())),
        None => (".superstep/threads.db", "default", None),
    };
    Setting { name: "db".to_owned(), value: value.into(), source, from }
}

/// Returns the row of a model or of an address.
fn named(name: &str, found: Option<(Origin, String)>, layers: &Layers, variable: &str) -> Setting {
    let Some((origin, text)) = found else {
        return Setting { name: name.to_owned(), value: Value::Null, source: "default", from: None };
    };
    let (source, from) = match origin {
        Origin::Flag => ("flag", None),
        Origin::Environment => ("environment", Some(variable.to_owned())),
        Origin::File | Origin::Thread | Origin::Defaults => layers.find(&format!("models.main.{name}")),
    };
    Setting { name: name.to_owned(), value: shown(name, text.into()), source, from }
}

/// Returns whether there is a key. Itself it is never shown.
fn key_of(given: &Given, variable: &str) -> Setting {
    let is_set = env::var_os(variable).is_some_and(|value| !value.is_empty());
    let (value, source, from) = match &given.key {
        Some(_) => ("set", "flag", None),
        None if is_set => ("set", "environment", Some(variable.to_owned())),
        None => ("not set", "default", None),
    };
    Setting { name: "api_key".to_owned(), value: value.into(), source, from }
}

/// The places of settings, the strongest first.
struct Layers(Vec<(&'static str, Option<String>, Map<String, Value>)>);

impl Layers {
    fn of(given: &Given, defaults: &Defaults) -> Result<Self, SessionError> {
        let mut layers = vec![("flag", None, map(&given.settings.config))];
        if let Some(file) = &given.file {
            layers.push(("config", Some(shown_path(file)), map(&file::read(file)?)));
            return Ok(Self(layers));
        }
        for file in defaults.files.iter().filter(|file| file.is_used) {
            let DefaultsFile { owner, path, .. } = file;
            let source = if *owner == Owner::Project { "project" } else { "user" };
            layers.push((source, Some(shown_path(path)), file.settings()?));
        }
        Ok(Self(layers))
    }

    /// Returns the place of a setting.
    fn find(&self, name: &str) -> (&'static str, Option<String>) {
        let has = |settings: &Map<String, Value>| {
            let mut path = name.split('.');
            let first = path.next().and_then(|first| settings.get(first));
            path.try_fold(first, |value, part| Some(Some(value?.get(part)?))).flatten().is_some()
        };
        let found = self.0.iter().find(|(.., settings)| has(settings));
        found.map_or(("default", None), |(source, from, _)| (source, from.clone()))
    }
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

fn map(settings: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("a struct of settings is a JSON object"),
    }
}

/// Returns the values of settings by their names.
fn flat(settings: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (name, value) in settings {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                let inner = flat(inner).into_iter();
                found.extend(inner.map(|(rest, value)| (format!("{name}.{rest}"), value)));
            }
            value => found.push((name.clone(), value.clone())),
        }
    }
    found
}

/// Returns the values of settings by their names, without what may be a secret.
fn leaves(settings: &Map<String, Value>) -> Vec<(String, Value)> {
    let is_secret = |name: &str| name.split('.').any(|part| matches!(part, "env" | "headers" | "extra"));
    // A variable's name is not its value.
    let hides = |(name, value): (String, Value)| match is_secret(&name) && !name.starts_with("shell.") {
        true => (name, "(not shown)".into()),
        false => {
            let value = shown(&name, value);
            (name, value)
        }
    };
    flat(settings).into_iter().map(hides).collect()
}

/// Removes the login and the query of an address.
fn shown(name: &str, value: Value) -> Value {
    let (Some(text), true) = (value.as_str(), name.ends_with("url")) else { return value };
    let text = text.split_once('?').map_or(text.to_owned(), |(address, _)| format!("{address}?…"));
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    let host = rest.find('/').unwrap_or(rest.len());
    let login = rest[..host].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[login..]).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_a_secret_is_not_listed() {
        let Value::Object(settings) = json!({
            "mcp": {"files": {"command": "x", "env": {"TOKEN": "sk-1"}, "args": ["-v"]},
                    "web": {"url": "https://me:sk-2@h.example/mcp?key=sk-3", "headers": {"Authorization": "sk-4"}}},
            "models": {"main": {"base_url": "https://h.example/v1", "extra": {"token": "sk-5"}, "key_env": "MINE"}},
            "shell": {"env": ["HOME"]},
        }) else {
            unreachable!()
        };
        let shown: Map<_, _> = leaves(&settings).into_iter().collect();
        let wanted = json!({
            "mcp.files.command": "x", "mcp.files.env.TOKEN": "(not shown)", "mcp.files.args": ["-v"],
            "mcp.web.url": "https://h.example/mcp?…", "mcp.web.headers.Authorization": "(not shown)",
            "models.main.base_url": "https://h.example/v1", "models.main.extra.token": "(not shown)",
            "models.main.key_env": "MINE", "shell.env": ["HOME"],
        });
        assert_eq!(Value::Object(shown), wanted);
    }

    #[test]
    fn the_strongest_place_that_has_a_setting_is_its_source() {
        let Value::Object(project) = json!({"limit": {"max": 3}}) else { unreachable!() };
        let Value::Object(user) = json!({"limit": {"max": 9, "unit": "turns"}}) else { unreachable!() };
        let layers = Layers(vec![("project", Some("p".into()), project), ("user", Some("u".into()), user)]);
        let source = |name: &str| layers.find(name).0;
        assert_eq!(
            [source("limit.max"), source("limit.unit"), source("limit.none"), source("tools")],
            ["project", "user", "default", "default"]
        );
    }
}
