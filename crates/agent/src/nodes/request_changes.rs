//! The changes of a request since it was recorded, in words.
//!
//! Start at [`RequestChanges::list`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::replay::{Change, ComparedTask, DivergenceKind, text_diff};
use superstep_llm::{ChatModel, Message, Request, ToolSpec};

use super::recorded_response::{Print, print_of};
use crate::{AgentState, state::RequestFrame};

/// The name of the noted hints.
pub(super) const HINTS: &str = "hints";

/// The addition to a change whose recorded text is not known.
const OLDER: &str = "; the thread is of an older version, which did not store the recorded text";

/// Returns the messages of a request that neither the conversation nor the channel `hints` has. They have no ids.
pub(super) fn own_hints(sent: &Request, state: &AgentState) -> Vec<String> {
    let is_hint = |message: &&Message| message.synthetic && message.id.is_empty();
    let hints: Vec<&Message> = sent.messages.iter().rev().take_while(is_hint).collect();
    let texts = hints.into_iter().rev().map(|message| message.content.clone());
    texts.filter(|text| !state.hints.iter().any(|hint| hint == text)).collect()
}

/// A request and its recorded counterpart.
pub(super) struct RequestChanges<'a> {
    pub(super) sent: &'a Request,
    pub(super) state: &'a AgentState,
    /// The recorded frame; `None` if it is not known.
    pub(super) frame: Option<&'a RequestFrame>,
    /// The present model, if its name and settings are compared.
    pub(super) model: Option<&'a dyn ChatModel>,
    pub(super) task: ComparedTask<'a>,
}

impl RequestChanges<'_> {
    /// Returns what changed; empty if nothing did, or if the call was not recorded.
    pub(super) fn list(&self) -> Vec<Change> {
        let (Ok(then), Ok(now)) = (Print::deserialize(self.task.expected), Print::deserialize(self.task.got))
        else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        if let (Some(model), Some(frame)) = (self.model, self.frame) {
            changes.extend(of_model(frame, model));
        }
        if then.first != now.first && (then.has_prompt() || now.has_prompt()) {
            changes.push(match self.frame {
                Some(frame) => {
                    let system = self.sent.messages.first().map_or("", |first| &first.content);
                    let recorded = if then.has_prompt() { &frame.system } else { "" };
                    let system = if now.has_prompt() { system } else { "" };
                    Change::of_text(DivergenceKind::Prompt, "system prompt", recorded, system)
                }
                None => Change::new(DivergenceKind::Prompt, format!("system prompt{OLDER}")),
            });
        }
        if then.tools != now.tools {
            changes.extend(match self.frame {
                Some(frame) => {
                    let had_none = then.tools.starts_with("0:");
                    let recorded = if had_none { Vec::new() } else { self.recorded_tools(frame) };
                    of_tools(&recorded, &self.sent.tools)
                }
                None => vec![Change::new(DivergenceKind::Tools, format!("list of tools{OLDER}"))],
            });
        }
        if then.output_schema != now.output_schema {
            changes.push(match self.frame {
                Some(frame) => {
                    let recorded = frame.schema.as_ref().filter(|_| then.output_schema.is_some());
                    of_json(
                        DivergenceKind::Schema,
                        "schema of the reply",
                        recorded,
                        self.sent.output_schema.as_ref(),
                    )
                }
                None => Change::new(DivergenceKind::Schema, format!("schema of the reply{OLDER}")),
            });
        }
        let number = |number: Option<f32>| number.map(|number| number.to_string()).unwrap_or_default();
        let count = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        for (what, then, now) in [
            ("temperature", number(then.temperature), number(now.temperature)),
            ("max_tokens", count(then.max_tokens), count(now.max_tokens)),
        ] {
            if then != now {
                changes.push(Change::of_text(DivergenceKind::Parameters, what, &then, &now));
            }
        }
        if then.messages != now.messages || then.between != now.between || then.rest() != now.rest() {
            let change = self.of_messages(&then, &now);
            // A prompt that was added or removed shifts the others.
            if !change.diff.is_empty() || then.has_prompt() == now.has_prompt() {
                changes.push(change);
            }
        }
        changes
    }

    /// Returns the recorded tools: those of the frame, and those of sources.
    fn recorded_tools(&self, frame: &RequestFrame) -> Vec<ToolSpec> {
        let written = &self.task.update["offered"];
        let offered = Vec::<String>::deserialize(written);
        let offered = offered.unwrap_or_else(|_| self.state.offered.iter().cloned().collect());
        let sourced = offered.iter().filter_map(|text| serde_json::from_str::<ToolSpec>(text).ok());
        let is_other = |tool: &ToolSpec| frame.tools.iter().all(|own| own.name != tool.name);
        frame.tools.iter().cloned().chain(sourced.filter(is_other)).collect()
    }

    /// Returns the change of the messages behind the system prompt.
    fn of_messages(&self, then: &Print, now: &Print) -> Change {
        let known = self.known();
        let now_prints: Vec<String> = self.sent.messages.iter().map(print_of).collect();
        let shown = |print: &&String| match known.get(*print) {
            Some(text) => text.clone(),
            None => {
                let role = print.split(':').next().unwrap_or_default();
                format!("{role}: … (a message that is not stored in this form)\n")
            }
        };
        let now_prints = &now_prints[usize::from(now.has_prompt())..];
        let last = then.rest();
        // Before the last messages, which are known one by one, the recorded request has those of the present one.
        let place = last.first().and_then(|first| now_prints.iter().position(|print| print == *first));
        let (before, present) = match place {
            Some(place) => (&now_prints[..place], now_prints),
            None => (&[][..], &now_prints[now_prints.len().saturating_sub(now.rest().len())..]),
        };
        let recorded: String = before.iter().chain(last).map(|print| shown(&print)).collect();
        let present: String = present.iter().map(|print| shown(&print)).collect();
        let diff = text_diff(&recorded, &present);
        let what = if diff.is_empty() {
            let (then, now) = (then.messages, now.messages);
            format!("earlier messages of the conversation; {then} messages were sent, and {now} now")
        } else {
            "messages".to_owned()
        };
        Change { kind: DivergenceKind::Messages, what, diff }
    }

    /// Returns the texts of all messages that are stored or sent now, by fingerprint.
    fn known(&self) -> BTreeMap<String, String> {
        let hints = self.task.noted.get(HINTS).and_then(|hints| Vec::<String>::deserialize(hints).ok());
        let hints = hints.unwrap_or_default().into_iter().chain(self.state.hints.iter().cloned());
        let written = &self.task.update["messages"];
        let written = Vec::<Message>::deserialize(written).unwrap_or_default();
        let messages = self.state.messages.iter().chain(&self.sent.messages).chain(&written).cloned();
        let messages = messages.chain(hints.map(Message::synthetic));
        messages.map(|message| (print_of(&message), text_of(&message))).collect()
    }
}

