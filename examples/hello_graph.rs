//! A graph of two nodes, streamed.
//!
//! Shows: the state before the first node, the update of each node, the state after it, and its checkpoint.
//!
//! `cargo run -p superstep --example hello_graph`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::StreamExt;
use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Greeting {
    name: String,
    #[channel(append)]
    lines: Log<String>,
}

async fn greet(state: Greeting, _: Cx) -> GreetingUpdate {
    Greeting::update().lines([format!("Hello, {}!", state.name)])
}

async fn wish(_: Greeting, cx: Cx) -> GreetingUpdate {
    Greeting::update().lines([format!("A good superstep {} to you.", cx.step())])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("hello");
    let greet = graph.add_node("greet", greet);
    let wish = graph.add_node("wish", wish);
    graph.add_edge(START, greet);
    graph.add_edge(greet, wish);
    graph.add_edge(wish, END);
    let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
    println!("{}", graph.topology().text());

    let modes = [StreamMode::Values, StreamMode::Updates, StreamMode::Checkpoints];
    let mut run = graph.thread("demo").stream(Greeting::update().name("world"), modes);
    while let Some(event) = run.next().await {
        match event {
            Event::Values { step, state, .. } => println!("superstep {step}: {:?}", state.lines),
            Event::Update { node, update, .. } => {
                println!("  {node} wrote {:?}", update.lines.unwrap_or_default())
            }
            Event::Checkpoint(meta) => println!("  checkpoint {} ({})", meta.id, meta.source.as_str()),
            _ => {}
        }
    }
    let end = run.outcome().await?;
    assert_eq!(end.state.lines, ["Hello, world!", "A good superstep 2 to you."]);
    Ok(())
}
