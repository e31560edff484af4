//! Posts to running threads.
//!
//! Start at [`CompiledGraph::post`].

use serde::Serialize;
use serde_json::Map;
use superstep_engine::Control;
use superstep_state::internal::encode;

use crate::{
    CheckpointError, Commit, CompiledGraph, History, RunConfig, RunError, Source, State,
    journal::inbox::{ATTEMPTS, ITEM, inbox_of},
};

impl<S: State> CompiledGraph<S> {
    /// Posts an item to the inbox of `config`'s thread, for its nodes to read with
    /// [`Cx::inbox`](crate::Cx::inbox), and returns its number.
    ///
    /// A run of the thread, in this process or another one, is not affected: the inbox is a separate line of
    /// checkpoints, deleted and copied with the thread. The item is stored when this returns.
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
    /// [`RunError::EmptyThread`] if the thread has no checkpoint, [`RunError::OtherGraph`],
    /// [`RunError::Unstorable`] if `item` cannot be stored, and errors of the checkpointer.
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
                // Another post came in between; try again.
                Err(CheckpointError::Conflict { .. }) if attempts.next().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
