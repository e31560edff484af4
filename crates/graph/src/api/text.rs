//! Threads as text: exported and imported.

use std::io::Cursor;

use superstep_checkpoint::text::{self, Copied, ExportOptions, TextError};

use crate::{RunError, State, Thread, ThreadId, run::folded_states::mismatch};

impl<S: State> Thread<S> {
    /// Returns the thread as text, with everything that is stored of it and of its subgraphs, one line of JSON each.
    ///
    /// The text can be reviewed, stored in a repository, and [imported](Self::import) elsewhere.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Count { n: u32 }
    /// # let mut graph = StateGraph::<Count>::new("count");
    /// # let more = graph.add_node("more", async |count: Count, _| Count::update().n(count.n + 1));
    /// # graph.add_edge(START, more);
    /// # graph.add_edge(more, END);
    /// # let graph = graph.compile()?;
    /// let here = graph.clone().with_checkpointer(MemoryCheckpointer::new());
    /// here.thread("t").run(Count::update().n(1)).await?;
    /// let text = here.thread("t").export().await?;
    ///
    /// let elsewhere = graph.with_checkpointer(MemoryCheckpointer::new());
    /// elsewhere.thread("case").import(&text).await?;
    /// assert_eq!(elsewhere.thread("case").state().await?.values.n, 2);
    /// elsewhere.thread("case").replay().run().await?.assert_same();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`export_with`](Self::export_with).
    pub async fn export(&self) -> Result<String, RunError> {
        self.export_with(&ExportOptions::default()).await
    }

    /// Returns the thread as text, with [redacted](text::Redaction) values or with its snapshots.
    ///
    /// Rules also apply to the [former names](text::Redaction::renamed) of the channels of this graph's state, not of its
    /// subgraphs' states.
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`](crate::checkpoint::CheckpointError::NoThread) if the thread does not exist,
    /// [`RunError::OtherGraph`], or the error of [`text::export`].
    pub async fn export_with(&self, options: &ExportOptions) -> Result<String, RunError> {
        let (checkpointer, thread) = self.stored_root()?;
        self.history().limit(1).checkpoints().await?;
        let mut options = options.clone();
        for channel in self.graph.initial().channels().iter().filter(|channel| !channel.was.is_empty()) {
            let names = [&channel.name].into_iter().chain(&*channel.was).map(|name| name.to_string());
            options.redaction = options.redaction.renamed(names);
        }
        Ok(text::export(&**checkpointer, thread, &options).await?)
    }

    /// Stores the thread of a text under the name of this handle, in place of its own name. It must not exist yet.
    ///
    /// The states to which it folds are compared with the stored ones, see [`check_states`](Self::check_states).
    ///
    /// Use [`text::check`] and [`Checked::store`](text::Checked::store) for a file that should not be read into memory. A
    /// text from someone else decides which nodes are pending, with which state: inspect the thread before you run it.
    ///
    /// # Errors
    /// [`CheckpointError::ThreadExists`](crate::checkpoint::CheckpointError::ThreadExists), [`RunError::OtherGraph`] if the
    /// text is a thread of another graph, [`RunError::Text`] if it is not valid, or folds to another state than was stored.
    /// Nothing is stored then.
    // A lost line and a changed value look like a changed reducer: the writes are there, and the state is another
    // one. A run that resumed such a thread would continue from a state that no run had. The number of lines at each
    // checkpoint finds lost ones; a checksum of the file would also reject cases that were edited by hand.
    pub async fn import(&self, text: &str) -> Result<Copied, RunError> {
        let (checkpointer, thread) = self.stored_root()?;
        let mut source = Cursor::new(text);
        let checked = text::check(&mut source)?;
        if let Some(graph) = checked.graph().filter(|graph| graph.name != self.graph.name()) {
            return Err(self.graph.inner.other(thread, graph.clone()));
        }
        let lines = checked.lines().clone();
        let compare = async |stored: ThreadId| match mismatch(self.graph.inner(), &**checkpointer, &stored)
            .await?
        {
            None => Ok(()),
            Some(mismatch) => Err(RunError::from(TextError::Line {
                line: lines.get(&mismatch.checkpoint).copied().unwrap_or_default(),
                what: format!(
                    "{mismatch}; the file was changed, or the graph: `Replay` shows the difference, and `text::import` stores the \
                     thread as it is"
                ),
            })),
        };
        checked.store_if(&**checkpointer, thread, compare).await
    }
}
