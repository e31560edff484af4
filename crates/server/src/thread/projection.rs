//! The events of one run as those of its thread.
//!
//! Start at [`Projection`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use superstep_graph::{CheckpointId, Interrupt, checkpoint::CheckpointMeta};

use crate::{
    events::{
        calls::{CallChange, Calls, Whole},
        event::{Kind, MessagePart, PartKind, RunEvent, TaskInfo},
        projection::About,
    },
    thread::{
        blocks::MessageBlocks,
        event::{Channel, Draft, about_graph},
    },
    wire::{ids, messages, state},
};

/// The levels of a namespace, outermost first.
type Namespace = Vec<String>;

/// Translates the events of one run, from its first on. Events between are in the order of the run, but for a state: it waits for
/// the checkpoint that follows it, because clients read the two in the other order.
#[derive(Debug)]
pub(crate) struct Projection {
    run: String,
    graph: String,
    /// The time of the present event: UTC milliseconds.
    at_ms: i64,
    /// The newest checkpoint of each graph, which the ids of its tasks contain.
    checkpoints: BTreeMap<Namespace, CheckpointId>,
    /// The states whose checkpoints have not come yet.
    held: BTreeMap<Namespace, Map<String, Value>>,
    /// The subgraphs that have begun, with their status.
    subgraphs: BTreeMap<Namespace, &'static str>,
    /// The messages that come in pieces, by graph and id.
    messages: BTreeMap<(Namespace, String), Open>,
    /// The messages that were sent whole, by graph and id.
    sent: BTreeMap<(Namespace, String), Whole>,
    calls: Calls,
    status: Option<&'static str>,
    is_paused: bool,
    ready: Vec<Draft>,
}

/// A message that comes in pieces.
#[derive(Debug)]
struct Open {
    blocks: MessageBlocks,
    node: String,
    slot: u32,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End<'a> {
    Completed,
    Cancelled,
    Failed(&'a str),
}

impl Projection {
    pub(crate) fn new(about: &About) -> Self {
        Self {
            run: about.run.clone(),
            graph: about.graph.clone(),
            at_ms: 0,
            checkpoints: BTreeMap::new(),
            held: BTreeMap::new(),
            subgraphs: BTreeMap::new(),
            messages: BTreeMap::new(),
            sent: BTreeMap::new(),
            calls: Calls::default(),
            status: None,
            is_paused: false,
            ready: Vec::new(),
        }
    }

    /// Translates the next event: to none, or to several in order.
    pub(crate) fn event(&mut self, at_ms: i64, event: &RunEvent) -> Vec<Draft> {
        self.at_ms = at_ms;
        let namespace = ids::levels(&event.path);
        self.begin_subgraphs(&namespace);
        if !matches!(event.kind, Kind::Checkpoint { .. }) {
            self.release(&namespace);
        }
        self.translate(&namespace, &event.kind);
        std::mem::take(&mut self.ready)
    }

    /// Ends the run; without events if it never began.
    pub(crate) fn end(&mut self, at_ms: i64, end: End<'_>) -> Vec<Draft> {
        self.at_ms = at_ms.max(self.at_ms);
        if self.status.is_none() {
            return Vec::new();
        }
        self.leave();
        let (status, reason) = match end {
            End::Completed if self.is_paused => ("interrupted", None),
            End::Completed => ("completed", None),
            End::Cancelled => ("interrupted", None),
            End::Failed(message) => ("failed", Some(message)),
        };
        let reason_of_messages = reason.unwrap_or("the run ended before the message");
        for (key, mut open) in std::mem::take(&mut self.messages) {
            open.blocks.fail(reason_of_messages);
            self.push_blocks(&key.0, &mut open);
        }
        let begun: Vec<_> = self.subgraphs.iter().filter(|(_, status)| **status == "started").collect();
        let begun: Vec<_> = begun.into_iter().map(|(namespace, _)| namespace.clone()).collect();
        for namespace in begun.iter().rev() {
            self.end_subgraph(namespace, status, reason);
        }
        let mut data = about_graph(&self.graph);
        if let Some(reason) = reason {
            data["error"] = reason.into();
        }
        self.lifecycle(&[], status, data);
        self.status = Some(status);
        std::mem::take(&mut self.ready)
    }

    /// Leaves the run to a later start of the server: what is ready is sent.
    pub(crate) fn left(&mut self) -> Vec<Draft> {
        self.leave();
        std::mem::take(&mut self.ready)
    }

