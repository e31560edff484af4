//! The course of a run as text, for snapshots.
//!
//! Start at [`transcript`].

use std::fmt::Write as _;

use superstep_graph::{Event, State, node::NodeName, stream::MessageKind};

/// Formats events, one per line, in order.
///
/// The text of a run depends only on its graph, its input and the results of its nodes: times and the numbers
/// of checkpoints are left out, so that a snapshot needs no redactions.
///
/// ```text
/// 1 ask → {"question":"2+3?"}         a node's update, in superstep 1
///   answer · token {"text":"5"}       a node's event, before its update
///   answer · message 2.0.m "5"        a message, or a piece of one
/// 2 answer → {"reply":"5"}
/// 2 = {"question":"2+3?",…}           the state after a superstep
/// 2 answer begins, 2 answer ends      attempts; from the second on with their number, failures with their reason
/// 2 stored (loop), next answer        a checkpoint
/// ```
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use futures::StreamExt;
/// use superstep_graph::{END, START, State, StateGraph, StreamMode};
/// use superstep_testing::transcript::transcript;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count {
///     n: u32,
/// }
///
/// let mut graph = StateGraph::<Count>::new("count");
/// let more = graph.add_node("more", async |state: Count, _| Count::update().n(state.n + 1));
/// graph.add_edge(START, more);
/// graph.add_edge(more, END);
/// let graph = graph.compile()?;
/// let modes = [StreamMode::Updates, StreamMode::Values];
/// let events: Vec<_> = graph.stream(Count::update().n(1), &modes).collect().await;
/// assert_eq!(transcript(&events), "0 = {\"n\":1}\n1 more → {\"n\":2}\n1 = {\"n\":2}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If a value of the state has no JSON form (with a checkpointer such a run fails anyway), or if an event is
/// newer than this crate.
pub fn transcript<'a, S: State>(events: impl IntoIterator<Item = &'a Event<S>>) -> String {
    let mut out = String::new();
    for event in events {
        line(&mut out, event).expect("a string takes any text");
    }
    out
}

fn line<S: State>(out: &mut String, event: &Event<S>) -> std::fmt::Result {
    match event {
        Event::Values { step, state, .. } => writeln!(out, "{step} = {}", values(state)),
        Event::Update { step, node, update, .. } => writeln!(out, "{step} {node} → {}", json(update)),
        Event::Custom { node, name, data } => writeln!(out, "  {node} · {name} {data}"),
        Event::Message { node, id, kind: MessageKind::Discarded, .. } => {
            writeln!(out, "  {node} · message {id} is void")
        }
        Event::Message { node, id, data, .. } => writeln!(out, "  {node} · message {id} {data}"),
        Event::TaskStart { step, node, attempt } => writeln!(out, "{step} {node} begins{}", again(*attempt)),
        Event::TaskEnd { step, node, attempt, error: None } => {
            writeln!(out, "{step} {node} ends{}", again(*attempt))
        }
        Event::TaskEnd { step, node, attempt, error: Some(error) } => {
            writeln!(out, "{step} {node} fails{}: {error}", again(*attempt))
        }
        Event::Checkpoint(meta) => {
            let (source, step) = (meta.source.as_str(), meta.control.step);
            writeln!(out, "{step} stored ({source}), next {}", names(&meta.control.next))
        }
        Event::Discarded { nodes } => writeln!(out, "discarded {}", names(nodes)),
        Event::Interrupt(asked) => writeln!(out, "{} asks {} {}", asked.node, asked.key, asked.question),
        Event::Lagged { skipped } => writeln!(out, "{skipped} events are lost"),
        _ => panic!("an event that transcripts do not know; they have to be taught its line"),
    }
}

fn again(attempt: u32) -> String {
    if attempt == 1 { String::new() } else { format!(" (attempt {attempt})") }
}

fn names(nodes: &[NodeName]) -> String {
    match nodes {
        [] => "nothing".to_owned(),
        nodes => nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("an update has a JSON form")
}

/// Returns the channels in the order of the state's fields.
fn values<S: State>(state: &S) -> String {
    let channel = |(position, channel): (usize, &superstep_graph::state::Channel)| {
        let value = state.encode(position).expect("a channel has a JSON form");
        format!("\"{}\":{}", channel.name, String::from_utf8(value).expect("JSON is UTF-8"))
    };
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let channels: Vec<String> = stored.map(channel).collect();
    format!("{{{}}}", channels.join(","))
}
