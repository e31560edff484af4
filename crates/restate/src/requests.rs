//! A checkpointer whose every method is a request.
//!
//! Start at [`Requests`].

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, History, Lease, Loaded, Prune,
    TaskKey, TaskRecord, ThreadId,
    internal::stored::{NewRecord, NewRecords},
};
use superstep_state::RawJson;

use crate::request::{Reply, Request};

/// The objects that serve requests: those of a cluster, of one handler, or of a test.
pub(crate) trait Objects: Send + Sync + 'static {
    /// Serves a request about one thread.
    fn serve(&self, request: Request) -> BoxFuture<'static, Result<Reply, CheckpointError>>;

    /// Makes the caller the only writer of a thread.
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'static, Result<Lease, CheckpointError>>;

    /// Returns whether a thread has a writer.
    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'static, Result<bool, CheckpointError>>;

    /// Copies a root thread with those below it.
    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'static, Result<(), CheckpointError>>;

    /// Returns the names of the root threads with checkpoints, and of those of which only something else is stored, each in order.
    fn names(&self) -> BoxFuture<'static, Result<Names, CheckpointError>>;

    /// Returns the heads of the root threads, in any order.
    fn heads(&self) -> BoxFuture<'static, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>>;
}

/// The names of root threads.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) threads: Vec<ThreadId>,
    pub(crate) orphans: Vec<ThreadId>,
}

/// A checkpointer on [`Objects`].
#[derive(Debug)]
pub(crate) struct Requests<O>(pub(crate) Arc<O>);

impl<O: Objects> Requests<O> {
    /// Serves a request whose reply has a certain form.
    fn ask<T: 'static>(
        &self,
        request: Result<Request, CheckpointError>,
        read: impl FnOnce(Reply) -> Option<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, CheckpointError>> {
        let objects = self.0.clone();
        Box::pin(async move {
            let reply = objects.serve(request?).await?;
            Ok(read(reply).expect("a reply has the form of its request"))
        })
    }
}

impl<O: Objects> Checkpointer for Requests<O> {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        self.0.lease(thread)
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.0.has_writer(thread)
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        self.ask(Ok(Request::Load { thread: thread.clone(), at }), |reply| match reply {
            Reply::Loaded(loaded) => Some(loaded.map(|loaded| *loaded)),
            _ => None,
        })
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        self.ask(Ok(Request::ReadCommit { thread: thread.clone(), at }), |reply| match reply {
            Reply::Commit(commit) => Some(commit.map(|commit| *commit)),
            _ => None,
        })
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.record_all(&task.thread, task.checkpoint, vec![(task.slot, record)])
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        if records.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.ask(NewRecords::new(thread.clone(), checkpoint, &records).map(Request::record), done)
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.ask(NewRecord::of_effects(task.clone(), results).map(Request::effects), is)
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        self.ask(Request::commit(thread, expected, &[next]), |reply| match reply {
            Reply::Id(id) => Some(id),
            _ => None,
        })
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        if next.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.ask(Request::commit(thread, expected, &next), |reply| match reply {
            Reply::Id(_) => Some(()),
            _ => None,
        })
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let request = Request::History { thread: thread.clone(), range: range.into() };
        self.ask(Ok(request), |reply| match reply {
            Reply::History(found) => Some(found),
            _ => None,
        })
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.ask(Ok(Request::Count { thread: thread.clone() }), count)
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.ask(Ok(Request::HasInput { thread: thread.clone(), id: id.to_owned() }), is)
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(async {
            let mut found = self.0.heads().await?;
            found
                .sort_by(|(a, one), (b, other)| other.created_ms.cmp(&one.created_ms).then_with(|| a.cmp(b)));
            Ok(found)
        })
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(async { Ok(self.0.names().await?.threads) })
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(async { Ok(self.0.names().await?.orphans) })
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.ask(Ok(Request::Children { thread: thread.clone() }), |reply| match reply {
            Reply::Threads(threads) => Some(threads),
            _ => None,
        })
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.ask(Ok(Request::Delete { thread: thread.clone() }), done)
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.copy(from, to)
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.ask(Request::prune(thread, head, prune), count)
    }
}

fn done(reply: Reply) -> Option<()> {
    matches!(reply, Reply::Done).then_some(())
}

fn is(reply: Reply) -> Option<bool> {
    match reply {
        Reply::Is(is) => Some(is),
        _ => None,
    }
}

fn count(reply: Reply) -> Option<usize> {
    match reply {
        Reply::Count(count) => Some(count),
        _ => None,
    }
}
