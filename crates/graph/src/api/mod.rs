//! The methods of compiled graphs and the handles to their threads.
//!
//! Start at [`invoke`].

pub(crate) mod adopt;
pub(crate) mod drawing;
pub(crate) mod inbox;
pub(crate) mod invoke;
pub(crate) mod replay;
pub(crate) mod replay_checkpointer;
pub(crate) mod state;
pub(crate) mod subgraph;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod update;
pub(crate) mod view;