fn text_of(message: &Message) -> String {
    let role = message.role;
    let calls = message.tool_calls.iter().map(|call| format!("\ncalls {}({})", call.name, call.arguments));
    format!("{role}: {}{}\n", message.content, calls.collect::<String>())
}

fn of_model(frame: &RequestFrame, model: &dyn ChatModel) -> Vec<Change> {
    let mut changes = Vec::new();
    if frame.model != model.name() {
        changes.push(Change::of_text(DivergenceKind::Model, "model", &frame.model, model.name()));
    }
    let settings = model.settings();
    let mut names: Vec<&String> = frame.settings.keys().chain(settings.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (then, now) = (frame.settings.get(name), settings.get(name));
        if then != now {
            changes.push(of_json(DivergenceKind::Parameters, name, then, now));
        }
    }
    changes
}

fn of_json(
    kind: DivergenceKind,
    what: impl Into<String>,
    then: Option<&(impl Serialize + ?Sized)>,
    now: Option<&(impl Serialize + ?Sized)>,
) -> Change {
    fn pretty(value: Option<&(impl Serialize + ?Sized)>) -> String {
        value.and_then(|value| serde_json::to_string_pretty(value).ok()).unwrap_or_default()
    }
    Change::of_text(kind, what, &pretty(then), &pretty(now))
}

fn of_tools(then: &[ToolSpec], now: &[ToolSpec]) -> Vec<Change> {
    const TOOLS: DivergenceKind = DivergenceKind::Tools;
    let find = |tools: &[ToolSpec], name: &str| tools.iter().find(|tool| tool.name == name).cloned();
    let mut changes = Vec::new();
    for tool in then {
        let name = &tool.name;
        let Some(other) = find(now, name) else {
            changes.push(Change::of_text(TOOLS, format!("tool `{name}` removed"), &tool.description, ""));
            continue;
        };
        if tool.description != other.description {
            let what = format!("description of tool `{name}`");
            changes.push(Change::of_text(TOOLS, what, &tool.description, &other.description));
        }
        if tool.parameters != other.parameters {
            let what = format!("parameters of tool `{name}`");
            changes.push(of_json(TOOLS, what, Some(&tool.parameters), Some(&other.parameters)));
        }
    }
    for tool in now.iter().filter(|tool| find(then, &tool.name).is_none()) {
        changes.push(Change::of_text(TOOLS, format!("tool `{}` added", tool.name), "", &tool.description));
    }
    if changes.is_empty() {
        let names =
            |tools: &[ToolSpec]| tools.iter().map(|tool| format!("{}\n", tool.name)).collect::<String>();
        changes.push(Change::of_text(TOOLS, "order of the tools", &names(then), &names(now)));
    }
    changes
}

/// Returns the recorded frame of a call: that of its update, or else that of the state.
pub(super) fn recorded_frame(
    task: ComparedTask<'_>,
    state: &AgentState,
) -> (Option<RequestFrame>, Option<RequestFrame>) {
    let written = match &task.update["frame"] {
        Value::Null => None,
        frame => RequestFrame::deserialize(frame).ok(),
    };
    let known = written.clone().unwrap_or_else(|| state.frame.clone());
    (written, Some(known).filter(|frame| !frame.is_unknown()))
}

/// Returns what changed in the request of a summary, whose texts are not stored.
pub(super) fn of_summary(task: ComparedTask<'_>) -> Vec<Change> {
    let part = |name: &str| (task.expected.get(name), task.got.get(name));
    let differs = |name: &str| matches!(part(name), (then, now) if then != now);
    if !task.expected.is_object() || task.expected == task.got {
        Vec::new()
    } else if differs("first") {
        vec![Change::new(DivergenceKind::Prompt, "prompt of the summary")]
    } else {
        vec![Change::new(DivergenceKind::Messages, "messages to sum up")]
    }
}
