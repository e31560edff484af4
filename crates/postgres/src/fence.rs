//! The tokens of leases, and the check of each write that its own is still valid.
//!
//! Start at [`Held::fence`].

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use superstep_checkpoint::{CheckpointError, ThreadId};

use crate::{error::Failed, query::Query, rows::name_of, session::Session};

/// The leases of this opening of the database, by the name of the thread; without a token while they are acquired.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<ThreadId, Option<i64>>>);

impl Held {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Option<i64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token with which a thread, or one of a subgraph, is written; `None` if this process has no lease.
    fn token(&self, thread: &ThreadId) -> Option<i64> {
        let held = self.lock();
        if thread.is_child() {
            held.get(&thread.root()).copied().flatten()
        } else {
            held.get(thread).copied().flatten()
        }
    }

    pub(crate) fn tokens(&self) -> Vec<i64> {
        self.lock().values().copied().flatten().collect()
    }

    /// Returns the check for a write to a thread; `None` if this process has no lease of it. It is taken when the write is requested:
    /// later, the lease may be released, or be that of another run.
    pub(crate) fn fence(&self, thread: &ThreadId) -> Option<Fence> {
        self.token(thread).map(|token| Fence { root: thread.root(), token })
    }
}

/// The check of a write that its owner still has the lease. The row stays locked until the end of the transaction, so that no other process
/// takes the lease over before.
pub(crate) struct Fence {
    root: ThreadId,
    token: i64,
}

impl Fence {
    /// Appends a common table expression `fence` with a row if the lease is valid.
    pub(crate) fn define<'a>(&'a self, query: &mut Query<'a>, name: &'a &'a [u8]) {
        query.push("fence AS MATERIALIZED (", &[]).push(LEASED, &[name, &self.token]).push(")", &[]);
    }

    /// Returns the name of the leased thread.
    pub(crate) fn name(&self) -> &[u8] {
        name_of(&self.root)
    }

    /// Checks it in the current transaction.
    pub(crate) async fn check(&self, session: &Session) -> Result<(), Failed> {
        let name = self.name();
        let mut query = Query::default();
        match query.push(LEASED, &[&name, &self.token]).row(session.client()).await? {
            Some(_) => Ok(()),
            None => Err(CheckpointError::LeaseLost { thread: self.root.clone() }.into()),
        }
    }
}

const LEASED: &str = "SELECT 1 FROM leases WHERE hash = sha256(?) AND token = ? FOR KEY SHARE";
