//! The graphs of `tests/recorded/graphs.py`.

use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, JsonChannels, JsonState, JsonUpdate, Log, Route, START, State, StateGraph,
    state::JsonReducer,
};
use superstep_server::Server;
use uuid::Uuid;

use crate::graphs::{Approval, approve, counter, fail, two};

/// Adds all graphs.
pub(crate) fn all(server: Server) -> Server {
    server
        .graph("counter", counter())
        .graph("chat", chat())
        .graph("approve", approve())
        .graph("parent", parent())
        .graph("fail", fail())
        .graph("two", two())
        .graph("gate", gate())
}

/// A graph with a subgraph that asks and writes all of its state.
fn parent() -> CompiledGraph<Approval> {
    let mut graph = StateGraph::<Approval>::new("parent");
    let child = graph.add_subgraph_with(
        "child",
        &approve(),
        |state: &Approval| Approval::update().euros(state.euros),
        |child: &Approval| {
            Approval::update().euros(child.euros).verdict(child.verdict.clone()).sent(child.sent)
        },
    );
    let done = graph.add_node("done", async |_: Approval, _: Cx| Approval::update().sent(true));
    graph.add_edge(START, child);
    graph.add_edge(child, done);
    graph.add_edge(done, END);
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
struct Held {
    hold: bool,
    #[channel(append)]
    log: Log<String>,
}

/// A node that ends if it is not held.
fn gate() -> CompiledGraph<Held> {
    let mut graph = StateGraph::<Held>::new("gate");
    let before = graph.add_node("before", async |_: Held, _: Cx| Held::update().log(["before"]));
    let wait = graph.add_node("wait", async |state: Held, _: Cx| {
        if state.hold {
            std::future::pending::<()>().await;
        }
        Held::update().log(["passed"])
    });
    graph.add_edge(START, before);
    graph.add_edge(before, wait);
    graph.add_edge(wait, END);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Tools,
    End,
}

/// A model that calls a tool and then repeats the result, in pieces.
fn chat() -> CompiledGraph<JsonState> {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let mut graph = StateGraph::with_initial("chat", JsonState::new(&channels).unwrap());
    let agent = graph.add_node("agent", async |state: JsonState, cx: Cx| {
        let (id, last) = (Uuid::new_v4().to_string(), last(&state));
        let send = |piece: Value| cx.emit_message(&id, piece);
        let (content, calls) = if last["role"] == "tool" {
            let result = last["content"].as_str().unwrap();
            for text in ["The sum ", "is ", result] {
                send(json!({ "role": "assistant", "content": text }));
            }
            (format!("The sum is {result}"), json!([]))
        } else {
            for text in ["Let me ", "add."] {
                send(json!({ "role": "assistant", "content": text }));
            }
            let begin = json!({ "index": 0, "id": "c1", "name": "add", "arguments": "{\"a\":2," });
            for call in [begin, json!({ "index": 0, "arguments": "\"b\":40}" })] {
                send(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
            }
            (
                "Let me add.".to_owned(),
                json!([{ "id": "c1", "name": "add", "arguments": "{\"a\":2,\"b\":40}" }]),
            )
        };
        let message = json!({ "id": id, "role": "assistant", "content": content, "tool_calls": calls });
        cx.emit_full_message(&id, &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    let tools = graph.add_node("tools", async |_: JsonState, cx: Cx| {
        let id = Uuid::new_v4().to_string();
        let message =
            json!({ "id": id, "role": "tool", "name": "add", "content": "42", "tool_call_id": "c1" });
        cx.emit_full_message(&id, &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    graph.add_edge(START, agent);
    let route = |state: &JsonState| {
        let calls = last(state)["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls { Next::Tools } else { Next::End }
    };
    graph.add_conditional_edges(agent, route, |next| match next {
        Next::Tools => tools,
        Next::End => END,
    });
    graph.add_edge(tools, agent);
    graph.compile().unwrap()
}

fn last(state: &JsonState) -> Value {
    state.items("messages").last().cloned().unwrap_or_default()
}
