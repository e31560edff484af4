//! The graphs of the tests.

use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, JsonChannels, JsonState, JsonUpdate, Log, Route, START, State, StateGraph,
    state::JsonReducer,
};

#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Continue,
    Finish,
}

/// A graph like the agent: a model that writes in pieces, and a tool that requires approval.
pub(super) fn helper(name: &str, prompt: &'static str) -> CompiledGraph<JsonState> {
    let channels = JsonChannels::new()
        .with("messages", JsonReducer::MergeById)
        .with("steps", JsonReducer::Sum)
        .with("usage", JsonReducer::LastValue)
        .with("files", JsonReducer::Union)
        .with("note", JsonReducer::LastValue);
    let mut graph = StateGraph::with_initial(name, JsonState::new(&channels).unwrap());
    let agent = graph.add_node("agent", move |state: JsonState, cx: Cx| async move {
        let messages: Vec<Value> = state.items("messages").cloned().collect();
        let id = format!("answer-{}", messages.len());
        let is_done = messages.last().is_some_and(|last| last["role"] == "tool");
        let is_done = cx.recorded("request", async || is_done).await;
        cx.compared("prompt", move || json!({ "system": prompt })).await;
        let text = if is_done {
            "Renamed. Both files say `reader` now, and the tests pass."
        } else {
            "Two places name it:\n\n- `src/lib.rs`, which **declares** it\n- `src/main.rs`, which uses it\n\n```rust\nmod reader;\n```"
        };
        for piece in text.split_inclusive(' ') {
            cx.emit_message(&id, json!({ "role": "assistant", "content": piece }));
        }
        let calls = if is_done { json!([]) } else {
            json!([{ "id": format!("c{}", messages.len()), "name": "edit_file", "arguments": json!({
                "path": "src/lib.rs", "old_string": "mod parser;", "new_string": "mod reader;",
            }).to_string() }])
        };
        let message = json!({ "id": id, "role": "assistant", "content": text, "tool_calls": calls,
            "reasoning": if is_done { "" } else { "The user wants a rename. Every use has to be found before the edit." } });
        cx.emit_full_message(&id, &message);
        let tokens = 400 * (messages.len() as u64 + 1);
        JsonUpdate::new().write("messages", json!([message])).write("steps", 1)
            .write("usage", json!({ "input_tokens": tokens, "output_tokens": tokens / 8 }))
    });
    let tools = graph.add_node("tools", async |state: JsonState, cx: Cx| {
        let call = state.items("messages").last().cloned().unwrap_or_default()["tool_calls"][0].clone();
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap_or("{}")).unwrap();
        let request = json!({ "call_id": call["id"], "tool": call["name"], "args": arguments, "question": "Edit src/lib.rs?" });
        let answer: Value = cx.interrupt("c1", request).await;
        let id = format!("result-{}", call["id"].as_str().unwrap_or_default());
        let content = if answer == "approve" { "2 lines changed".to_owned() } else { format!("refused: {answer}") };
        let message = json!({ "id": id, "role": "tool", "content": content, "tool_call_id": call["id"] });
        let file = if answer == "approve" { "use std::io;\nmod reader;\n\nfn main() {}\n" } else { "use std::io;\nmod parser;\n\nfn main() {}\n" };
        JsonUpdate::new().write("messages", json!([message])).write("files", json!({ "src/lib.rs": file }))
    });
    graph.add_edge(START, agent);
    let route = |state: &JsonState| {
        let last = state.items("messages").last().cloned().unwrap_or_default();
        let calls = last["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls { Then::Continue } else { Then::Finish }
    };
    graph.add_conditional_edges(agent, route, |then| match then {
        Then::Continue => tools,
        Then::Finish => END,
    });
    graph.add_edge(tools, agent);
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
pub(super) struct Long {
    left: u32,
    #[channel(append)]
    log: Log<String>,
}

/// A node that runs as often as its input says.
pub(super) fn long() -> CompiledGraph<Long> {
    let mut graph = StateGraph::<Long>::new("long");
    let work =
        graph.add_node("work", async |long: Long, _: Cx| Long::update().left(long.left.saturating_sub(1)));
    let check = graph.add_node("check", async |_: Long, _: Cx| ());
    graph.add_edge(START, work);
    graph.add_edge(work, check);
    let route = |long: &Long| if long.left > 0 { Then::Continue } else { Then::Finish };
    graph.add_conditional_edges(check, route, |then| match then {
        Then::Continue => work,
        Then::Finish => END,
    });
    graph.compile().unwrap()
}

/// Two hundred nodes in rows.
pub(super) fn wide() -> CompiledGraph<Long> {
    let mut graph = StateGraph::<Long>::new("wide");
    let mut before = vec![];
    for row in 0..20 {
        let nodes: Vec<_> = (0..10)
            .map(|nth| graph.add_node(&format!("row_{row}_{nth}"), async |_: Long, _: Cx| ()))
            .collect();
        for (nth, node) in nodes.iter().enumerate() {
            match before.get(nth) {
                Some(before) => graph.add_edge(*before, *node),
                None => graph.add_edge(START, *node),
            }
        }
        before = nodes;
    }
    for node in before {
        graph.add_edge(node, END);
    }
    graph.compile().unwrap()
}
