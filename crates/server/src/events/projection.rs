//! The events of a run as the streams of the runs API have them.
//!
//! Start at [`RunsProjection`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use superstep_graph::{
    CheckpointId, Interrupt,
    checkpoint::{CheckpointMeta, SubgraphPath},
};

use crate::{
    events::{
        calls::{CallChange, Calls},
        chain::ChainEvents,
        event::{Kind, MessagePart, PartKind, RunEvent, TaskInfo},
        modes::{Mode, Modes},
        sse::Frame,
    },
    rows::thread::ThreadKey,
    wire::{ids, messages, state, time},
};

/// The run of a stream, as its frames describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) run: String,
    pub(crate) thread: String,
    /// The owner of the thread.
    pub(crate) owner: Option<String>,
    pub(crate) assistant: String,
    pub(crate) graph: String,
    /// The metadata of the run.
    pub(crate) metadata: Map<String, Value>,
}

impl About {
    pub(crate) fn key(&self) -> ThreadKey {
        ThreadKey { thread: self.thread.clone(), owner: self.owner.clone() }
    }

    /// Returns the metadata of the run's checkpoints and messages.
    pub(crate) fn full_metadata(&self) -> Map<String, Value> {
        let mut full = self.metadata.clone();
        for (name, value) in [
            ("graph_id", &self.graph),
            ("assistant_id", &self.assistant),
            ("run_id", &self.run),
            ("thread_id", &self.thread),
        ] {
            full.insert(name.to_owned(), value.as_str().into());
        }
        full.insert("run_attempt".to_owned(), 1.into());
        full
    }
}

/// Translates the events of one run, from its first on, for one client.
pub(crate) struct RunsProjection {
    modes: Modes,
    subgraphs: bool,
    /// The beginnings of the namespaces that the client wants; none for all.
    namespaces: Vec<Vec<String>>,
    about: About,
    /// The number of starts so far: more than one if the server was stopped or killed during the run.
    attempt: u32,
    /// The newest checkpoint of each graph by namespace, which the ids of its tasks contain.
    checkpoints: BTreeMap<String, CheckpointId>,
    /// The messages that come in pieces, by id, so far.
    partial: BTreeMap<String, Map<String, Value>>,
    calls: Calls,
    chain: ChainEvents,
}

impl RunsProjection {
    pub(crate) fn new(modes: Modes, subgraphs: bool, about: About) -> Self {
        let chain = ChainEvents::new(&about.run, &about.graph, about.full_metadata().into());
        let (checkpoints, partial, calls) = (BTreeMap::new(), BTreeMap::new(), Calls::default());
        let namespaces = Vec::new();
        Self { modes, subgraphs, namespaces, about, attempt: 0, checkpoints, partial, calls, chain }
    }

    /// Limits the frames to namespaces with these beginnings, if there are any.
    pub(crate) fn within(self, namespaces: Vec<Vec<String>>) -> Self {
        Self { namespaces, ..self }
    }

    /// Translates the next event: to no frame, or to several in order.
    pub(crate) fn project(&mut self, event: &RunEvent) -> Vec<Frame> {
        let namespace = ids::namespace(&event.path);
        if let Kind::Checkpoint { meta, .. } = &event.kind {
            self.checkpoints.insert(namespace.clone(), meta.id);
        }
        let is_of_run = matches!(event.kind, Kind::Started { .. } | Kind::Failed { .. });
        if !event.path.is_root() && !self.subgraphs || !is_of_run && !self.is_wanted(&event.path) {
            return Vec::new();
        }
        let mut frames = Vec::new();
        // Before the message of the mode `messages-tuple`: clients with both drop it once they have an event.
        if self.modes.has(Mode::Events) && event.path.is_root() {
            let Self { chain, checkpoints, about, .. } = self;
            let head = checkpoints.get("").copied().unwrap_or(CheckpointId(0));
            let task = |task: &TaskInfo| {
                let id = ids::of_task(head, task.slot);
                (id.clone(), task_metadata(about, "", task, &id))
            };
            frames.extend(chain.project(&event.kind, &task));
        }
        frames.extend(self.frames(&namespace, &event.kind));
        if self.modes.has(Mode::Tools) {
            let changes = self.calls.of_event(&event.kind);
            frames.extend(changes.into_iter().map(|change| tool_frame(&namespace, change)));
        }
        frames
    }

    fn is_wanted(&self, path: &SubgraphPath) -> bool {
        let levels = ids::levels(path);
        self.namespaces.is_empty() || self.namespaces.iter().any(|wanted| ids::is_within(&levels, wanted))
    }

    /// Returns the frames after the last event of a run that has ended.
    pub(crate) fn end(&mut self) -> Vec<Frame> {
        if self.modes.has(Mode::Events) { self.chain.end() } else { Vec::new() }
    }

