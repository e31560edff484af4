//! Memory consolidation ("dreams"): turns of the history become long-term memory.
//!
//! ```text
//! START ─▶ gather ┄┄▶ init_state ─▶ agent ┄┄▶ finalize ─▶ settle ─▶ END
//!             ┆                     ▲   ┆
//!             ▼                     └─ tools   read_file, edit_file
//!            END   it is not time yet
//! ```
//!
//! `gather` reads the new turns; the nodes of the agent update `MEMORY.md`; `settle` records the completion.
//! Start at [`Dreams`].

use std::{error::Error, fmt, io, sync::Arc};

use futures::StreamExt;
use futures::future::BoxFuture;
use serde::Serialize;
use superstep_agent::{
    Agent, AgentBuilder, AgentError, AgentOutcome, AgentState, ReactConfig,
    deps::AgentDeps,
    graph::{Next, add_agent, add_finalize, add_init_state, add_tools, should_continue},
    hooks::AfterTurn,
};
use superstep_graph::{
    CheckpointId, CompiledGraph, END, NodeError, NodeOptions, NodeRef, OnUnfinished, Outcome, RunError,
    RunOptions, START, State, StateGraph, Status, StreamMode, Streaming, ThreadId,
    checkpoint::CheckpointError, error::chain, node::OnCancel,
};
use superstep_llm::{Tool, Usage};
use superstep_tools::{
    Workspace,
    internal::{EditJournal, LockedFile, edit_file_once, user_name, user_of},
    read_file,
};

use super::{
    config::DreamConfig,
    cursor::DreamFiles,
    events::{DreamEnd, DreamEvent},
    nodes::{DreamDeps, Gathered, gather, gathered, settle},
    state::{DreamState, DreamStateUpdate},
};
use crate::{HistoryFiles, HistoryPlace, MemoryFiles, files::memory_files::MAX_FILE_BYTES};

/// Prefix of the thread names of dreams.
const THREADS: &str = "dream:";

/// Maximum length of a stored failure reason in bytes.
const MAX_REASON_LENGTH: usize = 500;

/// Consolidates history into memory: an agent with two tools, `read_file` and `edit_file`, edits a user's
/// `MEMORY.md` according to the new turns in the user's [`HistoryFiles`].
///
/// A dream is a run of its own graph on its own thread with the agent's checkpointer. A dream that a crash
/// ended is resumed, and no edit is made twice. The history counts as read only after a completed dream;
/// otherwise the turns stay for a later one. One dream runs per user at a time, across processes.
///
/// The tools access the folder of that user's memory only, not the history or another user's memory. The
/// turns are data for the model, inside of delimiters.
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::Agent;
/// # use superstep_memory::{DreamConfig, DreamError, Dreams, HistoryFiles, MemoryFiles};
/// # use superstep_graph::{MemoryCheckpointer, RunOptions};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let root = ".".as_ref();
/// let history = HistoryFiles::new(root, ".superstep/history")?;
/// let memory = MemoryFiles::new(root, ".superstep/memory")?;
/// let builder = Agent::builder(model).history(history.clone()).checkpointer(Arc::new(MemoryCheckpointer::new()));
/// let dreams = Dreams::new(builder.clone(), history, memory, DreamConfig::default())?;
///
/// let agent = builder.build()?;
/// agent.thread("ada").ask("I moved to Lisbon.").await?;
/// let dreamt = dreams.dream_if_due("ada", RunOptions::new()).await?;
/// println!("{}", serde_json::to_string(&dreamt)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dreams {
    inner: Arc<Inner>,
    listen: Option<Listen>,
}

struct Inner {
    agent: AgentBuilder,
    base: ReactConfig,
    history: HistoryFiles,
    memory: MemoryFiles,
    config: DreamConfig,
}

type Listen = Arc<dyn Fn(DreamEvent) + Send + Sync>;

/// The result of a request to dream. As JSON, `dream` names the variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "dream", rename_all = "snake_case")]
pub enum DreamResult {
    /// No dream is due.
    NotDue {
        /// Number of waiting turns, at most the number that one dream takes.
        waiting: usize,
    },
    /// Another process or task dreams for this user.
    Busy,
    /// A dream ran.
    Ended(Dream),
}

/// A dream that ended or was stopped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dream {
    /// The outcome of the agent; `None` if it was stopped before its end. The next request to dream resumes it.
    pub outcome: Option<AgentOutcome>,
    /// The end of the dream, which may have changed nothing although the agent completed its turn.
    pub end: DreamEnd,
    /// Number of turns it covered.
    pub turns: usize,
    /// The turns count as read now: the dream was completed and did not end after a failed call.
    pub settled: bool,
    /// The model's final reply.
    pub reply: String,
    /// The model error, if the model could not be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens as reported by the provider.
    pub usage: Usage,
    /// The last checkpoint; `None` without a checkpointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointId>,
}

