//! Dreams: what was said becomes memory.
//!
//! ```text
//! START ─▶ gather ┄┄▶ init_state ─▶ agent ┄┄▶ finalize ─▶ settle ─▶ END
//!             ┆                     ▲   ┆
//!             ▼                     └─ tools   read_file, edit_file
//!            END   it is not time yet
//! ```
//!
//! `gather` reads the turns that no dream was about yet; the nodes of the agent bring `MEMORY.md` up to date; `settle` notes that
//! it is done. Start at [`Dreams`].

mod config;
mod cursor;
mod entries;
mod nodes;
mod state;

use std::{error::Error, fs::File, io, sync::Arc};

use futures::StreamExt;
use serde::Serialize;
use serde_json::{Value, json};
use superstep_graph::{
    Answers, Breakpoints, CheckpointError, CheckpointId, CompiledGraph, END, Event, NodeError, NodeRef,
    OnUnfinished, Outcome, RunConfig, RunError, START, State, StateGraph, Status, StreamMode, Streaming,
    ThreadId, chain,
};
use superstep_llm::{Tool, Usage};

use self::{
    cursor::DreamFiles,
    nodes::{Desk, Gathered, gather, gathered, settle},
};
use crate::{
    Agent, AgentBuilder, AgentDeps, AgentError, AgentOutcome, AgentState, HistoryPlace, MemoryFiles, Next,
    ReactConfig, TurnHistory, add_agent, add_finalize, add_init_state, add_tools,
    has_agent::finishes,
    memory, should_continue,
    thread_folders::{user_name, user_of},
    workspace::{EditJournal, Workspace, edit_file_once, read_file},
};

pub use self::{
    config::{DreamConfig, Due},
    cursor::{DreamCursor, LastDream},
    state::{DreamState, DreamStateUpdate},
};

/// How the names of the threads of dreams begin.
const THREADS: &str = "dream:";

/// How long a reason may be that is kept, in bytes.
const LONGEST_REASON: usize = 500;

/// Makes memory of what was said: an agent with two tools, `read_file` and `edit_file`, edits the `MEMORY.md` of a user after
/// what is new in the user's [`TurnHistory`].
///
/// A dream is a run of a graph of its own, on a thread of its own, with the checkpointer of the agent: one that a crash ended is
/// gone on with, and no edit is made twice. The history counts as read only once the dream was completed; what ends otherwise
/// leaves the turns to a later one. For one user, one dream goes on at a time, whichever process has it.
///
/// The tools reach the folder of that user's memory and nothing else: not the history, and nobody else's memory. What was said is
/// data for the model, between marks.
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, DreamConfig, DreamError, Dreams, MemoryFiles, TurnHistory};
/// # use superstep_graph::{MemoryCheckpointer, RunConfig};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let root = ".".as_ref();
/// let history = TurnHistory::new(root, ".superstep/history")?;
/// let memory = MemoryFiles::new(root, ".superstep/memory")?;
/// let builder = Agent::builder(model).history(history.clone()).checkpointer(Arc::new(MemoryCheckpointer::new()));
/// let dreams = Dreams::new(builder.clone(), history, memory, DreamConfig::default())?;
///
/// let agent = builder.build()?;
/// agent.process_message("I moved to Lisbon.", RunConfig::thread("ada")).await?;
/// let dreamt = dreams.dream_if_due("ada", RunConfig::default()).await?;
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
    history: TurnHistory,
    memory: MemoryFiles,
    config: DreamConfig,
}

/// Hears the events of dreams, by their names.
type Listen = Arc<dyn Fn(&str, &Value) + Send + Sync>;

/// What came of the wish to dream. As JSON, `dream` says which.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "dream", rename_all = "snake_case")]
pub enum Dreamt {
    /// It is not time yet.
    NotDue {
        /// So many turns wait, or more: no more are looked at than one dream takes.
        waiting: usize,
    },
    /// Another one dreams for this user.
    Busy,
    /// There was a dream.
    Ended(Dream),
}

/// A dream that ended, or was stopped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dream {
    /// How it ended; `None` if it was stopped before its end. The next wish to dream goes on with it.
    pub outcome: Option<AgentOutcome>,
    /// How many turns it was about.
    pub turns: usize,
    /// Whether they count as read now: it was completed, and not given up after a call that failed.
    pub settled: bool,
    /// What the model said at the end.
    pub reply: String,
    /// Why the model could not be asked, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens, as far as the provider told.
    pub usage: Usage,
    /// The last checkpoint; `None` without a checkpointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointId>,
}