    /// Returns the graphs of the run as a tree; `None` before it began.
    pub(crate) fn tree(&self) -> Option<Value> {
        let children: Vec<_> =
            self.subgraphs.iter().map(|(namespace, status)| (&**namespace, *status)).collect();
        Some(node_of(&[], self.status?, &self.graph, &children))
    }

    fn leave(&mut self) {
        for namespace in self.held.keys().cloned().collect::<Vec<_>>() {
            self.release(&namespace);
        }
    }

    fn push(&mut self, channel: Channel, namespace: &[String], data: Value) -> &mut Draft {
        let at = self.ready.len();
        self.ready.push(Draft::new(channel, namespace, self.at_ms, data));
        &mut self.ready[at]
    }

    fn lifecycle(&mut self, namespace: &[String], status: &str, data: Value) {
        self.ready.push(Draft::lifecycle(&self.run, namespace, self.at_ms, status, data));
    }

    /// Sends a state that waits for its checkpoint.
    fn release(&mut self, namespace: &[String]) {
        if let Some(values) = self.held.remove(namespace) {
            self.push(Channel::Values, namespace, state::shown_values(values).into());
        }
    }

    fn translate(&mut self, namespace: &[String], kind: &Kind) {
        match kind {
            Kind::Started { head } => {
                if let Some(head) = head {
                    self.checkpoints.insert(Vec::new(), *head);
                }
                self.lifecycle(&[], "running", about_graph(&self.graph));
                self.status = Some("running");
            }
            Kind::Answered { interrupts } => {
                let id = format!("synth:{}:answered||{}", self.run, interrupts.join("|"));
                let answered = self.push(Channel::Input, &[], json!({ "interrupt_ids": interrupts }));
                (answered.method, answered.id) = ("input.answered", Some(id));
            }
            Kind::Standing { meta, values } => {
                if let Some(meta) = meta {
                    self.checkpoint(namespace, meta);
                }
                self.push(Channel::Values, namespace, state::shown_values(values.clone()).into());
            }
            Kind::Values { values } => drop(self.held.insert(namespace.to_vec(), values.clone())),
            Kind::Checkpoint { meta, .. } => {
                self.checkpoint(namespace, meta);
                self.release(namespace);
            }
            Kind::Update { node, writes, .. } => {
                self.end_lone_message(namespace, node);
                self.stored_messages(namespace, node, writes);
                self.tools(namespace, node, kind);
                let data = json!({ node: state::shown_writes(writes) });
                self.push(Channel::Updates, namespace, data).node = Some(node.clone());
            }
            Kind::Custom { name, data } => {
                self.push(Channel::Custom, namespace, json!({ "name": name, "payload": data }));
            }
            Kind::Message(part) => {
                self.message(namespace, part);
                self.tools(namespace, &part.node, kind);
            }
            Kind::TaskStart { task, input, .. } => {
                let id = self.task_id(namespace, task.slot);
                let shown = state::shown_writes(input);
                let data = json!({ "id": id, "name": task.node, "input": shown, "triggers": [], "interrupts": [], "metadata": {} });
                self.push(Channel::Tasks, namespace, data).node = Some(task.node.clone());
                self.tools(namespace, &task.node, kind);
            }
            Kind::TaskEnd { task, update, error, interrupts, .. } => {
                self.end_task(namespace, task, error.as_deref(), interrupts);
                let data = json!({
                    "id": self.task_id(namespace, task.slot),
                    "name": task.node,
                    "result": state::shown_writes(update),
                    "error": error,
                    "interrupts": interrupts.iter().map(state::interrupt).collect::<Vec<_>>(),
                });
                self.push(Channel::Tasks, namespace, data).node = Some(task.node.clone());
            }
            Kind::Paused { interrupts, values } => self.pause(interrupts, values),
            // The pause has the questions, and the end of the run its failure.
            Kind::Interrupt(_) | Kind::Failed { .. } => {}
        }
    }

    fn checkpoint(&mut self, namespace: &[String], meta: &CheckpointMeta) {
        self.checkpoints.insert(namespace.to_vec(), meta.id);
        let mut data = json!({
            "id": ids::of_checkpoint(meta.id),
            "step": meta.control.step,
            "source": meta.source.as_str(),
        });
        if let Some(parent) = meta.parent.filter(|_| !meta.parent_pruned) {
            data["parent_id"] = ids::of_checkpoint(parent).into();
        }
        self.push(Channel::Checkpoints, namespace, data);
    }

