//! The agent of a worker, which runs the threads that jobs or a cluster name.
//!
//! Its configuration is that of the command line alone: the stored settings of a thread are ignored.
//!
//! Start at [`Hosted`].

use std::sync::Arc;

use futures::{TryFutureExt as _, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep::{
    Checkpointer, RunOptions, State, ThreadId,
    agent::{
        Agent, AgentState,
        approval::{StoredDecision, Trust},
        config::PermissionRule,
    },
    mcp::McpServer,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{
        defaults::Defaults,
        location::Location,
        misfit::InvalidSetting,
        model::{Environment, ModelInputs},
        place::Db,
        settings::{Given, Settings, StoredSettings},
        trust::Decided,
    },
    error::SessionError,
    offline::planner::OFFLINE,
    text::quoted,
    turn::{
        dream_thread, mcp,
        setup::{self, steps},
        waiting::Waiting,
    },
};

/// The input of a job of the agent. A promise: jobs of older versions can be read. A job can set nothing else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    pub prompt: String,
}

/// The agent of a worker.
pub struct Hosted {
    pub agent: Agent,
    /// Notes for the user: about the model, and files of the folder that are not read.
    pub notes: Vec<String>,
    servers: Vec<Arc<McpServer>>,
    store: Arc<dyn Checkpointer>,
    settings: Settings,
    location: Arc<Location>,
}

impl Hosted {
    /// Builds the agent, and starts its MCP servers.
    ///
    /// `rules` are added to those of the configuration, and `defaults` are the settings that neither the flags nor a named file have,
    /// except for the memory. With `trusts_all`, decisions of everybody who can write to the database are accepted.
    ///
    /// # Errors
    /// The configuration does not fit, or has a memory, which would be one for all jobs.
    pub async fn new(
        location: Location,
        given: &Given,
        defaults: &Defaults,
        rules: impl IntoIterator<Item = PermissionRule>,
        trusts_all: bool,
        stop: &CancellationToken,
    ) -> Result<Self, SessionError> {
        let misfit = |wrong: InvalidSetting| SessionError::usage(wrong.to_string());
        let thread = &StoredSettings::default();
        let mut configuration = given.configuration(thread, defaults, "the settings are")?;
        if given.file.is_none() {
            (configuration.memory, configuration.dream) = Default::default();
        }
        if configuration.memory.on().is_some() || configuration.dream.on().is_some() {
            return Err(SessionError::usage(
                "a worker has no long-term memory, because its jobs may come from several users; leave out `memory` and `dream`",
            ));
        }
        let config = configuration;
        config.check().map_err(misfit)?;
        let environment = &Environment::read()?;
        let choice = ModelInputs { given, thread, environment, config: &config, defaults }.choose().await?;
        let mut react = config.react(choice.name == OFFLINE).map_err(misfit)?;
        react.permissions.extend(rules);
        let cwd = &location.cwd;
        let store = location.open()?;
        let servers = mcp::connect(config.wanted_servers().map_err(SessionError::usage)?, cwd, stop).await?;
        let tools = steps::known_tools(cwd, &config, &servers, Some(&react.permissions))?;
        let trust = WorkerTrust { db: location.db().clone(), trusts_all };
        let models = steps::builder(&choice, react)?.trust(trust).checkpointer(store.clone());
        let (models, note) = steps::instructed(models, &config, cwd, given)?;
        // The stored texts of a thread may be those of everybody who can write to the database.
        let models = if trusts_all { models } else { models.reread_instructions() };
        let agent = steps::with_tools(models, tools, &servers, &config, cwd, given.approves_all)?;
        let settings = steps::settings(&choice, config, cwd, None);
        let notes = choice.note.into_iter().chain(note.map(|note| note.text)).collect();
        Ok(Self { agent, notes, servers, store, settings, location: Arc::new(location) })
    }

    #[cfg(feature = "postgres")]
    pub fn add_to(
        &self,
        worker: superstep::worker::Worker,
    ) -> Result<superstep::worker::Worker, SessionError> {
        let worker = worker.options(setup::run_options(&self.settings)?);
        Ok(worker.graph_of_inputs(self.agent.graph().clone(), self.input()).admit(self.admit()))
    }

    #[cfg(feature = "restate")]
    pub fn serve_by(
        &self,
        endpoint: superstep::restate::EndpointBuilder,
    ) -> Result<superstep::restate::EndpointBuilder, SessionError> {
        let endpoint = endpoint.options(setup::run_options(&self.settings)?);
        Ok(endpoint.graph_of_inputs(self.agent.graph().clone(), self.input()).admit(self.admit()))
    }

    fn input(&self) -> impl Fn(Prompt) -> <AgentState as State>::Update + Send + Sync + use<> {
        let agent = self.agent.clone();
        move |job| agent.input(&job.prompt)
    }

