use cognis_graph::cognis_core::{Runnable, RunnableConfig};
use cognis_graph::{
    BarrierNode, Checkpointer, CompiledGraph, Goto, Graph, GraphState, InMemoryCheckpointer, NodeOut, node_fn,
};
use peers::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const E: &str = "cognis-graph 0.3.2";
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Msg {
    role: String,
    content: String,
}
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct S {
    n: i64,
    done: bool,
    out: Vec<i64>,
    messages: Vec<Msg>,
}
#[derive(Clone, Default)]
struct U {
    n: Option<i64>,
    done: Option<bool>,
    out: Vec<i64>,
    messages: Vec<Msg>,
}
impl GraphState for S {
    type Update = U;
    fn apply(&mut self, u: U) {
        if let Some(n) = u.n {
            self.n = n
        }
        if let Some(d) = u.done {
            self.done = d
        }
        self.out.extend(u.out);
        self.messages.extend(u.messages);
    }
}
type Cp = Option<Arc<dyn Checkpointer<S>>>;
fn fin(g: Graph<S>, cp: &Cp) -> Arc<CompiledGraph<S>> {
    let g = g.compile().unwrap();
    Arc::new(match cp {
        Some(c) => g.with_checkpointer(c.clone()),
        None => g,
    })
}
fn loop_g(cp: &Cp) -> Arc<CompiledGraph<S>> {
    fin(
        Graph::<S>::new()
            .node(
                "inc",
                node_fn::<S, _, _>("inc", |s, _| {
                    let n = s.n + 1;
                    async move {
                        Ok(NodeOut {
                            update: U { n: Some(n), ..U::default() },
                            goto: if n >= 1000 { Goto::end() } else { Goto::node("inc") },
                        })
                    }
                }),
            )
            .start_at("inc"),
        cp,
    )
}
fn chain_g(cp: &Cp, len: usize) -> Arc<CompiledGraph<S>> {
    let mut g = Graph::<S>::new();
    for i in 0..len {
        let next = format!("n{}", i + 1);
        g = g.node(
            format!("n{i}"),
            node_fn::<S, _, _>(format!("n{i}"), move |s, _| {
                let n = s.n + 1;
                let goto = if i + 1 == len { Goto::end() } else { Goto::node(next.clone()) };
                async move { Ok(NodeOut { update: U { n: Some(n), ..U::default() }, goto }) }
            }),
        );
    }
    fin(g.start_at("n0"), cp)
}
fn fan_g(cp: &Cp, k: usize) -> Arc<CompiledGraph<S>> {
    let names: Vec<String> = (0..k).map(|i| format!("b{i}")).collect();
    let mut g = Graph::<S>::new().node(
        "src",
        node_fn::<S, _, _>("src", move |_, _| {
            let names = names.clone();
            async move { Ok(NodeOut::goto_only(Goto::Multiple(names))) }
        }),
    );
    for i in 0..k {
        g = g.node(
            format!("b{i}"),
            node_fn::<S, _, _>(format!("b{i}"), move |_, _| async move {
                Ok(NodeOut {
                    update: U { out: vec![i as i64], ..U::default() },
                    goto: Goto::Send(vec![("join".into(), serde_json::json!(i))]),
                })
            }),
        );
    }
    g = g.node("join", BarrierNode::new("join", k, "sum")).node(
        "sum",
        node_fn::<S, _, _>("sum", |_, _| async {
            Ok(NodeOut::end_with(U { done: Some(true), ..U::default() }))
        }),
    );
    fin(g.start_at("src"), cp)
}
fn say_g(cp: &Cp) -> Arc<CompiledGraph<S>> {
    fin(
        Graph::<S>::new()
            .node(
                "say",
                node_fn::<S, _, _>("say", |s, _| {
                    let n = s.n + 1;
                    async move {
                        Ok(NodeOut {
                            update: U {
                                n: Some(n),
                                messages: vec![Msg {
                                    role: "assistant".into(),
                                    content: msg_text(n as usize),
                                }],
                                ..U::default()
                            },
                            goto: if n >= 100 { Goto::end() } else { Goto::node("say") },
                        })
                    }
                }),
            )
            .start_at("say"),
        cp,
    )
}
fn cfg() -> RunnableConfig {
    RunnableConfig::default().with_recursion_limit(1_000_000)
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let mk =
            || -> Cp { if cp == "none" { None } else { Some(Arc::new(InMemoryCheckpointer::<S>::new())) } };
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || {
                let c = mk();
                (loop_g(&c), c)
            },
            |(g, c)| async move {
                let r = g.invoke(S::default(), cfg()).await.unwrap();
                assert_eq!(r.n, 1000);
                (r, c)
            },
        );
        Scenario { engine: E, name: "chain", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || {
                let c = mk();
                (chain_g(&c, 1000), c)
            },
            |(g, c)| async move {
                let r = g.invoke(S::default(), cfg()).await.unwrap();
                assert_eq!(r.n, 1000);
                (r, c)
            },
        );
        Scenario { engine: E, name: "fanout", saver: cp, size: 100, steps: 1 }.measure(
            &rt,
            || {
                let c = mk();
                (fan_g(&c, 100), c)
            },
            |(g, c)| async move {
                let r = g.invoke(S::default(), cfg()).await.unwrap();
                assert_eq!(r.out.len(), 100);
                assert!(r.done);
                (r, c)
            },
        );
        for h in HISTORY {
            Scenario { engine: E, name: "history", saver: cp, size: h, steps: 100 }.measure(
                &rt,
                || {
                    let c = mk();
                    let s = S {
                        messages: (0..h).map(|i| Msg { role: "user".into(), content: msg_text(i) }).collect(),
                        ..S::default()
                    };
                    (say_g(&c), c, s)
                },
                move |(g, c, s)| async move {
                    let r = g.invoke(s, cfg()).await.unwrap();
                    assert_eq!(r.messages.len(), h + 100);
                    (r, c)
                },
            );
        }
    }
}
