//! The stream mode `events`: starts, pieces and ends of the graph, its nodes, models and tools.
//!
//! Start at [`ChainEvents`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    events::{
        calls::{CallChange, Calls},
        event::{Kind, MessagePart, PartKind, TaskInfo},
        sse::Frame,
    },
    wire::{messages, state},
};

/// Returns the id and the metadata of a task.
type DescribeTask<'a> = &'a dyn Fn(&TaskInfo) -> (String, Value);

/// The events of the root graph of a run.
pub(super) struct ChainEvents {
    run: String,
    graph: String,
    metadata: Value,
    /// The newest state; `None` before the first.
    values: Option<Value>,
    /// The tasks that have begun, with their inputs.
    tasks: BTreeMap<(String, u32), (TaskInfo, Value)>,
    /// The messages that models are writing, by id.
    messages: BTreeMap<String, (TaskInfo, Map<String, Value>)>,
    calls: Calls,
    /// The arguments of the calls that have begun.
    inputs: BTreeMap<String, Value>,
}

impl ChainEvents {
    /// Creates the events of a run of a graph with this metadata.
    pub(super) fn new(run: &str, graph: &str, metadata: Value) -> Self {
        Self {
            run: run.to_owned(),
            graph: graph.to_owned(),
            metadata,
            values: None,
            tasks: BTreeMap::new(),
            messages: BTreeMap::new(),
            calls: Calls::default(),
            inputs: BTreeMap::new(),
        }
    }

    /// Translates an event of the root graph.
    pub(super) fn project(&mut self, kind: &Kind, describe: DescribeTask<'_>) -> Vec<Frame> {
        let mut frames = Vec::new();
        match kind {
            Kind::Values { values } | Kind::Standing { values, .. } | Kind::Paused { values, .. } => {
                let values = Value::from(state::shown_values(values.clone()));
                if self.values.is_none() {
                    frames.push(self.of_graph("on_chain_start", json!({ "input": values })));
                }
                self.values = Some(values);
            }
            Kind::TaskStart { task, input, .. } => {
                let shown = state::shown_writes(input);
                frames.push(self.of_node("on_chain_start", task, json!({ "input": shown }), describe));
                self.tasks.insert((task.node.clone(), task.slot), (task.clone(), shown));
            }
            Kind::Message(part) => self.message(part, describe, &mut frames),
            Kind::Update { node, writes, .. } => {
                if let Some(task) = self.lone_task(node) {
                    self.end_messages(&task, describe, &mut frames);
                    let chunk = state::shown_writes(writes);
                    frames.push(self.of_node("on_chain_stream", &task, json!({ "chunk": chunk }), describe));
                }
            }
            _ => {}
        }
        for change in self.calls.of_event(kind) {
            frames.push(self.tool(change));
        }
        if let Kind::TaskEnd { task, update, .. } = kind {
            self.end_messages(task, describe, &mut frames);
            let input = self.tasks.remove(&(task.node.clone(), task.slot)).map(|(_, input)| input);
            let data = json!({ "output": state::shown_writes(update), "input": input });
            frames.push(self.of_node("on_chain_end", task, data, describe));
        }
        frames
    }

    /// Ends the graph of a run that has ended.
    pub(super) fn end(&mut self) -> Vec<Frame> {
        let values = self.values.take();
        values.map(|values| self.of_graph("on_chain_end", json!({ "output": values }))).into_iter().collect()
    }

    /// Returns the task of a node, if it has only one.
    fn lone_task(&self, node: &str) -> Option<TaskInfo> {
        let mut tasks = self.tasks.values().filter(|(task, _)| task.node == node);
        let first = tasks.next().map(|(task, _)| task.clone());
        first.filter(|_| tasks.next().is_none())
    }

