//! The program from its users' view: the real binary, real files, servers on loopback.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping")]

mod listed;
// The schema of the protocol, which the tests of its crate use as well.
#[cfg(unix)]
#[path = "../../crates/acp/tests/it/schema.rs"]
mod schema;
mod support;

#[cfg(unix)]
mod acp;
#[cfg(unix)]
mod acp_clients;
#[cfg(unix)]
mod agent_jobs;
mod answers;
mod approvals;
#[cfg(unix)]
mod begin_once;
#[cfg(unix)]
mod chat;
mod cloned;
#[cfg(unix)]
mod commands;
mod config;
mod damaged_texts;
mod db;
mod doctor;
mod dream;
mod encryption;
mod escapes;
#[cfg(unix)]
mod forged;
mod fuzz;
mod hostile;
mod hostile_mcp;
#[cfg(unix)]
mod instructions;
#[cfg(unix)]
mod jobs;
mod keep;
mod kill;
mod logs;
#[cfg(unix)]
mod machines;
#[cfg(unix)]
mod mcp;
mod mem0;
mod memory;
mod model_table;
mod models;
mod modes;
#[cfg(unix)]
mod new_project;
mod own_agent;
mod own_program;
mod own_refusals;
mod own_texts;
mod owners;
#[cfg(unix)]
mod pins;
mod postgres;
mod protocols;
mod real_model;
mod real_threads;
mod refusals;
mod replay;
mod responses;
mod restate;
mod revert;
#[cfg(unix)]
mod rot;
#[cfg(unix)]
mod rotation;
mod secrets;
#[cfg(unix)]
mod sequences;
mod serve;
mod set_back;
mod show;
mod steer;
mod stop;
mod structured;
#[cfg(unix)]
mod telemetry;
#[cfg(unix)]
mod terminal;
mod texts;
mod tools;
#[cfg(unix)]
mod trust;
mod usage;