/// The reason why a dream did not start or failed. Its thread, if any, stays at that point, and the next
/// dream resumes it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DreamError {
    /// The inner agent cannot be built.
    #[error("the agent for dreams cannot be built")]
    Agent(#[from] AgentError),
    /// The graph failed.
    #[error("the dream failed")]
    Run(#[from] RunError),
    /// The history, the cursor or the memory cannot be read or written.
    #[error("the files of `{user}` cannot be used for a dream")]
    Files {
        /// The user they belong to.
        user: String,
        /// The cause.
        source: io::Error,
    },
    /// The folders of the histories and of the memories are equal or nested: then dreams could edit
    /// histories.
    #[error(
        "histories and memories are stored in one folder, where dreams could edit histories; store each in \
         its own folder"
    )]
    OneFolder,
}

superstep_graph::__private::debug_by_chain!(DreamError);

impl fmt::Debug for Dreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dreams").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Dreams {
    /// Creates dreams with the models, fallbacks, token counter and checkpointer of `agent`, and with its
    /// configuration of the model: retries, time limits, window size, text calls. Tools, hooks and prompts of
    /// the agent are not used.
    ///
    /// # Errors
    /// [`DreamError::Agent`] if the agent cannot be built, [`DreamError::OneFolder`] if the
    /// folders are not separate.
    pub fn new(
        agent: AgentBuilder,
        history: HistoryFiles,
        memory: MemoryFiles,
        config: DreamConfig,
    ) -> Result<Self, DreamError> {
        let (histories, memories) = (history.folders(), memory.folders());
        if histories.is_within(memories) || memories.is_within(histories) {
            return Err(DreamError::OneFolder);
        }
        let base = agent.current_config();
        agent.clone().with_only(Vec::new(), config.agent(&base)).deps()?;
        let inner = Inner { agent, base, history, memory, config };
        Ok(Self { inner: Arc::new(inner), listen: None })
    }

    /// Sets a listener for the events of dreams and their agents.
    #[must_use]
    pub fn listener(self, listen: impl Fn(DreamEvent) + Send + Sync + 'static) -> Self {
        Self { listen: Some(Arc::new(listen)), ..self }
    }

    /// Returns the history that is read.
    pub fn history(&self) -> &HistoryFiles {
        &self.inner.history
    }

    /// Returns the thread of a user's dreams.
    pub fn thread(user: &str) -> ThreadId {
        format!("{THREADS}{}", user_name(user)).into()
    }

    /// Returns whether a thread's name is that of a dream. No other graph should run on it.
    pub fn is_thread(thread: &ThreadId) -> bool {
        thread.as_str().starts_with(THREADS)
    }

    /// Returns the user whose dreams are on this thread; `None` if it is not a dream's thread.
    pub fn user_of(thread: &ThreadId) -> Option<String> {
        user_of(thread.as_str().strip_prefix(THREADS)?)
    }

    /// Compiles the graph of a user's dreams. Creates the folders of the user's history and memory.
    ///
    /// # Errors
    /// [`DreamError`] if the graph cannot be built, or the folders cannot be created.
    pub fn graph(&self, user: &str) -> Result<CompiledGraph<DreamState>, DreamError> {
        Ok(self.agent(user, None)?.graph().clone())
    }

    /// Returns the graph of dreams without history and memory: it draws like [`graph`](Self::graph) and can
    /// inspect threads of dreams. Its nodes fail.
    ///
    /// # Panics
    /// Never; the graph always compiles.
    pub fn inspection_graph() -> CompiledGraph<DreamState> {
        let mut graph = StateGraph::new("dream");
        let nodes = ["gather", "init_state", "agent", "tools", "finalize", "settle"].map(|name| {
            graph.add_node(name, async |_, _| Err::<DreamStateUpdate, _>(NodeError::new(NotToRun).fatal()))
        });
        wire(&mut graph, nodes);
        graph.compile().expect("all of its edges are there")
    }

    /// Dreams if a dream is due for the turns of `user`, or, for turns without a user, of the thread with
    /// that name. The thread, checkpoint, answers and breakpoints of `options` are ignored, because dreams have their own thread;
    /// its clock gives the time.
    ///
    /// A stopped dream is resumed.
    ///
    /// # Errors
    /// [`DreamError`]. An unavailable model is not an error: [`Dream::outcome`] reports it.
    pub async fn dream_if_due(&self, user: &str, options: RunOptions) -> Result<DreamResult, DreamError> {
        self.dream(user, false, options).await
    }

    /// Dreams if there are any unread turns.
    ///
    /// # Errors
    /// Those of [`dream_if_due`](Self::dream_if_due).
    pub async fn dream_now(&self, user: &str, options: RunOptions) -> Result<DreamResult, DreamError> {
        self.dream(user, true, options).await
    }

    async fn dream(&self, user: &str, asked: bool, options: RunOptions) -> Result<DreamResult, DreamError> {
        let dreamt = self.begin(user, asked, options.clone()).await;
        if let Err(error) = &dreamt {
            let reason = reason(error);
            if let Some(listen) = &self.listen {
                listen(DreamEvent::DreamFailed { user: user.to_owned(), reason: reason.clone() });
            }
            // Of two errors the first one is returned.
            let _ =
                self.files_of(user).and_then(|kept| kept.note_failure(options.get_clock().now_ms(), &reason));
        }
        dreamt
    }

    async fn begin(&self, user: &str, asked: bool, options: RunOptions) -> Result<DreamResult, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        // Without a history no folders are created.
        let first = self.inner.history.read(user, HistoryPlace::default(), 1, 0).await.map_err(files)?;
        if first.turns.is_empty() {
            return Ok(DreamResult::NotDue { waiting: 0 });
        }
        let alone = self.files_of(user).and_then(|kept| kept.lock()).map_err(files)?;
        let Some(alone) = alone else { return Ok(DreamResult::Busy) };
        let agent = self.agent(user, Some(Arc::new(alone)))?;
        match self.alone(user, asked, &agent, options).await {
            Err(DreamError::Run(RunError::Checkpoint(CheckpointError::Busy { .. }))) => Ok(DreamResult::Busy),
            dreamt => dreamt,
        }
    }

    /// Dreams while holding the user's lock.
    async fn alone(
        &self,
        user: &str,
        asked: bool,
        agent: &Agent<DreamState>,
        options: RunOptions,
    ) -> Result<DreamResult, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        let Inner { history, config: settings, agent: builder, .. } = &*self.inner;
        let cursor = self.files_of(user).and_then(|kept| kept.cursor()).map_err(files)?;
        let now_ms = options.get_clock().now_ms();
        let thread = builder.current_checkpointer().is_some().then(|| Self::thread(user));
        let mut options = options.for_other_thread(thread.clone());
        if let Some(thread) = &thread {
            let head = agent.graph().thread(thread).state().await?;
            let has_stopped = !head.next.is_empty() && head.values.has_begun(&head.next);
            if has_stopped && self.is_about(user, &head.values, &cursor.read).await.map_err(files)? {
                let rests = settings.rests(&cursor, now_ms) && !asked;
                if rests || options.get_cancel().is_cancelled() {
                    return Ok(DreamResult::NotDue { waiting: head.values.entries.len() });
                }
                return self.run(agent, None, options).await;
            }
            // Turns that were handled meanwhile are not handled again, and those of another history not here.
            options = options.on_unfinished(OnUnfinished::Discard);
        }
        let (most, bytes) = (settings.most_turns(), settings.most_bytes);
        let unread = history.read(user, cursor.read.clone(), most, bytes).await.map_err(files)?;
        let waiting = unread.turns.len();
        let is_due = waiting > 0 && (asked || settings.due(&unread, &cursor, now_ms).is_some());
        if !is_due || options.get_cancel().is_cancelled() {
            return Ok(DreamResult::NotDue { waiting });
        }
        let input = DreamState::update().asked(asked).agent(AgentState::update().user_id(user));
        self.run(agent, Some(input), options).await
    }

    /// Returns whether a stopped dream covers the next turns of this history, or turns recorded as read
    /// already. The store of dream threads may be shared with other histories.
    async fn is_about(&self, user: &str, dream: &DreamState, read: &HistoryPlace) -> io::Result<bool> {
        if dream.to == *read {
            return Ok(true);
        }
        let unread = self.inner.history.read(user, read.clone(), dream.entries.len(), u64::MAX).await?;
        Ok(dream.from == *read && unread.turns.iter().map(|turn| &turn.id).eq(&dream.entries))
    }

    fn files_of(&self, user: &str) -> io::Result<DreamFiles> {
        Ok(DreamFiles::new(self.inner.history.folder(user)?))
    }

    /// Runs the graph from an input, or resumes it.
    async fn run(
        &self,
        agent: &Agent<DreamState>,
        input: Option<DreamStateUpdate>,
        options: RunOptions,
    ) -> Result<DreamResult, DreamError> {
        let thread = agent.configured(options).graph_thread();
        let end = match (&self.listen, input) {
            (None, Some(input)) => thread.run(input).await?,
            (None, None) => thread.resume().await?,
            (Some(listen), input) => {
                let streaming = Streaming::from(StreamMode::Custom).buffer(1 << 20);
                let mut stream = match input {
                    Some(input) => thread.stream(input, streaming),
                    None => thread.resume_stream(streaming),
                };
                while let Some(event) = stream.next().await {
                    if let Some(event) = DreamEvent::of(&event) {
                        listen(event);
                    }
                }
                stream.outcome().await?
            }
        };
        Ok(end.into())
    }

    /// Builds the inner agent for one user.
    fn agent(&self, user: &str, alone: Option<Arc<LockedFile>>) -> Result<Agent<DreamState>, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        let Inner { agent, base, history, memory, config } = &*self.inner;
        let lock = memory.lock_of(user).map_err(files)?;
        let workspace = Workspace::open(lock.parent().unwrap_or(&lock)).map_err(files)?;
        let kept = self.files_of(user).map_err(files)?;
        let journal = EditJournal::new(&kept.edits(), &lock, MAX_FILE_BYTES);
        let tools: Vec<Arc<dyn Tool>> =
            vec![Arc::new(read_file(&workspace)), Arc::new(edit_file_once(&workspace, journal.clone()))];
        let deps = agent.clone().with_only(tools, config.agent(base)).deps()?;
        let desk = DreamDeps {
            user: user.to_owned(),
            history: history.clone(),
            files: kept,
            memory: memory.clone(),
            journal,
            config: config.clone(),
            alone,
        };
        let graph = graph(desk, &deps).compile().map_err(AgentError::from)?;
        let graph = match agent.current_checkpointer() {
            Some(checkpointer) => graph.with_checkpointer(checkpointer.clone()),
            None => graph,
        };
        Ok(Agent::of(graph, &deps.config))
    }
}

