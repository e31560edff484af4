//! The setup of a run: its settings, its models, its memory and its agent.
//!
//! Start at [`Setup::new`].

pub mod steps;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::RngExt;
use serde_json::{Map, Value, json};
use superstep::{
    Answers, CheckpointId, Checkpointer, RunOptions, ThreadId,
    agent::{
        Agent,
        config::{Budget, PermissionRule},
        replay::ReplayTools,
    },
    mcp::McpServer,
    memory::Dreams,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{location::Location, settings::Settings, trust::Decided},
    error::SessionError,
    text::quoted,
    turn::{mcp, randomness::seeded_rng, waiting::Waiting},
};

pub enum Purpose {
    /// A turn, optionally from this checkpoint.
    Turn { from: Option<CheckpointId>, servers: Arc<mcp::Pool> },
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
pub struct Setup {
    pub location: Arc<Location>,
    pub thread: ThreadId,
    /// The settings of the run, as the thread stores them.
    pub settings: Settings,
    /// The name of the model.
    pub model: String,
    /// The note about the choice of the model.
    pub note: Option<String>,
    /// The command line words that a database cannot supply and that must be repeated.
    pub repeated_flags: Vec<String>,
    pub decided: Arc<Decided>,
    pub store: Arc<dyn Checkpointer>,
    /// The memory consolidation, if it is enabled.
    pub dreams: Option<Dreams>,
    pub servers: Vec<Arc<McpServer>>,
    pub agent: Agent,
    pub cancel: CancellationToken,
    pub has_schema: bool,
    /// The context window of the model in tokens, if it is known.
    pub window: Option<u64>,
    /// The budget of a turn.
    pub budget: Budget,
    cwd: PathBuf,
    /// The folder of the thread's last turn, if its database may contain threads of many folders.
    last_cwd: Option<String>,
}

impl Setup {
    /// Rejects resuming a turn in another folder than it began in, because the questions applied to that one.
    pub(crate) fn check_folder(&self) -> Result<(), SessionError> {
        match &self.last_cwd {
            Some(folder) if Path::new(folder) != self.cwd => Err(SessionError::usage(format!(
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
    pub async fn foreign_dreams(&self, user: &str) -> Result<Option<String>, SessionError> {
        steps::foreign_dreams(&self.location, &*self.store, user).await
    }

    /// Returns the model and the configuration as a thread stores them.
    pub fn stored_settings(&self) -> Map<String, Value> {
        Settings { base_url: None, cwd: None, user: None, ..self.settings.clone() }.metadata()
    }

    /// Returns the options of a run, which stores the settings with the thread.
    pub fn options(&self) -> Result<RunOptions, SessionError> {
        self.decided.runs_with(&self.settings.to_stored());
        self.options_on(&self.thread)
    }

    /// Returns the options of a dream, which stores the settings with its own thread.
    pub(crate) fn dream_options(&self, user: &str) -> Result<RunOptions, SessionError> {
        let thread = Dreams::thread(user);
        let decided =
            if thread == self.thread { self.decided.clone() } else { self.location.decided(&thread)? };
        decided.runs_with(&self.settings.to_stored());
        if thread != self.thread {
            decided.begins_run()?;
        }
        self.options_on(&thread)
    }

    fn options_on(&self, thread: &ThreadId) -> Result<RunOptions, SessionError> {
        Ok(run_options(&self.settings)?.thread(thread.as_str()).cancel(self.cancel.clone()))
    }

    /// Returns the options of a run with these answers of the user to waiting calls.
    pub(crate) fn answering(
        &self,
        waiting: &[Waiting],
        answers: Answers,
    ) -> Result<RunOptions, SessionError> {
        self.decided.answered(Waiting::decisions(waiting, |interrupt| answers.get(interrupt).cloned()));
        Ok(self.options()?.answers(answers))
    }

    /// Deletes grants made with calls that were discarded before they ran.
    pub(crate) async fn forget_discarded(&self, granted: &[PermissionRule]) -> Result<(), SessionError> {
        if granted.is_empty() {
            return Ok(());
        }
        let Ok(head) = self.agent.graph().thread(&self.thread).state().await else { return Ok(()) };
        let on_thread: Vec<_> = head.values.permissions.iter().cloned().collect();
        self.decided.keep_granted(granted, &on_thread)
    }
}

/// Returns the options of runs that store these settings with their threads.
pub(crate) fn run_options(settings: &Settings) -> Result<RunOptions, SessionError> {
    Ok(stored_with(RunOptions::new().seed(seeded_rng()?.random()), settings))
}

/// Adds the settings to options of a run, which stores them with its thread.
pub(crate) fn stored_with(options: RunOptions, settings: &Settings) -> RunOptions {
    // A turn that a library or another program began in another folder is not resumed in this one.
    settings.stored_by(options.context(json!({ "cwd": settings.cwd })))
}
