//! The steps that set a run up, in their order.
//!
//! Start at [`Setup::new`].

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::RngExt;
use superstep::{
    Checkpointer, ThreadId,
    agent::{Agent, AgentBuilder, ReactConfig, approval::Trust, config::PermissionRule, replay::ReplayTools},
    llm::{Tool, retries::seeded_jitter},
    mcp::McpServer,
    memory::Dreams,
};
use tokio_util::sync::CancellationToken;

use super::{Purpose, Setup};
use crate::{
    config::{
        configuration::Configuration,
        defaults::Defaults,
        instructions,
        location::Location,
        memory::{self, Memory},
        misfit::InvalidSetting,
        model::{Choice, Environment, ModelInputs, repeat_config},
        notes::Note,
        settings::{Given, OwnAgent, Settings, StoredSettings},
        trust::{Decided, replayed::Replayed},
    },
    error::{ErrorKind, SessionError, kind_of},
    offline::planner::OFFLINE,
    text::printable_line,
    turn::{dream_thread, mcp, randomness::seeded_rng, results, snapshots, tools},
};

impl Setup {
    /// Sets a run up. The notes are for the user, even if it fails. `cancel` stops the set-up, and later the run.
    pub async fn new(
        location: Arc<Location>,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        purpose: Purpose,
        given: &Given,
        notes: &mut Vec<Note>,
        cancel: CancellationToken,
    ) -> Result<Self, SessionError> {
        let none = Defaults::default();
        let steps = Steps {
            location: &location,
            thread: &thread,
            purpose: &purpose,
            given,
            defaults: &none,
            cancel: &cancel,
        };
        let (stored, decided) = steps.stored(&*store).await?;
        let cwd = steps.folder(&stored)?;
        let last_cwd = stored.cwd.clone().filter(|_| location.has_own_db());
        if let Some(own) = &given.agent {
            let (agent, servers) = steps.own(own, &cwd, store.clone(), decided.clone(), notes).await?;
            let config = agent.current_config();
            let user = given.settings.user.clone().or(stored.user);
            let (model, cwd_name) = (agent.model_name().to_owned(), cwd.to_str().map(str::to_owned));
            let settings =
                Settings { model: Some(model.clone()), cwd: cwd_name, user, ..Settings::default() };
            return Ok(Self {
                location,
                thread,
                settings,
                model,
                note: None,
                repeated_flags: Vec::new(),
                decided,
                store,
                dreams: None,
                servers,
                agent: agent.build().map_err(|error| SessionError::caused(kind_of(&error), &error))?,
                cancel,
                has_schema: config.finish.schema.is_some(),
                window: config.context.window,
                budget: config.budget.clone(),
                cwd,
                last_cwd,
            });
        }
        let defaults = steps.read_defaults(&cwd)?;
        let steps = Steps { defaults: &defaults, ..steps };
        let is_foreign = stored.is_foreign;
        // A pure replay has no effects.
        let (stored, left_out) =
            if is_foreign && steps.writes() { stored.narrowed() } else { (stored, Vec::new()) };
        let config = steps.configuration(&stored, notes)?;
        notes.extend(steps.left_out(&left_out));
        let user = given.settings.user.clone().or(stored.user.clone());
        let user = user.or_else(|| config.memory.on().map(|memory| memory.user().to_owned()));
        let mut choice = steps.choice(&stored, &config).await?;
        let react = config.react(choice.name == OFFLINE).map_err(|wrong| steps.misfit(&wrong))?;
        let (window, budget) = (react.context.window, react.budget.clone());
        let servers = steps.servers(&config, &cwd, &mut choice, notes).await?;
        let mut tools = steps.tools(&config, &react, &cwd, &servers)?;
        tools.retain(|tool| !given.hidden_tools.contains(&tool.spec().name.as_str()));
        let store = if steps.writes() { location.reopen(store, config.db.options())? } else { store };

        // Only the database vouches for the messages of such a thread, so its turns do not retrieve, store or consolidate them.
        let is_unknown = is_foreign && given.file.is_none();
        let trust: Arc<dyn Trust> = match purpose {
            Purpose::Turn { .. } | Purpose::Dream => decided.clone(),
            Purpose::Replay { .. } => Arc::new(Replayed(decided.clone())),
        };
        let has_schema = react.finish.schema.is_some();
        let models = builder(&choice, react)?.trust(trust).checkpointer(store.clone());
        let dreams = steps.dreams(&models, &config, &cwd, is_unknown)?;
        let agent = steps.remembering(models, &config, &cwd, is_unknown, dreams.as_ref())?;
        let agent = steps.instructed(agent, &config, &cwd, is_foreign, notes)?;
        let agent = match purpose {
            Purpose::Dream => agent.build().map_err(|error| SessionError::caused(kind_of(&error), &error))?,
            _ => with_tools(agent, tools, &servers, &config, &cwd, given.approves_all)?,
        };
        let dreams = steps.permitted_dreams(dreams, &*store, user.as_deref(), &cwd, notes).await?;
        let settings = settings(&choice, config, &cwd, user);
        let Choice { name, note, repeated_flags, .. } = choice;
        Ok(Self {
            location,
            thread,
            settings,
            model: name,
            note,
            repeated_flags,
            decided,
            store,
            dreams,
            servers,
            agent,
            cancel,
            has_schema,
            window,
            budget,
            cwd,
            last_cwd,
        })
    }
}

