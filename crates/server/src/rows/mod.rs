//! Data of the server beside the threads of superstep: rows of threads, assistants, runs and crons, in a
//! [`Store`](superstep_graph::Store). A store that survives a restart makes the rows survive it.

pub(crate) mod assistant;
pub(crate) mod claim;
#[cfg(feature = "crons")]
pub(crate) mod cron;
pub(crate) mod run;
pub(crate) mod table;
pub(crate) mod thread;
