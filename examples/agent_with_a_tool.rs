//! The ReAct agent with a tool of its own, around a model that needs no network.
//!
//! See: the agent's events as they happen, the call and its result in the conversation, and the reply.
//!
//! `cargo run -p superstep --example agent_with_a_tool`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    Event, StreamMode,
    agent::{Agent, ReactConfig},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, Tool, ToolSpec, tool_fn},
    prelude::*,
};

/// What the model passes to the tool.
#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// The city to look at.
    city: String,
}

/// Calls `weather` once and then says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Parrot;

impl ChatModel for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let told = request.messages.last().filter(|last| last.role == Role::Tool);
        let deltas = match told {
            Some(result) => vec![Delta::Text(result.content.clone()), Delta::Finish(FinishReason::Stop)],
            None => vec![
                Delta::ToolCall {
                    index: 0,
                    id: Some("call_1".into()),
                    name: Some("weather".into()),
                    arguments: r#"{"city":"Paris"}"#.into(),
                },
                Delta::Finish(FinishReason::ToolCalls),
            ],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Weather>("weather", "Tells the weather of a city.");
    let weather =
        tool_fn(spec, |args: Weather, _| async move { Ok(format!("It is 21 °C in {}.", args.city)) });
    let agent = Agent::builder(Arc::new(Parrot))
        .tools([Arc::new(weather) as Arc<dyn Tool>])
        .config(ReactConfig::graph(5))
        .build()?;

    let mut run = agent.process_message_stream("How is Paris?", RunConfig::default(), [StreamMode::Custom]);
    while let Some(event) = run.next().await {
        if let Event::Custom { name, data, .. } = event {
            println!("{name:12} {data}");
        }
    }
    let state = run.outcome().await?.state;
    println!("{}", state.final_reply);
    assert_eq!(state.final_reply, "It is 21 °C in Paris.");
    assert_eq!(state.metadata.tools_used, ["weather"]);
    Ok(())
}
