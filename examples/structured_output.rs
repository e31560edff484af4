//! A reply of a Rust type, checked against its schema, from a model whose first reply is invalid and that needs no network.
//!
//! Shows: the growing value, the error that the model receives, and the final value.
//!
//! `cargo run -p superstep --example structured_output`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::prelude::*;

/// An order in a mail.
#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    /// The ordered items.
    items: Vec<String>,
    /// The number of parcels.
    parcels: u32,
}

/// Fills the form, at first with an invalid value. A real one is `superstep::llm::OpenAiModel`.
struct Clerk;

impl ChatModel for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let corrected = request.messages.iter().any(|message| message.role == Role::Tool);
        let parcels = if corrected { "2}" } else { "\"two\"}" };
        let piece = |id: Option<&str>, name: Option<&str>, arguments: &str| Delta::ToolCall {
            index: 0,
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
            arguments: arguments.to_owned(),
        };
        let id = if corrected { "call_2" } else { "call_1" };
        let deltas = [
            piece(Some(id), Some("generate_response"), r#"{"items": ["tea"#),
            piece(None, None, r#"", "cups"], "parcels": "#),
            piece(None, None, parcels),
            Delta::Finish(FinishReason::ToolCalls),
        ];
        stream::iter(deltas.map(Ok)).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = Agent::builder(Clerk).build()?;

    // In one call.
    let order: Order = agent.without_thread().extract("Tea and cups, please, in two parcels.").await?;
    println!("{} in {} parcels", order.items.join(" and "), order.parcels);

    // The same turn, streamed.
    let schema = ToolSpec::of::<Order>("order", "").parameters;
    let input = AgentState::update().messages([Message::user("The same again.")]).output_schema(schema);
    let mut turn =
        superstep::agent::ReplyStream::from(agent.without_thread().stream(input, StreamMode::Custom));
    while let Some(event) = turn.next().await {
        match event {
            AgentEvent::OutputPartial { output, .. } => println!("  so far: {output}"),
            AgentEvent::ToolEnd { result, .. } => println!("  the model receives: {result}"),
            _ => {}
        }
    }
    println!("{:?}", turn.reply().await?.read::<Order>()?);
    Ok(())
}
