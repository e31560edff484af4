//! Events of a thread.
//!
//! Start at [`ThreadEvent`].

use axum::body::Bytes;
use serde_json::{Value, json};

use crate::events::sse::encode;

/// The channel of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Lifecycle,
    Input,
    Values,
    Checkpoints,
    Updates,
    Messages,
    Tools,
    Tasks,
    Custom,
}

impl Channel {
    pub(crate) const ALL: [Self; 9] = [
        Self::Lifecycle,
        Self::Input,
        Self::Values,
        Self::Checkpoints,
        Self::Updates,
        Self::Messages,
        Self::Tools,
        Self::Tasks,
        Self::Custom,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Input => "input",
            Self::Values => "values",
            Self::Checkpoints => "checkpoints",
            Self::Updates => "updates",
            Self::Messages => "messages",
            Self::Tools => "tools",
            Self::Tasks => "tasks",
            Self::Custom => "custom",
        }
    }
}

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub(crate) channel: Channel,
    pub(crate) method: &'static str,
    /// The levels of the namespace, outermost first; empty for the graph of the run.
    pub(crate) namespace: Vec<String>,
    pub(crate) node: Option<String>,
    /// The id, if clients read more in it than its identity.
    pub(crate) id: Option<String>,
    /// The time of the event: UTC milliseconds.
    pub(crate) at_ms: i64,
    pub(crate) data: Value,
}

impl Draft {
    pub(crate) fn new(channel: Channel, namespace: &[String], at_ms: i64, data: Value) -> Self {
        let (method, namespace) = (channel.as_str(), namespace.to_vec());
        Self { channel, method, namespace, node: None, id: None, at_ms, data }
    }

    /// A change of the status of a graph: clients read the run in its id.
    pub(crate) fn lifecycle(
        run: &str,
        namespace: &[String],
        at_ms: i64,
        status: &str,
        mut data: Value,
    ) -> Self {
        data["event"] = status.into();
        let id = format!("synth:{run}:lc|{}|{status}", namespace.join("|"));
        Self { id: Some(id), ..Self::new(Channel::Lifecycle, namespace, at_ms, data) }
    }

    /// A question that waits for an answer. Clients for JavaScript read `payload`, those for Python `value`.
    pub(crate) fn requested(
        run: &str,
        namespace: &[String],
        at_ms: i64,
        interrupt: &str,
        question: &Value,
    ) -> Self {
        let data = json!({ "interrupt_id": interrupt, "payload": question, "value": question });
        Self {
            method: "input.requested",
            id: Some(format!("synth:{run}:input|{}|{interrupt}", namespace.join("|"))),
            ..Self::new(Channel::Input, namespace, at_ms, data)
        }
    }

    pub(crate) fn at_node(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }
}

/// Returns the data of a change of the status of a run, which has no status yet.
pub(crate) fn about_graph(graph: &str) -> Value {
    json!({ "graph_name": graph })
}

/// An event in the log of a thread.
#[derive(Debug)]
pub(crate) struct ThreadEvent {
    /// The number, which grows by one over all channels and runs of the thread.
    pub(crate) seq: u64,
    pub(crate) channel: Channel,
    pub(crate) method: &'static str,
    /// The name of an event of the channel `custom`.
    pub(crate) name: Option<String>,
    pub(crate) namespace: Vec<String>,
    /// The event as clients receive it: one line of JSON.
    pub(crate) json: String,
}

impl ThreadEvent {
    pub(crate) fn new(seq: u64, draft: Draft) -> Self {
        let Draft { channel, method, namespace, node, id, at_ms, data } = draft;
        let name = data["name"].as_str().filter(|_| channel == Channel::Custom).map(str::to_owned);
        let mut event = json!({
            "type": "event",
            "event_id": id.unwrap_or_else(|| format!("{seq}-0")),
            "seq": seq,
            "method": method,
            "params": { "namespace": namespace, "timestamp": at_ms, "data": data },
        });
        if let Some(node) = node {
            event["params"]["node"] = node.into();
        }
        Self { seq, channel, method, name, namespace, json: event.to_string() }
    }

    /// Returns roughly how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        self.json.len() + self.namespace.iter().map(String::len).sum::<usize>() + 200
    }

    /// Returns the frame of a stream of server-sent events.
    pub(crate) fn frame(&self) -> Bytes {
        encode(self.method, &self.json, Some(&self.seq.to_string()))
    }
}
