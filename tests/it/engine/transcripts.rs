//! Events as text, by `superstep_testing::transcript`.

use futures::StreamExt;
use serde_json::json;
use superstep::{
    CompiledGraph, Cx, END, Event, MemoryCheckpointer, NodeError, START, State, StateGraph, StreamMode,
    Streaming, ThreadId,
};
use superstep_testing::transcript::transcript;

#[derive(State, Clone, Debug, Default)]
struct Count {
    n: u32,
    by: String,
}

/// Returns the transcript of a graph with a subgraph that calls another one.
async fn run(modes: &[StreamMode], with_checkpointer: bool) -> String {
    let mut inner = StateGraph::<Count>::new("inner");
    let ask = inner.add_node("ask", async |count: Count, cx: Cx| {
        cx.emit("asking", json!({"of": count.n}));
        cx.emit_message(&cx.id("m"), "to");
        Count::update().by("me".to_owned())
    });
    inner.add_edge(START, ask);
    inner.add_edge(ask, END);
    let inner = inner.compile().unwrap();

    let mut outer = StateGraph::<Count>::new("outer");
    let call =
        outer.add_node_with("call", inner, async |inner: CompiledGraph<Count>, count: Count, cx: Cx| {
            let end = cx.call(&inner, Count::update().n(count.n)).key("k").await?;
            Ok::<_, NodeError>(Count::update().n(end.n + 1))
        });
    outer.add_edge(START, call);
    outer.add_edge(call, END);
    let outer = outer.compile().unwrap();

    let mut graph = StateGraph::<Count>::new("graph");
    let first = graph.add_node("first", async |_: Count, _: Cx| ());
    let sub = graph.add_subgraph("sub", &outer);
    graph.add_edge(START, first);
    graph.add_edge(first, sub);
    graph.add_edge(sub, END);
    let graph = graph.compile().unwrap();
    let streaming = Streaming::from(modes).subgraphs();
    let input = Count::update().n(4);
    let events: Vec<_> = match with_checkpointer {
        true => {
            let graph = graph.with_checkpointer(MemoryCheckpointer::new());
            graph.thread("t").stream(input, streaming).collect().await
        }
        false => graph.stream(input, streaming).collect().await,
    };
    transcript(&events)
}

