//! `superstep memory`: inspects and changes a memory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::RngExt;
use serde_json::json;
use superstep::{
    agent::deps::{LongTermMemory, MemoryEntry, MemoryError},
    clock::{Clock, SystemClock},
    llm::Message,
    memory::MAX_MEMORY_CHARS,
};
use superstep_session::{
    config::{defaults::Defaults, file, location::Location, memory::Memory},
    error::{ErrorKind, SessionError},
    turn::randomness::seeded_rng,
};

use crate::{
    args::{
        memory::{MemoryArgs, MemoryCommand, MemoryRekeyArgs},
        shared::{AGENT, DatabaseArgs, Locate},
    },
    commands::keys,
    inspect::memory::table,
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

struct UserMemory {
    memory: Arc<dyn LongTermMemory>,
    user: String,
    location: Location,
    config: Option<PathBuf>,
    json: bool,
}

type Open = fn(&Memory, &Path) -> Result<Arc<dyn LongTermMemory>, SessionError>;

pub(crate) async fn memory(command: MemoryCommand) -> Result<Exit, SessionError> {
    match command {
        MemoryCommand::List { limit, of } => {
            let of = UserMemory::with(of, Memory::open_read_only)?;
            let entries = of.memory.list(&of.user, limit).await.map_err(failed)?;
            of.show(&entries)
        }
        MemoryCommand::Search { query, limit, of } => {
            let of = UserMemory::with(of, Memory::open_read_only)?;
            let entries = of.memory.search(&query, &of.user, limit).await.map_err(failed)?;
            of.show(&entries)
        }
        MemoryCommand::Add { text, of } => {
            let chars = text.trim().chars().count();
            if chars == 0 {
                return Err(SessionError::usage("the entry is empty; write what to store"));
            }
            if chars > MAX_MEMORY_CHARS {
                return Err(SessionError::usage(format!(
                    "a memory of {chars} characters is too long; use at most {MAX_MEMORY_CHARS}"
                )));
            }
            let of = UserMemory::with(of, Memory::open)?;
            let key = format!("cli/{}-{:04x}", SystemClock.now_ms(), seeded_rng()?.random::<u16>());
            let added = of.memory.add(vec![Message::user(text)], &of.user, &key).await.map_err(failed)?;
            of.show(&added)
        }
        MemoryCommand::Rekey(MemoryRekeyArgs { config, database: DatabaseArgs { location, json } }) => {
            let location = location.locate(AGENT)?;
            keys::rekey_memory(&configured(config.as_deref(), &location.cwd)?, &location, json).await
        }
        MemoryCommand::Forget { ids, of } => UserMemory::with(of, Memory::open_existing)?.forget(&ids).await,
    }
}

impl UserMemory {
    fn with(args: MemoryArgs, open: Open) -> Result<Self, SessionError> {
        let MemoryArgs { user, config, database } = args;
        let DatabaseArgs { location, json } = database;
        let location = location.locate(AGENT)?;
        let memory = configured(config.as_deref(), &location.cwd)?;
        let user = user.unwrap_or_else(|| memory.user().to_owned());
        let memory = open(&memory, &location.cwd)?;
        Ok(Self { memory, user, location, config, json })
    }

    async fn forget(&self, ids: &[String]) -> Result<Exit, SessionError> {
        for id in ids {
            if !self.memory.forget(id, &self.user).await.map_err(failed)? {
                let config = self.config.as_ref().map(|file| file.to_string_lossy());
                let config = config.as_deref().map(|file| ["--config", file]);
                let words = ["list", "--user", &self.user].into_iter().chain(config.into_iter().flatten());
                let list = self.location.command("memory", &words.collect::<Vec<_>>());
                let message = format!("no entry `{id}` for user `{}`; see `{list}`", self.user);
                return Err(SessionError::new(ErrorKind::Failed, message));
            }
            print(&if self.json { lines([json!({ "forgotten": id })]) } else { format!("forgot {id}\n") })?;
        }
        Ok(Exit::Ok)
    }

    fn show(&self, entries: &[MemoryEntry]) -> Result<Exit, SessionError> {
        if self.json {
            return print(&lines(entries));
        }
        print(&table(entries))
    }
}

/// Returns the memory of a configuration, by default that of new threads of a folder, or the user's own.
fn configured(config: Option<&Path>, folder: &Path) -> Result<Memory, SessionError> {
    let configuration = match config {
        Some(file) => file::read(file)?,
        None => Defaults::load(folder)?.configuration().clone(),
    };
    Ok(configuration.memory.on().cloned().unwrap_or_default())
}

fn failed(error: MemoryError) -> SessionError {
    SessionError::caused(ErrorKind::Database, &error)
}
