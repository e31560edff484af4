//! The setup of a run: its agent, its models and its memory.
//!
//! Start at [`Setup`].

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::RngExt;
use serde_json::{Map, Value, json};
use superstep::{
    Answers, CheckpointId, Checkpointer, RunOptions, StreamMode, Streaming, ThreadId,
    agent::{Agent, AgentBuilder, ReactConfig, approval::Trust, config::PermissionRule, replay::ReplayTools},
    llm::Tool,
    mcp::McpServer,
    memory::Dreams,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::shared::TurnArgs,
    config::{
        configuration::Configuration,
        file,
        location::Location,
        memory::{self, Memory},
        model::{Choice, Environment, ModelInputs, repeat_config},
        notes,
        place::Db,
        remembered::Remembered,
        trust::{Decided, Replayed},
    },
    offline::planner::OFFLINE,
    output::{
        exit::{Failure, exit_of},
        human::Human,
        json::Json,
        run_output::Output,
        text::{printable_line, quoted},
    },
    session::{dream_thread, mcp, randomness::seeded_rng, results, snapshots, tools, waiting::Waiting},
};

/// The purpose of an agent's setup.
pub(crate) enum Purpose {
    /// A turn, optionally for this user and from this checkpoint.
    Turn { user: Option<String>, from: Option<CheckpointId> },
    /// A replay; whether models are called, whether tools run, which server tools are used, and the checkpoint whose settings
    /// apply, instead of those of the newest one. The servers are closed by their pool.
    Replay {
        calls_model: bool,
        runs_tools: bool,
        tools: ReplayTools,
        at: Option<CheckpointId>,
        servers: Arc<mcp::Pool>,
    },
}

/// The basis of a run that has not begun: the settings from flags, the thread and the environment.
pub(crate) struct Basis {
    pub(crate) thread: ThreadId,
    /// The user of the memory, if any.
    pub(crate) user: Option<String>,
    pub(crate) choice: Choice,
    configuration: Configuration,
    cwd: PathBuf,
    /// The folder of the thread's last turn, if its database may contain threads of many folders.
    last_cwd: Option<String>,
    /// The user did not create the thread on this machine.
    is_unknown: bool,
    config: ReactConfig,
    pub(crate) decided: Arc<Decided>,
    /// The decisions that the agent takes from the thread.
    trust: Arc<dyn Trust>,
    db: Db,
}

impl Basis {
    pub(crate) async fn new(
        store: &dyn Checkpointer,
        thread: ThreadId,
        purpose: Purpose,
        location: &Location,
        turn: &TurnArgs,
    ) -> Result<Self, Failure> {
        let (mut remembered, decided) = match purpose {
            Purpose::Replay { at: Some(at), .. } => location.remembered_at(store, &thread, at).await?,
            Purpose::Replay { .. } => location.remembered(store, &thread, None).await?,
            Purpose::Turn { from, .. } => location.remembered(store, &thread, from).await?,
        };
        let is_pure = matches!(purpose, Purpose::Replay { runs_tools: false, .. });
        let cwd = match location.cwd_of(&remembered) {
            // Nothing is done in it, so it may be a folder of another machine.
            Err(_) if is_pure => location.cwd().to_owned(),
            cwd => cwd?,
        };
        let last_cwd = remembered.cwd.clone().filter(|_| location.has_own_db());
        let is_foreign = remembered.is_foreign;
        let mut left_out = Vec::new();
        // A pure replay has no effects.
        if is_foreign && !is_pure {
            (remembered, left_out) = remembered.narrowed();
        }
        let configuration = configuration(&thread, &purpose, &remembered, turn)?;
        if turn.config.is_none() && !left_out.is_empty() {
            let note = format!(
                "thread `{thread}` was not set up by you on this machine, so this is not taken from its database: {}; \
                 name it with `--config FILE` to have it",
                printable_line(&left_out.join(", "))
            );
            notes::print_once(&["settings", &location.db().to_string(), thread.as_str()], &note);
        }
        let trust: Arc<dyn Trust> = match purpose {
            Purpose::Turn { .. } => decided.clone(),
            Purpose::Replay { .. } => Arc::new(Replayed(decided.clone())),
        };
        let (user, calls_model) = match purpose {
            Purpose::Turn { user, .. } => (user, true),
            Purpose::Replay { calls_model, .. } => (None, calls_model),
        };
        let memory = configuration.memory.on();
        let user = user.or(remembered.user.clone());
        let user = user.or_else(|| memory.map(|memory| memory.user().to_owned()));
        let choice = choice(remembered, &configuration, turn, calls_model).await?;
        let config = configuration.react(choice.name == OFFLINE);
        // Only the database vouches for the messages of this thread, so this turn does not retrieve, store or
        // consolidate them.
        let is_unknown = is_foreign && turn.config.is_none();
        let db = location.db().clone();
        Ok(Self {
            thread,
            user,
            choice,
            configuration,
            cwd,
            last_cwd,
            is_unknown,
            config,
            decided,
            trust,
            db,
        })
    }