    fn admit(&self) -> impl Fn(ThreadId) -> BoxFuture<'static, Result<(), String>> + Send + Sync + use<> {
        let (location, store, agent) = (self.location.clone(), self.store.clone(), self.agent.clone());
        move |thread| {
            let (location, store, agent) = (location.clone(), store.clone(), agent.clone());
            let admitted = async move { admit(&location, &*store, &agent, &thread).await };
            Box::pin(admitted.map_err(|failure| failure.message))
        }
    }

    /// Returns the checkpointer of the threads.
    pub fn store(&self) -> Arc<dyn Checkpointer> {
        self.store.clone()
    }

    /// Returns the folder and the database of the threads.
    pub fn location(&self) -> Arc<Location> {
        self.location.clone()
    }

    /// Returns the change of the options of a run, which stores the settings with its thread.
    pub fn options(&self) -> impl Fn(RunOptions) -> RunOptions + Send + Sync + use<> {
        let settings = self.settings.clone();
        move |options| setup::stored_with(options, &settings)
    }

    /// Returns the check of a thread before each of its runs, which records the answers as decisions of the user on this machine.
    pub fn admit_with_answers(
        &self,
    ) -> impl Fn(ThreadId, Vec<(String, Value)>) -> BoxFuture<'static, Result<(), String>> + Send + Sync + use<>
    {
        let (location, store, agent) = (self.location.clone(), self.store.clone(), self.agent.clone());
        let settings = self.settings.to_stored();
        move |thread, answers| {
            let (location, store, agent) = (location.clone(), store.clone(), agent.clone());
            let settings = settings.clone();
            let admitted = async move {
                admit(&location, &*store, &agent, &thread).await?;
                let decided = location.decided(&thread)?;
                decided.runs_with(&settings);
                if !answers.is_empty() {
                    let state = agent.graph().thread(&thread).state().await?;
                    let waiting = Waiting::of(state.tasks.iter().flat_map(|task| &task.interrupts))?;
                    decided.answered(Waiting::decisions(&waiting, |interrupt| {
                        answers.iter().find(|(id, _)| id == interrupt).map(|(_, answer)| answer.clone())
                    }));
                }
                decided.begins_run()
            };
            Box::pin(admitted.map_err(|failure: SessionError| failure.message))
        }
    }

    pub fn model(&self) -> &str {
        self.settings.model.as_deref().unwrap_or_default()
    }

    /// Shuts the MCP servers down.
    pub async fn close(&self) {
        mcp::close(&self.servers).await;
    }
}

/// Rejects the threads of dreams, and unfinished turns of another folder, to which their questions apply.
async fn admit(
    location: &Location,
    store: &dyn Checkpointer,
    agent: &Agent,
    thread: &ThreadId,
) -> Result<(), SessionError> {
    dream_thread::refuse(location, thread)?;
    if store.load(thread, None).await?.is_none() {
        return Ok(());
    }
    let remembered = StoredSettings::load(store, thread, None).await?;
    let Some(folder) = remembered.cwd.filter(|folder| location.cwd.as_os_str() != folder.as_str()) else {
        return Ok(());
    };
    if agent.graph().thread(thread).state().await?.next.is_empty() {
        return Ok(());
    }
    Err(SessionError::usage(format!(
        "the turn of thread `{thread}` began in the folder `{folder}`, and this worker has another one; resume it with \
         `superstep resume --cwd {}`, or a worker of that folder",
        quoted(&folder)
    )))
}

/// The decisions that a worker accepts.
struct WorkerTrust {
    db: Db,
    /// Accepts those of everybody who can write to the database.
    trusts_all: bool,
}

impl WorkerTrust {
    /// Returns whether the user's decisions on this machine have something. They are read again each time: the user decides while the
    /// worker runs.
    fn knows(&self, thread: Option<&ThreadId>, what: &str, has: impl FnOnce(&Decided) -> bool) -> bool {
        let thread = thread.map_or("", ThreadId::as_str);
        let known = self.trusts_all
            || match Decided::about(&self.db, thread) {
                Ok(decided) => has(&decided),
                Err(failure) => {
                    tracing::warn!(
                        thread,
                        error = failure.message,
                        "the decisions of the user cannot be read"
                    );
                    false
                }
            };
        if !known {
            tracing::warn!(
                thread,
                what,
                "a decision of the database is not one of this user, and is ignored"
            );
        }
        known
    }
}

impl Trust for WorkerTrust {
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        self.knows(thread, "rule", |decided| decided.is_granted(thread, rule))
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        self.knows(stored.thread, "approval", |decided| decided.is_decided(stored))
    }

    fn begins(&self, thread: Option<&ThreadId>, interrupt: &str, start: &str) -> bool {
        self.knows(thread, "approval that was used", |decided| decided.begins(thread, interrupt, start))
    }
}
