//! Recording of dynamic tools in a thread, so that a replay offers them again or reports the differences.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{
    Cx, Log,
    replay::{Change, ComparedTask, DivergenceKind},
    state::fingerprint,
};
use superstep_llm::{
    Behaviour, Request, Subject, Tool, ToolCx, ToolError, ToolFuture, ToolRegistry, ToolSpec,
};

use super::budget::of_turn;
use crate::{
    AgentState,
    deps::{AgentDeps, replay_tools::ReplayTools},
};

/// Name of the recorded tools of older threads, and of all in comparisons.
const TOOLS: &str = "tools";

/// Name of a superstep's recorded tools.
const OFFERED: &str = "offered";

/// Number of characters that older versions stored of a tool's fingerprint.
const SHORT: usize = 8;

/// The difference between tools and those that a thread recorded: their names, each in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolDifference {
    /// The tools that the thread did not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// The tools whose specification changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The missing tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

impl ToolDifference {
    /// Compares the tools that a thread recorded last with those of its sources. `None` if they are equal, or
    /// the thread recorded none.
    pub fn of<'a>(state: &AgentState, now: impl IntoIterator<Item = &'a Arc<dyn Tool>>) -> Option<Self> {
        let record = |tool: &Arc<dyn Tool>| {
            let spec = serde_json::to_string(tool.spec()).expect("what is sent has a JSON form");
            (tool.spec().name.clone(), Properties::of(&**tool).beside(&spec))
        };
        let now: BTreeMap<_, _> = now.into_iter().map(record).collect();
        let difference = Self::between(&by_name(&state.offered), &now);
        (!state.offered.is_empty() && difference != Self::default()).then_some(difference)
    }

    fn between(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Self {
        let mut difference = Self::default();
        for (name, tool) in then {
            match now.get(name) {
                None => difference.removed.push(name.clone()),
                Some(now) if now != tool => difference.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        difference.added = now.keys().filter(|name| !then.contains_key(*name)).cloned().collect();
        difference
    }
}

impl fmt::Display for ToolDifference {
    /// Formats the difference, such as "added `a`, `b`; removed `c`".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let each = each.into_iter().filter(|(_, names)| !names.is_empty());
        let each = each.map(|(what, names)| format!("{what} `{}`", names.join("`, `")));
        f.write_str(&each.collect::<Vec<_>>().join("; "))
    }
}

/// A tool as recorded by a thread: its specification, and other properties that affect a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ToolRecord {
    #[serde(flatten)]
    spec: ToolSpec,
    #[serde(flatten)]
    properties: Properties,
}

/// The properties of a recorded tool besides its specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Properties {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    poll: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answers: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    idempotent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changes_files: Option<bool>,
}

impl Properties {
    fn of(tool: &dyn Tool) -> Self {
        let Behaviour { exclusive, poll, answers, idempotent, timeout: _ } = tool.behaviour();
        Self { exclusive, poll, answers, idempotent, changes_files: tool.changes_files() }
    }

    /// Returns the JSON of a [`ToolRecord`] with these properties and a specification.
    fn beside(&self, spec: &str) -> String {
        match &*serde_json::to_string(self).expect("flags have a JSON form") {
            "{}" => spec.to_owned(),
            properties => format!("{},{}", &spec[..spec.len() - 1], &properties[1..]),
        }
    }
}

/// Returns the records of a registry's tools, by name.
fn records(tools: &ToolRegistry) -> BTreeMap<String, String> {
    let record = |name: &str| {
        Some((name.to_owned(), Properties::of(&**tools.get(name)?).beside(tools.spec_json(name)?)))
    };
    tools.names().filter_map(record).collect()
}

// The list is a channel, and this record refers to it: the list changes rarely and may be long, and a record of changes only could not be
// found by a replay that begins later.
/// A superstep's record of the source tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SourceRecord {
    /// Not recorded, by an older version.
    #[default]
    Unknown,
    /// Equal to those of the state.
    Same,
    /// New ones, which replace those of the state.
    New(Log<String>),
}

/// Returns the recorded tools by name; skips unreadable ones, which no version wrote.
fn by_name(texts: &Log<String>) -> BTreeMap<String, String> {
    let named =
        |text: &String| Some((serde_json::from_str::<ToolRecord>(text).ok()?.spec.name, text.clone()));
    texts.iter().filter_map(named).collect()
}

/// A tool as it was recorded. A replay never calls it, because it has its results.
struct RecordedTool {
    recorded: ToolRecord,
    /// The current tool of this name.
    now: Option<Arc<dyn Tool>>,
    /// The turn continues with the tools of its beginning: a call reaches the current tool.
    is_live: bool,
}

impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        &self.recorded.spec
    }

    fn behaviour(&self) -> Behaviour {
        let Properties { exclusive, poll, answers, idempotent, .. } = self.recorded.properties;
        Behaviour { exclusive, poll, answers, idempotent, timeout: None }
    }

    fn changes_files(&self) -> Option<bool> {
        self.recorded.properties.changes_files
    }

    // Its question is recorded with the call.

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        self.now.as_ref()?.subject(argument, args)
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        match self.now.as_ref().filter(|_| self.is_live) {
            Some(now) => now.call(args, cx),
            None if self.is_live => Box::pin(async {
                Err(ToolError::failed("the source of this tool does not offer it any more"))
            }),
            None => {
                Box::pin(async { Err(ToolError::failed("a tool that is only recorded cannot be called")) })
            }
        }
    }
}

