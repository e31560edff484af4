//! The memory of a configuration: `[memory]`, and its user.

mod mem0;

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::{Value, json};
use superstep::{
    agent::{AgentBuilder, LongTermMemory, MEMORY_PHRASES, MemoryTrigger, ReactConfig, Retrieve},
    llm::Tool,
    memory::{HistoryFiles, Mem0Form, MemoryFiles, StoreMemory, memory_tools},
    sqlite::SqliteStore,
    store::{MemoryStore, StoreError},
};

use crate::{
    args::values::user_name,
    config::{
        dream,
        private::{self, below},
        settings::Chosen,
        state_folder::own_folder,
    },
    output::exit::{Exit, Failure},
};

/// Its key in a configuration.
pub(crate) const KEY: &str = "memory";

/// The entry for retrieval, which may configure more than [`Memory::retrieve`].
const RETRIEVE: &str = "retrieve";

/// The default user.
const ME: &str = "me";

/// The user's own memory, below the state folder: files, or a database.
const FILES: &str = "memory";
const DATABASE: &str = "memory.db";

/// The histories, below the state folder: of the user's own memory, and one for each other memory.
const HISTORY: &str = "history";
const HISTORIES: &str = "histories";

/// The preset whose design records turns and dreams (S0-08, S0-29).
const DREAMING: &str = "cococat";

/// The memory settings of a configuration. A promise: threads store them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    pub(super) store: Kind,
    /// The file or folder; defaults to the user's own.
    pub(super) path: Option<PathBuf>,
    user: Option<String>,
    /// Number of entries retrieved for each message.
    retrieve: usize,
    /// Gives the model the memory tools.
    tools: bool,
    /// The phrases of a memory request.
    phrases: Option<Vec<String>>,
    /// The address of a Mem0 server; defaults to the hosted platform.
    pub(super) base_url: Option<String>,
    /// The environment variable with its key.
    pub(super) key_env: Option<String>,
    /// The kind of server.
    pub(super) form: Option<Mem0Form>,
    /// Minimum score of an entry.
    pub(super) threshold: Option<f64>,
    /// Lets its model derive entries from messages.
    pub(super) infer: Option<bool>,
}

/// The kind of storage. Kinds without a file have their own settings in place of `path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A `MEMORY.md` for each user.
    #[default]
    File,
    /// A database.
    Sqlite,
    /// A Mem0 server.
    Mem0,
}

impl Default for Memory {
    fn default() -> Self {
        let retrieve = Retrieve::default().memories;
        Self {
            store: Kind::default(),
            path: None,
            user: None,
            retrieve,
            tools: true,
            phrases: None,
            base_url: None,
            key_env: None,
            form: None,
            threshold: None,
            infer: None,
        }
    }
}

impl Memory {
    /// Parses the entry of a configuration, if present.
    ///
    /// # Errors    The problem with it.
    pub(crate) fn of(chosen: &Chosen) -> Result<Option<Self>, String> {
        let memory = match chosen.get(KEY) {
            None | Some(Value::Bool(false)) => return Ok(None),
            Some(Value::Bool(true)) => Self::default(),
            Some(memory) => Self::deserialize(memory).map_err(|error| format!("`memory`: {error}"))?,
        };
        if let Some(user) = &memory.user {
            user_name(user).map_err(|wrong| format!("`memory.user`: {wrong}"))?;
        }
        if let Some(path) = &memory.path
            && !path.is_absolute()
            && !is_plain(path)
        {
            return Err(format!(
                "`memory.path`: `{}` is neither a plain path below the folder nor an absolute one",
                path.display()
            ));
        }
        memory.check_server()?;
        Ok(Some(memory))
    }

    /// Adds the user's own memory to a configuration without one, and the dreams of a preset that has them.
    ///
    /// A preset that only a database names does not enable dreams. Returns a note for the user, if any.
    pub(crate) fn add_usual(chosen: &mut Chosen, may_dream: bool) -> Option<String> {
        if chosen.contains_key(KEY) {
            return None;
        }
        if let Err(Failure { message, .. }) = own_folder() {
            return Some(format!("there is no long-term memory: {message}"));
        }
        let is_dreaming = may_dream && chosen.get("preset").is_some_and(|preset| preset == DREAMING);
        if is_dreaming && !chosen.contains_key(dream::KEY) {
            chosen.insert(dream::KEY.to_owned(), true.into());
        }
        chosen.insert(KEY.to_owned(), usual());
        (is_dreaming && chosen[dream::KEY] == true).then(|| {
            format!("as preset `{DREAMING}` has it, turns are written down and dreamt of; `--no-memory` turns that off")
        })
    }

