//! What the SQLite checkpointer does.

mod conformance;
mod crash;
mod damage;
mod format;
mod lease;
mod opening;
mod support;
