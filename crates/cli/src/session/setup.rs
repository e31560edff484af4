//! The setup of a run: its settings, its models, its memory and its agent.
//!
//! Start at [`Setup::new`].

mod steps;

use std::{
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

use self::steps::Steps;
use crate::{
    config::{
        configuration::Configuration,
        location::Location,
        memory::Memory,
        model::Choice,
        settings::{Given, Settings},
        trust::{Decided, Replayed},
    },
    offline::planner::OFFLINE,
    output::{
        exit::{Failure, exit_of},
        text::quoted,
    },
    session::{mcp, notes::Note, randomness::seeded_rng, results, snapshots, tools, waiting::Waiting},
};

pub(crate) enum Purpose {
    /// A turn, optionally from this checkpoint.
    Turn { from: Option<CheckpointId> },
    /// A dream, whose agent has tools and a thread of its own.
    Dream,
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

/// Everything that a run needs.
pub(crate) struct Setup<'a> {
    pub(crate) location: &'a Location,
    pub(crate) thread: ThreadId,
    /// The settings of the run, as the thread stores them.
    pub(crate) settings: Settings,
    pub(crate) choice: Choice,
    pub(crate) decided: Arc<Decided>,
    pub(crate) store: Arc<dyn Checkpointer>,
    /// The memory consolidation, if it is enabled.
    pub(crate) dreams: Option<Dreams>,
    pub(crate) servers: Vec<Arc<McpServer>>,
    pub(crate) agent: Agent,
    pub(crate) cancel: CancellationToken,
    pub(crate) has_schema: bool,
    cwd: PathBuf,
    /// The folder of the thread's last turn, if its database may contain threads of many folders.
    last_cwd: Option<String>,
}

impl<'a> Setup<'a> {
    /// Sets a run up. The notes are for the user, even if it fails.
    pub(crate) async fn new(
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        purpose: Purpose,
        given: &Given,
        notes: &mut Vec<Note>,
    ) -> Result<Self, Failure> {
        let steps = Steps { location, thread: &thread, purpose: &purpose, given };
        let (stored, decided) = steps.stored(&*store).await?;
        let cwd = steps.folder(&stored)?;
        let last_cwd = stored.cwd.clone().filter(|_| location.has_own_db());
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
        let servers = steps.servers(&config, &cwd, &mut choice).await?;
        let tools = steps.tools(&config, &react, &cwd, &servers)?;
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
        let agent = match purpose {
            Purpose::Dream => agent.build().map_err(|error| Failure::caused(exit_of(&error), &error))?,
            _ => with_tools(agent, tools, &servers, &config, &cwd, given.approves_all)?,
        };
        let dreams = steps.permitted_dreams(dreams, &*store, user.as_deref(), &cwd, notes).await?;
        let settings = settings(&choice, config, &cwd, user);
        let cancel = CancellationToken::new();
        Ok(Self {
            location,
            thread,
            settings,
            choice,
            decided,
            store,
            dreams,
            servers,
            agent,
            cancel,
            has_schema,
            cwd,
            last_cwd,
        })
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

    /// Returns the reason why the dreams of this user in the database cannot be resumed: their thread is not trusted, and its
    /// calls would edit the user's memory.
    pub(crate) async fn foreign_dreams(&self, user: &str) -> Result<Option<String>, Failure> {
        steps::foreign_dreams(self.location, &*self.store, user).await
    }

    /// Returns the model and the configuration as a thread stores them.
    pub(crate) fn stored_settings(&self) -> Map<String, Value> {
        Settings { base_url: None, cwd: None, user: None, ..self.settings.clone() }.metadata()
    }

    /// Returns the options of a run, which stores the settings with the thread.
    pub(crate) fn options(&self) -> Result<RunOptions, Failure> {
        self.decided.runs_with(&self.settings.to_stored());
        self.options_on(&self.thread)
    }

    /// Returns the options of a dream, which stores the settings with its own thread.
    pub(crate) fn dream_options(&self, user: &str) -> Result<RunOptions, Failure> {
        let thread = Dreams::thread(user);
        let decided =
            if thread == self.thread { self.decided.clone() } else { self.location.decided(&thread)? };
        decided.runs_with(&self.settings.to_stored());
        if thread != self.thread {
            decided.begins_run()?;
        }
        self.options_on(&thread)
    }

    fn options_on(&self, thread: &ThreadId) -> Result<RunOptions, Failure> {
        Ok(run_options(&self.settings)?.thread(thread.as_str()).cancel(self.cancel.clone()))
    }

    /// Returns the options of a run with these answers of the user to waiting calls.
    pub(crate) fn answering(&self, waiting: &[Waiting], answers: Answers) -> Result<RunOptions, Failure> {
        let decisions = waiting.iter().filter_map(|call| {
            let decision = answers.get(&call.interrupt).cloned()?;
            Some((&*call.interrupt, &call.request, serde_json::from_value(decision).ok()?))
        });
        self.decided.answered(decisions);
        Ok(self.options()?.answers(answers))
    }

    /// Deletes grants made with calls that were discarded before they ran.
    pub(crate) async fn forget_discarded(&self, granted: &[PermissionRule]) -> Result<(), Failure> {
        if granted.is_empty() {
            return Ok(());
        }
        let Ok(head) = self.agent.graph().thread(&self.thread).state().await else { return Ok(()) };
        let on_thread: Vec<_> = head.values.permissions.iter().cloned().collect();
        self.decided.keep_granted(granted, &on_thread)
    }

    /// Returns the notes about settings of the database that were ignored.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = Note> {
        let (db, thread) = (self.location.db().to_string(), self.thread.clone());
        let ignored = self.decided.take_ignored().into_iter();
        ignored.map(move |text| Note::new(&["rule", &db, thread.as_str(), &text], text.clone()))
    }
}

pub(super) fn settings(choice: &Choice, config: Configuration, cwd: &Path, user: Option<String>) -> Settings {
    let (model, base_url) = (Some(choice.name.clone()), choice.base_url.clone());
    Settings { model, base_url, config, cwd: cwd.to_str().map(str::to_owned), user, ..Settings::default() }
}

/// Returns the options of runs that store these settings with their threads.
pub(super) fn run_options(settings: &Settings) -> Result<RunOptions, Failure> {
    // A turn that a library or another program began in another folder is not resumed in this one.
    let context = json!({ "cwd": settings.cwd });
    Ok(settings.stored_by(RunOptions::new().seed(seeded_rng()?.random()).context(context)))
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
    let models = models.tools(tools).spill(Arc::new(results::open(cwd)?));
    models.build().map_err(|error| Failure::caused(exit_of(&error), &error))
}

/// Returns the stream options for the agent's events. Stdout may be a pager that reads nothing for a while.
pub(crate) fn streaming() -> Streaming {
    Streaming::from(StreamMode::Custom).buffer(1 << 20)
}
