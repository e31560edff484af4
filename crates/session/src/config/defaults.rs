//! The files `superstep.toml` of a folder and of the user, with whose settings new threads begin.
//!
//! The file of a folder counts once the user has confirmed its content on this machine: it may come with a repository, and start
//! programs.
//!
//! Start at [`Defaults::load`].

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use serde_json::{Map, Value};
use superstep::mcp::McpConfig;

use crate::{
    config::{
        configuration::Configuration, confirmed::Confirmed, file, guardrails::Guardrails,
        model_table::own_file, notes::Note, profile::Profile, server::is_same_server,
    },
    error::SessionError,
};

/// The name of the files.
pub const NAME: &str = "superstep.toml";

/// The owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The folder of the tools.
    Project,
    /// The user.
    User,
}

/// A file of settings.
#[derive(Clone, Debug)]
pub struct DefaultsFile {
    pub owner: Owner,
    pub path: PathBuf,
    /// Counts, which a file of a folder does once it is confirmed.
    pub is_used: bool,
    text: String,
}

/// The settings that new threads begin with.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The files, that of the folder first.
    pub files: Vec<DefaultsFile>,
    settings: Map<String, Value>,
    configuration: Configuration,
}

impl Defaults {
    /// Reads the file of a folder over that of the user.
    ///
    /// # Errors
    /// A file that counts cannot be read or does not fit, with the position of the wrong setting.
    pub fn load(folder: &Path) -> Result<Self, SessionError> {
        let user = own_file().map(|models| models.with_file_name(NAME));
        Self::of(&folder.join(NAME), user.as_deref())
    }

    fn of(project: &Path, user: Option<&Path>) -> Result<Self, SessionError> {
        let mut files = Vec::new();
        files.extend(DefaultsFile::read(project, Owner::Project)?);
        files.extend(user.map(|user| DefaultsFile::read(user, Owner::User)).transpose()?.flatten());
        let mut settings = Map::new();
        let unfit = |problem: &dyn Display| {
            SessionError::usage(format!(
                "`{NAME}` of the folder and of the user do not fit together: {problem}"
            ))
        };
        for file in files.iter().filter(|file| file.is_used).rev() {
            merge(file.settings()?, &mut settings).map_err(|problem| unfit(&problem))?;
        }
        let configuration =
            Configuration::of_thread(settings.clone(), None).map_err(|wrong| unfit(&wrong))?;
        Ok(Self { files, settings, configuration })
    }

    /// The settings, in the form in which threads store them.
    pub fn settings(&self) -> &Map<String, Value> {
        &self.settings
    }

    /// The settings.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the file of the folder that is to be confirmed, if there is one.
    pub fn unconfirmed(&self) -> Option<&DefaultsFile> {
        self.files.iter().find(|file| !file.is_used)
    }

    /// Returns the note about a file that is not used.
    pub fn note(&self) -> Option<Note> {
        let file = self.unconfirmed()?;
        let path = file.path.display().to_string();
        let text = format!(
            "`{path}` is not used, because you have not confirmed it on this machine: see `superstep config`, then `superstep config --trust`"
        );
        Some(Note::new(&[NAME, &path, &file.hash()], text))
    }

    /// Returns whether the files start or name all of these servers, just so.
    pub(crate) fn have_servers(&self, servers: &BTreeMap<String, McpConfig>) -> bool {
        servers.iter().all(|(name, config)| self.configuration.mcp.get(name) == Some(config))
    }

    /// Returns whether the files have this model, just so.
    pub(crate) fn have_profile(&self, profile: &Profile) -> bool {
        let models = &self.configuration.models;
        models.main.iter().chain(&models.fallback).chain(&models.compaction).any(|known| known == profile)
    }

    /// Returns whether the files name this server for the model.
    pub(crate) fn have_server_of_model(&self, base_url: &str) -> bool {
        let main = self.configuration.models.main.as_ref();
        main.and_then(|main| main.base_url.as_deref()).is_some_and(|own| is_same_server(own, base_url))
    }
}

impl DefaultsFile {
    fn read(path: &Path, owner: Owner) -> Result<Option<Self>, SessionError> {
        if !path.try_exists().unwrap_or(true) {
            return Ok(None);
        }
        let failed =
            |what: String| SessionError::usage(format!("the configuration `{}` {what}", path.display()));
        let path = path.canonicalize().map_err(|cause| failed(format!("cannot be read: {cause}")))?;
        let text = file::text(&path).map_err(failed)?;
        let mut read = Self { owner, path, is_used: true, text };
        read.is_used = owner == Owner::User || Confirmed::read()?.has(&read.path, &read.hash());
        Ok(Some(read))
    }

    /// Returns the settings as the file has them.
    ///
    /// # Errors
    /// They do not fit, with the position of the wrong one.
    pub fn settings(&self) -> Result<Map<String, Value>, SessionError> {
        let settings = file::parse(&self.text).and_then(|_| file::table(&self.text));
        settings.map_err(|wrong| {
            SessionError::usage(format!("the configuration `{}` {wrong}", self.path.display()))
        })
    }

    /// Records that the user trusts this content of the file.
    ///
    /// # Errors
    /// It does not fit, or nothing can be stored.
    pub fn confirm(&self) -> Result<(), SessionError> {
        self.settings()?;
        Confirmed::read()?.add([(self.path.clone(), self.hash())])
    }

