//! The tokio driver.
//!
//! Start at [`driver::run`].

pub(crate) mod begin;
pub(crate) mod breakpoints;
pub(crate) mod commit;
pub(crate) mod conflicts;
pub(crate) mod driver;
mod durability;
pub(crate) mod emit;
pub(crate) mod external_command;
pub(crate) mod external_update;
pub(crate) mod fail;
pub(crate) mod failed_end;
pub(crate) mod finish;
pub(crate) mod folded_states;
pub(crate) mod interrupts;
pub(crate) mod left_behind;
pub(crate) mod nested_call;
pub(crate) mod nested_driver;
pub(crate) mod nested_run;
pub(crate) mod observer;
pub(crate) mod observers;
mod other_branches;
pub(crate) mod probe;
pub(crate) mod probing;
pub(crate) mod prune;
pub(crate) mod record;
pub(crate) mod recording;
pub(crate) mod replay;
pub(crate) mod replaying;
pub(crate) mod rerecord;
mod rerecording;
pub(crate) mod restore;
pub(crate) mod resumable;
pub(crate) mod stop;
pub(crate) mod stored_cache;
pub(crate) mod subgraph_lookup;
pub(crate) mod targets;
pub(crate) mod task;
pub(crate) mod task_result;
pub(crate) mod thread_writer;
pub(crate) mod trace;