#[tokio::test]
async fn events_of_subgraphs_have_the_path_of_their_graph() {
    let modes = [StreamMode::Updates, StreamMode::Values, StreamMode::Custom, StreamMode::Messages];
    let text = run(&modes, true).await;
    insta::assert_snapshot!(text, @r#"
    0 = {"n":4,"by":""}
    1 first → {}
    1 = {"n":4,"by":""}
    sub:0 │ 0 = {"by":"","n":4}
    sub:0/call:0:k │ 0 = {"by":"","n":4}
    sub:0/call:0:k │   ask · asking {"of":4}
    sub:0/call:0:k │   ask · message 2.0/1.0:k/1.0.m "to"
    sub:0/call:0:k │ 1 ask → {"by":"me"}
    sub:0/call:0:k │ 1 = {"by":"me","n":4}
    sub:0 │ 1 call → {"n":5}
    sub:0 │ 1 = {"by":"","n":5}
    2 sub → {"n":5}
    2 = {"n":5,"by":""}
    "#);
    assert_eq!(run(&modes, false).await, text, "the numbers of checkpoints are left out");
    let text = run(&[StreamMode::Tasks, StreamMode::Checkpoints], true).await;
    insta::assert_snapshot!(text, @r#"
    -1 stored (input), next __start__
    0 stored (loop), next first
    1 first begins
    1 first ends
    1 stored (loop), next sub
    2 sub begins
    sub:0 │ -1 stored (input), next __start__
    sub:0 │ 0 stored (loop), next call
    sub:0 │ 1 call begins
    sub:0/call:0:k │ -1 stored (input), next __start__
    sub:0/call:0:k │ 0 stored (loop), next ask
    sub:0/call:0:k │ 1 ask begins
    sub:0/call:0:k │ 1 ask ends
    sub:0/call:0:k │ 1 stored (loop), next nothing
    sub:0 │ 1 call ends
    sub:0 │ 1 stored (loop), next nothing
    2 sub ends
    2 stored (loop), next nothing
    "#);
}

#[tokio::test]
async fn debug_events_have_no_times_numbers_of_checkpoints_or_ids() {
    let text = run(&[StreamMode::Debug], true).await;
    insta::assert_snapshot!(text, @r#"
    -1 debug checkpoint {"control":{"next":["__start__"],"step":-1},"metadata":{},"source":"input","values":{"by":"","n":4}}
    0 debug checkpoint {"control":{"next":["first"],"step":0},"metadata":{},"source":"loop","values":{"by":"","n":4}}
    1 debug task {"attempt":1,"input":{"by":"","n":4},"node":"first","slot":0}
    1 debug task_result {"attempt":1,"error":null,"interrupts":[],"node":"first","slot":0,"update":{}}
    1 debug checkpoint {"control":{"next":["sub"],"step":1},"metadata":{},"source":"loop","values":{"by":"","n":4}}
    2 debug task {"attempt":1,"input":{"by":"","n":4},"node":"sub","slot":0}
    sub:0 │ -1 debug checkpoint {"control":{"next":["__start__"],"step":-1},"metadata":{},"source":"input","values":{"by":"","n":4}}
    sub:0 │ 0 debug checkpoint {"control":{"next":["call"],"step":0},"metadata":{},"source":"loop","values":{"by":"","n":4}}
    sub:0 │ 1 debug task {"attempt":1,"input":{"by":"","n":4},"node":"call","slot":0}
    sub:0/call:0:k │ -1 debug checkpoint {"control":{"next":["__start__"],"step":-1},"metadata":{},"source":"input","values":{"by":"","n":4}}
    sub:0/call:0:k │ 0 debug checkpoint {"control":{"next":["ask"],"step":0},"metadata":{},"source":"loop","values":{"by":"","n":4}}
    sub:0/call:0:k │ 1 debug task {"attempt":1,"input":{"by":"","n":4},"node":"ask","slot":0}
    sub:0/call:0:k │ 1 debug task_result {"attempt":1,"error":null,"interrupts":[],"node":"ask","slot":0,"update":{"by":"me"}}
    sub:0/call:0:k │ 1 debug checkpoint {"control":{"next":[],"step":1},"metadata":{},"source":"loop","values":{"by":"me","n":4}}
    sub:0 │ 1 debug task_result {"attempt":1,"error":null,"interrupts":[],"node":"call","slot":0,"update":{"n":5}}
    sub:0 │ 1 debug checkpoint {"control":{"next":[],"step":1},"metadata":{},"source":"loop","values":{"by":"","n":5}}
    2 debug task_result {"attempt":1,"error":null,"interrupts":[],"node":"sub","slot":0,"update":{"n":5}}
    2 debug checkpoint {"control":{"next":[],"step":2},"metadata":{},"source":"loop","values":{"by":"","n":5}}
    "#);
    let mut graph = StateGraph::<Count>::new("graph");
    let ask = graph.add_node("ask", async |_: Count, cx: Cx| {
        let n: u32 = cx.interrupt("how many", "?").await;
        Count::update().n(n)
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    let graph = graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new());
    let events: Vec<_> = graph.thread("t").stream(Count::update(), StreamMode::Debug).collect().await;
    insta::assert_snapshot!(transcript(&events[events.len() - 2..]), @r#"
    ask asks how many "?"
    1 debug task_result {"attempt":1,"error":null,"interrupts":[{"key":"how many","node":"ask","question":"?"}],"node":"ask","slot":0,"update":null}
    "#);
}

#[test]
fn an_event_of_an_unknown_kind_is_its_json() {
    let event = json!({"event": "new", "data": {"b": 1, "a": null}});
    let event = Event::<Count>::Subgraph { path: ThreadId::from("t\u{1f}sub").path(), event };
    assert_eq!(json!(event)["data"]["namespace"], "sub", "the key of the path in JSON");
    assert_eq!(transcript([&event]), "sub │ {\"data\":{\"a\":null,\"b\":1},\"event\":\"new\"}\n");
    let update =
        json!({"event": "update", "data": {"step": 1, "node": "a", "update": null, "cached": false}});
    let event = Event::<Count>::Subgraph { path: ThreadId::from("t\u{1f}sub:3@7:k").path(), event: update };
    assert_eq!(transcript([&event]), "sub:3:k │ 1 a → {}\n");
}
