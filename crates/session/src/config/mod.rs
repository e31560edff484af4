//! The configuration of a command: its flags, a file, what a thread remembers, and the environment; [`settings`] has
//! their order.
//!
//! Start at [`configuration::Configuration`].

mod anchor;
pub mod configuration;
mod confirmed;
pub mod defaults;
pub mod discover;
#[cfg_attr(not(feature = "encryption"), path = "no_encryption.rs")]
pub mod encryption;
pub mod file;
pub(crate) mod guardrails;
pub mod instructions;
pub mod location;
pub mod memory;
pub mod misfit;
pub mod model;
pub mod model_table;
pub mod names;
pub mod notes;
pub mod place;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
pub mod postgres;
pub mod private;
pub mod profile;
#[cfg_attr(not(feature = "restate"), path = "no_restate.rs")]
pub mod restate;
pub mod server;
pub mod settings;
pub mod state_folder;
mod switch;
pub mod tools;
pub mod trust;
pub mod wire;

/// Returns the problem of a configuration file's text, for the fuzz test of configurations.
///
/// # Panics
/// If a thread that stores the configuration would read another one.
pub fn configuration_problem(text: &str) -> Option<String> {
    let read = match file::parse(text) {
        Ok(read) => read,
        Err(problem) => return Some(problem),
    };
    let Ok(serde_json::Value::Object(stored)) = serde_json::to_value(&read) else {
        unreachable!("a configuration is a JSON object")
    };
    let stored = configuration::Configuration::of_thread(stored, None);
    assert!(stored.is_ok_and(|stored| stored == read), "a thread would store another configuration");
    None
}
