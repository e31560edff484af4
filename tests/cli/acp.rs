//! `superstep acp`, from its editor's view.

mod calls;
mod connection;
mod editor;
mod modes;
mod sessions;

use serde_json::{Value, json};

/// Returns the arguments of `write_file`.
fn write(path: &str, content: &str) -> String {
    json!({ "path": path, "content": content }).to_string()
}

/// Returns the arguments of `shell`.
fn shell(command: &str) -> String {
    json!({ "command": command }).to_string()
}

/// Selects an option of a permission request.
fn selected(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}