    /// Connects the MCP servers, if an explicitly named file, and not only a database, configures them. A turn that
    /// `needs` them is rejected without.
    async fn connect(
        &mut self,
        named: Option<&Path>,
        pool: Option<&mcp::Pool>,
        needs: bool,
    ) -> Result<Vec<Arc<McpServer>>, Failure> {
        let servers = self.configuration.wanted_servers().map_err(Failure::usage)?;
        match named {
            _ if servers.is_empty() => {}
            Some(file) => repeat_config(&mut self.choice.repeated_flags, file),
            None if needs => {
                return Err(unnamed(&self.thread, "an MCP server, which is not started"));
            }
            None => return Ok(Vec::new()),
        }
        match pool {
            Some(pool) => pool.connect(servers, &self.cwd).await,
            None => mcp::connect(servers, &self.cwd).await,
        }
    }

    /// Opens the database with the settings of the configuration.
    pub(crate) fn store(
        &self,
        location: &Location,
        store: Arc<dyn Checkpointer>,
    ) -> Result<Arc<dyn Checkpointer>, Failure> {
        location.reopen(store, self.configuration.db.options())
    }

    /// Builds an agent with its models, settings and checkpointer.
    pub(crate) fn agent(&self, store: Arc<dyn Checkpointer>) -> Result<AgentBuilder, Failure> {
        let models = builder(&self.choice, self.config.clone())?;
        Ok(models.trust(self.trust.clone()).checkpointer(store))
    }

    /// Returns the memory consolidation, if it is enabled and there is a model for it.
    pub(crate) fn dreams(&self, agent: AgentBuilder) -> Result<Option<Dreams>, Failure> {
        match (self.configuration.memory.on(), self.configuration.dream.on()) {
            (Some(memory), Some(config)) => {
                let (history, files) = (memory.history(&self.cwd)?, memory.files(&self.cwd)?);
                Ok(Some(Dreams::new(agent, history, files, config.clone()).map_err(dream_thread::failed)?))
            }
            _ => Ok(None),
        }
    }