/// Returns the configuration of the next turn of a thread.
///
/// # Errors
/// It does not fit, or the thread cannot be read.
pub(crate) async fn next_configuration(
    location: &Location,
    store: &dyn Checkpointer,
    thread: &ThreadId,
    given: &Given,
) -> Result<Configuration, SessionError> {
    let purpose = &Purpose::Turn { from: None, servers: Arc::default() };
    let (cancel, defaults) = (&CancellationToken::new(), &Defaults::load(location.cwd())?);
    let steps = Steps { location, thread, purpose, given, defaults, cancel };
    let (stored, _) = steps.stored(store).await?;
    let stored = if stored.is_foreign { stored.narrowed().0 } else { stored };
    steps.configuration(&stored, &mut Vec::new())
}

#[derive(Clone, Copy)]
struct Steps<'a> {
    location: &'a Location,
    thread: &'a ThreadId,
    purpose: &'a Purpose,
    given: &'a Given,
    /// The settings of new threads, which the user has confirmed.
    defaults: &'a Defaults,
    cancel: &'a CancellationToken,
}

impl Steps<'_> {
    /// Returns whether the run has effects; a pure replay has none.
    fn writes(&self) -> bool {
        !matches!(self.purpose, Purpose::Replay { runs_tools: false, .. })
    }

    /// Returns whether the recorded lists of tools and their results are enough for the run.
    fn is_recorded(&self) -> bool {
        let Purpose::Replay { calls_model, runs_tools, tools, .. } = self.purpose else { return false };
        !calls_model && !runs_tools && *tools == ReplayTools::Recorded
    }

    /// Makes the agent of a program of one's own, which stores its threads here and waits for the decisions of its user.
    async fn own(
        &self,
        own: &OwnAgent,
        cwd: &Path,
        store: Arc<dyn Checkpointer>,
        decided: Arc<Decided>,
        notes: &mut Vec<Note>,
    ) -> Result<(AgentBuilder, Vec<Arc<McpServer>>), SessionError> {
        let servers = match self.purpose {
            Purpose::Turn { servers: pool, .. } => self.added_servers(pool, cwd, notes).await?,
            Purpose::Dream | Purpose::Replay { .. } => Vec::new(),
        };
        let trust: Arc<dyn Trust> = decided;
        let agent = own.make(cwd)?.without_tools(self.given.hidden_tools);
        let agent = agent.trust(trust).checkpointer(store).approve_by_interrupt();
        Ok((servers.iter().cloned().fold(agent, |agent, server| agent.tool_source(server)), servers))
    }

    /// Connects the MCP servers of the client. Those that fail are noted.
    async fn added_servers(
        &self,
        pool: &mcp::Pool,
        cwd: &Path,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Arc<McpServer>>, SessionError> {
        let mut connected = Vec::new();
        for (name, config) in &self.given.servers {
            let one = BTreeMap::from([(name.clone(), config.clone())]);
            match pool.connect(one, cwd, self.cancel).await {
                Ok(servers) => connected.extend(servers),
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                Err(error) => notes.push(Note::always(error.message)),
            }
        }
        Ok(connected)
    }

    /// Loads the settings of the thread, and the user's decisions about it.
    async fn stored(&self, store: &dyn Checkpointer) -> Result<(StoredSettings, Arc<Decided>), SessionError> {
        if !matches!(self.purpose, Purpose::Dream) {
            dream_thread::refuse(self.location, self.thread)?;
        }
        match self.purpose {
            Purpose::Turn { from, .. } => self.location.remembered(store, self.thread, *from).await,
            Purpose::Replay { at: Some(at), .. } => {
                self.location.remembered_at(store, self.thread, *at).await
            }
            Purpose::Dream | Purpose::Replay { at: None, .. } => {
                self.location.remembered(store, self.thread, None).await
            }
        }
    }

    fn folder(&self, stored: &StoredSettings) -> Result<PathBuf, SessionError> {
        match self.location.cwd_of(stored) {
            // Nothing is done in it, so it may be a folder of another machine.
            Err(_) if !self.writes() => Ok(self.location.cwd().to_owned()),
            cwd => cwd,
        }
    }

    /// Reads the settings of new threads. A run without effects needs none.
    fn read_defaults(&self, cwd: &Path) -> Result<Defaults, SessionError> {
        if self.writes() { Defaults::load(cwd) } else { Ok(Defaults::default()) }
    }

    /// Returns the configuration: from the named file, or from the thread, with the flags and the usual memory.
    fn configuration(
        &self,
        stored: &StoredSettings,
        notes: &mut Vec<Note>,
    ) -> Result<Configuration, SessionError> {
        let flags = &self.given.settings.config;
        let whose = format!("thread `{}` remembers", self.thread);
        let mut config = self.given.configuration(stored, self.defaults, &whose)?;
        let is_named = self.given.file.is_some();
        let is_unknown = stored.is_foreign && !is_named;
        if is_unknown && config.memory.on().is_some_and(|memory| *memory != Memory::usual()) {
            return Err(self.unnamed("a memory, which is not opened"));
        }
        let is_of_defaults = stored.is_new() && self.defaults.configuration().preset.is_some();
        let may_dream = flags.preset.is_some() || is_named || is_of_defaults;
        match self.purpose {
            Purpose::Turn { .. } | Purpose::Dream => {
                if stored.is_new() && !is_named {
                    notes.extend(self.defaults.note());
                }
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
        if !is_named {
            // Also on a thread that was begun without them.
            let both = config.guardrails.and(&self.defaults.configuration().guardrails);
            config.guardrails =
                both.map_err(|problem| self.misfit(&InvalidSetting::at("guardrails.schema", problem)))?;
        }
        config.check().map_err(|wrong| self.misfit(&wrong))?;
        let is_confirmed = config.memory == self.defaults.configuration().memory;
        if !is_named && !is_confirmed && config.memory.on().is_some_and(Memory::is_elsewhere) {
            return Err(self.unnamed("a memory outside of its folder, which is not opened"));
        }
        Ok(config)
    }

    /// Returns the note about settings of the database that are not used, if any.
    fn left_out(&self, names: &[String]) -> Option<Note> {
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

    /// Chooses the models, and the flags that a later command must repeat.
    async fn choice(&self, stored: &StoredSettings, config: &Configuration) -> Result<Choice, SessionError> {
        let environment = &Environment::read()?;
        let (given, defaults) = (self.given, self.defaults);
        let inputs = ModelInputs { given, thread: stored, environment, config, defaults };
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
    async fn servers(
        &self,
        config: &Configuration,
        cwd: &Path,
        choice: &mut Choice,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Arc<McpServer>>, SessionError> {
        let (Purpose::Turn { servers: pool, .. } | Purpose::Replay { servers: pool, .. }) = self.purpose
        else {
            return Ok(Vec::new());
        };
        let servers = config.wanted_servers().map_err(SessionError::usage)?;
        let mut connected = match &self.given.file {
            _ if servers.is_empty() => Vec::new(),
            None if self.is_recorded() => Vec::new(),
            None if self.defaults.have_servers(&servers) => pool.connect(servers, cwd, self.cancel).await?,
            None => return Err(self.unnamed("an MCP server, which is not started")),
            Some(file) => {
                repeat_config(&mut choice.repeated_flags, file);
                pool.connect(servers, cwd, self.cancel).await?
            }
        };
        connected.extend(self.added_servers(pool, cwd, notes).await?);
        Ok(connected)
    }

    /// Returns the chosen tools of the folder.
    fn tools(
        &self,
        config: &Configuration,
        react: &ReactConfig,
        cwd: &Path,
        servers: &[Arc<McpServer>],
    ) -> Result<Vec<Arc<dyn Tool>>, SessionError> {
        if matches!(self.purpose, Purpose::Dream) {
            return Ok(Vec::new());
        }
        let checks = !self.is_recorded() || self.given.file.is_some();
        known_tools(cwd, config, servers, checks.then_some(&react.permissions))
    }

    /// Returns the memory consolidation, if it is enabled.
    fn dreams(
        &self,
        models: &AgentBuilder,
        config: &Configuration,
        cwd: &Path,
        is_unknown: bool,
    ) -> Result<Option<Dreams>, SessionError> {
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
    fn remembering(
        &self,
        mut agent: AgentBuilder,
        config: &Configuration,
        cwd: &Path,
        is_unknown: bool,
        dreams: Option<&Dreams>,
    ) -> Result<AgentBuilder, SessionError> {
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

    /// Adds the instructions and skills of the folder and the user.
    fn instructed(
        &self,
        agent: AgentBuilder,
        config: &Configuration,
        cwd: &Path,
        is_foreign: bool,
        notes: &mut Vec<Note>,
    ) -> Result<AgentBuilder, SessionError> {
        // A pure replay has those that the thread recorded.
        if !self.writes() || matches!(self.purpose, Purpose::Dream) {
            return Ok(agent);
        }
        let (agent, note) = instructed(agent, config, cwd, self.given)?;
        notes.extend(note);
        Ok(if is_foreign { agent.reread_instructions() } else { agent })
    }

    /// Returns the dreams that may follow a turn, unless only the database vouches for their thread.
    async fn permitted_dreams(
        &self,
        dreams: Option<Dreams>,
        store: &dyn Checkpointer,
        user: Option<&str>,
        cwd: &Path,
        notes: &mut Vec<Note>,
    ) -> Result<Option<Dreams>, SessionError> {
        let is_turn = self.writes() && !matches!(self.purpose, Purpose::Dream);
        let (Some(_), Some(user), true) = (&dreams, user, is_turn) else { return Ok(dreams) };
        notes.extend(dream_thread::note_earlier(cwd));
        let Some(problem) = foreign_dreams(self.location, store, user).await? else { return Ok(dreams) };
        notes.push(Note::new(&["dreams", &self.location.db().to_string()], format!("no dreams: {problem}")));
        Ok(None)
    }

    /// Returns the error for a configuration of the thread that cannot be used.
    fn misfit(&self, error: &dyn Display) -> SessionError {
        let thread = self.thread;
        SessionError::usage(format!("thread `{thread}` remembers a configuration that does not fit: {error}"))
    }

    /// Returns the error for an action that requires an explicitly named file: a database may come from someone
    /// else.
    fn unnamed(&self, what: &str) -> SessionError {
        let thread = self.thread;
        SessionError::usage(format!(
            "thread `{thread}` remembers {what} unless you name it: repeat `--config FILE`"
        ))
    }
}

/// Returns the chosen tools of a folder.
///
/// # Errors
/// A permission rule is about none of the tools.
pub(crate) fn known_tools(
    cwd: &Path,
    configuration: &Configuration,
    servers: &[Arc<McpServer>],
    rules: Option<&[PermissionRule]>,
) -> Result<Vec<Arc<dyn Tool>>, SessionError> {
    let tools = tools::all(cwd, &configuration.tool_settings())?;
    let known = tools.iter().cloned().chain(configuration.memory.on().into_iter().flat_map(Memory::tools));
    let known: Vec<_> = known.chain(servers.iter().flat_map(|server| server.tools())).collect();
    if let Some(rules) = rules {
        tools::check_rules(rules, &known)?;
    }
    Ok(tools::chosen(tools, configuration))
}

/// Adds the instructions and skills of a folder and the user to an agent, if they are on.
pub(crate) fn instructed(
    agent: AgentBuilder,
    config: &Configuration,
    cwd: &Path,
    given: &Given,
) -> Result<(AgentBuilder, Option<Note>), SessionError> {
    if !instructions::is_on(config) {
        return Ok((agent, None));
    }
    let reader = instructions::reader(cwd, &given.trusted)?;
    let note = instructions::note(cwd, &reader.found());
    Ok((agent.instructions(reader), note))
}

/// Begins an agent with its models and its settings.
pub fn builder(choice: &Choice, config: ReactConfig) -> Result<AgentBuilder, SessionError> {
    let models = choice.fallbacks.iter().cloned();
    let models = models.fold(Agent::builder(choice.model.clone()), AgentBuilder::fallback);
    let models = choice.compaction.iter().cloned().fold(models, AgentBuilder::compaction_model);
    let jitter = seeded_jitter(seeded_rng()?.random());
    Ok(models.config(config).jitter(jitter))
}

/// Completes an agent with its tools, the snapshots of the files that they change, and the source of approvals.
pub(crate) fn with_tools(
    models: AgentBuilder,
    tools: Vec<Arc<dyn Tool>>,
    servers: &[Arc<McpServer>],
    configuration: &Configuration,
    cwd: &Path,
    approves_all: bool,
) -> Result<Agent, SessionError> {
    let prompt = configuration.prompt(models.current_config().limit.max, &tools);
    let changes_files = tools.iter().any(|tool| tool.changes_files() == Some(true));
    let models = match configuration.snapshots {
        Some(false) => models,
        _ if !changes_files => models,
        _ => models.snapshots(Arc::new(snapshots::open(cwd)?)),
    };
    let models = servers.iter().cloned().fold(models, |models, server| models.tool_source(server));
    let models = if approves_all { models.approve_all() } else { models.approve_by_interrupt() };
    let models = models.system_prompt(prompt);
    let guards = configuration.guardrails.guards(configuration.secret_variables());
    let guards = guards.map_err(|problem| SessionError::usage(format!("`guardrails.schema`: {problem}")))?;
    let models = guards.into_iter().fold(models, AgentBuilder::guard);
    let models = models.tools(tools).spill(Arc::new(results::open(cwd)?));
    models.build().map_err(|error| SessionError::caused(kind_of(&error), &error))
}

pub fn settings(choice: &Choice, config: Configuration, cwd: &Path, user: Option<String>) -> Settings {
    let (model, base_url) = (Some(choice.name.clone()), choice.base_url.clone());
    Settings { model, base_url, config, cwd: cwd.to_str().map(str::to_owned), user, ..Settings::default() }
}

/// Returns the reason why the user's dreams in a database cannot be resumed: their thread is not trusted, and its calls would
/// edit the user's memory.
pub async fn foreign_dreams(
    location: &Location,
    store: &dyn Checkpointer,
    user: &str,
) -> Result<Option<String>, SessionError> {
    let thread = Dreams::thread(user);
    let (stored, _) = location.remembered(store, &thread, None).await?;
    Ok(stored.is_foreign.then(|| {
        format!(
            "the thread `{thread}` of this database was not run by you on this machine, and a dream \
             would continue it; remove it with `superstep delete`, or use another database with `--db`"
        )
    }))
}
