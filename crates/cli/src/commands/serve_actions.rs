//! The actions of the studio of `superstep serve` on threads and what belongs to them.
//!
//! Start at [`AgentActions`].

use std::sync::Arc;

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use superstep::{CheckpointId, Checkpointer, ThreadId, agent::steer, checkpoint::Retention, error::chain};
use superstep_server::ThreadActions;
use superstep_session::{
    config::location::Location,
    error::SessionError,
    text::changed_files,
    turn::{dream_thread, revert::Revert, stored_graph::graph, threads},
};

use crate::{commands::thread_admin::pruned, output::note::print_new};

/// The actions on the threads of a folder, as the commands `steer`, `copy`, `prune`, `delete` and `revert` do them.
pub(crate) struct AgentActions {
    pub(crate) location: Arc<Location>,
    pub(crate) store: Arc<dyn Checkpointer>,
}

impl AgentActions {
    async fn post(&self, thread: &ThreadId, text: &str) -> Result<(), String> {
        let refused = |error: SessionError| error.message;
        dream_thread::refuse(&self.location, thread).map_err(refused)?;
        let graph = graph().map_err(refused)?.with_checkpointer(self.store.clone());
        steer(&graph.thread(thread), text).await.map(drop).map_err(|error| chain(&error))
    }

    async fn copied(&self, from: &ThreadId, to: &ThreadId) -> Result<(), SessionError> {
        print_new(threads::copy(&self.location, self.store.clone(), from, to).await?, false);
        Ok(())
    }

    async fn reverted(&self, thread: &ThreadId, to: CheckpointId) -> Result<Vec<String>, SessionError> {
        let revert = Revert::new(&self.location, self.store.clone(), thread, false).await?;
        let restored = revert.to(to).await?;
        let left = restored.left.iter().map(|(path, why)| format!("{path} is left as it is: {why}"));
        Ok(changed_files(&restored.changes).into_iter().chain(left).collect())
    }
}

impl ThreadActions for AgentActions {
    fn steer(&self, thread: ThreadId, text: String) -> BoxFuture<'_, Result<(), String>> {
        async move { self.post(&thread, &text).await }.boxed()
    }

    fn copy(&self, from: ThreadId, to: ThreadId) -> BoxFuture<'_, Result<(), String>> {
        async move { self.copied(&from, &to).await }.map_err(|error| error.message).boxed()
    }

    fn prune(&self, thread: ThreadId, keep: Retention) -> BoxFuture<'_, Result<usize, String>> {
        async move { pruned(&self.location, self.store.clone(), &thread, keep).await.map(|(pruned, _)| pruned) }
            .map_err(|error| error.message)
            .boxed()
    }

    fn delete(&self, thread: ThreadId) -> BoxFuture<'_, Result<(), String>> {
        async move { threads::delete(&self.location, &self.store, &[thread]).await }
            .map_err(|error| error.message)
            .boxed()
    }

    fn revert(&self, thread: ThreadId, to: CheckpointId) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async move { self.reverted(&thread, to).await }.map_err(|error| error.message).boxed()
    }
}
