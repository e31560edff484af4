//! The memory of a configuration: `[memory]`, and its user.

mod embeddings;
mod mem0;

use std::{
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep::{
    MemoryStore,
    agent::{
        AgentBuilder, ReactConfig,
        config::Retrieve,
        deps::{LongTermMemory, MEMORY_PHRASES, MemoryTrigger},
    },
    llm::Tool,
    memory::{HistoryFiles, MIN_COSINE, Mem0Form, MemoryFiles, StoreMemory, memory_tools},
    sqlite::{SqliteOptions, SqliteStore},
    store::{StoreError, StoreOptions},
};

use crate::{
    config::{
        encryption,
        misfit::InvalidSetting,
        names::user_name,
        private::{self, below},
        state_folder::own_folder,
    },
    error::{ErrorKind, SessionError},
};

const ME: &str = "me";

// It belongs to the user and not to a project, so that it is the same in every folder, and no repository can bring
// one along.
/// The user's own memory, below the state folder: files, or a database.
const FILES: &str = "memory";
const DATABASE: &str = "memory.db";

// Apart from the memories: the tools of a dream have a folder with one user's memory and nothing else, so that they
// need no rule about files that they must not touch.
/// The histories, below the state folder: of the user's own memory, and one for each other memory.
const HISTORY: &str = "history";
const HISTORIES: &str = "histories";

/// The memory settings of a configuration. A promise: threads store them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    pub store: Kind,
    /// The file or folder; defaults to the user's own.
    pub path: Option<PathBuf>,
    user: Option<String>,
    /// Number of entries retrieved for each message.
    retrieve: usize,
    /// Gives the model the memory tools.
    tools: bool,
    phrases: Option<Vec<String>>,
    /// The address of a Mem0 server; defaults to the hosted platform.
    pub base_url: Option<String>,
    /// The environment variable with its key.
    pub key_env: Option<String>,
    /// The kind of server.
    pub form: Option<Mem0Form>,
    /// Minimum score of an entry: of a server's, or the cosine of one that is found by its meaning.
    pub threshold: Option<f64>,
    /// Lets its model derive entries from messages.
    pub infer: Option<bool>,
    /// The model by which entries are found by meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<String>,
}

/// The kind of storage. Kinds without a file have their own settings in place of `path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A `MEMORY.md` for each user.
    #[default]
    File,
    Sqlite,
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
            embeddings: None,
        }
    }
}

impl Memory {
    /// The memory of a configuration without one. A promise: threads store it.
    pub fn usual() -> Self {
        Self { tools: false, ..Self::default() }
    }

    /// Returns whether this entry of a thread's configuration is the default memory.
    pub(crate) fn is_usual(entry: &Value) -> bool {
        Self::deserialize(entry).is_ok_and(|memory| memory == Self::usual())
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The problem with one of them.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if let Some(user) = &self.user {
            user_name(user).map_err(|wrong| InvalidSetting::at("memory.user", wrong))?;
        }
        if let Some(path) = &self.path
            && !path.is_absolute()
            && !is_plain(path)
        {
            let path = path.display();
            let problem = format!("`{path}` is neither a plain path below the folder nor an absolute one");
            return Err(InvalidSetting::at("memory.path", problem));
        }
        self.check_embeddings()?;
        self.check_server()
    }