    /// Rejects resuming a turn in another folder than it began in, because the questions applied to that one.
    pub(crate) fn check_folder(&self) -> Result<(), Failure> {
        match &self.last_cwd {
            Some(folder) if Path::new(folder) != self.cwd => Err(Failure::usage(format!(
                "the turn of thread `{}` began in the folder `{folder}` and can continue only there: repeat \
                 `--cwd {}`, or begin another turn with `superstep run --discard`",
                self.thread,
                quoted(folder)
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the reason why the user's dreams in this database cannot be resumed: their thread is not
    /// trusted, and its calls would edit the user's memory.
    pub(crate) async fn foreign_dreams(
        &self,
        store: &dyn Checkpointer,
        user: &str,
    ) -> Result<Option<String>, Failure> {
        let thread = Dreams::thread(user);
        let mut remembered = Remembered::load(store, &thread, None).await?;
        if remembered.is_foreign {
            remembered.is_foreign = !Decided::about(&self.db, thread.as_str())?.knows(&remembered);
        }
        Ok(remembered.is_foreign.then(|| {
            format!(
                "the thread `{thread}` of this database was not run by you on this machine, and a dream \
                 would continue it; remove it with `superstep delete`, or use another database with `--db`"
            )
        }))
    }

    /// Returns the options of a run, which stores these settings with the thread.
    pub(crate) fn run_on(
        &self,
        thread: &ThreadId,
        cancel: &CancellationToken,
    ) -> Result<RunOptions, Failure> {
        let remembered = remembered(&self.choice, &self.configuration, &self.cwd, self.user.clone());
        if *thread == self.thread {
            self.decided.runs_with(&remembered);
        } else {
            let decided = Decided::about(&self.db, thread.as_str())?;
            decided.runs_with(&remembered);
            decided.begins_run()?;
        }
        Ok(remembering(remembered)?.thread(thread.as_str()).cancel(cancel.clone()))
    }
}

/// Returns the configuration of a run: from the named file, or from the thread, with the flags and the usual memory.
fn configuration(
    thread: &ThreadId,
    purpose: &Purpose,
    remembered: &Remembered,
    turn: &TurnArgs,
) -> Result<Configuration, Failure> {
    let misfit = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("thread `{thread}` remembers a configuration that does not fit: {error}"))
    };
    let configuration = match &turn.config {
        Some(file) => file::read(file)?,
        None => Configuration::of_thread(remembered.configuration(), turn.preset.as_deref())
            .map_err(|wrong| misfit(&wrong))?,
    };
    let mut configuration = configuration.with_flags(turn);
    let is_unknown = remembered.is_foreign && turn.config.is_none();
    if is_unknown && configuration.memory.on().is_some_and(|memory| *memory != Memory::usual()) {
        return Err(unnamed(thread, "a memory, which is not opened"));
    }
    let may_dream = turn.preset.is_some() || turn.config.is_some();
    match purpose {
        Purpose::Turn { .. } => {
            let note = configuration.add_usual_memory(may_dream);
            if let (Some(note), false) = (note, turn.quiet) {
                notes::print_once(&["memory"], &note);
            }
            if is_unknown && !turn.quiet && !turn.no_memory {
                notes::print_once(
                    &["memory of", thread.as_str()],
                    "the long-term memory is not used in this turn: the thread was not set up by you on this machine",
                );
            }
        }
        // A file named for a replay does not change the memory that its turns had.
        Purpose::Replay { .. } if remembered.config.get("memory").is_some_and(Memory::is_usual) => {
            configuration.add_usual_memory(may_dream);
        }
        Purpose::Replay { .. } => {}
    }
    configuration.check().map_err(|wrong| misfit(&wrong))?;
    if turn.config.is_none() && configuration.memory.on().is_some_and(Memory::is_elsewhere) {
        return Err(unnamed(thread, "a memory outside of its folder, which is not opened"));
    }
    Ok(configuration)
}

/// Chooses the models, and the flags that a later command must repeat.
async fn choice(
    remembered: Remembered,
    configuration: &Configuration,
    turn: &TurnArgs,
    calls_model: bool,
) -> Result<Choice, Failure> {
    let is_foreign = remembered.is_foreign;
    let is_elsewhere = configuration.memory.on().is_some_and(Memory::is_elsewhere);
    let inputs = ModelInputs {
        flags: turn,
        thread: remembered,
        environment: Environment::read(),
        profiles: configuration.models.clone(),
        text_calls: configuration.agent.text_calls(),
    };
    let mut choice = if calls_model { inputs.choose().await? } else { inputs.names_only() };
    if let (true, Some(file)) = (is_elsewhere || is_foreign, &turn.config) {
        repeat_config(&mut choice.repeated_flags, file);
    }
    if let (true, Some(url)) = (is_foreign, &turn.base_url)
        && !choice.repeated_flags.contains(&"--base-url".to_owned())
    {
        choice.repeated_flags.extend(["--base-url".to_owned(), url.clone()]);
    }
    Ok(choice)
}

/// Everything a run needs.
pub(crate) struct Setup<'a> {
    pub(crate) location: &'a Location,
    pub(crate) basis: Basis,
    /// The user has not seen the thread's name yet.
    pub(crate) is_fresh: bool,
    pub(crate) turn: &'a TurnArgs,
    pub(crate) agent: Agent,
    pub(super) store: Arc<dyn Checkpointer>,
    pub(super) dreams: Option<Dreams>,
    pub(crate) servers: Vec<Arc<McpServer>>,
    pub(crate) cancel: CancellationToken,
}

impl<'a> Setup<'a> {
    pub(crate) async fn new(
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        purpose: Purpose,
        turn: &'a TurnArgs,
    ) -> Result<Self, Failure> {
        dream_thread::refuse(location, &thread)?;
        let writes = !matches!(purpose, Purpose::Replay { runs_tools: false, .. });
        let (replay_tools, pool) = match &purpose {
            Purpose::Replay { tools, servers, .. } => (*tools, Some(servers.clone())),
            Purpose::Turn { .. } => (ReplayTools::default(), None),
        };
        // The recorded lists of tools and their results are enough for a pure replay.
        let is_recorded = matches!(
            purpose,
            Purpose::Replay { calls_model: false, runs_tools: false, tools: ReplayTools::Recorded, .. }
        );
        let mut basis = Basis::new(&*store, thread, purpose, location, turn).await?;
        let servers = basis.connect(turn.config.as_deref(), pool.as_deref(), !is_recorded).await?;
        let Basis { configuration, cwd, .. } = &basis;
        let rules = (!is_recorded || turn.config.is_some()).then_some(&basis.config.permissions[..]);
        let tools = known_tools(cwd, configuration, &servers, rules)?;
        let store = if writes { basis.store(location, store)? } else { store };
        let models = basis.agent(store.clone())?;
        let mut dreams = if basis.is_unknown { None } else { basis.dreams(models.clone())? };
        let history = dreams.as_ref().map(|dreams| dreams.history().clone());
        if let (true, Some(_), Some(user)) = (writes, &dreams, &basis.user) {
            if !turn.quiet {
                dream_thread::note_earlier(cwd);
            }
            if let Some(problem) = basis.foreign_dreams(&*store, user).await? {
                notes::print_once(&["dreams", &location.db().to_string()], &format!("no dreams: {problem}"));
                dreams = None;
            }
        }
        let models = match configuration.memory.on() {
            Some(memory) if basis.is_unknown => memory.add_to(models, memory::placeholder()),
            Some(memory) if writes => memory.add_to(models, memory.open(cwd)?),
            // A pure replay retrieves nothing.
            Some(memory) => memory.add_to(models, memory::placeholder()),
            None => models,
        };
        let models = match history {
            Some(history) => models.history(history),
            None => models,
        };
        let models = models.replay_tools(replay_tools);
        let agent = with_tools(models, tools, &servers, configuration, cwd, turn.yes)?;
        let (is_fresh, cancel) = (false, CancellationToken::new());
        Ok(Self { location, basis, is_fresh, turn, agent, store, dreams, servers, cancel })
    }

    pub(crate) fn thread(&self) -> &ThreadId {
        &self.basis.thread
    }

    /// Returns whether replies have a schema.
    pub(crate) fn has_schema(&self) -> bool {
        self.basis.config.finish.schema.is_some()
    }

    pub(crate) fn choice(&self) -> &Choice {
        &self.basis.choice
    }

    pub(crate) async fn close_servers(&self) {
        mcp::close(&self.servers).await;
    }

    /// Returns the model and the configuration as a thread stores them.
    pub(crate) fn settings(&self) -> Map<String, Value> {
        let Basis { choice, configuration, .. } = &self.basis;
        let remembered = Remembered::new(choice.name.clone(), None, configuration.to_remember(), None, None);
        remembered.into_metadata()
    }

    pub(crate) fn options(&self) -> Result<RunOptions, Failure> {
        self.basis.run_on(&self.basis.thread, &self.cancel)
    }

    /// Returns the options of a run with these answers of the user to waiting calls.
    pub(crate) fn answering(&self, waiting: &[Waiting], answers: Answers) -> Result<RunOptions, Failure> {
        let decisions = waiting.iter().filter_map(|call| {
            let decision = answers.get(&call.interrupt).cloned()?;
            Some((&*call.interrupt, &call.request, serde_json::from_value(decision).ok()?))
        });
        self.basis.decided.answered(decisions);
        Ok(self.options()?.answers(answers))
    }

    /// Deletes grants made with calls that were discarded before they ran.
    pub(crate) async fn forget_discarded(&self, granted: &[PermissionRule]) -> Result<(), Failure> {
        if granted.is_empty() {
            return Ok(());
        }
        let Ok(head) = self.agent.graph().thread(self.thread()).state().await else { return Ok(()) };
        let on_thread: Vec<_> = head.values.permissions.iter().cloned().collect();
        self.basis.decided.keep_granted(granted, &on_thread)
    }

    /// Reports the settings of the database that were ignored.
    pub(crate) fn note_ignored(&self) {
        let (db, thread) = (self.basis.db.to_string(), self.thread().as_str());
        for text in self.basis.decided.take_ignored() {
            notes::print_once(&["rule", &db, thread, &text], &text);
        }
    }

    pub(crate) fn output(&self) -> Box<dyn Output> {
        let out = io::stdout();
        if self.turn.json {
            Box::new(Json::new(out))
        } else {
            let on_terminal = out.is_terminal();
            Box::new(Human::new(out, on_terminal, self.turn.quiet))
        }
    }
}

/// Returns the settings that a thread stores.
pub(super) fn remembered(
    choice: &Choice,
    configuration: &Configuration,
    cwd: &Path,
    user: Option<String>,
) -> Remembered {
    let Choice { name, base_url, .. } = choice;
    let cwd = cwd.to_str().map(str::to_owned);
    Remembered::new(name.clone(), base_url.clone(), configuration.to_remember(), cwd, user)
}

/// Returns the options of runs that store these settings with their threads.
pub(super) fn remembering(remembered: Remembered) -> Result<RunOptions, Failure> {
    // A turn that a library or another program began in another folder is not resumed in this one.
    let context = json!({ "cwd": remembered.cwd });
    let options = RunOptions::new().seed(seeded_rng()?.random()).context(context);
    let metadata = remembered.into_metadata().into_iter();
    Ok(metadata.fold(options, |options, (name, value)| options.metadata(name, value)))
}

/// Begins an agent with its models and its settings.
pub(super) fn builder(choice: &Choice, config: ReactConfig) -> Result<AgentBuilder, Failure> {
    let models = choice.fallbacks.iter().cloned();
    let models = models.fold(Agent::builder(choice.model.clone()), AgentBuilder::fallback);
    let models = choice.compaction.iter().cloned().fold(models, AgentBuilder::compaction_model);
    let jitter = superstep::llm::retries::seeded_jitter(seeded_rng()?.random());
    Ok(models.config(config).jitter(jitter))
}

/// Returns the chosen tools of a folder.
///
/// # Errors
/// A permission rule is about none of the tools.
pub(super) fn known_tools(
    cwd: &Path,
    configuration: &Configuration,
    servers: &[Arc<McpServer>],
    rules: Option<&[PermissionRule]>,
) -> Result<Vec<Arc<dyn Tool>>, Failure> {
    let tools = tools::all(cwd, &configuration.tool_settings())?;
    let known = tools.iter().cloned().chain(configuration.memory.on().into_iter().flat_map(Memory::tools));
    let known: Vec<_> = known.chain(servers.iter().flat_map(|server| server.tools())).collect();
    if let Some(rules) = rules {
        tools::check_rules(rules, &known)?;
    }
    Ok(tools::chosen(tools, configuration))
}

/// Completes an agent with its tools, the snapshots of the files that they change, and the source of approvals.
pub(super) fn with_tools(
    models: AgentBuilder,
    tools: Vec<Arc<dyn Tool>>,
    servers: &[Arc<McpServer>],
    configuration: &Configuration,
    cwd: &Path,
    approves_all: bool,
) -> Result<Agent, Failure> {
    let changes_files = tools.iter().any(|tool| tool.changes_files() == Some(true));
    let models = match configuration.snapshots {
        Some(false) => models,
        _ if !changes_files => models,
        _ => models.snapshots(Arc::new(snapshots::open(cwd)?)),
    };
    let models = servers.iter().cloned().fold(models, |models, server| models.tool_source(server));
    let models = if approves_all { models.approve_all() } else { models.approve_by_interrupt() };
    let models = models.system_prompt(configuration.prompt(&tools));
    let models = models.tools(tools).spill(Arc::new(results::open(cwd)?));
    models.build().map_err(|error| Failure::caused(exit_of(&error), &error))
}

/// Returns the error for an action that requires an explicitly named file: a database may come from someone
/// else.
fn unnamed(thread: &ThreadId, what: &str) -> Failure {
    Failure::usage(format!("thread `{thread}` remembers {what} unless you name it: repeat `--config FILE`"))
}

/// Returns the stream options for the agent's events. Stdout may be a pager that reads nothing for a while.
pub(crate) fn streaming() -> Streaming {
    Streaming::from(StreamMode::Custom).buffer(1 << 20)
}