    fn frames(&mut self, namespace: &str, kind: &Kind) -> Vec<Frame> {
        let named =
            |mode: &str| if namespace.is_empty() { mode.to_owned() } else { format!("{mode}|{namespace}") };
        let one = |mode: Mode, name: &str, data: Value| {
            if self.modes.has(mode) { vec![Frame::new(named(name), data)] } else { Vec::new() }
        };
        match kind {
            Kind::Started { head } => {
                if let Some(head) = head {
                    self.checkpoints.insert(String::new(), *head);
                }
                self.attempt += 1;
                vec![Frame::new("metadata", json!({ "run_id": self.about.run, "attempt": self.attempt }))]
            }
            Kind::Failed { name, message } => {
                vec![Frame::new("error", json!({ "error": name, "message": message }))]
            }
            Kind::Answered { .. } => Vec::new(),
            Kind::Values { values } | Kind::Standing { values, .. } => {
                one(Mode::Values, "values", shown(values))
            }
            Kind::Custom { data, .. } => one(Mode::Custom, "custom", data.clone()),
            Kind::Update { node, writes, cached } => {
                let mut data = json!({ node: state::shown_writes(writes) });
                if *cached {
                    data["__metadata__"] = json!({ "cached": true });
                }
                one(Mode::Updates, "updates", data)
            }
            // The graph of the run asks the same under the id that takes an answer.
            Kind::Interrupt(_) if !namespace.is_empty() => Vec::new(),
            Kind::Interrupt(interrupt) => {
                let interrupts = json!([state::interrupt_with_schema(interrupt)]);
                one(Mode::Updates, "updates", json!({ "__interrupt__": interrupts }))
            }
            Kind::Paused { interrupts, .. } if interrupts.is_empty() => {
                one(Mode::Updates, "updates", json!({ "__interrupt__": [] }))
            }
            Kind::Paused { interrupts, values } => {
                let mut values = shown(values);
                values["__interrupt__"] = interrupts.iter().map(state::interrupt_with_schema).collect();
                one(Mode::Values, "values", values)
            }
            Kind::TaskStart { at_ms, task, input } => {
                let payload = self.task_start(namespace, task, input);
                self.with_copy(Mode::Tasks, &named, (*at_ms, task.step, "task"), payload.clone(), payload)
            }
            Kind::TaskEnd { at_ms, task, update, error, interrupts } => {
                let payload = self.task_end(namespace, task, update, error.as_deref(), interrupts);
                self.with_copy(
                    Mode::Tasks,
                    &named,
                    (*at_ms, task.step, "task_result"),
                    payload.clone(),
                    payload,
                )
            }
            Kind::Checkpoint { at_ms, meta, values } => {
                let payload = self.checkpoint(namespace, meta, values);
                let mut copy = payload.clone();
                copy["checkpoint"] = payload["config"]["configurable"].clone();
                copy["parent_checkpoint"] = payload["parent_config"]["configurable"].clone();
                let step = meta.control.step;
                self.with_copy(Mode::Checkpoints, &named, (*at_ms, step, "checkpoint"), payload, copy)
            }
            Kind::Message(part) => self.message(namespace, &named, part),
        }
    }

    /// Returns the frame of a mode, and its copy for `debug`.
    fn with_copy(
        &self,
        mode: Mode,
        named: &dyn Fn(&str) -> String,
        (at_ms, step, kind): (i64, i64, &str),
        payload: Value,
        copy: Value,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.modes.has(mode) {
            let name = if mode == Mode::Tasks { "tasks" } else { "checkpoints" };
            frames.push(Frame::new(named(name), payload));
        }
        if self.modes.has(Mode::Debug) {
            let data =
                json!({ "step": step, "timestamp": time::of_ms(at_ms), "type": kind, "payload": copy });
            frames.push(Frame::new(named("debug"), data));
        }
        frames
    }

    fn task_id(&self, namespace: &str, slot: u32) -> String {
        // A graph without storage has no checkpoints.
        let checkpoint = self.checkpoints.get(namespace).copied().unwrap_or(CheckpointId(0));
        ids::of_task(checkpoint, slot)
    }

    fn task_start(&self, namespace: &str, task: &TaskInfo, input: &Value) -> Value {
        let input = match input {
            Value::Object(channels) => shown(channels),
            other => other.clone(),
        };
        let mut metadata = self.about.full_metadata();
        metadata.remove("thread_id");
        json!({
            "id": self.task_id(namespace, task.slot),
            "name": task.node,
            "input": input,
            "triggers": [],
            "metadata": metadata,
        })
    }

    fn task_end(
        &self,
        namespace: &str,
        task: &TaskInfo,
        update: &Value,
        error: Option<&str>,
        interrupts: &[Interrupt],
    ) -> Value {
        json!({
            "id": self.task_id(namespace, task.slot),
            "name": task.node,
            "error": error.map(|message| json!({ "error": "NodeError", "message": message })),
            "result": state::shown_writes(update),
            "interrupts": interrupts.iter().map(state::interrupt).collect::<Vec<_>>(),
        })
    }

