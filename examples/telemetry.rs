//! An agent with two tools and a sub-agent, whose trace goes to a collector of OpenTelemetry.
//!
//! Shows: `Telemetry`, and a span of a tool's own inside of the trace. `just traces` starts a collector and shows the trace.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 cargo run -p superstep --features opentelemetry --example telemetry`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    agent::deps::SubAgent,
    prelude::*,
    telemetry::{Telemetry, is_requested},
};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// Calls these tools one after the other, and then repeats the last result. A real one is `superstep::llm::OpenAiModel`.
struct Planner {
    name: &'static str,
    calls: &'static [(&'static str, &'static str)],
}

impl ChatModel for Planner {
    fn name(&self) -> &str {
        self.name
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let results = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let reply = match (self.calls.get(results), request.messages.last()) {
            (Some((tool, arguments)), _) => Delta::ToolCall {
                index: 0,
                id: Some(format!("call_{results}")),
                name: Some((*tool).into()),
                arguments: (*arguments).into(),
            },
            (None, Some(last)) => Delta::Text(last.content.clone()),
            (None, None) => Delta::Text(String::new()),
        };
        let reason = match reply {
            Delta::ToolCall { .. } => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        };
        let usage = Delta::Usage(Usage { input_tokens: 120, output_tokens: 18 });
        let deltas = stream::iter([Ok(reply), Ok(usage), Ok(Delta::Finish(reason))]);
        stream::once(async { tokio::time::sleep(Duration::from_millis(20)).await })
            .flat_map(move |()| deltas.clone())
            .boxed()
    }
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
    let guide = Agent::builder(Planner { name: "small", calls: &[("museums", r#"{"city":"Basel"}"#)] })
        .tool(museums)
        .build()?;
    let calls = &[
        ("weather", r#"{"city":"Basel"}"#),
        ("trains", r#"{"city":"Basel"}"#),
        ("guide", r#"{"task":"What is open in Basel?"}"#),
    ];
    let agent = Agent::builder(Planner { name: "large", calls })
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
