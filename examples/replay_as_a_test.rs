//! A recorded conversation as a test of later programs, without a model and without tools.
//!
//! Shows: the recorded thread is unchanged; a changed prompt, limit and tool are each reported at their first effect.
//!
//! `cargo run -p superstep --example replay_as_a_test`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use superstep::agent::config::Limit;
use superstep::{agent::AgentError, prelude::*};
use superstep_testing::{
    script::{call, txt},
    scripted::{ScriptedModel, tool_result},
};

/// The temperature in a city.
#[tool(idempotent)]
async fn temperature(city: String) -> String {
    format!("18 degrees in {city}")
}

/// The temperature in a city, in a unit.
#[tool(idempotent)]
async fn temperature_in(city: String, unit: String) -> String {
    format!("18 {unit} in {city}")
}

/// Looks up the temperature, and reports it. A real model is `superstep::llm::OpenAiModel`.
fn forecaster() -> ScriptedModel {
    ScriptedModel::from_fn(|request| match tool_result(request) {
        Some(found) => txt(&format!("There are {found}.")),
        None => call("c1", "temperature", r#"{"city":"Bonn"}"#),
    })
}

/// The program under test.
fn agent(store: Arc<dyn Checkpointer>, config: ReactConfig) -> Result<Agent, AgentError> {
    Agent::builder(forecaster()).tools([temperature()]).config(config).checkpointer(store).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In a project this is a file beside the tests: `SqliteCheckpointer::open("tests/weather.db")`.
    let store = Arc::new(MemoryCheckpointer::new());
    let usual = ReactConfig::graph(5);
    let recorded = agent(store.clone(), usual.clone())?;
    recorded.thread("weather").ask("How warm is it in Bonn?").await?;

    // The test: the replay matches the recording.
    let replayed = recorded.graph().thread("weather").replay().run().await?;
    replayed.assert_same();
    println!("unchanged: {replayed}");

    // Changes that it detects.
    let prompt = ReactConfig { system_prompt: "Answer like a sailor.".into(), ..usual.clone() };
    let limit = ReactConfig { limit: Limit { max: 2, ..usual.limit.clone() }, ..usual.clone() };
    for (what, config) in [("another prompt", prompt), ("another limit", limit)] {
        let changed = agent(store.clone(), config)?;
        println!("{what}: {}", changed.graph().thread("weather").replay().run().await?);
    }
    let builder = Agent::builder(forecaster()).tools([temperature_in()]).config(usual);
    let changed = builder.checkpointer(store).build()?;
    println!("another tool: {}", changed.graph().thread("weather").replay().run().await?);
    Ok(())
}
