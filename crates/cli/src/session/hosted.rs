//! The agent of a worker, which runs the threads that jobs name.
//!
//! Its configuration is that of the command line alone: the stored settings of a thread are ignored.
//!
//! Start at [`Hosted`].

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Map;
use superstep::{
    Checkpointer, ThreadId,
    agent::{
        Agent,
        approval::{StoredDecision, Trust},
        config::PermissionRule,
    },
    mcp::McpServer,
    worker::Worker,
};

use crate::{
    args::jobs::AgentWorkerArgs,
    config::{
        configuration::Configuration,
        file,
        location::Location,
        model::{Choice, Environment, ModelInputs},
        place::Db,
        remembered::Remembered,
        trust::Decided,
    },
    offline::planner::OFFLINE,
    output::{
        exit::Failure,
        text::{print_note, quoted},
    },
    session::{dream_thread, mcp, setup},
};

/// The input of a job of the agent. A promise: jobs of older versions can be read. A job can set nothing else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prompt {
    pub(crate) prompt: String,
}

/// The agent of a worker.
pub(crate) struct Hosted {
    pub(crate) agent: Agent,
    servers: Vec<Arc<McpServer>>,
    store: Arc<dyn Checkpointer>,
    choice: Choice,
    configuration: Configuration,
    cwd: PathBuf,
    location: Arc<Location>,
}

impl Hosted {
    /// Builds the agent, and starts its MCP servers.
    ///
    /// # Errors
    /// The configuration does not fit, or has a memory, which would be one for all jobs.
    pub(crate) async fn new(location: Location, args: &AgentWorkerArgs) -> Result<Self, Failure> {
        let misfit = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let configuration = match &args.agent.config {
            Some(file) => file::read(file)?,
            None => Configuration::of_thread(Map::new(), args.agent.preset.as_deref())
                .map_err(|wrong| misfit(&wrong))?,
        };
        if configuration.memory.on().is_some() || configuration.dream.on().is_some() {
            return Err(Failure::usage(
                "a worker has no long-term memory, because its jobs may come from several users; leave out `memory` and `dream`",
            ));
        }
        let configuration = configuration.with_settings(&args.agent);
        configuration.check().map_err(|wrong| misfit(&wrong))?;
        let wish = ModelInputs {
            flags: &args.agent,
            thread: Remembered::default(),
            environment: Environment::read(),
            profiles: configuration.models.clone(),
            text_calls: configuration.agent.text_calls(),
        };
        let choice = wish.choose().await?;
        if let Some(note) = &choice.note {
            print_note(note);
        }
        let mut config = configuration.react(choice.name == OFFLINE);
        config.permissions.extend(args.rules());
        let cwd = location.cwd.clone();
        let store = location.open()?;
        let servers = mcp::connect(configuration.wanted_servers().map_err(Failure::usage)?, &cwd).await?;
        let tools = setup::known_tools(&cwd, &configuration, &servers, Some(&config.permissions))?;
        let trust = WorkerTrust { db: location.db().clone(), accepts_all: args.trust_answers };
        let models = setup::builder(&choice, config)?.trust(trust).checkpointer(store.clone());
        let agent = setup::with_tools(models, tools, &servers, &configuration, &cwd, args.agent.yes)?;
        Ok(Self { agent, servers, store, choice, configuration, cwd, location: Arc::new(location) })
    }

    /// Adds the agent to a worker.
    pub(crate) fn add_to(&self, worker: Worker) -> Result<Worker, Failure> {
        let remembered = setup::remembered(&self.choice, &self.configuration, &self.cwd, None);
        let options = setup::remembering(remembered)?;
        let agent = self.agent.clone();
        let input = move |job: Prompt| agent.input(&job.prompt);
        let worker = worker.options(options).graph_of_inputs(self.agent.graph().clone(), input);
        let (location, store, agent) = (self.location.clone(), self.store.clone(), self.agent.clone());
        Ok(worker.admit(move |thread: ThreadId| {
            let (location, store, agent) = (location.clone(), store.clone(), agent.clone());
            async move { admit(&location, &*store, &agent, &thread).await.map_err(|failure| failure.message) }
        }))
    }

    /// Returns the name of the model.
    pub(crate) fn model(&self) -> &str {
        &self.choice.name
    }

    /// Shuts the MCP servers down.
    pub(crate) async fn close(&self) {
        mcp::close(&self.servers).await;
    }
}

/// Rejects the threads of dreams, and unfinished turns of another folder, to which their questions apply.
async fn admit(
    location: &Location,
    store: &dyn Checkpointer,
    agent: &Agent,
    thread: &ThreadId,
) -> Result<(), Failure> {
    dream_thread::refuse(location, thread)?;
    if store.load(thread, None).await?.is_none() {
        return Ok(());
    }
    let remembered = Remembered::load(store, thread, None).await?;
    let Some(folder) = remembered.cwd.filter(|folder| location.cwd.as_os_str() != folder.as_str()) else {
        return Ok(());
    };
    if agent.graph().thread(thread).state().await?.next.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the turn of thread `{thread}` began in the folder `{folder}`, and this worker has another one; resume it with \
         `superstep resume --cwd {}`, or a worker of that folder",
        quoted(&folder)
    )))
}

/// The decisions that a worker accepts.
struct WorkerTrust {
    db: Db,
    /// Accepts those of everybody who can write to the database.
    accepts_all: bool,
}

impl WorkerTrust {
    /// Returns whether the user's decisions on this machine have something. They are read again each time: the user decides while the
    /// worker runs.
    fn knows(&self, thread: Option<&ThreadId>, what: &str, has: impl FnOnce(&Decided) -> bool) -> bool {
        let thread = thread.map_or("", ThreadId::as_str);
        let known = self.accepts_all
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
