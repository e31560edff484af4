//! The names of the entries of an object, which has a root thread and the threads of its subgraphs. Stable format.
//!
//! | entry | value |
//! |---|---|
//! | `g` | the number of deletions, by which a reader notices one |
//! | `h` | the [head](crate::storage::Head) of the thread |
//! | `m17` | the [metadata](crate::storage::Meta) of checkpoint 17 |
//! | `u17`, `s17` | the updates that it folded, and its snapshot |
//! | `t17` | the slots of its tasks with records |
//! | `r17.0`, `e17.0.3` | the record of its task 0, and a further result of an effect of that task |
//! | `a17` | the checkpoints that follow it on a branch, newest first |
//! | `iID` | the checkpoint that accepted the input with this id |
//! | `l` | the lease of a writer outside of runs |
//! | `n` | the name of the root thread, if it is not the key of the object |
//! | `x` | the invocation of the run at work |
//!
//! The part of its name below the root follows for a thread of a subgraph. Each value begins with a checksum, but for `l`, `n` and `x`.
//!
//! Start at [`Keys`].

use superstep_checkpoint::{CheckpointId, ThreadId, internal::SEPARATOR};

/// The number of deletions of threads of the object.
pub(crate) const GENERATION: &str = "g";

/// The head of the root thread.
pub(crate) const HEAD: &str = "h";

/// The lease of a writer outside of runs.
pub(crate) const LEASE: &str = "l";

/// The name of the root thread, if it is not the key of the object.
pub(crate) const NAME: &str = "n";

/// The invocation of the run at work.
pub(crate) const RUNNING: &str = "x";

/// The names of the entries of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    /// The name below the root, with its separator; empty for the root.
    path: &'a str,
}

impl<'a> Keys<'a> {
    pub(crate) fn of(thread: &'a ThreadId) -> Self {
        let name = thread.as_str();
        Self { path: name.find(SEPARATOR).map_or("", |at| &name[at..]) }
    }

    pub(crate) fn head(self) -> String {
        self.key("h")
    }

    pub(crate) fn meta(self, id: CheckpointId) -> String {
        self.key(&format!("m{id}"))
    }

    pub(crate) fn updates(self, id: CheckpointId) -> String {
        self.key(&format!("u{id}"))
    }

    pub(crate) fn snapshot(self, id: CheckpointId) -> String {
        self.key(&format!("s{id}"))
    }

    pub(crate) fn slots(self, id: CheckpointId) -> String {
        self.key(&format!("t{id}"))
    }

    pub(crate) fn record(self, id: CheckpointId, slot: u32) -> String {
        self.key(&format!("r{id}.{slot}"))
    }

    pub(crate) fn effect(self, id: CheckpointId, slot: u32, nth: u32) -> String {
        self.key(&format!("e{id}.{slot}.{nth}"))
    }

    pub(crate) fn branches(self, id: CheckpointId) -> String {
        self.key(&format!("a{id}"))
    }

    pub(crate) fn input(self, id: &str) -> String {
        // The separator ends the id.
        self.key(&format!("i{}", id.replace('%', "%25").replace(SEPARATOR, "%1f")))
    }

    fn key(self, own: &str) -> String {
        format!("{own}{}", self.path)
    }

    /// Returns whether an entry is of this thread, or of one below it.
    pub(crate) fn has(self, key: &str) -> bool {
        let path = path_of(key);
        ![GENERATION, LEASE, NAME, RUNNING].contains(&key) && (path == self.path || self.is_above(path))
    }

    /// Returns the threads below this one of which a head is among the entries, by name.
    pub(crate) fn children(self, root: &ThreadId, keys: &[String]) -> Vec<ThreadId> {
        let paths = keys.iter().filter(|key| key.starts_with('h')).map(|key| path_of(key));
        let mut found: Vec<ThreadId> =
            paths.filter(|path| self.is_above(path)).map(|path| format!("{root}{path}").into()).collect();
        found.sort_unstable();
        found
    }

    fn is_above(self, path: &str) -> bool {
        path.strip_prefix(self.path).is_some_and(|rest| rest.starts_with(SEPARATOR))
    }
}

/// Returns whether a thread is in the object beside that of its root: an inbox, which others write during a run, or the data keys.
pub(crate) fn is_beside(thread: &ThreadId) -> bool {
    thread.as_str().split(SEPARATOR).nth(1).is_some_and(|segment| segment.starts_with('$'))
}

/// Returns the part of a thread's name below the root that ends the name of an entry.
fn path_of(key: &str) -> &str {
    key.find(SEPARATOR).map_or("", |at| &key[at..])
}
