//! The tokio driver.
//!
//! Start at [`root_run::run`].

pub(crate) mod begin;
mod breakpoints;
pub(crate) mod channel_values;
mod commit;
pub(crate) mod conflicts;
mod driver;
mod durability;
mod emit;
pub(crate) mod encode;
mod execution;
pub(crate) mod external_command;
pub(crate) mod external_update;
mod fail;
pub(crate) mod failed_end;
mod finish;
mod first_tasks;
pub(crate) mod folded_states;
mod interrupts;
pub(crate) mod nested_call;
mod nested_driver;
pub(crate) mod nested_run;
mod observer;
pub(crate) mod probe;
pub(crate) mod probing;
pub(crate) mod prune;
mod questions;
mod record;
pub(crate) mod recording;
pub(crate) mod replaying;
mod rerecording;
pub(crate) mod restore;
pub(crate) mod resumable;
pub(crate) mod root_run;
pub(crate) mod since_snapshot;
mod stop;
pub(crate) mod stored_cache;
pub(crate) mod subgraph_lookup;
mod superstep;
pub(crate) mod targets;
mod task;
pub(crate) mod thread_writer;
mod trace;
