//! The configuration of a command: its flags, a file, what a thread remembers, and the environment; [`settings`] has
//! their order.
//!
//! Start at [`configuration::Configuration`].

mod anchor;
pub(crate) mod configuration;
pub(crate) mod discover;
#[cfg_attr(not(feature = "encryption"), path = "no_encryption.rs")]
pub(crate) mod encryption;
pub(crate) mod file;
pub(crate) mod location;
pub(crate) mod memory;
pub(crate) mod misfit;
pub(crate) mod model;
pub(crate) mod model_table;
pub(crate) mod names;
pub(crate) mod place;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
pub(crate) mod postgres;
pub(crate) mod private;
pub(crate) mod profile;
#[cfg_attr(not(feature = "restate"), path = "no_restate.rs")]
pub(crate) mod restate;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod state_folder;
mod switch;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod wire;

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
