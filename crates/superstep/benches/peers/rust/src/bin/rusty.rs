use peers::*;
use rusty_agent_runtime::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const E: &str = "rusty-agent-runtime 0.12.0";
fn n(s: &State) -> i64 {
    s.get("n").and_then(Value::as_i64).unwrap_or(0)
}
type GS = (Arc<Graph>, Arc<StateSpec>);
fn loop_g() -> GS {
    let mut b = GraphBuilder::new();
    b.add_node("inc", |c: NodeContext| async move { Ok(NodeOutput::update("n", json!(n(c.state()) + 1))) });
    b.set_entry_point("inc");
    b.add_conditional_edges("inc", |s| {
        let v = n(&s);
        async move { Ok(if v >= 1000 { Route::End } else { Route::Node("inc".into()) }) }
    });
    (Arc::new(b.compile().unwrap()), Arc::new(StateSpec::new().channel("n", Reducer::Overwrite)))
}
fn chain_g(len: usize) -> GS {
    let mut b = GraphBuilder::new();
    for i in 0..len {
        b.add_node(format!("n{i}"), |c: NodeContext| async move {
            Ok(NodeOutput::update("n", json!(n(c.state()) + 1)))
        });
    }
    for i in 0..len - 1 {
        b.add_edge(format!("n{i}"), format!("n{}", i + 1));
    }
    b.set_entry_point("n0");
    (Arc::new(b.compile().unwrap()), Arc::new(StateSpec::new().channel("n", Reducer::Overwrite)))
}
fn fan_g(k: usize) -> GS {
    let mut b = GraphBuilder::new();
    b.add_node("src", |_: NodeContext| async { Ok(NodeOutput::update("src", json!(true))) });
    b.add_node("join", |_: NodeContext| async { Ok(NodeOutput::update("done", json!(true))) });
    for i in 0..k {
        b.add_node(
            format!("b{i}"),
            move |_: NodeContext| async move { Ok(NodeOutput::update("out", json!(i))) },
        );
        b.add_edge("src", format!("b{i}"));
        b.add_edge(format!("b{i}"), "join");
    }
    b.set_entry_point("src");
    (
        Arc::new(b.compile().unwrap()),
        Arc::new(
            StateSpec::new()
                .channel("src", Reducer::Overwrite)
                .channel("done", Reducer::Overwrite)
                .channel("out", Reducer::Append),
        ),
    )
}
fn say_g() -> GS {
    let mut b = GraphBuilder::new();
    b.add_node("say", |c: NodeContext| async move {
        let v = n(c.state());
        let mut u = std::collections::HashMap::new();
        u.insert("n".into(), json!(v + 1));
        u.insert("messages".into(), json!({"role":"assistant","content": msg_text(v as usize)}));
        Ok(NodeOutput::updates(u))
    });
    b.set_entry_point("say");
    b.add_conditional_edges("say", |s| {
        let v = n(&s);
        async move { Ok(if v >= 100 { Route::End } else { Route::Node("say".into()) }) }
    });
    (
        Arc::new(b.compile().unwrap()),
        Arc::new(StateSpec::new().channel("n", Reducer::Overwrite).channel("messages", Reducer::Append)),
    )
}
async fn run(
    g: GS,
    c: Option<Arc<InMemoryCheckpointer>>,
    s: State,
) -> (State, Option<Arc<InMemoryCheckpointer>>) {
    let e = match &c {
        Some(c) => Executor::with_checkpointer(c.clone()),
        None => Executor::new(),
    };
    match e.run(&g.0, &g.1, s, RunConfig::new("t").with_max_steps(1_000_000)).await.unwrap() {
        ExecutionOutcome::Done(s) => (s, c),
        _ => panic!(),
    }
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let mk = || if cp == "none" { None } else { Some(Arc::new(InMemoryCheckpointer::new())) };
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (loop_g(), mk()),
            |(g, c)| async move {
                let r = run(g, c, State::new()).await;
                assert_eq!(n(&r.0), 1000);
                r
            },
        );
        Scenario { engine: E, name: "chain", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (chain_g(1000), mk()),
            |(g, c)| async move {
                let r = run(g, c, State::new()).await;
                assert_eq!(n(&r.0), 1000);
                r
            },
        );
        Scenario { engine: E, name: "fanout", saver: cp, size: 100, steps: 1 }.measure(
            &rt,
            || (fan_g(100), mk()),
            |(g, c)| async move {
                let r = run(g, c, State::new()).await;
                assert_eq!(r.0.get("out").unwrap().as_array().unwrap().len(), 100);
                assert_eq!(r.0.get("done"), Some(&json!(true)));
                r
            },
        );
        for h in HISTORY {
            Scenario { engine: E, name: "history", saver: cp, size: h, steps: 100 }.measure(
                &rt,
                || {
                    let mut s = State::new();
                    s.insert(
                        "messages",
                        Value::Array((0..h).map(|i| json!({"role":"user","content":msg_text(i)})).collect()),
                    );
                    (say_g(), mk(), s)
                },
                move |(g, c, s)| async move {
                    let r = run(g, c, s).await;
                    assert_eq!(r.0.get("messages").unwrap().as_array().unwrap().len(), h + 100);
                    r
                },
            );
        }
    }
}