/// Why there was no dream, or it broke off. Its thread, if it has one, stands where that happened, and the next dream goes on
/// there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DreamError {
    /// The agent inside cannot be built.
    #[error("the agent that dreams cannot be built")]
    Agent(#[from] AgentError),
    /// The graph failed.
    #[error("the dream broke off")]
    Run(#[from] RunError),
    /// The history, the cursor or the memory cannot be read or written.
    #[error("the files of `{user}` cannot be used for a dream")]
    Files {
        /// Whose they are.
        user: String,
        /// Why.
        source: io::Error,
    },
    /// The folder of the histories is the folder of the memories, or one is in the other: then dreams could edit histories.
    #[error(
        "histories and memories are kept in one folder, where dreams could edit histories; keep each in a folder of its own"
    )]
    OneFolder,
}

impl Dreams {
    /// Dreams with the models, fallbacks, token counter and checkpointer of `agent`, and what its configuration says of its model:
    /// retries, time limits, the size of the window, calls written as text. Nothing else of it counts; tools, hooks and prompts of
    /// the agent are not for dreams.
    ///
    /// # Errors
    /// [`DreamError::Agent`] if the agent cannot be built, [`DreamError::OneFolder`] if the files are not apart.
    pub fn new(
        agent: AgentBuilder,
        history: TurnHistory,
        memory: MemoryFiles,
        config: DreamConfig,
    ) -> Result<Self, DreamError> {
        let (histories, memories) = (history.folders(), memory.folders());
        if histories.is_within(memories) || memories.is_within(histories) {
            return Err(DreamError::OneFolder);
        }
        let base = agent.config.clone().unwrap_or_default();
        agent.clone().dreaming(Vec::new(), config.agent(&base)).deps()?;
        let inner = Inner { agent, base, history, memory, config };
        Ok(Self { inner: Arc::new(inner), listen: None })
    }

    /// Has the events of dreams told: those of the agent, `dream_begun`, `dream_ended`, and `dream_failed` if one broke off.
    #[must_use]
    pub fn listener(self, listen: impl Fn(&str, &Value) + Send + Sync + 'static) -> Self {
        Self { listen: Some(Arc::new(listen)), ..self }
    }

    /// The history that is read.
    pub fn history(&self) -> &TurnHistory {
        &self.inner.history
    }

    /// The thread of a user's dreams.
    pub fn thread(user: &str) -> ThreadId {
        format!("{THREADS}{}", user_name(user)).into()
    }

    /// Whether a thread is one of dreams by its name. No other graph should run on it.
    pub fn is_thread(thread: &ThreadId) -> bool {
        thread.as_str().starts_with(THREADS)
    }

    /// The user whose dreams are on this thread; `None` if it is none of theirs.
    pub fn user_of(thread: &ThreadId) -> Option<String> {
        user_of(thread.as_str().strip_prefix(THREADS)?)
    }

    /// The graph of a user's dreams, as it runs. The folders of the user's history and memory are made.
    ///
    /// # Errors
    /// [`DreamError`] if it cannot be built, or the folders cannot be made.
    pub fn graph(&self, user: &str) -> Result<CompiledGraph<DreamState>, DreamError> {
        Ok(self.agent(user, None)?.graph().clone())
    }

    /// The graph of dreams without anything to dream of: it is drawn like [`graph`](Self::graph), and threads of dreams can be
    /// looked at with it. Its nodes fail.
    ///
    /// # Panics
    /// Never; the graph is one that compiles.
    pub fn to_look_at() -> CompiledGraph<DreamState> {
        let mut graph = StateGraph::new("dream");
        let nodes = ["gather", "init_state", "agent", "tools", "finalize", "settle"].map(|name| {
            graph.add_node(name, async |_, _| Err::<DreamStateUpdate, _>(NodeError::new(NotToRun).fatal()))
        });
        wire(&mut graph, nodes);
        graph.compile().expect("all of its edges are there")
    }

    /// Dreams if it is time: of `user`'s turns, or, if they have no user, of the thread's that `user` is the name of. Of `config`
    /// the thread and the checkpoint do not count, for dreams have a thread of their own; its clock says the time.
    ///
    /// A dream that was stopped is gone on with.
    ///
    /// # Errors
    /// [`DreamError`]. A model that cannot be asked is no error: [`Dream::outcome`] says so.
    pub async fn dream_if_due(&self, user: &str, config: RunConfig) -> Result<Dreamt, DreamError> {
        self.dream(user, false, config).await
    }

