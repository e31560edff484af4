//! The commands of the program.
//!
//! Start at [`run::run`].

pub(crate) mod agent_jobs;
pub(crate) mod checks;
pub(crate) mod db;
pub(crate) mod diff;
pub(crate) mod dream;
pub(crate) mod export;
pub(crate) mod history_tree;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod new;
pub(crate) mod own;
pub(crate) mod presets;
pub(crate) mod replay;
pub(crate) mod revert;
pub(crate) mod run;
pub(crate) mod schedules;
pub(crate) mod show;
pub(crate) mod steer;
pub(crate) mod thread_admin;
pub(crate) mod threads;
pub(crate) mod tools;
pub(crate) mod watch;
pub(crate) mod worker;
mod writes;
