//! Going back to an older checkpoint and on from there.
//!
//! See: three supersteps, a fork from the second with another word in it, and the history with both branches.
//!
//! `cargo run -p superstep --example time_travel`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Tale {
    #[channel(append)]
    words: Log<String>,
}

fn say(word: &'static str) -> impl Fn(Tale, Cx) -> std::future::Ready<TaleUpdate> {
    move |_, _| std::future::ready(Tale::update().words([word.to_owned()]))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("tale");
    let nodes = ["once", "upon", "a time"].map(|word| graph.add_node(word, say(word)));
    graph.add_edge(START, nodes[0]);
    graph.add_edge(nodes[0], nodes[1]);
    graph.add_edge(nodes[1], nodes[2]);
    graph.add_edge(nodes[2], END);
    let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    graph.invoke(Tale::update(), RunConfig::thread("tale")).await?;

    // The checkpoint from which `a time` runs next.
    let thread = "tale".into();
    let history = graph.get_history(&thread, History::default()).await?;
    let before = history.iter().find(|meta| meta.control.next.iter().any(|node| node.as_str() == "a time"));
    let before = before.ok_or("there is such a checkpoint")?.id;

    let there = RunConfig { checkpoint: Some(before), ..RunConfig::thread("tale") };
    graph.update_state(there, Tale::update().words(["the sea,".to_owned()]), "upon").await?;
    let end = graph.resume(RunConfig::thread("tale")).await?;
    println!("{:?}", end.state.words);
    assert_eq!(end.state.words, ["once", "upon", "the sea,", "a time"].map(str::to_owned));

    for meta in graph.get_history(&thread, History::default()).await? {
        let parent = meta.parent.map_or("nothing".to_owned(), |parent| parent.to_string());
        println!("checkpoint {} after {parent}, by {}", meta.id, meta.source.as_str());
    }
    Ok(())
}
