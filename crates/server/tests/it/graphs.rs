//! The graphs of the tests.

use std::sync::{
    LazyLock, Mutex,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use superstep_graph::{
    Cx, END, JsonChannels, JsonState, JsonUpdate, Log, NodeError, Route, START, State, StateGraph,
    state::JsonReducer,
};
use superstep_server::Server;
use tokio::sync::Semaphore;

/// Adds all graphs.
pub(crate) fn all(server: Server) -> Server {
    server
        .graph("counter", counter())
        .graph("approve", approve())
        .graph("two", two())
        .graph("chat", chat())
        .graph("assistant", assistant())
        .graph("fail", fail())
        .graph("gate", gate())
        .graph("parent", parent())
        .graph("write", write())
        .graph("key", key())
        .graph("slow", slow())
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Count {
    #[channel(sum)]
    n: i64,
    #[channel(append)]
    log: Log<String>,
}

type Compiled<S> = superstep_graph::CompiledGraph<S>;

/// Two nodes in a row that count.
pub(crate) fn counter() -> Compiled<Count> {
    let mut graph = StateGraph::<Count>::new("counter");
    let one = graph.add_node("one", async |_: Count, cx: Cx| {
        cx.emit("progress", json!({ "done": 50 }));
        Count::update().n(1).log(["one"])
    });
    let two = graph.add_node("two", async |_: Count, _: Cx| Count::update().n(1).log(["two"]));
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.add_edge(two, END);
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Approval {
    pub(crate) euros: u32,
    pub(crate) verdict: String,
    pub(crate) sent: bool,
}

/// A node that asks between two others.
pub(crate) fn approve() -> Compiled<Approval> {
    let mut graph = StateGraph::<Approval>::new("approve");
    let begin = graph.add_node("begin", async |_: Approval, _: Cx| Approval::update().sent(false));
    let decide = graph.add_node("decide", async |state: Approval, cx: Cx| {
        let verdict: Value = cx.interrupt("approve", json!({ "euros": state.euros })).await;
        Approval::update().verdict(verdict.as_str().map_or_else(|| verdict.to_string(), str::to_owned))
    });
    let send = graph.add_node("send", async |_: Approval, _: Cx| Approval::update().sent(true));
    graph.add_edge(START, begin);
    graph.add_edge(begin, decide);
    graph.add_edge(decide, send);
    graph.add_edge(send, END);
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Two {
    #[channel(append)]
    log: Log<String>,
}

/// Two nodes that ask at the same time.
pub(crate) fn two() -> Compiled<Two> {
    let mut graph = StateGraph::<Two>::new("two");
    for name in ["left", "right"] {
        let node = graph.add_node(name, move |_: Two, cx: Cx| async move {
            let answer: String = cx.interrupt(name, name).await;
            Two::update().log([answer])
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
    }
    graph.compile().unwrap()
}

/// A model that writes in pieces, and a tool.
pub(crate) fn chat() -> Compiled<JsonState> {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let initial = JsonState::new(&channels).unwrap();
    let mut graph = StateGraph::with_initial("chat", initial);
    let model = graph.add_node("model", async |state: JsonState, cx: Cx| {
        let id = format!("answer-{}", state.items("messages").count());
        let call = json!({ "index": 0, "id": "c1", "name": "add", "arguments": "{\"a\":2" });
        cx.emit_message(&id, json!({ "role": "assistant", "content": "Let me " }));
        cx.emit_message(&id, json!({ "role": "assistant", "content": "add." }));
        cx.emit_message(&id, json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
        let rest = json!({ "index": 0, "arguments": "}" });
        cx.emit_message(&id, json!({ "role": "assistant", "content": "", "tool_calls": [rest] }));
        let message = json!({
            "id": id, "role": "assistant", "content": "Let me add.",
            "tool_calls": [{ "id": "c1", "name": "add", "arguments": "{\"a\":2}" }],
        });
        cx.emit_full_message(&id, &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    let tool = graph.add_node("tools", async |state: JsonState, cx: Cx| {
        let id = format!("result-{}", state.items("messages").count());
        let message = json!({ "id": id, "role": "tool", "content": "42", "tool_call_id": "c1" });
        cx.emit_full_message(&id, &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    graph.add_edge(START, model);
    graph.add_edge(model, tool);
    graph.add_edge(tool, END);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Tools,
    End,
}

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// A model and a tool that requires approval, with a question in the form that chat pages of LangGraph show.
pub(crate) fn assistant() -> Compiled<JsonState> {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let mut graph = StateGraph::with_initial("assistant", JsonState::new(&channels).unwrap());
    let model = graph.add_node("model", async |state: JsonState, cx: Cx| {
        // As models do, another id each time, by which pages tell branches apart.
        let nth = ANSWERS.fetch_add(1, Ordering::Relaxed);
        let last = state.items("messages").last().cloned().unwrap_or_default();
        let (id, content) = (format!("answer-{nth}"), last["content"].as_str().unwrap_or_default());
        let is_done = last["role"] == "tool";
        let text = if is_done { format!("Done: {content}") } else { format!("Let me see: {content}") };
        for piece in text.split_inclusive(' ') {
            cx.emit_message(&id, json!({ "role": "assistant", "content": piece }));
        }
        let call = json!({ "id": format!("c{nth}"), "name": "add", "arguments": json!({ "sum": content }).to_string() });
        let calls = if is_done { json!([]) } else { json!([call]) };
        let message = json!({ "id": id, "role": "assistant", "content": text, "tool_calls": calls });
        cx.emit_full_message(&id, &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    let tools = graph.add_node("tools", async |state: JsonState, cx: Cx| {
        let call = state.items("messages").last().cloned().unwrap_or_default()["tool_calls"][0].clone();
        let args: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        let question = json!([{
            "action_request": { "action": call["name"], "args": args },
            "config": { "allow_accept": true, "allow_edit": false, "allow_respond": false, "allow_ignore": true },
            "description": "It adds.",
        }]);
        let answers: Value = cx.interrupt("approve", question).await;
        let content = if answers[0]["type"] == "accept" { "The sum is 42." } else { "Refused." };
        let id = format!("result-{}", call["id"].as_str().unwrap());
        let message = json!({ "id": id, "role": "tool", "content": content, "tool_call_id": call["id"] });
        JsonUpdate::new().write("messages", json!([message]))
    });
    graph.add_edge(START, model);
    let route = |state: &JsonState| {
        let last = state.items("messages").last().cloned().unwrap_or_default();
        let calls = last["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls { Next::Tools } else { Next::End }
    };
    graph.add_conditional_edges(model, route, |next| match next {
        Next::Tools => tools,
        Next::End => END,
    });
    graph.add_edge(tools, model);
    graph.compile().unwrap()
}

/// A node that fails once another has run.
pub(crate) fn fail() -> Compiled<Count> {
    let mut graph = StateGraph::<Count>::new("fail");
    let one = graph.add_node("one", async |_: Count, _: Cx| Count::update().n(1));
    let boom = graph.add_node("boom", async |_: Count, _: Cx| {
        Err::<<Count as State>::Update, _>(NodeError::new("boom").fatal())
    });
    graph.add_edge(START, one);
    graph.add_edge(one, boom);
    graph.add_edge(boom, END);
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Gated {
    /// The gate at which it waits.
    gate: String,
    #[channel(append)]
    log: Log<String>,
}

static GATES: LazyLock<Mutex<std::collections::BTreeMap<String, std::sync::Arc<Semaphore>>>> =
    LazyLock::new(Mutex::default);

fn gate_of(name: &str) -> std::sync::Arc<Semaphore> {
    let mut gates = GATES.lock().unwrap();
    gates.entry(name.to_owned()).or_insert_with(|| std::sync::Arc::new(Semaphore::new(0))).clone()
}

/// Lets one node pass at a gate.
pub(crate) fn open(gate: &str) {
    gate_of(gate).add_permits(1);
}

/// A node, one that waits at a gate, and another.
pub(crate) fn gate() -> Compiled<Gated> {
    let mut graph = StateGraph::<Gated>::new("gate");
    let before = graph.add_node("before", async |_: Gated, _: Cx| Gated::update().log(["before"]));
    let wait = graph.add_node("wait", async |state: Gated, _: Cx| {
        gate_of(&state.gate).acquire().await.unwrap().forget();
        Gated::update().log(["passed"])
    });
    let after = graph.add_node("after", async |_: Gated, _: Cx| Gated::update().log(["after"]));
    graph.add_edge(START, before);
    graph.add_edge(before, wait);
    graph.add_edge(wait, after);
    graph.add_edge(after, END);
    graph.compile().unwrap()
}

/// A model that waits at the gate of the user's text between two pieces of its answer.
pub(crate) fn write() -> Compiled<JsonState> {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let initial = JsonState::new(&channels).unwrap();
    let mut graph = StateGraph::with_initial("write", initial);
    let model = graph.add_node("model", async |state: JsonState, cx: Cx| {
        let last = state.items("messages").last().unwrap();
        let (id, gate) =
            (format!("answer-to-{}", last["id"].as_str().unwrap()), last["content"].as_str().unwrap());
        cx.emit_message(&id, json!({ "reasoning": "Hm." }));
        cx.emit_message(&id, json!({ "content": "one " }));
        gate_of(gate).acquire().await.unwrap().forget();
        cx.emit_message(&id, json!({ "content": "two" }));
        let message = json!({ "id": id, "role": "assistant", "content": "one two", "reasoning": "Hm." });
        JsonUpdate::new().write("messages", json!([message]))
    });
    graph.add_edge(START, model);
    graph.add_edge(model, END);
    graph.compile().unwrap()
}

/// A model that writes a word at a time, for two seconds.
pub(crate) fn slow() -> Compiled<JsonState> {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let mut graph = StateGraph::with_initial("slow", JsonState::new(&channels).unwrap());
    let model = graph.add_node("model", async |_: JsonState, cx: Cx| {
        let words = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
        for word in words {
            let piece = if word == "one" { word.to_owned() } else { format!(" {word}") };
            cx.emit_message("slow", json!({ "role": "assistant", "content": piece }));
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        let message = json!({ "id": "slow", "role": "assistant", "content": words.join(" ") });
        cx.emit_full_message("slow", &message);
        JsonUpdate::new().write("messages", json!([message]))
    });
    graph.add_edge(START, model);
    graph.add_edge(model, END);
    graph.compile().unwrap()
}

/// A node that opens the gate of its state, for clients of other languages.
pub(crate) fn key() -> Compiled<Gated> {
    let mut graph = StateGraph::<Gated>::new("key");
    let open_gate = graph.add_node("open", async |state: Gated, _: Cx| {
        open(&state.gate);
        Gated::update()
    });
    graph.add_edge(START, open_gate);
    graph.add_edge(open_gate, END);
    graph.compile().unwrap()
}

/// A node that emits ten megabytes.
pub(crate) fn loud() -> Compiled<Count> {
    let mut graph = StateGraph::<Count>::new("loud");
    let node = graph.add_node("node", async |_: Count, cx: Cx| {
        for _ in 0..100 {
            cx.emit("noise", "x".repeat(100_000));
            tokio::task::yield_now().await;
        }
        Count::update().n(1)
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

/// A graph with a subgraph that asks.
pub(crate) fn parent() -> Compiled<Approval> {
    let child = approve();
    let mut graph = StateGraph::<Approval>::new("parent");
    let child = graph.add_subgraph_with(
        "child",
        &child,
        |state: &Approval| Approval::update().euros(state.euros),
        |child: &Approval| Approval::update().verdict(child.verdict.clone()),
    );
    let done = graph.add_node("done", async |_: Approval, _: Cx| Approval::update().sent(true));
    graph.add_edge(START, child);
    graph.add_edge(child, done);
    graph.add_edge(done, END);
    graph.compile().unwrap()
}
