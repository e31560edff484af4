//! A fork from an older checkpoint.
//!
//! Shows: three supersteps, a fork from the second one with a changed word, and the history with both branches.
//!
//! `cargo run -p superstep --example time_travel`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Tale {
    #[channel(append)]
    words: Log<String>,
}

fn say(word: &'static str) -> impl Fn(Tale, Cx) -> std::future::Ready<TaleUpdate> {
    move |_, _| std::future::ready(Tale::update().words([word]))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("tale");
    let nodes = ["once", "upon", "a time"].map(|word| graph.add_node(word, say(word)));
    graph.add_edge(START, nodes[0]);
    graph.add_edge(nodes[0], nodes[1]);
    graph.add_edge(nodes[1], nodes[2]);
    graph.add_edge(nodes[2], END);
    let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
    let tale = graph.thread("tale");
    tale.run(Tale::update()).await?;

    // The checkpoint before `a time` runs.
    let before = tale.history().pending("a time").checkpoints().await?;
    let before = before.first().ok_or("no such checkpoint")?.id;

    tale.at(before).update_as("upon", Tale::update().words(["the sea,"])).await?;
    let end = tale.resume().await?;
    println!("{:?}", end.state.words);
    assert_eq!(end.state.words, ["once", "upon", "the sea,", "a time"].map(str::to_owned));

    for meta in tale.history().checkpoints().await? {
        let parent = meta.parent.map_or("nothing".to_owned(), |parent| parent.to_string());
        println!("checkpoint {} after {parent}, by {}", meta.id, meta.source.as_str());
    }
    Ok(())
}
