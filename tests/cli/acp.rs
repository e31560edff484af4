//! `superstep acp`, from its editor's view.

mod calls;
mod connection;
pub(crate) mod editor;
mod modes;
mod sessions;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

/// Returns the arguments of `write_file`.
pub(crate) fn write(path: &str, content: &str) -> String {
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

/// Waits for an effect of the program.
async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(300), waiting).await.expect("it happens");
}