/// Lets a node finish when the run is cancelled.
fn finishes(graph: &mut StateGraph<DreamState>, node: NodeRef) {
    graph.configure(node, NodeOptions::new().on_cancel(OnCancel::Finish));
}

fn graph(desk: DreamDeps, deps: &AgentDeps) -> StateGraph<DreamState> {
    let mut graph = StateGraph::new("dream");
    let gather = graph.add_node_with("gather", desk.clone(), gather);
    finishes(&mut graph, gather);
    let init_state = add_init_state(&mut graph, deps);
    let agent = add_agent(&mut graph, deps);
    let tools = add_tools(&mut graph, deps);
    let finalize = add_finalize(&mut graph, deps);
    let settle = graph.add_node_with("settle", desk, settle);
    finishes(&mut graph, settle);
    wire(&mut graph, [gather, init_state, agent, tools, finalize, settle]);
    graph
}

fn wire(
    graph: &mut StateGraph<DreamState>,
    [gather, init_state, agent, tools, finalize, settle]: [NodeRef; 6],
) {
    graph.add_edge(START, gather);
    graph.add_conditional_edges(gather, gathered, |gathered| match gathered {
        Gathered::Dream => init_state,
        Gathered::Nothing => END,
    });
    graph.add_edge(init_state, agent);
    graph.add_conditional_edges(agent, should_continue, |next| match next {
        Next::Tools => tools,
        // The context is reduced without another model call.
        Next::Agent | Next::Compact => agent,
        Next::Finalize => finalize,
    });
    graph.add_edge(tools, agent);
    graph.add_edge(finalize, settle);
    graph.add_edge(settle, END);
}

