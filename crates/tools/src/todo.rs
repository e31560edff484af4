//! `todo`: the task list for work of many steps.

use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};

use crate::call::{REPEATABLE, one_line};

const MAX_ITEMS: usize = 50;
const MAX_ITEM_BYTES: usize = 500;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct Todo {
    /// The whole list, in order; it takes the place of the one before.
    items: Vec<Item>,
}

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    /// What is to be done, in one line.
    text: String,
    /// How far it is.
    status: Status,
}

#[derive(JsonSchema, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Done,
}

/// The tool `todo{items}`: records the tasks and their status; each call has the whole list.
///
/// No list is stored outside of the conversation: the newest one is the last call's result. So it lasts as
/// long as the thread, is forked and copied with it, and cannot diverge from it.
pub fn todo() -> impl Tool {
    let spec = ToolSpec::of::<Todo>(
        "todo",
        "Keeps a list of what is to be done, for work of three steps and more. Send the whole list each time: at the \
         beginning, and whenever something is done or turns out to be needed.",
    );
    let tool: FnTool<Todo, _> = tool_fn(spec, |args: Todo, _: ToolCx| async move { list(&args.items) });
    tool.with_behaviour(REPEATABLE).with_changes_files(false)
}

fn list(items: &[Item]) -> Result<String, ToolError> {
    if items.len() > MAX_ITEMS {
        return Err(ToolError::InvalidArguments(format!(
            "`items` has at most {MAX_ITEMS}, got {}",
            items.len()
        )));
    }
    let mut text = String::new();
    for (number, item) in (1..).zip(items) {
        let what = item.text.trim();
        if what.is_empty() || what.len() > MAX_ITEM_BYTES {
            return Err(ToolError::InvalidArguments(format!(
                "the `text` of item {number} has from 1 to {MAX_ITEM_BYTES} bytes, got {}",
                what.len()
            )));
        }
        let mark = match item.status {
            Status::Pending => ' ',
            Status::InProgress => '>',
            Status::Done => 'x',
        };
        text.push_str(&format!("[{mark}] {}\n", one_line(what)));
    }
    let done = items.iter().filter(|item| item.status == Status::Done).count();
    Ok(format!("{text}{done} of {} done", items.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{call, refusal};

    #[tokio::test]
    async fn shows_the_list_as_it_is_now() {
        let items = json!({"items": [
            {"text": "read", "status": "done"},
            {"text": " think\nhard ", "status": "in_progress"},
            {"text": "write", "status": "pending"},
        ]});
        assert_eq!(call(&todo(), items).await, "[x] read\n[>] think\\nhard\n[ ] write\n1 of 3 done");
        assert_eq!(call(&todo(), json!({"items": []})).await, "0 of 0 done");
    }

    #[tokio::test]
    async fn a_list_has_bounds() {
        let item = |text: &str| json!({"text": text, "status": "done"});
        let many = json!({"items": vec![item("x"); 51]});
        assert_eq!(refusal(&todo(), many).await, "`items` has at most 50, got 51");
        for (text, length) in [(" ", 0), (&*"x".repeat(501), 501)] {
            assert_eq!(
                refusal(&todo(), json!({"items": [item("a"), item(text)]})).await,
                format!("the `text` of item 2 has from 1 to 500 bytes, got {length}")
            );
        }
    }
}
