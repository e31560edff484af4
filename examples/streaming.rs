//! A streamed run: tokens, updates of one channel, and a consumer that leaves.
//!
//! Shows: tokens as they are written, each with its node; updates as JSON lines; and a thread resumed after its stream was dropped.
//!
//! `cargo run -p superstep --example streaming`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use futures::StreamExt;
use superstep::{Streaming, prelude::*};

#[derive(State, Clone, Debug, Default)]
struct Story {
    #[channel(append)]
    lines: Log<String>,
    words: usize,
}

/// Writes one token after the other, like a model.
async fn write(_: Story, cx: Cx) -> StoryUpdate {
    let line = "once upon a superstep";
    for token in line.split_inclusive(' ') {
        cx.sleep(Duration::from_millis(20)).await;
        cx.emit_message(&cx.id("line"), token);
    }
    Story::update().lines([line])
}

async fn count(state: Story, _: Cx) -> StoryUpdate {
    Story::update().words(state.lines.iter().map(|line| line.split(' ').count()).sum::<usize>())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("story");
    let write = graph.add_node("write", write);
    let count = graph.add_node("count", count);
    graph.add_edge(START, write);
    graph.add_edge(write, count);
    graph.add_edge(count, END);
    let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());

    let mut run = graph.thread("tokens").stream(Story::update(), [StreamMode::Messages]);
    while let Some(event) = run.next().await {
        if let Event::Message { node, id, data, .. } = event {
            println!("{node} {id}: {data}");
        }
    }

    let streaming = Streaming::from(StreamMode::Updates).output_keys(["words"]);
    let mut run = graph.thread("json").stream(Story::update(), streaming);
    while let Some(event) = run.next().await {
        println!("{}", serde_json::to_string(&event)?);
    }

    let mut run = graph.thread("left").stream(Story::update(), [StreamMode::Messages]);
    run.next().await;
    drop(run);
    let end = graph.thread("left").resume().await?;
    println!("resumed: {} words", end.state.words);
    assert_eq!(end.state.words, 4);
    Ok(())
}
