//! An agent with two tools and a sub-agent, whose trace goes to a collector of OpenTelemetry.
//!
//! Shows: `Telemetry`, and a span of a tool's own inside of the trace. `just traces` starts a collector and shows the trace.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 cargo run -p superstep --features opentelemetry --example telemetry`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    agent::deps::SubAgent,
    llm::{Named, Role, tool_fn},
    prelude::*,
    telemetry::{Telemetry, is_requested},
};
use superstep_testing::{
    script::Answer,
    scripted::{ScriptedModel, tool_result},
};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// Calls these tools one after the other, and then repeats the last result. A real model is `superstep::llm::OpenAiModel`.
fn planner(name: &'static str, calls: &'static [(&str, &str)]) -> Named<ScriptedModel> {
    let model = ScriptedModel::from_fn(|request| {
        let results = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let answer = Answer::stream().delay(20);
        let answer = match calls.get(results) {
            Some((tool, arguments)) => {
                answer.call(0, &format!("call_{results}"), tool, [*arguments]).end("tool_calls")
            }
            None => answer.text(tool_result(request)).end("stop"),
        };
        answer.usage(120, 18).done()
    });
    Named::new(name, model)
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The name of the city.
    city: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let telemetry = is_requested().then(|| Telemetry::start("travel-agency")).transpose()?;
    tracing_subscriber::registry().with(telemetry.as_ref().map(Telemetry::layer)).init();

    let weather = tool_fn(ToolSpec::of::<Place>("weather", "The weather."), |place: Place, _| async move {
        tokio::time::sleep(Duration::from_millis(12)).await;
        Ok(format!("It rains in {}.", place.city))
    });
    let trains = tool_fn(ToolSpec::of::<Place>("trains", "The trains."), |place: Place, _| async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        Ok(format!("A train to {} leaves at 10:04.", place.city))
    });
    let museums = tool_fn(ToolSpec::of::<Place>("museums", "Museums."), |place: Place, _| async move {
        Ok(format!("The museum of {} is open.", place.city))
    });
    let guide =
        Agent::builder(planner("small", &[("museums", r#"{"city":"Basel"}"#)])).tool(museums).build()?;
    let calls = &[
        ("weather", r#"{"city":"Basel"}"#),
        ("trains", r#"{"city":"Basel"}"#),
        ("guide", r#"{"task":"What is open in Basel?"}"#),
    ];
    let agent = Agent::builder(planner("large", calls))
        .tool(weather)
        .tool(trains)
        .sub_agent(SubAgent::new("guide", "Knows museums.", &guide))
        .checkpointer(MemoryCheckpointer::new())
        .build()?;
    let reply = agent.thread("trip").ask("A day in Basel?").await?;
    println!("{}", reply.text);
    assert_eq!(reply.text, "The museum of Basel is open.");

    telemetry.map_or(Ok(()), Telemetry::end)?;
    Ok(())
}
