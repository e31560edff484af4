//! The steps of a setup, in their order.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep::{
    Checkpointer, ThreadId,
    agent::{AgentBuilder, ReactConfig, replay::ReplayTools},
    llm::Tool,
    mcp::McpServer,
    memory::Dreams,
};

use crate::{
    config::{
        configuration::Configuration,
        file,
        location::Location,
        memory::{self, Memory},
        model::{Choice, Environment, ModelInputs, repeat_config},
        settings::{Given, StoredSettings},
        trust::Decided,
    },
    output::{exit::Failure, text::printable_line},
    session::{
        dream_thread, mcp,
        notes::Note,
        setup::{Purpose, known_tools},
    },
};

#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) location: &'a Location,
    pub(super) thread: &'a ThreadId,
    pub(super) purpose: &'a Purpose,
    pub(super) given: &'a Given,
}

impl Steps<'_> {
    /// Returns whether the run has effects; a pure replay has none.
    pub(super) fn writes(&self) -> bool {
        !matches!(self.purpose, Purpose::Replay { runs_tools: false, .. })
    }

    /// Returns whether the recorded lists of tools and their results are enough for the run.
    fn is_recorded(&self) -> bool {
        let Purpose::Replay { calls_model, runs_tools, tools, .. } = self.purpose else { return false };
        !calls_model && !runs_tools && *tools == ReplayTools::Recorded
    }

    /// Loads the settings of the thread, and the user's decisions about it.
    pub(super) async fn stored(
        &self,
        store: &dyn Checkpointer,
    ) -> Result<(StoredSettings, Arc<Decided>), Failure> {
        if !matches!(self.purpose, Purpose::Dream) {
            dream_thread::refuse(self.location, self.thread)?;
        }
        match self.purpose {
            Purpose::Turn { from } => self.location.remembered(store, self.thread, *from).await,
            Purpose::Replay { at: Some(at), .. } => {
                self.location.remembered_at(store, self.thread, *at).await
            }
            Purpose::Dream | Purpose::Replay { at: None, .. } => {
                self.location.remembered(store, self.thread, None).await
            }
        }
    }

    pub(super) fn folder(&self, stored: &StoredSettings) -> Result<PathBuf, Failure> {
        match self.location.cwd_of(stored) {
            // Nothing is done in it, so it may be a folder of another machine.
            Err(_) if !self.writes() => Ok(self.location.cwd().to_owned()),
            cwd => cwd,
        }
    }

    /// Returns the note about settings of the database that are not used, if any.
    pub(super) fn left_out(&self, names: &[String]) -> Option<Note> {
        if self.given.file.is_some() || names.is_empty() {
            return None;
        }
        let (thread, db) = (self.thread, self.location.db().to_string());
        let text = format!(
            "thread `{thread}` was not set up by you on this machine, so this is not taken from its database: {}; \
             name it with `--config FILE` to have it",
            printable_line(&names.join(", "))
        );
        Some(Note::new(&["settings", &db, thread.as_str()], text))
    }

    /// Returns the configuration: from the named file, or from the thread, with the flags and the usual memory.
    pub(super) fn configuration(
        &self,
        stored: &StoredSettings,
        notes: &mut Vec<Note>,
    ) -> Result<Configuration, Failure> {
        let flags = &self.given.settings.config;
        let own = match &self.given.file {
            Some(file) => file::read(file)?,
            None => Configuration::of_thread(stored.configuration(), flags.preset.as_deref())
                .map_err(|wrong| self.misfit(&wrong))?,
        };
        let mut config = own.with(flags);
        let is_named = self.given.file.is_some();
        let is_unknown = stored.is_foreign && !is_named;
        if is_unknown && config.memory.on().is_some_and(|memory| *memory != Memory::usual()) {
            return Err(self.unnamed("a memory, which is not opened"));
        }
        let may_dream = flags.preset.is_some() || is_named;
        match self.purpose {
            Purpose::Turn { .. } | Purpose::Dream => {
                notes.extend(config.add_usual_memory(may_dream).map(|note| Note::hint(&["memory"], note)));
                if is_unknown && flags.memory.is_absent() {
                    notes.push(Note::hint(
                        &["memory of", self.thread.as_str()],
                        "the long-term memory is not used in this turn: the thread was not set up by you on this machine",
                    ));
                }
            }
            // A file named for a replay does not change the memory that its turns had.
            Purpose::Replay { .. } if stored.config.get("memory").is_some_and(Memory::is_usual) => {
                config.add_usual_memory(may_dream);
            }
            Purpose::Replay { .. } => {}
        }
        config.check().map_err(|wrong| self.misfit(&wrong))?;
        if !is_named && config.memory.on().is_some_and(Memory::is_elsewhere) {
            return Err(self.unnamed("a memory outside of its folder, which is not opened"));
        }
        Ok(config)
    }

    /// Chooses the models, and the flags that a later command must repeat.
    pub(super) async fn choice(
        &self,
        stored: &StoredSettings,
        config: &Configuration,
    ) -> Result<Choice, Failure> {
        let environment = &Environment::read();
        let inputs = ModelInputs { given: self.given, thread: stored, environment, config };
        let mut choice = match self.purpose {
            Purpose::Replay { calls_model: false, .. } => inputs.names_only(),
            _ => inputs.choose().await?,
        };
        let is_elsewhere = config.memory.on().is_some_and(Memory::is_elsewhere);
        if let (true, Some(file)) = (is_elsewhere || stored.is_foreign, &self.given.file) {
            repeat_config(&mut choice.repeated_flags, file);
        }
        if let (true, Some(url)) = (stored.is_foreign, &self.given.settings.base_url)
            && !choice.repeated_flags.contains(&"--base-url".to_owned())
        {
            choice.repeated_flags.extend(["--base-url".to_owned(), url.clone()]);
        }
        Ok(choice)
    }

    /// Connects the MCP servers, if a named file, and not only a database, configures them.
    ///
    /// # Errors
    /// A run that needs servers has none that a file names, or one of them fails.
    pub(super) async fn servers(
        &self,
        config: &Configuration,
        cwd: &Path,
        choice: &mut Choice,
    ) -> Result<Vec<Arc<McpServer>>, Failure> {
        if matches!(self.purpose, Purpose::Dream) {
            return Ok(Vec::new());
        }
        let servers = config.wanted_servers().map_err(Failure::usage)?;
        match &self.given.file {
            _ if servers.is_empty() => {}
            Some(file) => repeat_config(&mut choice.repeated_flags, file),
            None if !self.is_recorded() => return Err(self.unnamed("an MCP server, which is not started")),
            None => return Ok(Vec::new()),
        }
        match self.purpose {
            Purpose::Replay { servers: pool, .. } => pool.connect(servers, cwd).await,
            _ => mcp::connect(servers, cwd).await,
        }
    }

    /// Returns the chosen tools of the folder.
    pub(super) fn tools(
        &self,
        config: &Configuration,
        react: &ReactConfig,
        cwd: &Path,
        servers: &[Arc<McpServer>],
    ) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        if matches!(self.purpose, Purpose::Dream) {
            return Ok(Vec::new());
        }
        let checks = !self.is_recorded() || self.given.file.is_some();
        known_tools(cwd, config, servers, checks.then_some(&react.permissions))
    }

    /// Returns the memory consolidation, if it is enabled.
    pub(super) fn dreams(
        &self,
        models: &AgentBuilder,
        config: &Configuration,
        cwd: &Path,
        is_unknown: bool,
    ) -> Result<Option<Dreams>, Failure> {
        match (config.memory.on(), config.dream.on()) {
            _ if is_unknown && !matches!(self.purpose, Purpose::Dream) => Ok(None),
            (Some(memory), Some(dream)) => {
                let (history, files) = (memory.history(cwd)?, memory.files(cwd)?);
                let dreams = Dreams::new(models.clone(), history, files, dream.clone());
                Ok(Some(dreams.map_err(dream_thread::failed)?))
            }
            _ => Ok(None),
        }
    }

    /// Adds the memory and the history of turns to the agent of a turn or a replay.
    pub(super) fn remembering(
        &self,
        mut agent: AgentBuilder,
        config: &Configuration,
        cwd: &Path,
        is_unknown: bool,
        dreams: Option<&Dreams>,
    ) -> Result<AgentBuilder, Failure> {
        if let Purpose::Dream = self.purpose {
            return Ok(agent);
        }
        if let Some(memory) = config.memory.on() {
            // A pure replay retrieves nothing.
            let is_used = self.writes() && !is_unknown;
            agent = memory.add_to(agent, if is_used { memory.open(cwd)? } else { memory::placeholder() });
        }
        if let Some(dreams) = dreams {
            agent = agent.history(dreams.history().clone());
        }
        Ok(match self.purpose {
            Purpose::Replay { tools, .. } => agent.replay_tools(*tools),
            _ => agent,
        })
    }

    /// Returns the dreams that may follow a turn, unless only the database vouches for their thread.
    pub(super) async fn permitted_dreams(
        &self,
        dreams: Option<Dreams>,
        store: &dyn Checkpointer,
        user: Option<&str>,
        cwd: &Path,
        notes: &mut Vec<Note>,
    ) -> Result<Option<Dreams>, Failure> {
        let is_turn = self.writes() && !matches!(self.purpose, Purpose::Dream);
        let (Some(_), Some(user), true) = (&dreams, user, is_turn) else { return Ok(dreams) };
        notes.extend(dream_thread::note_earlier(cwd));
        let Some(problem) = foreign_dreams(self.location, store, user).await? else { return Ok(dreams) };
        notes.push(Note::new(&["dreams", &self.location.db().to_string()], format!("no dreams: {problem}")));
        Ok(None)
    }

    /// Returns the error for a configuration of the thread that cannot be used.
    pub(super) fn misfit(&self, error: &dyn std::fmt::Display) -> Failure {
        let thread = self.thread;
        Failure::usage(format!("thread `{thread}` remembers a configuration that does not fit: {error}"))
    }

    /// Returns the error for an action that requires an explicitly named file: a database may come from someone
    /// else.
    fn unnamed(&self, what: &str) -> Failure {
        let thread = self.thread;
        Failure::usage(format!(
            "thread `{thread}` remembers {what} unless you name it: repeat `--config FILE`"
        ))
    }
}

/// Returns the reason why the user's dreams in a database cannot be resumed: their thread is not trusted, and its calls would
/// edit the user's memory.
pub(super) async fn foreign_dreams(
    location: &Location,
    store: &dyn Checkpointer,
    user: &str,
) -> Result<Option<String>, Failure> {
    let thread = Dreams::thread(user);
    let (stored, _) = location.remembered(store, &thread, None).await?;
    Ok(stored.is_foreign.then(|| {
        format!(
            "the thread `{thread}` of this database was not run by you on this machine, and a dream \
             would continue it; remove it with `superstep delete`, or use another database with `--db`"
        )
    }))
}
