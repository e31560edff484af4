//! The ReAct agent with its own tools, around a model that needs no network.
//!
//! Shows: tools made of async functions, with a dependency, output while it runs, and an update beside the result; the agent's
//! events as they happen; the reply.
//!
//! `cargo run -p superstep --example custom_tool`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{collections::BTreeMap, error::Error, sync::Arc};

use futures::StreamExt;
use superstep::{
    llm::{ToolCx, ToolReply},
    prelude::*,
};
use superstep_testing::{
    script::{calls, txt},
    scripted::{ScriptedModel, tool_result},
};

type Stations = Arc<BTreeMap<&'static str, i32>>;

/// Returns the temperature in a city.
#[tool(idempotent)]
async fn weather(
    /// The city, by its English name.
    city: String,
    /// The dependency of the tool, hidden from the model.
    #[dep]
    stations: Stations,
    cx: ToolCx,
) -> Result<String, ToolError> {
    cx.output("requesting the station …");
    let celsius = stations.get(city.as_str());
    let celsius = celsius.ok_or_else(|| ToolError::failed(format!("there is no station in {city}")))?;
    Ok(format!("It is {celsius} °C in {city}."))
}

/// Stores the user's name.
#[tool]
async fn introduce(name: String) -> ToolReply {
    ToolReply::text("Hello!").with_update(AgentState::update().user_id(name))
}

/// Calls both tools once and then repeats the last result. A real model is `superstep::llm::OpenAiModel`.
fn parrot() -> ScriptedModel {
    ScriptedModel::from_fn(|request| match tool_result(request) {
        Some(result) => txt(result),
        None => calls([
            ("call_0", "introduce", r#"{"name":"ada"}"#),
            ("call_1", "weather", r#"{"city":"Paris"}"#),
        ]),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let stations = Stations::new([("Paris", 21), ("Rome", 27)].into());
    let agent = Agent::builder(parrot())
        .tools([weather(stations), introduce()])
        .config(ReactConfig::graph(5))
        .build()?;

    let mut run = agent.without_thread().stream(agent.input("How is Paris?"), [StreamMode::Custom]);
    while let Some(event) = run.next().await {
        if let Some(event) = AgentEvent::of(&event) {
            println!("{:12} {}", event.name(), event.data());
        }
    }
    let state = run.outcome().await?.state;
    println!("{}", state.final_reply);
    assert_eq!(state.final_reply, "It is 21 °C in Paris.");
    assert_eq!(
        (state.metadata.tools_used, state.user_id),
        (vec!["introduce".into(), "weather".into()], "ada".into())
    );
    Ok(())
}
