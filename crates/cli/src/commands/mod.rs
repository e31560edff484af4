//! The commands of the program.
//!
//! Start at [`run::run`].

pub(crate) mod acp;
#[cfg_attr(not(feature = "postgres"), path = "no_agent_jobs.rs")]
pub(crate) mod agent_jobs;
pub(crate) mod chat;
pub(crate) mod checks;
pub(crate) mod config;
pub(crate) mod db;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod dream;
pub(crate) mod export;
pub(crate) mod heads;
pub(crate) mod history_tree;
#[cfg(feature = "postgres")]
pub(crate) mod jobs;
#[cfg_attr(not(feature = "encryption"), path = "no_keys.rs")]
pub(crate) mod keys;
pub(crate) mod learn;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod new;
pub(crate) mod own;
pub(crate) mod pin;
pub(crate) mod presets;
pub(crate) mod replay;
pub(crate) mod revert;
pub(crate) mod run;
#[cfg(feature = "postgres")]
pub(crate) mod schedules;
pub(crate) mod serve;
mod serve_actions;
#[cfg(feature = "restate")]
pub(crate) mod service;
pub(crate) mod show;
pub(crate) mod skills;
pub(crate) mod steer;
pub(crate) mod thread_admin;
pub(crate) mod threads;
pub(crate) mod tools;
pub(crate) mod usage;
pub(crate) mod watch;
#[cfg_attr(not(feature = "postgres"), path = "no_worker.rs")]
pub(crate) mod worker;
mod writes;
