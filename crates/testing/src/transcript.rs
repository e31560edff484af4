//! The course of a run as text, for snapshots.
//!
//! Start at [`transcript`].

mod line;

use std::fmt::{self, Write as _};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use superstep_graph::{
    __private::{START, keys},
    Checkpointer, Event, History, State, ThreadId,
    checkpoint::{CheckpointError, TaskRecord},
    node::NodeName,
    state::StoredUpdate,
};

use self::line::Line;

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
/// 2 debug task {"attempt":1,…}        the payload of a debug event, without times and the numbers of checkpoints
/// sub:0 │ 1 look → {"n":5}            an event of the subgraph that the task in slot 0, of node `sub`, called
/// sub:0/inner:1:k │ 1 = {"n":5}       of one below it, called under the key `k`
/// ```
///
/// The values of subgraphs and debug events are sorted by name, others have the order of the state's fields.
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
/// If a value of the state has no JSON form; with a checkpointer such a run fails anyway.
pub fn transcript<'a, S: State>(events: impl IntoIterator<Item = &'a Event<S>>) -> String {
    let mut out = String::new();
    for event in events {
        writeln!(out, "{}", Line::of(event)).expect("a string takes any text");
    }
    out
}

/// Formats a stored thread as [`transcript`] formats the updates, checkpoints and questions of its runs: all checkpoints in the
/// order in which they were stored, those of other branches as well, without the threads of subgraphs.
///
/// Inputs and recorded data are left out, as in events. The failures of unfinished tasks are those of the last attempt.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
/// use superstep_testing::transcript::stored;
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
/// let store = Arc::new(MemoryCheckpointer::new());
/// let graph = graph.compile()?.with_checkpointer(store.clone());
/// graph.thread("t").run(Count::update().n(1)).await?;
/// assert_eq!(
///     stored(&*store, "t").await?,
///     "-1 stored (input), next __start__\n0 stored (loop), next more\n1 more → {\"n\":2}\n1 stored (loop), next nothing\n"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the checkpointer; [`CheckpointError::NoThread`] if the thread does not exist.
pub async fn stored(
    store: &dyn Checkpointer,
    thread: impl Into<ThreadId>,
) -> Result<String, CheckpointError> {
    let thread = thread.into();
    let history = store.history(&thread, History::default()).await?;
    let mut out = String::new();
    for meta in history.iter().rev() {
        let Some(commit) = store.read_commit(&thread, meta.id).await? else { continue };
        let (source, step) = (meta.source.as_str(), meta.control.step);
        let mut lines = String::new();
        for task in commit.applied.iter().filter(|task| task.node.as_str() != START) {
            let update = update(&task.update).map_err(|cause| CheckpointError::Corrupt {
                what: format!("checkpoint {} of thread `{thread}` has an update that is not JSON", meta.id),
                source: Some(cause.into()),
            })?;
            lines.push_str(&format!("{step} {} → {update}\n", task.node));
        }
        lines.push_str(&format!("{step} stored ({source}), next {}\n", names(&meta.control.next)));
        for (slot, record) in &commit.records {
            let node = usize::try_from(*slot).ok().and_then(|slot| meta.control.next.get(slot));
            lines.push_str(&unfinished(step + 1, node.map_or("?", NodeName::as_str), record));
        }
        out.push_str(&lines);
    }
    if out.is_empty() { Err(CheckpointError::NoThread { thread }) } else { Ok(out) }
}

/// Formats the record of a task that did not finish.
fn unfinished(step: i64, node: &str, record: &TaskRecord) -> String {
    match record {
        TaskRecord::Interrupted { questions, .. } => {
            let asks =
                questions.iter().map(|asked| format!("{node} asks {} {}\n", asked.key, asked.question));
            asks.collect()
        }
        TaskRecord::Failed { error, .. } => format!("{step} {node} fails: {error}\n"),
        TaskRecord::Handled { failure, handler } => {
            format!("{step} {node} fails: {}\n{}", failure.message, unfinished(step, node, handler))
        }
        _ => String::new(),
    }
}

/// Formats an update without the entries that are not channels.
fn update(update: &StoredUpdate) -> serde_json::Result<String> {
    let json = update.json()?;
    let Ok(Entries(entries)) = serde_json::from_str(&json) else { return Ok(json.to_string()) };
    let shown =
        entries.into_iter().filter(|(name, _)| ![keys::VERSIONS, keys::RECORDED].contains(&name.as_str()));
    let shown: Vec<_> = shown.map(|(name, value)| format!("\"{name}\":{}", value.get())).collect();
    Ok(format!("{{{}}}", shown.join(",")))
}

/// The entries of an object, in order.
struct Entries(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Object)
    }
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