    /// Returns whether a configuration has no memory or the default one.
    pub(crate) fn is_usual(chosen: &Chosen) -> bool {
        chosen.get(KEY).is_none_or(|memory| *memory == false || *memory == usual())
    }

    /// Returns whether a configuration has the default memory.
    pub(crate) fn has_usual(chosen: &Chosen) -> bool {
        chosen.get(KEY) == Some(&usual())
    }

    /// Returns the user of the memory, unless a flag or the thread sets one.
    pub(crate) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(ME)
    }

    /// Returns whether its location requires an explicitly named file: a database may come from someone else.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self.store {
            Kind::Sqlite | Kind::File => self.path.as_ref().is_some_and(|path| path.is_absolute()),
            Kind::Mem0 => !self.is_known_server(),
        }
    }

    /// Opens it, and creates it if absent.
    pub(crate) fn open(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, Failure> {
        match self.store {
            Kind::Sqlite => {
                let path = self.database(cwd)?;
                private::check_database(&path)?;
                stored(SqliteStore::open(path))
            }
            Kind::File => Ok(Arc::new(self.files(cwd)?)),
            Kind::Mem0 => self.connect(),
        }
    }

    /// Opens it for reading, also without write permission. Creates no database; a missing one is empty.
    pub(crate) fn look(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, Failure> {
        match self.existing(cwd)? {
            Some(path) => stored(SqliteStore::open_read_only(path)),
            None if self.store == Kind::Sqlite => Ok(to_look_at()),
            None => self.open(cwd),
        }
    }

    /// Opens it for deletion. Creates no database.
    pub(crate) fn open_existing(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, Failure> {
        let is_missing = self.store == Kind::Sqlite && self.existing(cwd)?.is_none();
        if is_missing { Ok(to_look_at()) } else { self.open(cwd) }
    }

    /// Returns its database, if it exists.
    fn existing(&self, cwd: &Path) -> Result<Option<PathBuf>, Failure> {
        let path = match (self.store, &self.path) {
            (Kind::Sqlite, Some(path)) => cwd.join(path),
            (Kind::Sqlite, None) => own_folder()?.join(DATABASE),
            _ => return Ok(None),
        };
        if !path.exists() {
            return Ok(None);
        }
        private::check_database(&path)?;
        self.database(cwd).map(Some)
    }

    /// Returns the path of the database, existing or not.
    fn database(&self, cwd: &Path) -> Result<PathBuf, Failure> {
        match &self.path {
            Some(path) if path.is_absolute() => Ok(path.clone()),
            Some(path) => below(cwd, path).map_err(|cause| {
                let path = path.display();
                let message = format!("cannot use the database `{path}` of the memory: {cause}");
                Failure::new(Exit::Database, message)
            }),
            None => Ok(own_folder()?.join(DATABASE)),
        }
    }

    /// Returns whether it consists of editable files.
    pub(crate) fn is_files(&self) -> bool {
        self.store == Kind::File
    }

    /// Returns its files.
    pub(crate) fn files(&self, cwd: &Path) -> Result<MemoryFiles, Failure> {
        let files = match &self.path {
            Some(path) if path.is_absolute() => files_in(path),
            Some(path) => MemoryFiles::new(cwd, path),
            None => MemoryFiles::new(&own_folder()?, Path::new(FILES)),
        };
        files.map_err(|cause| {
            Failure::new(Exit::Database, format!("cannot use the folder of the memory: {cause}"))
        })
    }

    /// Returns the history from which it is made: always in the state folder, because the tools' folder may
    /// come from an untrusted source.
    pub(crate) fn history(&self, cwd: &Path) -> Result<HistoryFiles, Failure> {
        let folder = match &self.path {
            None => PathBuf::from(HISTORY),
            Some(path) => {
                let place = blake3::hash(cwd.join(path).as_os_str().as_encoded_bytes()).to_hex();
                Path::new(HISTORIES).join(&place[..32])
            }
        };
        HistoryFiles::new(&own_folder()?, folder).map_err(|cause| {
            Failure::new(Exit::Database, format!("cannot use the folder of the history: {cause}"))
        })
    }

    /// Adds it to an agent.
    pub(crate) fn give(&self, agent: AgentBuilder, memory: Arc<dyn LongTermMemory>) -> AgentBuilder {
        let usual = || MEMORY_PHRASES.map(str::to_owned).to_vec();
        let phrases = self.phrases.clone().unwrap_or_else(usual);
        let agent = agent.memory(MemoryTrigger::with_phrases(memory.clone(), phrases));
        if self.tools { agent.tools(memory_tools(memory)) } else { agent }
    }

    /// Returns the memory tools for the model.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.tools { memory_tools(to_look_at()).into() } else { Vec::new() }
    }

    /// Sets the retrieval, unless the configuration itself does.
    pub(crate) fn configure(&self, chosen: &Chosen, config: &mut ReactConfig) {
        if !chosen.contains_key(RETRIEVE) {
            let retrieve = Retrieve { memories: self.retrieve, ..config.retrieve.unwrap_or_default() };
            config.retrieve = (self.retrieve > 0).then_some(retrieve);
        }
    }
}

/// Returns the default memory settings. A promise: threads store them.
fn usual() -> Value {
    json!({ "store": "file", "tools": false })
}

fn stored(opened: Result<SqliteStore, StoreError>) -> Result<Arc<dyn LongTermMemory>, Failure> {
    let store = opened.map_err(|error| Failure::caused(Exit::Database, &error))?;
    Ok(Arc::new(StoreMemory::new(Arc::new(store))))
}

/// Returns an empty memory, for graphs that are only shown.
pub(crate) fn to_look_at() -> Arc<dyn LongTermMemory> {
    Arc::new(StoreMemory::new(Arc::new(MemoryStore::new())))
}

/// Opens the files in a folder at any place; its parent must exist.
fn files_in(folder: &Path) -> io::Result<MemoryFiles> {
    match (folder.parent(), folder.file_name()) {
        (Some(root), Some(name)) => MemoryFiles::new(root, name),
        _ => Err(io::Error::other(format!("`{}` cannot be one", folder.display()))),
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<Option<Memory>, String> {
        Memory::of(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn what_is_left_out_is_usual_and_what_is_unknown_is_refused() {
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("memory = false").unwrap(), None);
        assert_eq!(read("[memory]").unwrap().unwrap(), Memory::default());
        assert_eq!(read("memory = true").unwrap().unwrap(), Memory::default());
        let given = read("memory = { store = \"file\", path = \"notes\", retrieve = 0, tools = false }");
        let wanted = Memory {
            store: Kind::File,
            path: Some("notes".into()),
            retrieve: 0,
            tools: false,
            ..Memory::default()
        };
        assert_eq!(given.unwrap().unwrap(), wanted);
        for (given, wanted) in [
            ("[memory]\nstor = \"file\"", "`memory`: unknown field `stor`"),
            ("[memory]\nstore = \"cloud\"", "`memory`: unknown variant `cloud`"),
            ("[memory]\nkey_env = \"KEY\"", "`memory.key_env`: only `store = \"mem0\"` has one"),
            ("[memory]\nstore = \"mem0\"\npath = \"x\"", "`memory.path`: a Mem0 server has none"),
            ("[memory]\nstore = \"mem0\"\nform = \"self_hosted\"", "`memory.base_url`: which server"),
            ("[memory]\nstore = \"mem0\"\nform = \"cloud\"", "`memory`: unknown variant `cloud`"),
            ("[memory]\npath = \"../x\"", "`memory.path`: `../x` is neither"),
            ("[memory]\npath = \"\"", "`memory.path`: `` is neither"),
            ("[memory]\nuser = \" \"", "`memory.user`: a user needs a name"),
            ("memory = 3", "`memory`: invalid type: integer `3`"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.starts_with(wanted), "{given}: {error}");
        }
    }

    #[test]
    fn a_server_that_a_database_may_name_is_on_this_machine_or_the_platform() {
        let elsewhere = |toml: &str| {
            let toml = format!("[memory]\nstore = \"mem0\"\n{toml}");
            read(&toml).unwrap().unwrap().is_elsewhere()
        };
        assert!(!elsewhere("") && !elsewhere("key_env = \"MEM0_API_KEY\""));
        assert!(!elsewhere("base_url = \"http://localhost:8888\"\nkey_env = \"KEY\""));
        assert!(elsewhere("key_env = \"AWS_SECRET_ACCESS_KEY\""));
        assert!(elsewhere("base_url = \"https://mem0.example.com\""));
        assert!(elsewhere("base_url = \"https://example.com\"\nform = \"hosted\""));
    }

    #[test]
    fn what_is_looked_up_is_said_once() {
        let config = |toml: &str| {
            let chosen: Chosen = toml::from_str(toml).unwrap();
            let mut config = ReactConfig::default();
            Memory::of(&chosen).unwrap().unwrap().configure(&chosen, &mut config);
            config.retrieve
        };
        assert_eq!(config("[memory]"), Some(Retrieve::default()));
        assert_eq!(config("[memory]\nretrieve = 2").unwrap().memories, 2);
        assert_eq!(config("[memory]\nretrieve = 0"), None);
        assert_eq!(config("[memory]\nretrieve = 2\n[retrieve]\nmemories = 9"), None);
    }
}
