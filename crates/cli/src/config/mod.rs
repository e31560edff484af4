//! The configuration of a command: its flags, a file, what a thread remembers, and the environment.
//!
//! Start at [`settings::Chosen`].

pub(crate) mod database;
pub(crate) mod discover;
pub(crate) mod dream;
pub(crate) mod location;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod private;
pub(crate) mod profile;
pub(crate) mod remembered;
pub(crate) mod server;
pub(crate) mod settings;
mod state_folder;
pub(crate) mod tools;
pub(crate) mod trust;
