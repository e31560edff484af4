//! The storage of a root thread and those below it in the entries of one object.
//!
//! It depends on the request and the entries alone: a replay of the same requests makes the same writes.
//!
//! Start at [`serve`].

mod prune;
mod read;
mod write;

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, Source, ThreadId,
    internal::stored::{Counts, StoredThread},
};

use crate::{
    keys::{GENERATION, Keys},
    kv::{Kv, Memory, View},
    request::{Reply, Request},
};

/// The entry `h`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) head: CheckpointId,
    /// The number of checkpoints.
    checkpoints: u64,
    /// The number of them that do not follow the one committed before them.
    branched: u64,
}

impl Head {
    fn counts(self) -> Counts {
        Counts { head: self.head, checkpoints: self.checkpoints, branched: self.branched }
    }
}

/// The entry `m` of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<CheckpointId>,
    #[serde(default, skip_serializing_if = "is_false")]
    parent_pruned: bool,
    source: Source,
    created_ms: i64,
    #[serde(borrow)]
    control: Cow<'a, RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Cow<'a, RawValue>>,
    #[serde(default, skip_serializing_if = "is_false")]
    snapshot: bool,
    /// The checkpoints from the nearest one with a snapshot to this one.
    path: Ranges,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(is: &bool) -> bool {
    !is
}

/// A set of numbers, as ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn of(number: u64) -> Self {
        Self(vec![(number, number)])
    }

    fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// Adds a number that is not in the set.
    fn add(&mut self, number: u64) {
        let at = self.0.partition_point(|(_, last)| *last < number);
        let follows = at > 0 && self.0[at - 1].1 + 1 == number;
        let precedes = self.0.get(at).is_some_and(|(first, _)| number + 1 == *first);
        match (follows, precedes) {
            (true, true) => self.0[at - 1].1 = self.0.remove(at).1,
            (true, false) => self.0[at - 1].1 = number,
            (false, true) => self.0[at].0 = number,
            (false, false) => self.0.insert(at, (number, number)),
        }
    }

    /// Returns them as slots, which all numbers of such a set are.
    fn slots(&self) -> impl Iterator<Item = u32> {
        self.iter().filter_map(|slot| slot.try_into().ok())
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

/// One thread in the entries of its object.
struct Stored<'v, 'kv> {
    view: &'v mut View<'kv>,
    name: &'v ThreadId,
    keys: Keys<'v>,
    /// The place, for errors.
    place: &'v (dyn fmt::Display + Sync),
}

impl<'v> Stored<'v, '_> {
    fn thread(&self) -> StoredThread<'v> {
        StoredThread { name: self.name, place: self.place, backup: "cluster" }
    }

    async fn head(&mut self) -> Result<Option<Head>, CheckpointError> {
        let Some(entry) = self.view.get(self.keys.head()).await? else { return Ok(None) };
        let head = entry.is_intact.then(|| serde_json::from_slice(entry.text()).ok()).flatten();
        head.map(Some).ok_or_else(|| self.thread().lost_checkpoints())
    }
}

/// Serves a request about a thread of the object, whose writes reach the object together.
pub(crate) async fn serve(
    kv: &mut dyn Kv,
    memory: &mut Memory,
    place: &(dyn fmt::Display + Sync),
    request: Request,
) -> Result<Reply, CheckpointError> {
    let thread = request.thread().clone();
    let mut view = View::new(kv, memory);
    let mut stored = Stored { view: &mut view, name: &thread, keys: Keys::of(&thread), place };
    let reply = match request {
        Request::Commit { expected, commits, looks_beside, .. } => {
            stored.commit_all(expected, &commits, looks_beside).await.map(Reply::Id)
        }
        Request::Record { checkpoint, records, .. } => {
            stored.record_all(checkpoint, &records).await.map(|()| Reply::Done)
        }
        Request::Effects { checkpoint, slot, record, .. } => {
            stored.add_effects(checkpoint, slot, &record).await.map(Reply::Is)
        }
        Request::Prune { head, prune, .. } => stored.prune(head, prune).await.map(Reply::Count),
        Request::Delete { .. } => stored.delete().await.map(|()| Reply::Done),
        Request::Load { at, .. } => stored.load(at).await.map(|found| Reply::Loaded(found.map(Box::new))),
        Request::ReadCommit { at, .. } => {
            stored.read_commit(at).await.map(|found| Reply::Commit(found.map(Box::new)))
        }
        Request::History { range, .. } => stored.history(&range.into()).await.map(Reply::History),
        Request::Count { .. } => stored.count().await.map(Reply::Count),
        Request::HasInput { id, .. } => {
            stored.view.get(stored.keys.input(&id)).await.map(|found| Reply::Is(found.is_some()))
        }
        Request::Children { .. } => stored.children().await.map(Reply::Threads),
        Request::Nonce { .. } => stored.view.get(GENERATION.to_owned()).await.map(|_| Reply::Done),
    };
    if reply.is_ok() {
        view.write();
    }
    reply
}
