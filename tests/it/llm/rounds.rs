//! Rounds of tools, for the tests of several protocols.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use superstep::llm::{
    Message, Request, Tool, ToolCx, ToolReply, ToolSpec, media::Media, tool_fn, toolset::ToolSpecs,
};

pub(super) const GIF: &str = "R0lGODlhAQABAAAAACw=";

/// Returns the tool `add`.
pub(super) fn tools() -> ToolSpecs {
    let parameters = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    [ToolSpec { name: "add".into(), description: "adds".into(), parameters }].into()
}

/// Returns the conversation behind an answer: the results of its calls, or another message of the user.
pub(super) fn behind(request: &Request, answer: &Message) -> Request {
    let mut next = request.clone();
    next.messages.push(answer.clone());
    let results = answer.tool_calls.iter().map(|call| Message::tool(call.id.as_str(), "5"));
    next.messages.extend(results);
    if answer.tool_calls.is_empty() {
        next.messages.push(Message::user("go on"));
    }
    next
}

/// Creates tools that record their calls: `add`, `slow`, `send`, `big` and `look`.
pub(super) fn recording(calls: &Arc<Mutex<Vec<String>>>) -> Vec<Arc<dyn Tool>> {
    let tool = |name: &'static str| {
        let parameters = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        let calls = Arc::clone(calls);
        let call = move |args: Value, _: ToolCx| {
            let calls = Arc::clone(&calls);
            async move {
                let x = args["x"].as_str().unwrap_or_default().to_owned();
                calls.lock().unwrap().push(format!("{name} {x}"));
                if name == "slow" {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(match name {
                    "big" => ToolReply::text("x".repeat(9000)),
                    "look" => {
                        let gif = Media::new("image/gif", GIF).unwrap();
                        ToolReply::text(gif.to_string()).with_media([gif])
                    }
                    _ => ToolReply::text(format!("{name}: {x}")),
                })
            }
        };
        Arc::new(tool_fn(spec, call)) as Arc<dyn Tool>
    };
    ["add", "slow", "send", "big", "look"].map(tool).into()
}