    fn checkpoint(&self, namespace: &str, meta: &CheckpointMeta, values: &Map<String, Value>) -> Value {
        let thread = &self.about.thread;
        let config = |id: CheckpointId| {
            let id = ids::of_checkpoint(id);
            json!({ "configurable": { "thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id } })
        };
        let task = |(slot, node): (u32, _)| json!({ "id": ids::of_task(meta.id, slot), "name": node, "interrupts": [], "state": null });
        json!({
            "config": config(meta.id),
            "parent_config": meta.parent.map(config),
            "values": shown(values),
            "metadata": state::full_metadata(thread, meta, self.about.full_metadata()),
            "next": meta.control.next,
            "tasks": (0u32..).zip(&meta.control.next).map(task).collect::<Vec<_>>(),
        })
    }

    fn message(&mut self, namespace: &str, named: &dyn Fn(&str) -> String, part: &MessagePart) -> Vec<Frame> {
        let metadata = self.message_metadata(namespace, part);
        let mut frames = Vec::new();
        let removal = || messages::message_to_wire(json!({ "$remove": part.id }));
        let has_pieces = self.partial.contains_key(&part.id);
        if self.modes.has(Mode::MessagesTuple) {
            let mut push =
                |message: Value| frames.push(Frame::new(named("messages"), json!([message, metadata])));
            match part.kind {
                PartKind::Chunk => push(messages::chunk_to_wire(&part.id, &part.data)),
                PartKind::Discarded => push(removal()),
                PartKind::Full => {
                    // Clients add up what has one id, and the pieces are of an attempt that failed.
                    if has_pieces {
                        push(removal());
                    }
                    push(whole(part));
                }
            }
        }
        if self.modes.has(Mode::Messages) {
            if part.kind != PartKind::Discarded && !has_pieces {
                let data = json!({ part.id.clone(): { "metadata": metadata } });
                frames.push(Frame::new(named("messages/metadata"), data));
            }
            let frame = match part.kind {
                PartKind::Chunk => {
                    let mut so_far = self.partial.get(&part.id).cloned().unwrap_or_default();
                    messages::accumulate(&mut so_far, &part.data);
                    so_far.insert("role".to_owned(), "assistant".into());
                    so_far.insert("id".to_owned(), part.id.as_str().into());
                    Some(Frame::new(named("messages/partial"), json!([messages::partial_to_wire(so_far)])))
                }
                PartKind::Full => Some(Frame::new(named("messages/complete"), json!([whole(part)]))),
                PartKind::Discarded => None,
            };
            frames.extend(frame);
        }
        match part.kind {
            PartKind::Chunk => {
                messages::accumulate(self.partial.entry(part.id.clone()).or_default(), &part.data)
            }
            PartKind::Full | PartKind::Discarded => drop(self.partial.remove(&part.id)),
        }
        frames
    }

    fn message_metadata(&self, namespace: &str, part: &MessagePart) -> Value {
        let MessagePart { step, node, slot, checkpoint, .. } = part;
        let id = match checkpoint {
            Some(checkpoint) => ids::of_task(*checkpoint, *slot),
            None => self.task_id(namespace, *slot),
        };
        let task = TaskInfo { step: *step, node: node.clone(), slot: *slot };
        task_metadata(&self.about, namespace, &task, &id)
    }
}

/// Returns the metadata of what a task sends.
fn task_metadata(about: &About, namespace: &str, task: &TaskInfo, id: &str) -> Value {
    let TaskInfo { step, node, .. } = task;
    let own = format!("{node}:{id}");
    let own = if namespace.is_empty() { own } else { format!("{namespace}|{own}") };
    let mut metadata = about.full_metadata();
    for (name, value) in [
        ("langgraph_step", json!(step)),
        ("langgraph_node", json!(node)),
        ("langgraph_triggers", json!([])),
        ("langgraph_path", json!(["__pregel_pull", node])),
        ("langgraph_checkpoint_ns", json!(own)),
        ("checkpoint_ns", json!(own)),
    ] {
        metadata.insert(name.to_owned(), value);
    }
    metadata.into()
}

fn tool_frame(namespace: &str, change: CallChange) -> Frame {
    let name = if namespace.is_empty() { "tools".to_owned() } else { format!("tools|{namespace}") };
    let data = match change {
        CallChange::Began { id, name, input } => {
            json!({ "event": "on_tool_start", "toolCallId": id, "name": name, "input": input })
        }
        CallChange::Ended { id, name, message } if message["failed"] == true => {
            json!({ "event": "on_tool_error", "toolCallId": id, "name": name, "error": message["content"] })
        }
        CallChange::Ended { id, name, message } => {
            let output = messages::result_to_wire(message, &name);
            json!({ "event": "on_tool_end", "toolCallId": id, "name": name, "output": output })
        }
    };
    Frame::new(name, data)
}

/// Returns the whole message of a part, under the id of the part.
fn whole(part: &MessagePart) -> Value {
    let mut message = part.data.clone();
    if let Value::Object(fields) = &mut message {
        fields.entry("id").or_insert_with(|| part.id.as_str().into());
    }
    messages::message_to_wire(message)
}

fn shown(values: &Map<String, Value>) -> Value {
    state::shown_values(values.clone()).into()
}