    /// Sends the questions that wait, then the state.
    fn pause(&mut self, interrupts: &[Interrupt], values: &Map<String, Value>) {
        self.is_paused = true;
        for interrupt in interrupts {
            let namespace = self.asking_graph(&interrupt.id);
            let asked =
                Draft::requested(&self.run, &namespace, self.at_ms, &interrupt.id, &interrupt.question);
            self.ready.push(asked.at_node(interrupt.node.as_str()));
        }
        if !interrupts.is_empty() {
            self.push(Channel::Values, &[], state::shown_values(values.clone()).into());
        }
    }

    /// Returns the namespace of the graph that asks: the id of a question begins with the tasks on the path to it.
    fn asking_graph(&self, id: &str) -> Namespace {
        let mut namespace = Vec::new();
        let mut rest = id;
        while let Some((segment, below)) = rest.split_once('/') {
            let Some((node, place)) = segment.split_once(':') else { break };
            let slot = place.split(':').next().and_then(|place| place.rsplit('.').next());
            let Some(slot) = slot.and_then(|slot| slot.parse().ok()) else { break };
            let begun = self.levels_of(&namespace, node, slot).into_iter().find(|level| {
                self.subgraphs.contains_key(&[namespace.clone(), vec![level.clone()]].concat())
            });
            let Some(level) = begun else { break };
            namespace.push(level);
            rest = below;
        }
        namespace
    }

    /// Returns the levels that a task may add to a namespace: its own, or that of a graph with one thread for all calling tasks.
    fn levels_of(&self, namespace: &[String], node: &str, slot: u32) -> [String; 2] {
        let tasks = [self.task_id(namespace, slot), ids::of_task(CheckpointId(0), 0)];
        tasks.map(|task| format!("{node}:{task}"))
    }

    fn task_id(&self, namespace: &[String], slot: u32) -> String {
        let checkpoint = self.checkpoints.get(namespace).copied().unwrap_or(CheckpointId(0));
        ids::of_task(checkpoint, slot)
    }

    /// Sends the beginnings of the graphs of a namespace that have not begun.
    fn begin_subgraphs(&mut self, namespace: &[String]) {
        for depth in 1..=namespace.len() {
            let graph = &namespace[..depth];
            if self.subgraphs.get(graph) == Some(&"started") {
                continue;
            }
            self.subgraphs.insert(graph.to_vec(), "started");
            self.lifecycle(graph, "started", about_subgraph(graph));
        }
    }

    fn end_subgraph(&mut self, namespace: &[String], status: &'static str, reason: Option<&str>) {
        self.release(namespace);
        self.subgraphs.insert(namespace.to_vec(), status);
        let mut data = about_subgraph(namespace);
        if let Some(reason) = reason {
            data["error"] = reason.into();
        }
        self.lifecycle(namespace, status, data);
    }

    /// Ends the messages and the subgraphs of a task.
    fn end_task(&mut self, namespace: &[String], task: &TaskInfo, error: Option<&str>, asked: &[Interrupt]) {
        let is_of_task = |(key, open): (&(Namespace, String), &Open)| {
            (key.0 == namespace && open.node == task.node && open.slot == task.slot).then(|| key.clone())
        };
        for key in self.messages.iter().filter_map(is_of_task).collect::<Vec<_>>() {
            match error {
                None => self.end_message(&key),
                Some(error) => self.fail_message(&key, error),
            }
        }
        let status = match error {
            Some(_) => "failed",
            None if asked.is_empty() => "completed",
            None => "interrupted",
        };
        let ends = self.levels_of(namespace, &task.node, task.slot);
        let is_below = |graph: &Namespace| {
            graph.len() > namespace.len()
                && graph.starts_with(namespace)
                && ends.contains(&graph[namespace.len()])
        };
        let open = self.subgraphs.iter().filter(|(graph, status)| **status == "started" && is_below(graph));
        let open: Vec<_> = open.map(|(graph, _)| graph.clone()).collect();
        for graph in open.iter().rev() {
            self.end_subgraph(graph, status, error);
        }
    }

    fn message(&mut self, namespace: &[String], part: &MessagePart) {
        let key = (namespace.to_vec(), part.id.clone());
        match part.kind {
            PartKind::Chunk => {
                if !self.messages.contains_key(&key) {
                    self.begin_message(&key, part);
                }
                let Some(mut open) = self.messages.remove(&key) else { return };
                open.blocks.add(&part.data);
                self.push_blocks(namespace, &mut open);
                self.messages.insert(key, open);
            }
            PartKind::Discarded => {
                self.fail_message(&key, "this attempt was discarded; the message begins again");
            }
            PartKind::Full if part.data["role"] == "assistant" => {
                self.fail_message(&key, "the message begins again");
                self.whole_message(&key, &part.node, part.step, &part.data);
            }
            // The state has the others, and the channel of tools has results.
            PartKind::Full => {}
        }
    }