// Read at the beginning of a superstep, which must not depend on the arrival time of another party's message. One list for a whole turn
// would hide a tool that the model itself has just created.
/// Resolves the budget of the turn, and the source tools for one superstep: the current ones, or in a replay the recorded
/// ones. Returns the new record for the state, if it changed. An agent that `takes_over` has its own ones from now on.
pub(super) async fn refresh(
    deps: &mut AgentDeps,
    state: &AgentState,
    takes_over: bool,
    cx: &Cx,
) -> Option<Log<String>> {
    deps.config = of_turn(deps.config.clone(), state);
    if deps.sources.is_empty() && cx.is_live() {
        return None;
    }
    let refreshed = futures::future::join_all(deps.sources.iter().map(|source| source.refresh()));
    tokio::select! {
        biased;
        () = cx.cancel().cancelled() => {}
        _ = refreshed => {}
    }
    let mut sourced = ToolRegistry::new();
    deps.sources.iter().for_each(|source| sourced.add_missing(&source.tools()));
    deps.tools.names().chain([&*deps.config.finish.tool]).for_each(|name| sourced.remove(name));
    let now = records(&sourced);
    let texts: Log<String> = now.values().cloned().collect();
    // Reasoning that is signed is valid with the same tools only.
    let is_frozen = deps.models.main.signs_prefix() && state.llm_calls > 0 && !takes_over;
    let is_same = is_frozen || texts == state.offered;
    let noted = if is_same { SourceRecord::Same } else { SourceRecord::New(texts) };
    let is_adopted = cx.is_recorded_again() && deps.replay_tools == ReplayTools::Current;
    let noted = if is_adopted {
        // The tools of now become the recorded ones.
        cx.described(OFFERED, &noted);
        noted
    } else {
        cx.noted(OFFERED, noted)
    };
    let (then, new) = match noted {
        SourceRecord::Unknown => (None, None),
        SourceRecord::Same => (Some(by_name(&state.offered)), None),
        SourceRecord::New(texts) => (Some(by_name(&texts)), Some(texts)),
    };
    if let Some(then) = then.filter(|then| *then != now) {
        match deps.replay_tools {
            _ if cx.is_live() => sourced = recorded(&then, &now, &sourced, true),
            ReplayTools::Recorded => sourced = recorded(&then, &now, &sourced, false),
            ReplayTools::Current => differ(ToolDifference::between(&then, &now), cx).await,
        }
    }
    let mut tools = ToolRegistry::clone(&deps.tools);
    tools.add_missing(&sourced);
    deps.tools = Arc::new(tools);
    new
}

/// Returns the recorded tools; unchanged ones are the current tools, which provide more.
fn recorded(
    then: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    sourced: &ToolRegistry,
    is_live: bool,
) -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    for (name, text) in then {
        let tool = match sourced.get(name) {
            Some(tool) if now.get(name) == Some(text) => tool.clone(),
            now => match serde_json::from_str(text) {
                Ok(recorded) => Arc::new(RecordedTool { recorded, now: now.cloned(), is_live }),
                Err(_) => continue,
            },
        };
        // It was valid when it was recorded; if it is not any more, the request differs, and the replay
        // reports it.
        let _ = tools.insert(tool);
    }
    tools
}

/// Compares the offered tools with those recorded by an older version. In a replay whose tools differ, the
/// node stops: the divergence names them.
pub(super) async fn compared(request: &Request, cx: &Cx) {
    let then = cx.noted(TOOLS, BTreeMap::<String, String>::new());
    if then.is_empty() {
        return;
    }
    let each = |tool: &ToolSpec| {
        let mut print = fingerprint(tool).expect("what is sent has a JSON form");
        print.truncate(SHORT);
        (tool.name.clone(), print)
    };
    let now = request.tools.iter().map(each).collect();
    if then != now {
        differ(ToolDifference::between(&then, &now), cx).await;
    }
}

/// Ends a replay whose tools differ.
async fn differ(difference: ToolDifference, cx: &Cx) {
    // A thread that was recorded again has the difference.
    let changes = |task: ComparedTask<'_>| {
        let is_same = task.expected == task.got;
        if is_same { Vec::new() } else { vec![Change::new(DivergenceKind::Tools, difference.to_string())] }
    };
    cx.compared_with(TOOLS, || &difference, changes).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_differ_by_name_and_by_description() {
        let offered = |each: &[(&str, &str)]| {
            each.iter().map(|(name, print)| ((*name).to_owned(), (*print).to_owned())).collect()
        };
        let (then, now) =
            (offered(&[("a", "1"), ("b", "1"), ("c", "1")]), offered(&[("a", "1"), ("b", "2"), ("d", "1")]));
        let wanted =
            ToolDifference { added: vec!["d".into()], changed: vec!["b".into()], removed: vec!["c".into()] };
        let found = ToolDifference::between(&then, &now);
        assert_eq!(found, wanted);
        assert_eq!(found.to_string(), "added `d`; changed `b`; removed `c`");
    }

    #[test]
    fn a_recorded_tool_is_a_json_text_of_its_relevant_fields() {
        let spec =
            ToolSpec { name: "a".into(), description: "one".into(), parameters: json!({"type": "object"}) };
        let json = serde_json::to_string(&spec).unwrap();
        let text = r#"{"name":"a","description":"one","parameters":{"type":"object"}}"#;
        assert_eq!(Properties::default().beside(&json), text);
        let properties = Properties { idempotent: true, changes_files: Some(false), ..Properties::default() };
        let text = properties.beside(&json);
        assert_eq!(
            by_name(&Log::from([text.clone(), "7".to_owned()])),
            BTreeMap::from([("a".to_owned(), text.clone())])
        );
        let full = ToolRecord { spec, properties };
        assert_eq!(serde_json::to_string(&full).unwrap(), text);
        assert_eq!(serde_json::from_str::<ToolRecord>(&text).unwrap(), full);
    }
}
