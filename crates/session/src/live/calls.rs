//! Tool calls as shells show them.
//!
//! Start at [`CallView`].

use std::collections::HashMap;

use serde_json::Value;

use crate::text::{brief, printable_line};

/// Maximum number of characters of the argument in a title.
const MAX_TITLE: usize = 80;

/// The arguments that say most about a call, the first that it has.
const TELLING: [&str; 7] = ["path", "command", "url", "query", "pattern", "expression", "name"];

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// The key, unique in the thread: the call's id, with a number from the second call of this id on.
    pub key: String,
    /// The name of the tool.
    pub tool: String,
    /// The tool and its telling argument, on one line of printable characters.
    pub title: String,
    /// The arguments.
    pub args: Value,
    /// The progress of the call.
    pub status: CallStatus,
    /// The text for the model, once the call is answered.
    pub result: Option<String>,
}

/// The status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// The call waits for a decision, or was not begun.
    Pending,
    /// The tool runs.
    Running,
    /// The tool returned.
    Done,
    /// The tool failed, or the call was not run.
    Failed,
}

impl CallStatus {
    /// Returns whether the call is answered.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

impl CallView {
    pub(super) fn new(key: String, tool: &str, args: Value, status: CallStatus) -> Self {
        Self { title: title(tool, &args), tool: tool.to_owned(), key, args, status, result: None }
    }
}

fn title(tool: &str, args: &Value) -> String {
    let tool = printable_line(tool);
    let telling = TELLING.iter().find_map(|name| args.get(*name)?.as_str());
    match telling {
        Some(telling) => format!("{tool} {}", brief(telling, MAX_TITLE)),
        None if args.as_object().is_none_or(serde_json::Map::is_empty) => tool,
        None => format!("{tool} {}", brief(&args.to_string(), MAX_TITLE)),
    }
}

/// An item of the agent's list of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanItem {
    /// The text, on one line.
    pub text: String,
    /// The progress.
    pub status: PlanStatus,
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Ended.
    Done,
}

/// Returns the list of a call of the tool `todo`; `None` for other calls.
pub(super) fn plan(tool: &str, args: &Value) -> Option<Vec<PlanItem>> {
    if tool != "todo" {
        return None;
    }
    let items = args.get("items")?.as_array()?.iter().filter_map(|item| {
        let status = match item.get("status")?.as_str()? {
            "in_progress" => PlanStatus::InProgress,
            "done" => PlanStatus::Done,
            _ => PlanStatus::Pending,
        };
        Some(PlanItem { text: printable_line(item.get("text")?.as_str()?.trim()), status })
    });
    Some(items.collect())
}

/// The calls of a thread by their keys. Servers begin the ids of calls again.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The number of calls with an id.
    seen: HashMap<String, u32>,
    /// The calls that are not answered, by id.
    open: HashMap<String, CallView>,
}

impl Calls {
    /// Returns a call that is not answered yet, after a change of its status. The first time it is a new one.
    pub(super) fn change(&mut self, id: &str, tool: &str, args: &Value, status: CallStatus) -> CallView {
        let call = self.open.entry(id.to_owned()).or_insert_with(|| {
            let seen = self.seen.entry(id.to_owned()).or_default();
            *seen += 1;
            let key = if *seen == 1 { id.to_owned() } else { format!("{id}~{seen}") };
            CallView::new(key, tool, args.clone(), status)
        });
        // A person may have changed the arguments.
        *call = CallView::new(call.key.clone(), tool, args.clone(), status);
        call.clone()
    }

    /// Returns the key of a call that is not answered.
    pub(super) fn key(&self, id: &str) -> Option<&str> {
        self.open.get(id).map(|call| &*call.key)
    }

    /// Ends a call.
    pub(super) fn end(&mut self, id: &str, tool: &str, result: &str, status: CallStatus) -> CallView {
        let mut call = match self.open.remove(id) {
            Some(call) => call,
            None => {
                self.change(id, tool, &Value::Null, status);
                self.open.remove(id).expect("the call was added")
            }
        };
        (call.status, call.result) = (status, Some(result.to_owned()));
        call
    }

    /// Ends the calls that are not answered, because their turn was discarded or stopped.
    pub(super) fn fail_open(&mut self, reason: &str) -> Vec<CallView> {
        let mut failed: Vec<_> = std::mem::take(&mut self.open).into_values().collect();
        failed.sort_by(|one, other| one.key.cmp(&other.key));
        for call in &mut failed {
            (call.status, call.result) = (CallStatus::Failed, Some(reason.to_owned()));
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_whose_id_the_thread_had_has_a_key_of_its_own() {
        let mut calls = Calls::default();
        let args = &json!({"path": "a\nb", "content": "x"});
        let asked = calls.change("call_0", "write_file", args, CallStatus::Pending);
        assert_eq!((&*asked.key, &*asked.title), ("call_0", "write_file a…"));
        let runs = calls.change("call_0", "write_file", args, CallStatus::Running);
        assert_eq!((&*runs.key, runs.status), ("call_0", CallStatus::Running));
        let done = calls.end("call_0", "write_file", "written", CallStatus::Done);
        assert_eq!((&*done.key, done.result.as_deref(), &done.args), ("call_0", Some("written"), args));
        let next = calls.change("call_0", "shell", &json!({"command": "ls"}), CallStatus::Running);
        assert_eq!((&*next.key, &*next.title), ("call_0~2", "shell ls"));
        let skipped = calls.end("c9", "shell", "budget", CallStatus::Failed);
        assert_eq!((&*skipped.key, &*skipped.title), ("c9", "shell"));
        let failed = calls.fail_open("stopped");
        assert_eq!(failed.iter().map(|call| &*call.key).collect::<Vec<_>>(), ["call_0~2"]);
        assert_eq!(calls.key("call_0"), None);
    }

    #[test]
    fn a_plan_is_the_list_of_a_call() {
        let args = json!({"items": [{"text": " read ", "status": "done"}, {"text": "write", "status": "?"}]});
        let item = |text: &str, status| PlanItem { text: text.into(), status };
        let list = vec![item("read", PlanStatus::Done), item("write", PlanStatus::Pending)];
        assert_eq!(plan("todo", &args), Some(list));
        assert_eq!(plan("shell", &args), None);
    }
}
