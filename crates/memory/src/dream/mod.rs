//! Dreams: the consolidation of a history into a memory.
//!
//! Start at [`dreams::Dreams`].

pub(crate) mod config;
pub(crate) mod cursor;
pub(crate) mod dreams;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod nodes;
pub(crate) mod prompt;
pub(crate) mod state;