    /// Dreams if there is anything to dream of.
    ///
    /// # Errors
    /// Those of [`dream_if_due`](Self::dream_if_due).
    pub async fn dream_now(&self, user: &str, config: RunConfig) -> Result<Dreamt, DreamError> {
        self.dream(user, true, config).await
    }

    async fn dream(&self, user: &str, asked: bool, config: RunConfig) -> Result<Dreamt, DreamError> {
        let clock = config.clock.clone();
        let dreamt = self.begin(user, asked, config).await;
        if let Err(error) = &dreamt {
            let reason = reason(error);
            self.tell("dream_failed", &json!({ "user": user, "reason": reason }));
            // Of two errors the first one counts.
            let _ = self.kept(user).and_then(|kept| kept.note_failure(clock.now_ms(), &reason));
        }
        dreamt
    }

    async fn begin(&self, user: &str, asked: bool, config: RunConfig) -> Result<Dreamt, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        // Without a history there is nothing to make folders for.
        let first = self.inner.history.read(user, HistoryPlace::default(), 1, 0).await.map_err(files)?;
        if first.turns.is_empty() {
            return Ok(Dreamt::NotDue { waiting: 0 });
        }
        let alone = self.kept(user).and_then(|kept| kept.lock()).map_err(files)?;
        let Some(alone) = alone else { return Ok(Dreamt::Busy) };
        let agent = self.agent(user, Some(Arc::new(alone)))?;
        match self.alone(user, asked, &agent, config).await {
            Err(DreamError::Run(RunError::Checkpoint(CheckpointError::Busy { .. }))) => Ok(Dreamt::Busy),
            dreamt => dreamt,
        }
    }

    /// Dreams while nobody else does.
    async fn alone(
        &self,
        user: &str,
        asked: bool,
        agent: &Agent<DreamState>,
        config: RunConfig,
    ) -> Result<Dreamt, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        let Inner { history, config: settings, agent: builder, .. } = &*self.inner;
        let cursor = self.kept(user).and_then(|kept| kept.cursor()).map_err(files)?;
        let now_ms = config.clock.now_ms();
        let thread = builder.checkpointer.is_some().then(|| Self::thread(user));
        let mut config = RunConfig {
            thread: thread.clone(),
            checkpoint: None,
            answers: Answers::new(),
            breakpoints: Breakpoints::default(),
            ..agent.with_room(config)
        };
        if let Some(thread) = &thread {
            let head = agent.graph().get_state(thread, None).await?;
            let has_stopped = !head.next.is_empty() && head.values.has_begun(&head.next);
            if has_stopped && self.is_about(user, &head.values, &cursor.read).await.map_err(files)? {
                let rests = settings.rests(&cursor, now_ms) && !asked;
                if rests || config.cancel.is_cancelled() {
                    return Ok(Dreamt::NotDue { waiting: head.values.entries.len() });
                }
                return self.run(agent, None, config).await;
            }
            // What somebody else has done meanwhile is not done again, and what is another history's is not done here.
            config.on_unfinished = OnUnfinished::Discard;
        }
        let (most, bytes) = (settings.most_turns(), settings.most_bytes);
        let unread = history.read(user, cursor.read.clone(), most, bytes).await.map_err(files)?;
        let waiting = unread.turns.len();
        let is_due = waiting > 0 && (asked || settings.due(&unread, &cursor, now_ms).is_some());
        if !is_due || config.cancel.is_cancelled() {
            return Ok(Dreamt::NotDue { waiting });
        }
        let input = DreamState::update().asked(asked).agent(AgentState::update().user_id(user));
        self.run(agent, Some(input), config).await
    }

    /// Whether a dream that stopped was about the next turns of this history, or has them noted as read already. Threads of dreams
    /// may be in a store that other histories share.
    async fn is_about(&self, user: &str, dream: &DreamState, read: &HistoryPlace) -> io::Result<bool> {
        if dream.to == *read {
            return Ok(true);
        }
        let unread = self.inner.history.read(user, read.clone(), dream.entries.len(), u64::MAX).await?;
        Ok(dream.from == *read && unread.turns.iter().map(|turn| &turn.id).eq(&dream.entries))
    }

    fn kept(&self, user: &str) -> io::Result<DreamFiles> {
        Ok(DreamFiles::new(self.inner.history.folder(user)?))
    }

    /// Runs the graph from an input, or from where it stands.
    async fn run(
        &self,
        agent: &Agent<DreamState>,
        input: Option<DreamStateUpdate>,
        config: RunConfig,
    ) -> Result<Dreamt, DreamError> {
        let graph = agent.graph();
        let end = match (&self.listen, input) {
            (None, Some(input)) => graph.invoke(input, config).await?,
            (None, None) => graph.resume(config).await?,
            (Some(listen), input) => {
                let streaming = Streaming { buffer: 1 << 20, ..StreamMode::Custom.into() };
                let mut stream = match input {
                    Some(input) => graph.stream(input, config, streaming),
                    None => graph.stream_resume(config, streaming),
                };
                while let Some(event) = stream.next().await {
                    if let Event::Custom { name, data, .. } = event {
                        listen(name, &data);
                    }
                }
                stream.outcome().await?
            }
        };
        Ok(end.into())
    }

    /// The agent inside, for one user.
    fn agent(&self, user: &str, alone: Option<Arc<File>>) -> Result<Agent<DreamState>, DreamError> {
        let files = |source| DreamError::Files { user: user.to_owned(), source };
        let Inner { agent, base, history, memory, config } = &*self.inner;
        let lock = memory.lock_of(user).map_err(files)?;
        let workspace = Workspace::open(lock.parent().unwrap_or(&lock)).map_err(files)?;
        let kept = self.kept(user).map_err(files)?;
        let journal = EditJournal::new(&kept.edits(), &lock, memory::files::MOST);
        let tools: Vec<Arc<dyn Tool>> =
            vec![Arc::new(read_file(&workspace)), Arc::new(edit_file_once(&workspace, journal.clone()))];
        let deps = agent.clone().dreaming(tools, config.agent(base)).deps()?;
        let desk = Desk {
            user: user.to_owned(),
            history: history.clone(),
            files: kept,
            memory: memory.clone(),
            journal,
            config: config.clone(),
            alone,
        };
        let graph = graph(desk, &deps).compile().map_err(AgentError::from)?;
        let graph = match &agent.checkpointer {
            Some(checkpointer) => graph.with_checkpointer(checkpointer.clone()),
            None => graph,
        };
        Ok(Agent::of(graph, &deps.config))
    }

    fn tell(&self, name: &str, data: &Value) {
        if let Some(listen) = &self.listen {
            listen(name, data);
        }
    }
}