    fn message(&mut self, part: &MessagePart, describe: DescribeTask<'_>, frames: &mut Vec<Frame>) {
        let MessagePart { step, node, slot, id, kind, data, .. } = part;
        let task = TaskInfo { step: *step, node: node.clone(), slot: *slot };
        match kind {
            PartKind::Chunk => {
                let is_new = !self.messages.contains_key(id);
                if is_new {
                    frames.push(self.of_model(
                        "on_chat_model_start",
                        &task,
                        id,
                        json!({ "input": {} }),
                        describe,
                    ));
                    self.messages.insert(id.clone(), (task.clone(), Map::new()));
                }
                let calls = data["tool_calls"].as_array().into_iter().flatten();
                if !is_new && calls.clone().any(|call| call["name"].is_string()) {
                    // Clients end the part before a call at a chunk without one.
                    let chunk = messages::chunk_to_wire(id, &json!(""));
                    frames.push(self.of_model(
                        "on_chat_model_stream",
                        &task,
                        id,
                        json!({ "chunk": chunk }),
                        describe,
                    ));
                }
                for piece in pieces_of(data) {
                    let chunk = messages::chunk_to_wire(id, &piece);
                    let chunk = json!({ "chunk": chunk });
                    frames.push(self.of_model("on_chat_model_stream", &task, id, chunk, describe));
                }
                if let Some((_, so_far)) = self.messages.get_mut(id) {
                    messages::accumulate(so_far, data);
                }
            }
            PartKind::Discarded => drop(self.messages.remove(id)),
            PartKind::Full if data["role"] == "assistant" => {
                frames.push(self.of_model(
                    "on_chat_model_start",
                    &task,
                    id,
                    json!({ "input": {} }),
                    describe,
                ));
                let message = data.as_object().cloned().unwrap_or_default();
                self.end_message(&task, id, message, describe, frames);
            }
            PartKind::Full => {}
        }
    }

    fn end_messages(&mut self, task: &TaskInfo, describe: DescribeTask<'_>, frames: &mut Vec<Frame>) {
        let is_of_task = |(id, (of, _)): (&String, &(TaskInfo, _))| {
            (of.node == task.node && of.slot == task.slot).then(|| id.clone())
        };
        for id in self.messages.iter().filter_map(is_of_task).collect::<Vec<_>>() {
            if let Some((task, so_far)) = self.messages.remove(&id) {
                self.end_message(&task, &id, so_far, describe, frames);
            }
        }
    }

    fn end_message(
        &mut self,
        task: &TaskInfo,
        id: &str,
        mut message: Map<String, Value>,
        describe: DescribeTask<'_>,
        frames: &mut Vec<Frame>,
    ) {
        message.insert("role".to_owned(), "assistant".into());
        message.insert("id".to_owned(), id.into());
        let output = messages::message_to_wire(message.into());
        frames.push(self.of_model("on_chat_model_end", task, id, json!({ "output": output }), describe));
    }

    fn tool(&mut self, change: CallChange) -> Frame {
        match change {
            CallChange::Began { id, name, input } => {
                self.inputs.insert(id.clone(), input.clone());
                self.frame("on_tool_start", &name, &id, &[], self.metadata.clone(), json!({ "input": input }))
            }
            CallChange::Ended { id, name, message } => {
                let output = messages::result_to_wire(message, &name);
                let data = json!({ "output": output, "input": self.inputs.remove(&id) });
                self.frame("on_tool_end", &name, &id, &[], self.metadata.clone(), data)
            }
        }
    }

    fn of_graph(&self, event: &str, data: Value) -> Frame {
        let (run, metadata) = (&self.run, self.metadata.clone());
        Frame::new(
            "events",
            json!({
                "event": event, "name": self.graph, "run_id": run, "tags": [], "metadata": metadata, "data": data, "parent_ids": [],
            }),
        )
    }

    fn of_node(&self, event: &str, task: &TaskInfo, data: Value, describe: DescribeTask<'_>) -> Frame {
        let (id, metadata) = describe(task);
        self.frame(event, &task.node, &id, &[format!("graph:step:{}", task.step)], metadata, data)
    }

    fn of_model(
        &self,
        event: &str,
        task: &TaskInfo,
        message: &str,
        data: Value,
        describe: DescribeTask<'_>,
    ) -> Frame {
        let (_, metadata) = describe(task);
        self.frame(event, "model", message, &[], metadata, data)
    }

    fn frame(
        &self,
        event: &str,
        name: &str,
        run: &str,
        tags: &[String],
        metadata: Value,
        data: Value,
    ) -> Frame {
        Frame::new(
            "events",
            json!({
                "event": event,
                "name": name,
                "run_id": run,
                "tags": tags,
                "metadata": metadata,
                "data": data,
                "parent_ids": [self.run],
            }),
        )
    }
}

/// Splits a piece that begins calls with arguments: clients read only the name of a call at its beginning.
fn pieces_of(piece: &Value) -> Vec<Value> {
    let mut begin = piece.clone();
    let mut rest = Vec::new();
    for call in begin["tool_calls"].as_array_mut().into_iter().flatten() {
        if call["name"].is_string() && call["arguments"].as_str().is_some_and(|text| !text.is_empty()) {
            rest.push(json!({ "index": call["index"], "arguments": call["arguments"].take() }));
            call["arguments"] = "".into();
        }
    }
    let rest = rest.into_iter().map(|call| json!({ "content": "", "tool_calls": [call] }));
    [begin].into_iter().chain(rest).collect()
}
