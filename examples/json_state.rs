//! A graph with channels described at run time, in JSON.
//!
//! Shows: the final state; then two errors, a number for a text of the schema and an undeclared channel, each rejected with its
//! node, its channel, and the path in the value.
//!
//! `cargo run -p superstep --features json-schema --example json_state`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use serde_json::{Value, json};
use superstep::{JsonChannels, JsonState, JsonUpdate, prelude::*};

const DESCRIPTION: &str = r#"{
    "type": "object",
    "properties": {
        "messages": {
            "x-reducer": "merge_by_id",
            "type": "array",
            "items": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] }
        },
        "turns": { "x-reducer": "sum", "type": "integer" },
        "question": { "type": "string" }
    },
    "required": ["question"]
}"#;

/// Runs a graph of one node with this function.
async fn run(returns: fn(&JsonState) -> Value) -> Result<Value, Box<dyn std::error::Error>> {
    let channels = JsonChannels::from_schema(&serde_json::from_str(DESCRIPTION)?)?;
    let mut graph = StateGraph::with_initial("described", JsonState::new(&channels)?);
    let node = graph.add_node("answer", move |state: JsonState, _: Cx| {
        let update = returns(&state);
        async move { update }
    });
    graph.add_edge(START, node);
    let input = JsonUpdate::new().write("question", "what is 6 * 7?");
    let end = graph.compile()?.run(input).await?;
    Ok(end.state.to_value())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = |state: &JsonState| {
        let question = state.get("question").unwrap_or_default();
        json!({ "messages": [{ "text": question }, { "text": "42" }], "turns": 1 })
    };
    println!("{:#}", run(answer).await?);
    for wrong in [
        |_: &JsonState| json!({ "messages": [{ "text": "42" }, { "text": 42 }] }),
        |_: &JsonState| json!({ "turn": 1 }),
    ] {
        match run(wrong).await {
            Err(error) => println!("{error}"),
            Ok(state) => println!("nothing is wrong with {state}"),
        }
    }
    Ok(())
}
