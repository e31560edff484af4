//! The methods of compiled graphs and the handles to their threads.
//!
//! Start at [`thread`].

pub(crate) mod adopt;
pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod drawing;
pub(crate) mod erased;
pub(crate) mod functional;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod probe;
pub(crate) mod replay;
pub(crate) mod replay_checkpointer;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod state;
pub(crate) mod subgraph;
pub(crate) mod text;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod update;