    /// Returns the user of the memory, unless a flag or the thread sets one.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(ME)
    }

    /// Returns whether its location, or that of its model, requires an explicitly named file: a database may come from
    /// someone else.
    pub fn is_elsewhere(&self) -> bool {
        if self.local_model().is_some_and(Path::is_absolute) {
            return true;
        }
        match self.store {
            Kind::Sqlite | Kind::File => self.path.as_ref().is_some_and(|path| path.is_absolute()),
            Kind::Mem0 => !self.is_known_server(),
        }
    }

    /// Opens it, and creates it if absent.
    pub fn open(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, SessionError> {
        match self.store {
            Kind::Sqlite => {
                let path = self.database(cwd)?;
                private::check_database(&path)?;
                self.stored(cwd, |options| SqliteStore::open_with(path, SqliteOptions::default(), options))
            }
            Kind::File => {
                let files = self.files(cwd)?.min_cosine(self.min_cosine());
                Ok(match self.embed(cwd)? {
                    Some(embed) => Arc::new(files.with_embed(embed)),
                    None => Arc::new(files),
                })
            }
            Kind::Mem0 => self.connect(),
        }
    }

    /// Opens it for reading, also without write permission. Creates no database; a missing one is empty.
    pub fn open_read_only(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, SessionError> {
        match self.existing(cwd)? {
            Some(path) => self.stored(cwd, |options| SqliteStore::open_read_only_with(path, options)),
            None if self.store == Kind::Sqlite => Ok(placeholder()),
            None => self.open(cwd),
        }
    }

    /// Opens it for deletion. Creates no database.
    pub fn open_existing(&self, cwd: &Path) -> Result<Arc<dyn LongTermMemory>, SessionError> {
        let is_missing = self.store == Kind::Sqlite && self.existing(cwd)?.is_none();
        if is_missing { Ok(placeholder()) } else { self.open(cwd) }
    }

    /// Opens its database with its model, and the encryption in front of it.
    fn stored(
        &self,
        cwd: &Path,
        open: impl FnOnce(StoreOptions) -> Result<SqliteStore, StoreError>,
    ) -> Result<Arc<dyn LongTermMemory>, SessionError> {
        let embed = self.embed(cwd)?;
        let store = opened(open(embeddings::options(embed.as_ref())))?;
        let store = encryption::seal_items(store, embed)?;
        Ok(Arc::new(StoreMemory::new(store).min_cosine(self.min_cosine())))
    }

    fn min_cosine(&self) -> f64 {
        self.threshold.unwrap_or(MIN_COSINE)
    }

    /// Returns its database, if it exists.
    fn existing(&self, cwd: &Path) -> Result<Option<PathBuf>, SessionError> {
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
    fn database(&self, cwd: &Path) -> Result<PathBuf, SessionError> {
        match &self.path {
            Some(path) if path.is_absolute() => Ok(path.clone()),
            Some(path) => below(cwd, path).map_err(|cause| {
                let path = path.display();
                let message = format!("cannot use the database `{path}` of the memory: {cause}");
                SessionError::new(ErrorKind::Database, message)
            }),
            None => Ok(own_folder()?.join(DATABASE)),
        }
    }

    /// Returns whether it consists of editable files.
    pub(crate) fn is_files(&self) -> bool {
        self.store == Kind::File
    }

    /// Returns its files.
    ///
    /// # Errors
    /// They cannot be used, or encryption is required.
    pub fn files(&self, cwd: &Path) -> Result<MemoryFiles, SessionError> {
        Self::refuse_files()?;
        let files = match &self.path {
            Some(path) if path.is_absolute() => files_in(path),
            Some(path) => MemoryFiles::new(cwd, path),
            None => MemoryFiles::new(&own_folder()?, Path::new(FILES)),
        };
        files.map_err(|cause| {
            SessionError::new(ErrorKind::Database, format!("cannot use the folder of the memory: {cause}"))
        })
    }

    /// Refuses files if encryption is required.
    pub(crate) fn refuse_files() -> Result<(), SessionError> {
        let remedy = "use a memory with `store = \"sqlite\"`, or `--no-memory`";
        encryption::refuse_readable("memories in files are", remedy)
    }

    /// Returns its database with the encryption; `None` if there is none yet.
    ///
    /// # Errors
    /// It cannot be opened, or is not a database.
    #[cfg(feature = "encryption")]
    pub fn sealed_store(&self, cwd: &Path) -> Result<Option<superstep::sealed::SealedStore>, SessionError> {
        if self.store != Kind::Sqlite {
            return Err(SessionError::usage(
                "only a memory with `store = \"sqlite\"` is encrypted; name it with `--config`",
            ));
        }
        let Some(path) = self.existing(cwd)? else { return Ok(None) };
        let store = opened(SqliteStore::open(path))?;
        Ok(Some(superstep::sealed::SealedStore::new(store, encryption::options()?)))
    }

    /// Returns the history from which it is made: always in the state folder, because the tools' folder may
    /// come from an untrusted source.
    ///
    /// # Errors
    /// It cannot be used, or encryption is required.
    pub fn history(&self, cwd: &Path) -> Result<HistoryFiles, SessionError> {
        encryption::refuse_readable("turns recorded for dreams are", "turn `dream` off")?;
        let folder = match &self.path {
            None => PathBuf::from(HISTORY),
            Some(path) => {
                let place = blake3::hash(cwd.join(path).as_os_str().as_encoded_bytes()).to_hex();
                Path::new(HISTORIES).join(&place[..32])
            }
        };
        HistoryFiles::new(&own_folder()?, folder).map_err(|cause| {
            SessionError::new(ErrorKind::Database, format!("cannot use the folder of the history: {cause}"))
        })
    }

    /// Adds it to an agent.
    pub fn add_to(&self, agent: AgentBuilder, memory: Arc<dyn LongTermMemory>) -> AgentBuilder {
        let usual = || MEMORY_PHRASES.map(str::to_owned).to_vec();
        let phrases = self.phrases.clone().unwrap_or_else(usual);
        let agent = agent.memory(MemoryTrigger::with_phrases(memory.clone(), phrases));
        if self.tools { agent.tools(memory_tools(memory)) } else { agent }
    }

    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        if self.tools { memory_tools(placeholder()).into() } else { Vec::new() }
    }

    /// Sets what is retrieved for each message.
    pub(crate) fn configure(&self, config: &mut ReactConfig) {
        let retrieve = Retrieve { memories: self.retrieve, ..config.retrieve.unwrap_or_default() };
        config.retrieve = (self.retrieve > 0).then_some(retrieve);
    }
}

fn opened(store: Result<SqliteStore, StoreError>) -> Result<SqliteStore, SessionError> {
    store.map_err(|error| SessionError::caused(ErrorKind::Database, &error))
}

/// Returns an empty memory, for graphs that are only shown.
pub(crate) fn placeholder() -> Arc<dyn LongTermMemory> {
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
    use crate::config::file::parse;

    fn read(toml: &str) -> Result<Option<Memory>, String> {
        let read = parse(toml)?;
        Ok(read.memory.on().cloned())
    }

    #[test]
    fn missing_settings_have_defaults_and_unknown_ones_are_rejected() {
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
            ("[memory]\nstor = \"file\"", "line 2, column 1: `memory`: unknown field `stor`"),
            ("[memory]\nstore = \"cloud\"", "line 2, column 9: `memory.store`: unknown variant `cloud`"),
            (
                "[memory]\nkey_env = \"KEY\"",
                "line 2, column 1: `memory.key_env`: only `store = \"mem0\"` has one",
            ),
            (
                "[memory]\nthreshold = 0.5",
                "line 2, column 1: `memory.threshold`: only `embeddings` or `store = \"mem0\"` have one",
            ),
            (
                "[memory]\nstore = \"mem0\"\nembeddings = \"x\"",
                "line 3, column 1: `memory.embeddings`: a Mem0 server has its own",
            ),
            (
                "[memory]\nembeddings = \"model2vec:../x\"",
                "line 2, column 1: `memory.embeddings`: `../x` is neither",
            ),
            ("[memory]\nembeddings = \" \"", "line 2, column 1: `memory.embeddings`: a model needs a name"),
            (
                "[memory]\nstore = \"mem0\"\npath = \"x\"",
                "line 3, column 1: `memory.path`: a Mem0 server has none",
            ),
            (
                "[memory]\nstore = \"mem0\"\nform = \"self_hosted\"",
                "line 1, column 2: `memory.base_url`: which server",
            ),
            (
                "[memory]\nstore = \"mem0\"\nform = \"cloud\"",
                "line 3, column 8: `memory.form`: unknown variant `cloud`",
            ),
            ("[memory]\npath = \"../x\"", "line 2, column 1: `memory.path`: `../x` is neither"),
            ("[memory]\npath = \"\"", "line 2, column 1: `memory.path`: `` is neither"),
            ("[memory]\nuser = \" \"", "line 2, column 1: `memory.user`: a user needs a name"),
            ("memory = 3", "line 1, column 10: `memory`: invalid type: integer `3`"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.starts_with(&format!("does not fit: {wanted}")), "{given}: {error}");
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
    fn a_model_is_named_with_its_server_in_the_environment_or_with_its_folder() {
        let memory = |toml: &str| read(&format!("[memory]\n{toml}")).unwrap().unwrap();
        let named = memory("embeddings = \"nomic-embed-text:latest\"\nthreshold = 0.5");
        assert_eq!((named.local_model(), named.min_cosine()), (None, 0.5));
        assert!(!named.is_elsewhere());
        let local = memory("embeddings = \"model2vec:models/potion\"");
        assert_eq!((local.local_model(), local.min_cosine()), (Some(Path::new("models/potion")), MIN_COSINE));
        assert!(!local.is_elsewhere() && memory("embeddings = \"model2vec:/models/potion\"").is_elsewhere());
        // Threads of programs that do not know it stay readable by them.
        assert!(!serde_json::to_string(&Memory::usual()).unwrap().contains("embeddings"));
        let Err(missing) = local.embed(Path::new("/nowhere")) else { panic!("the folder is missing") };
        let wanted = match cfg!(feature = "model2vec") {
            true => {
                "`memory.embeddings`: the embedding model has no `/nowhere/models/potion/tokenizer.json`;"
            }
            false => "`memory.embeddings` with a folder needs a build with the feature `model2vec`; ",
        };
        assert!(missing.message.starts_with(wanted), "{}", missing.message);
    }

    #[test]
    fn a_retrieval_is_reported_once() {
        let config = |toml: &str| parse(toml).unwrap().react(false).unwrap().retrieve;
        assert_eq!(config("[memory]"), Some(Retrieve::default()));
        assert_eq!(config("[memory]\nretrieve = 2").unwrap().memories, 2);
        assert_eq!(config("[memory]\nretrieve = 0"), None);
        assert_eq!(config("[memory]\nretrieve = 2\n[retrieve]\nmemories = 9").unwrap().memories, 9);
    }
}
