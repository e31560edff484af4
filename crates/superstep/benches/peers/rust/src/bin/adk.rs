use adk_graph::checkpoint::MemoryCheckpointer;
use adk_graph::edge::{END, START};
use adk_graph::graph::{CompiledGraph, StateGraph};
use adk_graph::node::{ExecutionConfig, NodeOutput};
use adk_graph::state::{Reducer, State, StateSchema};
use peers::*;
use serde_json::{Value, json};
use std::sync::Arc;

const E: &str = "adk-graph 2.3.0";
fn n(s: &State) -> i64 {
    s.get("n").and_then(Value::as_i64).unwrap_or(0)
}
fn loop_graph(steps: i64) -> CompiledGraph {
    StateGraph::new(StateSchema::builder().channel("n").build())
        .add_node_fn("inc", |ctx| async move {
            let v = ctx.get("n").and_then(|v| v.as_i64()).unwrap_or(0);
            Ok(NodeOutput::new().with_update("n", json!(v + 1)))
        })
        .add_edge(START, "inc")
        .add_conditional_edges(
            "inc",
            move |s| if n(s) >= steps { END.into() } else { "inc".into() },
            [("inc", "inc"), (END, END)],
        )
        .compile()
        .unwrap()
}
fn chain_graph(len: usize) -> CompiledGraph {
    let mut g = StateGraph::new(StateSchema::builder().channel("n").build());
    for i in 0..len {
        g = g.add_node_fn(&format!("n{i}"), |ctx| async move {
            let v = ctx.get("n").and_then(|v| v.as_i64()).unwrap_or(0);
            Ok(NodeOutput::new().with_update("n", json!(v + 1)))
        });
    }
    g = g.add_edge(START, "n0");
    for i in 0..len - 1 {
        g = g.add_edge(&format!("n{i}"), &format!("n{}", i + 1));
    }
    g.add_edge(&format!("n{}", len - 1), END).compile().unwrap()
}
fn fan_graph(k: usize) -> CompiledGraph {
    let mut g = StateGraph::new(StateSchema::builder().list_channel("out").channel("done").build())
        .add_node_fn("src", |_| async { Ok(NodeOutput::new()) })
        .add_node_fn("join", |_| async { Ok(NodeOutput::new().with_update("done", json!(true))) })
        .add_edge(START, "src");
    for i in 0..k {
        let id = format!("b{i}");
        g = g.add_node_fn(&id, move |_| async move { Ok(NodeOutput::new().with_update("out", json!(i))) });
        g = g.add_edge("src", &id).add_edge(&id, "join");
    }
    g.add_edge("join", END).compile().unwrap()
}
fn msgs_graph(total: i64) -> CompiledGraph {
    StateGraph::new(
        StateSchema::builder().list_channel("messages").channel_with_reducer("n", Reducer::Overwrite).build(),
    )
    .add_node_fn("say", |ctx| async move {
        let v = ctx.get("n").and_then(|v| v.as_i64()).unwrap_or(0);
        Ok(NodeOutput::new()
            .with_update("n", json!(v + 1))
            .with_update("messages", json!({"role":"assistant","content": msg_text(v as usize)})))
    })
    .add_edge(START, "say")
    .add_conditional_edges(
        "say",
        move |s| if n(s) >= total { END.into() } else { "say".into() },
        [("say", "say"), (END, END)],
    )
    .compile()
    .unwrap()
}
fn cfg() -> ExecutionConfig {
    ExecutionConfig::new("t").with_recursion_limit(1_000_000)
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let mk = |g: CompiledGraph| {
            if cp == "none" {
                (Arc::new(g), None)
            } else {
                let c = Arc::new(MemoryCheckpointer::new());
                (Arc::new(g.with_checkpointer_arc(c.clone())), Some(c))
            }
        };
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || mk(loop_graph(1000)),
            |(g, c)| async move {
                let s = g.invoke(State::new(), cfg()).await.unwrap();
                assert_eq!(n(&s), 1000);
                (s, c)
            },
        );
        Scenario { engine: E, name: "chain", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || mk(chain_graph(1000)),
            |(g, c)| async move {
                let s = g.invoke(State::new(), cfg()).await.unwrap();
                assert_eq!(n(&s), 1000);
                (s, c)
            },
        );
        Scenario { engine: E, name: "fanout", saver: cp, size: 100, steps: 1 }.measure(
            &rt,
            || mk(fan_graph(100)),
            |(g, c)| async move {
                let s = g.invoke(State::new(), cfg()).await.unwrap();
                assert_eq!(s["out"].as_array().unwrap().len(), 100);
                assert_eq!(s["done"], json!(true));
                (s, c)
            },
        );
        for h in HISTORY {
            let init = move || {
                let mut s = State::new();
                s.insert(
                    "messages".into(),
                    Value::Array((0..h).map(|i| json!({"role":"user","content":msg_text(i)})).collect()),
                );
                s
            };
            Scenario { engine: E, name: "history", saver: cp, size: h, steps: 100 }.measure(
                &rt,
                || (mk(msgs_graph(100)), init()),
                move |((g, c), i)| async move {
                    let s = g.invoke(i, cfg()).await.unwrap();
                    assert_eq!(s["messages"].as_array().unwrap().len(), h + 100);
                    (s, c)
                },
            );
        }
    }
}
