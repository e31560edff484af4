//! What is put into a thread while it runs.
//!
//! Start at [`CompiledGraph::post`].

use serde::Serialize;
use serde_json::{Map, Value};
use superstep_engine::Control;
use superstep_state::internal::encode;

use crate::{
    CheckpointError, CheckpointId, Checkpointer, Commit, CompiledGraph, Cx, History, RunConfig, RunError,
    Segment, Source, State, ThreadId,
};

/// Something that was put into a thread's inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// Which: the first of a thread is 1, and later ones have greater numbers.
    pub number: u64,
    /// What it is.
    pub item: Value,
}

/// How often a post is tried again that someone else came before.
const ATTEMPTS: usize = 100;

/// Where the item is, in the metadata of its checkpoint.
const ITEM: &str = "item";

/// How many are read at once.
const PAGE: usize = 50;

impl<S: State> CompiledGraph<S> {
    /// Puts something into the inbox of `config`'s thread, for its nodes to read with [`Cx::inbox`], and returns its number.
    ///
    /// Whoever runs the thread is not disturbed, be it in this process or in another one: the inbox is a line of checkpoints
    /// beside those of the thread, deleted and copied with it. Once this returns, the item is stored.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use superstep_graph::{Cx, END, MemoryCheckpointer, NodeError, RunConfig, START, State, StateGraph};
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Chat {
    ///     read: u64,
    ///     heard: String,
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut graph = StateGraph::<Chat>::new("chat");
    /// let listen = graph.add_node("listen", async |chat: Chat, cx: Cx| {
    ///     let new = cx.inbox(chat.read).await?;
    ///     let read = new.last().map_or(chat.read, |last| last.number);
    ///     let heard = new.iter().map(|posted| posted.item.to_string()).collect::<String>();
    ///     Ok::<_, NodeError>(Chat::update().read(read).heard(heard))
    /// });
    /// graph.add_edge(START, listen);
    /// graph.add_edge(listen, END);
    /// let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    ///
    /// graph.invoke(Chat::update(), RunConfig::thread("t")).await?;
    /// assert_eq!(graph.post(7, RunConfig::thread("t")).await?, 1);
    /// let end = graph.invoke(Chat::update(), RunConfig::thread("t")).await?;
    /// assert_eq!((end.state.heard.as_str(), end.state.read), ("7", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::EmptyThread`] if nothing of the thread is stored, [`RunError::OtherGraph`], [`RunError::Unstorable`] if
    /// `item` cannot be, or what the checkpointer reports.
    pub async fn post(&self, item: impl Serialize, config: RunConfig) -> Result<u64, RunError> {
        let item = encode::to_value(&item)
            .map_err(|source| RunError::Unstorable { what: "the item for the inbox".to_owned(), source })?;
        let (checkpointer, thread) = (self.checkpointer()?, self.thread_of(&config)?);
        let newest = History { limit: Some(1), ..History::default() };
        match checkpointer.history(thread, newest.clone()).await?.first() {
            None => return Err(RunError::EmptyThread { thread: thread.clone() }),
            Some(head) => self.inner().owns(thread, head)?,
        }
        let inbox = inbox_of(thread);
        let mut attempts = 0..ATTEMPTS;
        loop {
            let head = checkpointer.history(&inbox, newest.clone()).await?.first().map(|meta| meta.id);
            let commit = Commit {
                parent: head,
                source: Source::Input,
                control: Control::new(0, Vec::new()),
                created_ms: config.clock.now_ms(),
                metadata: Map::from_iter([(ITEM.to_owned(), item.clone())]),
                applied: Vec::new(),
                snapshot: None,
                records: Vec::new(),
            };
            match checkpointer.commit(&inbox, head, commit).await {
                Ok(id) => return Ok(id.0),
                // Someone else posted in between, and now it is our turn.
                Err(CheckpointError::Conflict { .. }) if attempts.next().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Cx {
    /// What was put into the thread's inbox after the item with this number, oldest first; 0 is for all. Nothing without a
    /// checkpointer, and nothing in a subgraph, which has a thread of its own.
    ///
    /// Nothing is taken out: keep the number of the last one in a channel, so that it is read once on each branch of the
    /// thread, and again by a node that is run again.
    ///
    /// # Errors
    /// What the checkpointer reports.
    pub async fn inbox(&self, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        let Some((checkpointer, thread)) = &self.run.standing.place else { return Ok(Vec::new()) };
        self.needs_records();
        let last = self.run.tape.inbox(self.task);
        let mut found = match last {
            Some(last) if last <= after => Vec::new(),
            _ => read(&**checkpointer, &inbox_of(thread), after).await?,
        };
        found.retain(|posted| last.is_none_or(|last| posted.number <= last));
        if let Some(posted) = found.last() {
            self.run.tape.found(self.task, posted.number);
        }
        Ok(found)
    }
}

async fn read(
    checkpointer: &dyn Checkpointer,
    inbox: &ThreadId,
    after: u64,
) -> Result<Vec<Posted>, CheckpointError> {
    let (mut found, mut before): (Vec<Posted>, Option<CheckpointId>) = (Vec::new(), None);
    loop {
        let page = History { limit: Some(PAGE), before, ..History::default() };
        let page = checkpointer.history(inbox, page).await?;
        before = page.last().map(|meta| meta.id);
        let is_last = page.len() < PAGE || before.is_none_or(|oldest| oldest.0 <= after);
        let new = page.into_iter().filter(|meta| meta.id.0 > after);
        found.extend(new.map(|mut meta| Posted {
            number: meta.id.0,
            item: meta.metadata.remove(ITEM).unwrap_or_default(),
        }));
        if is_last {
            found.reverse();
            return Ok(found);
        }
    }
}

/// A thread of its own beneath the thread. No node has this name, so it is of no subgraph.
fn inbox_of(thread: &ThreadId) -> ThreadId {
    thread.child(&Segment { node: "$inbox".into(), task: None, key: String::new() })
}
