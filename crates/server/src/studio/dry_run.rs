//! A checkpointer whose writes are only in memory, in front of another one.
//!
//! Start at [`DryCheckpointer`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Commit, Lease, Loaded, Prune, TaskKey, TaskRecord},
};

/// Accepts the commits of one update of one thread, and forgets them with itself.
pub(super) struct DryCheckpointer {
    stored: Arc<dyn Checkpointer>,
    commits: Mutex<BTreeMap<CheckpointId, Commit>>,
}

type Answer<'a, T> = BoxFuture<'a, Result<T, CheckpointError>>;

impl DryCheckpointer {
    pub(super) fn new(stored: Arc<dyn Checkpointer>) -> Self {
        Self { stored, commits: Mutex::default() }
    }

    fn commits(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Commit>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest of its own checkpoints.
    fn head(&self) -> Option<CheckpointId> {
        self.commits().keys().next_back().copied()
    }

    async fn load_at(&self, thread: &ThreadId, at: CheckpointId) -> Result<Option<Loaded>, CheckpointError> {
        // Its own checkpoints on the path, newest first.
        let (mut own, mut wanted) = (Vec::new(), Some(at));
        while let Some((id, commit)) = wanted.and_then(|id| Some((id, self.commits().get(&id)?.clone()))) {
            wanted = commit.parent;
            own.push((id, commit));
        }
        let mut loaded = match wanted {
            Some(stored) => match self.stored.load(thread, Some(stored)).await? {
                Some(loaded) => Some(loaded),
                None => return Ok(None),
            },
            None => None,
        };
        for (id, commit) in own.into_iter().rev() {
            let (snapshot, mut commits) =
                loaded.map_or_else(Default::default, |loaded| (loaded.snapshot, loaded.commits));
            commits.push(commit.applied.iter().map(|task| task.update.clone()).collect());
            loaded = Some(Loaded {
                meta: meta(id, &commit),
                head: id,
                applied: commit.applied.into_iter().map(|task| (task.slot, task.node)).collect(),
                snapshot,
                commits,
                tasks: commit.records,
                fingerprints: None,
            });
        }
        if let (Some(loaded), Some(head)) = (&mut loaded, self.head()) {
            loaded.head = head;
        }
        Ok(loaded)
    }

    fn add(&self, expected: Option<CheckpointId>, next: Vec<Commit>) -> CheckpointId {
        let mut commits = self.commits();
        let head = commits.keys().next_back().copied().or(expected);
        let mut id = head.map_or(0, |head| head.0);
        for commit in next {
            id += 1;
            commits.insert(CheckpointId(id), commit);
        }
        CheckpointId(id)
    }
}

fn meta(id: CheckpointId, commit: &Commit) -> CheckpointMeta {
    CheckpointMeta {
        id,
        parent: commit.parent,
        parent_pruned: false,
        source: commit.source,
        control: commit.control.clone(),
        created_ms: commit.created_ms,
        metadata: (*commit.metadata).clone(),
    }
}

fn refused<T: Send + 'static>() -> Answer<'static, T> {
    let error = CheckpointError::Storage { what: "a dry run only updates a thread".to_owned(), source: None };
    Box::pin(async { Err(error) })
}

impl Checkpointer for DryCheckpointer {
    fn lease(&self, _: &ThreadId) -> Answer<'_, Lease> {
        Box::pin(std::future::ready(Ok(Lease::new(()))))
    }

    fn load(&self, thread: &ThreadId, at: Option<CheckpointId>) -> Answer<'_, Option<Loaded>> {
        let thread = thread.clone();
        Box::pin(async move {
            match at.or_else(|| self.head()) {
                Some(at) => self.load_at(&thread, at).await,
                None => self.stored.load(&thread, None).await,
            }
        })
    }

    fn record(&self, _: &TaskKey, _: TaskRecord) -> Answer<'_, ()> {
        refused()
    }

    fn commit(&self, _: &ThreadId, expected: Option<CheckpointId>, next: Commit) -> Answer<'_, CheckpointId> {
        Box::pin(async move { Ok(self.add(expected, vec![next])) })
    }

    fn commit_all(&self, _: &ThreadId, expected: Option<CheckpointId>, next: Vec<Commit>) -> Answer<'_, ()> {
        Box::pin(async move {
            self.add(expected, next);
            Ok(())
        })
    }

    fn history(&self, thread: &ThreadId, range: History) -> Answer<'_, Vec<CheckpointMeta>> {
        let thread = thread.clone();
        Box::pin(async move {
            let own: Vec<_> = self.commits().iter().rev().map(|(id, commit)| meta(*id, commit)).collect();
            let mut metas: Vec<_> = own.into_iter().filter(|meta| range.has(meta)).collect();
            metas.extend(self.stored.history(&thread, range.clone()).await?);
            metas.truncate(range.limit.unwrap_or(usize::MAX));
            Ok(metas)
        })
    }

    fn threads(&self) -> Answer<'_, Vec<(ThreadId, CheckpointMeta)>> {
        self.stored.threads()
    }

    fn children(&self, thread: &ThreadId) -> Answer<'_, Vec<ThreadId>> {
        self.stored.children(thread)
    }

    fn delete(&self, _: &ThreadId) -> Answer<'_, ()> {
        refused()
    }

    fn copy(&self, _: &ThreadId, _: &ThreadId) -> Answer<'_, ()> {
        refused()
    }

    fn prune(&self, _: &ThreadId, _: CheckpointId, _: Prune) -> Answer<'_, usize> {
        refused()
    }
}
