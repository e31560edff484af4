//! Events and messages in the notation of the scenarios.

use serde_json::Value;
use superstep::llm::{Message, Role};

/// An event of the agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// The time, in milliseconds since the start of the turn.
    pub(crate) at: u64,
    pub(crate) name: &'static str,
    pub(crate) data: Value,
}

impl Told {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.data[field].as_str().unwrap_or_default()
    }

    fn show(&self) -> String {
        let data = &self.data;
        match self.name {
            "node_start" => "a▸".to_owned(),
            "node_end" => "◂a".to_owned(),
            "llm_token" if self.text("reasoning_token").is_empty() => format!("tok({})", self.text("token")),
            "llm_token" => format!("think({})", self.text("reasoning_token")),
            "tool_start" => {
                format!("tool_start{{{},{},{}}}", self.text("tool"), data["args"], self.text("id"))
            }
            "tool_end" => format!("tool_end{{{},{},{}}}", self.text("tool"), self.text("id"), data["result"]),
            "tool_skipped" => {
                format!("+tool_skipped{{{},{},{}}}", self.text("tool"), self.text("id"), self.text("reason"))
            }
            "late_result" => format!("+late_result{{{},{}}}", self.text("tool"), self.text("id")),
            "retry" => {
                // The reason is described in the terms of the transport.
                format!("+retry{{{},{},{}}}", data["attempt"], data["delay_ms"], data["status"])
            }
            "model_fallback" => {
                format!("+model_fallback{{{},{},{}}}", self.text("from"), self.text("to"), data["status"])
            }
            "attempt_discarded" => format!("+attempt_discarded{{{}}}", data["attempt"]),
            "loop" => format!("+loop{{{},{},{}}}", self.text("rule"), self.text("tool"), data["n"]),
            "retrieved" => format!("+retrieved{{{},{}}}", data["memories"], data["passages"]),
            "retrieval_failed" => {
                format!("+retrieval_failed{{{},{}}}", self.text("in"), self.text("reason"))
            }
            "memory_failed" => format!("+memory_failed{{{}}}", self.text("reason")),
            "text_calls" => format!("+text_calls{{{}}}", data["n"]),
            "approval_requested" => {
                format!("+approval_requested{{{},{},{}}}", self.text("id"), self.text("tool"), data["args"])
            }
            "compacted" => format!("+compacted{{{},{},{}}}", data["before"], data["after"], data["dropped"]),
            "budget_warning" => format!("+budget_warning{{{},{}}}", self.text("budget"), data["percent"]),
            "tool_repaired" => {
                format!("+tool_repaired{{{},{},{}}}", self.text("id"), self.text("from"), self.text("to"))
            }
            "args_repaired" => format!("+args_repaired{{{},{}}}", self.text("id"), self.text("tool")),
            "tool_output" => format!("+tool_output{{{},{}}}", self.text("id"), data["chunk"]),
            "spilled" => format!("+spilled{{{},{},{}}}", self.text("id"), self.text("path"), data["chars"]),
            "spill_failed" => format!("+spill_failed{{{},{}}}", self.text("id"), self.text("reason")),
            "steered" => format!("+steered{{{}}}", self.text("text")),
            "part" => {
                let status = data["state"]["status"].as_str().unwrap_or("whole");
                format!("+part{{{},{status}}}", self.text("id"))
            }
            "output_partial" => format!("+output_partial{{{}}}", data["output"]),
            "guardrail" => {
                format!("+guardrail{{{},{},{}}}", self.text("guard"), self.text("at"), self.text("action"))
            }
            "handoff" => format!("+handoff{{{},{}}}", self.text("from"), self.text("to")),
            "compaction_paused" | "truncated_answer" | "memory_stored" => format!("+{}", self.name),
            name => panic!("an event that no test knows: {name} {data}"),
        }
    }
}

pub(crate) fn events(told: &[Told]) -> String {
    told.iter().map(Told::show).collect::<Vec<_>>().join(" ")
}

pub(crate) fn messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    messages.into_iter().map(message).collect::<Vec<_>>().join(", ")
}

fn message(message: &Message) -> String {
    let content = Value::from(message.content.as_str());
    match message.role {
        Role::System => format!("sys:{content}"),
        Role::User => format!("u:{content}"),
        Role::Tool => format!("t({}):{content}", message.tool_call_id),
        Role::Assistant if message.tool_calls.is_empty() => format!("a:{content}"),
        Role::Assistant => {
            let calls: Vec<_> = message
                .tool_calls
                .iter()
                .map(|call| format!("{} {}{}", call.id, call.name, call.arguments))
                .collect();
            let content = if message.content.is_empty() { String::new() } else { content.to_string() };
            format!("a:{content}[{}]", calls.join(", "))
        }
    }
}