    fn begin_message(&mut self, key: &(Namespace, String), part: &MessagePart) {
        let blocks = MessageBlocks::new(&part.id, &part.node, part.step);
        self.messages.insert(key.clone(), Open { blocks, node: part.node.clone(), slot: part.slot });
    }

    /// Sends a message in one piece, unless the client has it as it is.
    fn whole_message(&mut self, key: &(Namespace, String), node: &str, step: i64, message: &Value) {
        if self.sent.get(key) == Some(&Whole::of(message)) {
            return;
        }
        let mut open =
            Open { blocks: MessageBlocks::new(&key.1, node, step), node: node.to_owned(), slot: 0 };
        open.blocks.add(message);
        self.messages.insert(key.clone(), open);
        self.end_message(key);
    }

    fn end_message(&mut self, key: &(Namespace, String)) {
        let Some(mut open) = self.messages.remove(key) else { return };
        let whole = open.blocks.end();
        self.calls.add(whole.calls.clone());
        self.sent.insert(key.clone(), whole);
        self.push_blocks(&key.0, &mut open);
    }

    fn fail_message(&mut self, key: &(Namespace, String), reason: &str) {
        let Some(mut open) = self.messages.remove(key) else { return };
        open.blocks.fail(reason);
        self.push_blocks(&key.0, &mut open);
    }

    /// Ends the message of a node that has written its update, if only one task of the node sends any.
    fn end_lone_message(&mut self, namespace: &[String], node: &str) {
        let of_node =
            self.messages.iter().filter(|((graph, _), open)| graph == namespace && open.node == node);
        let of_node: Vec<_> = of_node.map(|(key, open)| (key.clone(), open.slot)).collect();
        let slots: BTreeSet<_> = of_node.iter().map(|(_, slot)| *slot).collect();
        if slots.len() == 1 {
            of_node.iter().for_each(|(key, _)| self.end_message(key));
        }
    }

    /// Sends the messages of a model that a node stored without sending them.
    fn stored_messages(&mut self, namespace: &[String], node: &str, writes: &Value) {
        for message in writes[messages::CHANNEL].as_array().into_iter().flatten() {
            let Some(id) = message["id"].as_str() else { continue };
            let key = (namespace.to_vec(), id.to_owned());
            if message["role"] == "assistant" && !self.sent.contains_key(&key) {
                self.whole_message(&key, node, 0, message);
            }
        }
    }

    fn push_blocks(&mut self, namespace: &[String], open: &mut Open) {
        for data in open.blocks.take() {
            self.push(Channel::Messages, namespace, data).node = Some(open.node.clone());
        }
    }

    /// Sends the changes of calls in an event.
    fn tools(&mut self, namespace: &[String], node: &str, kind: &Kind) {
        for change in self.calls.of_event(kind) {
            let data = match change {
                CallChange::Began { id, name, input } => {
                    json!({ "event": "tool-started", "tool_call_id": id, "tool_name": name, "input": input })
                }
                CallChange::Ended { id, message, .. } if message["failed"] == true => {
                    json!({ "event": "tool-error", "tool_call_id": id, "message": message["content"] })
                }
                CallChange::Ended { id, name, message } => {
                    let output = messages::result_to_wire(message, &name);
                    json!({ "event": "tool-finished", "tool_call_id": id, "output": output })
                }
            };
            self.push(Channel::Tools, namespace, data).node = Some(node.to_owned());
        }
    }
}

fn about_subgraph(namespace: &[String]) -> Value {
    let (node, task) = namespace.last().and_then(|level| level.rsplit_once(':')).unwrap_or_default();
    json!({ "graph_name": node, "namespace": namespace, "trigger_call_id": task })
}

fn node_of(namespace: &[String], status: &str, graph: &str, below: &[(&[String], &str)]) -> Value {
    let mut node = json!({ "namespace": namespace, "status": status, "graph_name": graph });
    let is_child =
        |child: &&(&[String], &str)| child.0.len() == namespace.len() + 1 && child.0.starts_with(namespace);
    let children = below.iter().filter(is_child).map(|(child, status)| {
        let name = child.last().and_then(|level| level.rsplit_once(':')).map_or("", |(node, _)| node);
        node_of(child, status, name, below)
    });
    let children: Vec<_> = children.collect();
    if !children.is_empty() {
        node["children"] = children.into();
    }
    node
}
