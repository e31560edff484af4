//! The configuration of a command: its flags, a file, what a thread remembers, and the environment.
//!
//! Start at [`configuration::Configuration`].

mod agent;
pub(crate) mod configuration;
mod database;
pub(crate) mod discover;
pub(crate) mod file;
pub(crate) mod location;
pub(crate) mod memory;
mod misfit;
pub(crate) mod model;
mod own_database;
pub(crate) mod place;
pub(crate) mod private;
pub(crate) mod profile;
pub(crate) mod remembered;
pub(crate) mod server;
mod state_folder;
mod switch;
pub(crate) mod tools;
pub(crate) mod trust;
