//! Posts to running threads.
//!
//! Start at [`Thread::post`].

use serde::Serialize;
use serde_json::Map;
use superstep_checkpoint::{CheckpointError, Commit, Source};
use superstep_engine::Control;
use superstep_state::internal::encode;

use crate::{
    History, RunError, State, Thread,
    journal::inbox::{ITEM, MAX_ATTEMPTS, inbox_of},
};

impl<S: State> Thread<S> {
    /// Adds an item to the thread's inbox, for its nodes to read with [`Cx::inbox`](crate::Cx::inbox), and returns its number.
    ///
    /// A run of the thread, in this process or another one, is not affected: the inbox is a separate line of
    /// checkpoints, deleted and copied with the thread. The item is stored when this returns.
    ///
    /// ```
    /// # use superstep_graph::{Cx, END, MemoryCheckpointer, NodeError, START, State, StateGraph};
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
    /// let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
    ///
    /// let thread = graph.thread("t");
    /// thread.run(Chat::update()).await?;
    /// assert_eq!(thread.post(7).await?, 1);
    /// let end = thread.run(Chat::update()).await?;
    /// assert_eq!((end.state.heard.as_str(), end.state.read), ("7", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::EmptyThread`] if nothing of the thread is stored, even if it is deleted meanwhile, [`RunError::OtherGraph`], [`RunError::Unstorable`] if
    /// `item` cannot be, or the error of the checkpointer.
    pub async fn post(&self, item: impl Serialize) -> Result<u64, RunError> {
        let item = encode::to_value(&item)
            .map_err(|source| RunError::Unstorable { what: "the item for the inbox".to_owned(), source })?;
        let (checkpointer, thread) = self.stored_root()?;
        let newest = History { limit: Some(1), ..History::default() };
        let gone = || RunError::EmptyThread { thread: thread.clone() };
        match checkpointer.history(thread, newest.clone()).await?.first() {
            None => return Err(gone()),
            Some(head) => self.graph.inner.owns(thread, head)?,
        }
        let inbox = inbox_of(thread);
        let mut attempts = 0..MAX_ATTEMPTS;
        loop {
            let head = checkpointer.history(&inbox, newest.clone()).await?.first().map(|meta| meta.id);
            let commit = Commit {
                parent: head,
                source: Source::Input,
                control: Control::new(0, Vec::new()),
                created_ms: self.options.clock.now_ms(),
                metadata: Map::from_iter([(ITEM.to_owned(), item.clone())]).into(),
                applied: Vec::new(),
                snapshot: None,
                fingerprints: None,
                records: Vec::new(),
            };
            match checkpointer.commit(&inbox, head, commit).await {
                Ok(_) if checkpointer.history(thread, newest.clone()).await?.is_empty() => {
                    // The thread was deleted since: its next one must not read the item.
                    checkpointer.delete(&inbox).await?;
                    return Err(gone());
                }
                Ok(id) => return Ok(id.0),
                // Another post came in between; try again.
                Err(CheckpointError::Conflict { .. }) if attempts.next().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