fn graph(desk: Desk, deps: &AgentDeps) -> StateGraph<DreamState> {
    let mut graph = StateGraph::new("dream");
    let gather = graph.add_node_with("gather", desk.clone(), gather);
    let gather = finishes(&mut graph, gather);
    let init_state = add_init_state(&mut graph, deps);
    let agent = add_agent(&mut graph, deps);
    let tools = add_tools(&mut graph, deps);
    let finalize = add_finalize(&mut graph, deps);
    let settle = graph.add_node_with("settle", desk, settle);
    let settle = finishes(&mut graph, settle);
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
        // Room is made without another model call.
        Next::Agent | Next::Compact => agent,
        Next::Finalize => finalize,
    });
    graph.add_edge(tools, agent);
    graph.add_edge(finalize, settle);
    graph.add_edge(settle, END);
}

/// A node of a graph that does not run.
#[derive(Debug, thiserror::Error)]
#[error("this graph is there to be looked at; run the dreams of a user")]
struct NotToRun;

impl From<Outcome<DreamState>> for Dreamt {
    fn from(end: Outcome<DreamState>) -> Self {
        let DreamState { agent, due, entries, settled, .. } = end.state;
        let turns = entries.len();
        let is_over = end.status == Status::Completed;
        if is_over && due.is_none() {
            return Self::NotDue { waiting: 0 };
        }
        Self::Ended(Dream {
            outcome: agent.outcome.filter(|_| is_over),
            turns,
            settled: settled && is_over,
            reply: agent.final_reply,
            error: agent.error.map(|error| error.message),
            usage: agent.usage,
            checkpoint: end.checkpoint,
        })
    }
}

/// An error with its causes, short enough to be kept.
fn reason(error: &(dyn Error + 'static)) -> String {
    let mut reason = chain(error);
    reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    reason
}