/// A node of a graph that does not run.
#[derive(Debug, thiserror::Error)]
#[error("this graph is for inspection only; run the dreams of a user")]
struct NotToRun;

impl AfterTurn for Dreams {
    fn after_turn<'a>(&'a self, user: &'a str, options: RunOptions) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // The listener and the cursor report a failure.
            let _ = self.dream_if_due(user, options).await;
        })
    }
}

impl From<Outcome<DreamState>> for DreamResult {
    fn from(end: Outcome<DreamState>) -> Self {
        let DreamState { agent, due, entries, settled, end: ended, .. } = end.state;
        let turns = entries.len();
        let is_over = end.status == Status::Completed;
        if is_over && due.is_none() {
            return Self::NotDue { waiting: 0 };
        }
        Self::Ended(Dream {
            outcome: agent.outcome.filter(|_| is_over),
            end: ended.filter(|_| is_over).unwrap_or(DreamEnd::Unfinished),
            turns,
            settled: settled && is_over,
            reply: agent.final_reply,
            error: agent.error.map(|error| error.message),
            usage: agent.usage,
            checkpoint: end.checkpoint,
        })
    }
}

/// Formats an error with its causes, truncated for storage.
fn reason(error: &(dyn Error + 'static)) -> String {
    let mut reason = chain(error);
    reason.truncate(reason.floor_char_boundary(MAX_REASON_LENGTH));
    reason
}
