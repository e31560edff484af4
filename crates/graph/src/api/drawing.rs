//! Drawings of a graph and of a thread's path.

use superstep_checkpoint::Source;
use superstep_engine::Drawing;

use crate::{CheckpointId, CompiledGraph, RunError, State, Thread};

impl<S: State> CompiledGraph<S> {
    /// Returns a drawing of the graph, for Mermaid, DOT, text or SVG.
    ///
    /// ```
    /// # use superstep_graph::{END, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { answer: String }
    /// # let mut graph = StateGraph::<Chat>::new("chat");
    /// # let agent = graph.add_node("agent", async |_: Chat, _| ());
    /// # graph.add_edge(START, agent);
    /// # graph.add_edge(agent, END);
    /// let graph = graph.compile()?;
    /// assert!(graph.drawing().svg().starts_with("<svg "));
    /// assert_eq!(graph.drawing().text(), "START ──▶ agent\nagent ──▶ END\n");
    /// # Ok::<(), superstep_graph::CompileError>(())
    /// ```
    pub fn drawing(&self) -> Drawing {
        self.topology().drawing()
    }
}

impl<S: State> Thread<S> {
    /// Returns the graph with the path that the thread took to its head, or to the checkpoint named by [`at`](Self::at): how
    /// often each node ran and each arrow was taken, and which nodes are pending.
    ///
    /// The path is read from the pending tasks of each checkpoint; see [`Drawing::superstep`] for what that leaves open.
    /// Nodes that the graph no longer has are left out. A thread that never ran has no marks.
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::NoCheckpointer`], and the error of the checkpointer.
    pub async fn drawing(&self) -> Result<Drawing, RunError> {
        let (_, thread) = self.stored()?;
        let history = self.history().checkpoints().await?;
        let find = |id: CheckpointId| history.iter().find(|meta| meta.id == id);
        let mut here = match self.options.checkpoint {
            None => history.first(),
            Some(id) => {
                let unknown = || RunError::UnknownCheckpoint { thread: thread.clone(), checkpoint: id };
                Some(find(id).ok_or_else(unknown)?)
            }
        };
        let mut drawing = self.graph.drawing();
        if let Some(end) = here {
            drawing.pending(&end.control.next);
        }
        while let Some(meta) = here {
            let before = meta.parent.and_then(find);
            if let (Source::Loop, Some(before)) = (meta.source, before) {
                drawing.superstep(&before.control.next, &meta.control.next);
            }
            here = before;
        }
        Ok(drawing)
    }
}
