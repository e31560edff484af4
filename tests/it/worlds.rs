//! Scripted worlds: the models, tools, servers and stores around a graph under test.

mod cassette;
mod cassette_secrets;
mod expect;
mod fixtures;
mod property;

use std::sync::Arc;

use superstep::{
    agent::{Agent, ReactConfig},
    llm::{ChatModel, Tool},
};

/// Returns an agent with this model and these tools.
fn agent(model: impl ChatModel + 'static, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Agent {
    Agent::builder(model).tools(tools).config(ReactConfig::graph(5)).build().unwrap()
}

/// Runs `test` and returns the text of its panic.
fn panic_of(test: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

/// Replaces the lines of places in this file, which change with it.
fn without_lines(text: &str) -> String {
    let words = text.split_inclusive([' ', ',', '\n']).map(|word| match word.split_once(".rs:") {
        Some((file, rest)) => {
            let end = rest.trim_start_matches(|char: char| char.is_ascii_digit());
            format!("{}.rs:LINE{end}", file.rsplit('/').next().unwrap_or(file))
        }
        None => word.to_owned(),
    });
    words.collect()
}
