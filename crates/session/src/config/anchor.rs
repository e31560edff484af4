//! The newest checkpoint of a thread after the user's last run, in the user's state folder.
//!
//! A database that was set back to an earlier state is consistent: only something outside of it shows that its end is missing. The
//! anchor is compared at the beginning of a run, and stored at its end, after the database was synced: a crash leaves an older
//! anchor, and never one of a checkpoint that is lost.
//!
//! Start at [`Anchor`].

// Only at the end: with each superstep it would cost a sync of the disk, which is the price of a whole run of small
// nodes.
use serde::{Deserialize, Serialize};
use serde_json::json;
use superstep::{CheckpointId, checkpoint::CheckpointMeta};

/// A checkpoint that a thread had. A promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Anchor {
    pub checkpoint: CheckpointId,
    /// A hash of the parts of the checkpoint that no prune changes.
    hash: String,
    /// A hash that differs for a later thread of the same name.
    pub thread: String,
}

/// The result of a comparison of a database with an anchor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The checkpoint is there, or was pruned.
    Same,
    /// The thread is not there.
    Missing,
    /// Another thread has its name.
    Other,
    /// The thread ends before the checkpoint, at this one.
    Shorter(CheckpointId),
    /// Another checkpoint has its number.
    Changed,
}

impl Anchor {
    pub(crate) fn of(head: &CheckpointMeta) -> Self {
        let CheckpointMeta { id, parent, source, created_ms, control, .. } = head;
        let hash = json!([id, parent, source, created_ms, control.step, control.next, head.nonce()]);
        Self {
            checkpoint: *id,
            hash: short(&hash.to_string()),
            thread: short(head.nonce().unwrap_or_default()),
        }
    }

    /// Compares the thread with it. `head` is the newest checkpoint, and `found` the newest one up to that of the anchor.
    pub(crate) fn compare(&self, head: Option<&CheckpointMeta>, found: Option<&CheckpointMeta>) -> Compared {
        let Some(head) = head else { return Compared::Missing };
        if Self::of(head).thread != self.thread {
            return Compared::Other;
        }
        if head.id < self.checkpoint {
            return Compared::Shorter(head.id);
        }
        let is_changed = |found: &CheckpointMeta| found.id == self.checkpoint && Self::of(found) != *self;
        if found.is_some_and(is_changed) { Compared::Changed } else { Compared::Same }
    }
}

fn short(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn checkpoint(id: u64, created_ms: i64, nonce: &str) -> CheckpointMeta {
        let meta = json!({
            "id": id, "parent": null, "source": "loop", "control": { "step": 1, "next": [] }, "created_ms": created_ms,
            "metadata": { "$nonce": nonce },
        });
        serde_json::from_value::<CheckpointMeta>(meta).unwrap()
    }

    #[test]
    fn a_thread_may_grow_and_lose_old_checkpoints_and_nothing_else() {
        let [old, left, new] = [4, 5, 9].map(|id| checkpoint(id, 7, "a"));
        let anchor = Anchor::of(&left);
        let [changed, other] = [checkpoint(5, 8, "a"), checkpoint(9, 7, "b")];
        let compare = |head, found| anchor.compare(Some(head), found);
        assert_eq!(compare(&left, Some(&left)), Compared::Same);
        assert_eq!(compare(&new, Some(&left)), Compared::Same);
        assert_eq!(compare(&new, Some(&old)), Compared::Same, "it was pruned");
        assert_eq!(compare(&new, None), Compared::Same, "it was pruned");
        let mut marked = left.clone();
        marked.parent_pruned = true;
        marked.metadata.insert("$graph".to_owned(), Value::from("adopted"));
        assert_eq!(compare(&marked, Some(&marked)), Compared::Same);
        assert_eq!(compare(&old, Some(&old)), Compared::Shorter(CheckpointId(4)));
        assert_eq!(compare(&new, Some(&changed)), Compared::Changed);
        assert_eq!(compare(&other, Some(&left)), Compared::Other);
        assert_eq!(anchor.compare(None, None), Compared::Missing);
    }
}
