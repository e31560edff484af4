//! The states of threads' heads that runs left for the next ones.
//!
//! Start at [`Heads`].

use hashlink::LinkedHashMap;

use crate::{HeadState, ThreadId};

/// The remembered states, least recently used first, up to a total size. `H` identifies the head that has a state.
#[derive(Debug)]
pub struct Heads<H> {
    states: LinkedHashMap<ThreadId, (H, HeadState)>,
    bytes: usize,
    max_bytes: usize,
    /// The version of the database's content in which the states are known to be valid. Only another connection changes it.
    version: i64,
}

impl<H: PartialEq> Heads<H> {
    /// Creates an empty set with a limit.
    pub fn new(max_bytes: usize) -> Self {
        Self { states: LinkedHashMap::new(), bytes: 0, max_bytes, version: 0 }
    }

    /// Inserts a state, in place of the least recently used ones.
    pub fn insert(&mut self, thread: ThreadId, head: H, state: HeadState) {
        self.remove(&thread);
        if state.bytes() > self.max_bytes {
            return;
        }
        self.bytes += state.bytes();
        self.states.insert(thread, (head, state));
        while self.bytes > self.max_bytes {
            let (_, (_, oldest)) = self.states.pop_front().expect("states have a size");
            self.bytes -= oldest.bytes();
        }
    }

    /// Drops all states if another connection has written since the last call, because it may have replaced their threads.
    pub fn invalidate_if_changed(&mut self, version: i64) {
        if self.version != version {
            *self = Self { version, ..Self::new(self.max_bytes) };
        }
    }

    /// Returns the state of this head.
    pub fn get(&mut self, thread: &ThreadId, head: &H) -> Option<HeadState> {
        match self.states.to_back(thread)? {
            (known, state) if *known == *head => Some(state.clone()),
            _ => {
                self.remove(thread);
                None
            }
        }
    }

    /// Drops the state of a thread.
    pub fn remove(&mut self, thread: &ThreadId) {
        if let Some((_, state)) = self.states.remove(thread) {
            self.bytes -= state.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckpointId;

    fn state(bytes: usize) -> HeadState {
        HeadState::new((), bytes)
    }

    #[test]
    fn the_least_recently_used_states_are_dropped_when_the_size_is_exceeded() {
        let mut heads = Heads::new(10);
        for (name, bytes) in [("a", 4), ("b", 4), ("huge", 11)] {
            heads.insert(name.into(), CheckpointId(1), state(bytes));
        }
        assert!(heads.get(&"huge".into(), &CheckpointId(1)).is_none());
        assert!(heads.get(&"a".into(), &CheckpointId(1)).is_some());
        heads.insert("c".into(), CheckpointId(1), state(4));
        assert!(heads.get(&"b".into(), &CheckpointId(1)).is_none());
        assert!(heads.get(&"a".into(), &CheckpointId(1)).is_some());
        assert_eq!(heads.bytes, 8);
    }

    #[test]
    fn a_state_is_that_of_one_head_and_of_one_version_of_the_database() {
        let mut heads = Heads::new(10);
        heads.insert("a".into(), CheckpointId(1), state(4));
        assert!(heads.get(&"a".into(), &CheckpointId(2)).is_none());
        assert_eq!(heads.bytes, 0);
        heads.insert("a".into(), CheckpointId(1), state(4));
        heads.invalidate_if_changed(0);
        assert!(heads.get(&"a".into(), &CheckpointId(1)).is_some());
        heads.invalidate_if_changed(1);
        assert!(heads.get(&"a".into(), &CheckpointId(1)).is_none());
        heads.insert("a".into(), CheckpointId(1), state(4));
        heads.invalidate_if_changed(1);
        assert!(heads.get(&"a".into(), &CheckpointId(1)).is_some());
        heads.remove(&"a".into());
        assert_eq!(heads.bytes, 0);
    }
}