    fn hash(&self) -> String {
        blake3::hash(self.text.as_bytes()).to_hex().to_string()
    }
}

/// Puts settings over others: tables by their entries, and permissions before those of the other. A model, an MCP server and a memory
/// are replaced as a whole, so that a key of one file is not sent to a server of the other. A preset replaces the agent's settings.
/// Guardrails are only added.
///
/// # Errors
/// Guardrails that do not fit, or not together.
fn merge(over: Map<String, Value>, base: &mut Map<String, Value>) -> Result<(), String> {
    if over.contains_key("preset") {
        base.retain(|name, _| {
            name == "permissions" || (name != "mode" && Configuration::FIELDS.contains(&name.as_str()))
        });
    }
    for (name, value) in over {
        match (base.get_mut(&name), value) {
            (Some(own), added) if name == "guardrails" => *own = both_guardrails(own, &added)?,
            (Some(Value::Object(base)), Value::Object(over)) if matches!(&*name, "models" | "mcp") => {
                base.extend(over);
            }
            (Some(Value::Object(base)), Value::Object(over)) if !matches!(&*name, "memory" | "dream") => {
                deep_merge(over, base);
            }
            (Some(Value::Array(base)), Value::Array(mut over)) if name == "permissions" => {
                over.append(base);
                *base = over;
            }
            (_, value) => _ = base.insert(name, value),
        }
    }
    Ok(())
}

/// Returns the guards of both sections.
fn both_guardrails(one: &Value, other: &Value) -> Result<Value, String> {
    let read =
        |section: &Value| Guardrails::deserialize(section).map_err(|error| format!("`guardrails`: {error}"));
    let both = read(one)?.and(&read(other)?).map_err(|problem| format!("`guardrails.schema`: {problem}"))?;
    Ok(serde_json::to_value(both).expect("settings have a JSON form"))
}

fn deep_merge(over: Map<String, Value>, base: &mut Map<String, Value>) {
    for (name, value) in over {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(over)) => deep_merge(over, base),
            (_, value) => _ = base.insert(name, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn merged(user: Value, project: Value) -> Value {
        let (Value::Object(mut base), Value::Object(over)) = (user, project) else { panic!("two tables") };
        merge(over, &mut base).unwrap();
        base.into()
    }

    #[test]
    fn the_folder_is_over_the_user() {
        let user = json!({"tools": ["read"], "limit": {"max": 3, "unit": "turns"}, "snapshots": false});
        let project = json!({"tools": ["shell"], "limit": {"max": 5}});
        let wanted = json!({"tools": ["shell"], "limit": {"max": 5, "unit": "turns"}, "snapshots": false});
        assert_eq!(merged(user, project), wanted);
        let rules = merged(json!({"permissions": [1]}), json!({"preset": "harness", "permissions": [2]}));
        assert_eq!(rules["permissions"], json!([2, 1]), "no rule of the user is lost");
        let guards = merged(
            json!({"guardrails": {"secrets": "block", "input_size": 5}}),
            json!({"preset": "graph", "guardrails": {"secrets": "redact", "input_size": 9, "hold": true}}),
        );
        let wanted = json!({"secrets": "block", "input_size": 5, "hold": true});
        assert_eq!(guards["guardrails"], wanted, "no guard of the user is lost");
        let preset = merged(
            json!({"preset": "graph", "mode": "single", "limit": {}, "tools": []}),
            json!({"preset": "harness"}),
        );
        assert_eq!(preset, json!({"preset": "harness", "tools": []}));
    }

    #[test]
    fn a_key_of_the_user_is_not_combined_with_a_server_of_the_folder() {
        for (section, entry) in [("models", "main"), ("mcp", "files")] {
            let user =
                json!({ section: { entry: {"key_env": "MINE", "env": {"TOKEN": "x"}}, "other": {"a": 1} } });
            let project = json!({ section: { entry: {"base_url": "https://elsewhere.example"} } });
            let wanted =
                json!({ section: { entry: {"base_url": "https://elsewhere.example"}, "other": {"a": 1} } });
            assert_eq!(merged(user, project), wanted);
        }
        let memory = merged(json!({"memory": {"key_env": "MINE"}}), json!({"memory": {"base_url": "u"}}));
        assert_eq!(memory, json!({"memory": {"base_url": "u"}}));
    }

    #[test]
    fn a_file_of_a_folder_that_is_not_confirmed_is_not_even_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let (project, user) = (folder.path().join("p.toml"), folder.path().join("u.toml"));
        fs::write(&project, "tols = []").unwrap();
        fs::write(&user, "snapshots = false").unwrap();
        let read = Defaults::of(&project, Some(&user)).unwrap();
        assert_eq!(Value::Object(read.settings().clone()), json!({"snapshots": false}));
        let wrong = read.unconfirmed().unwrap().settings().unwrap_err().message;
        assert!(wrong.ends_with("line 1, column 1: unknown field `tols`; did you mean `tools`?"), "{wrong}");
        let wrong = Defaults::of(&user, Some(&project)).unwrap_err().message;
        assert!(wrong.contains("p.toml` does not fit: line 1"), "{wrong}");
        let none = Defaults::of(&folder.path().join("none"), None).unwrap();
        assert!(none.files.is_empty() && none.note().is_none());
    }
}
