//! A reply of a Rust type, checked against its schema, from a model whose first reply is invalid and that needs no network.
//!
//! Shows: the growing value, the error that the model receives, and the final value.
//!
//! `cargo run -p superstep --example structured_output`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::prelude::*;
use superstep_testing::{
    script::Answer,
    scripted::{ScriptedModel, tool_result},
};

/// An order in a mail.
#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    /// The ordered items.
    items: Vec<String>,
    /// The number of parcels.
    parcels: u32,
}

/// Fills the form, at first with an invalid value. A real model is `superstep::llm::OpenAiModel`.
fn clerk() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        let (id, parcels) =
            if tool_result(request).is_some() { ("call_2", "2}") } else { ("call_1", "\"two\"}") };
        let pieces = [r#"{"items": ["tea"#, r#"", "cups"], "parcels": "#, parcels];
        Answer::stream().call(0, id, "generate_response", pieces).end("tool_calls").done()
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = Agent::builder(clerk()).build()?;

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
