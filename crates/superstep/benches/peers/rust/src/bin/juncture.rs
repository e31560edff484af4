use juncture_checkpoint::memory::MemorySaver;
use juncture_core::checkpoint::CheckpointSaver;
use juncture_core::edge::{END, PathMap};
use juncture_core::node::NodeFnUpdate;
use juncture_core::stream::{EventEmitter, StreamMode};
use juncture_core::{CompiledGraph, RunnableConfig, StateGraph};
use juncture_derive::State;
use peers::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const E: &str = "juncture 0.4.0";
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Msg {
    role: String,
    content: String,
}
#[derive(State, Clone, Debug, Default, Serialize, Deserialize)]
struct S {
    n: i64,
    done: bool,
    #[reducer(append)]
    out: Vec<i64>,
    #[reducer(append)]
    messages: Vec<Msg>,
}
type G = CompiledGraph<S, S, S>;
fn up() -> SUpdate {
    SUpdate::default()
}
fn inc(
    s: &S,
) -> impl std::future::Future<Output = Result<SUpdate, juncture_core::JunctureError>> + Send + 'static + use<> {
    let n = s.n;
    async move { Ok(SUpdate { n: Some(n + 1), ..up() }) }
}
fn r1000(s: &S) -> &str {
    if s.n >= 1000 { END } else { "again" }
}
fn r100(s: &S) -> &str {
    if s.n >= 100 { END } else { "again" }
}
fn fin(g: StateGraph<S>, cp: &Option<Arc<dyn CheckpointSaver>>) -> Arc<G> {
    Arc::new(g.compile_with_checkpointer(cp.clone()).unwrap())
}
/// A first node that writes nothing: with MemorySaver one that writes state fails the run ("checkpoint_id is required").
fn start(g: &mut StateGraph<S>, next: &str) {
    g.add_node_simple("start", NodeFnUpdate(|_: &S| async { Ok(up()) })).unwrap();
    g.set_entry_point("start");
    g.add_edge("start", next);
}
fn loop_g(cp: &Option<Arc<dyn CheckpointSaver>>) -> Arc<G> {
    let mut g = StateGraph::<S>::new();
    g.add_node_simple("inc", NodeFnUpdate(inc)).unwrap();
    start(&mut g, "inc");
    let mut p = PathMap::new();
    p.insert("again", "inc");
    p.insert(END, END);
    g.add_conditional_edges("inc", Arc::new(r1000), p);
    fin(g, cp)
}
fn chain_g(cp: &Option<Arc<dyn CheckpointSaver>>, len: usize) -> Arc<G> {
    let mut g = StateGraph::<S>::new();
    for i in 0..len {
        g.add_node_simple(format!("n{i}"), NodeFnUpdate(inc)).unwrap();
    }
    start(&mut g, "n0");
    for i in 0..len - 1 {
        g.add_edge(format!("n{i}"), format!("n{}", i + 1));
    }
    g.set_finish_point(format!("n{}", len - 1));
    fin(g, cp)
}
fn fan_g(cp: &Option<Arc<dyn CheckpointSaver>>, k: usize) -> Arc<G> {
    let mut g = StateGraph::<S>::new();
    g.add_node_simple("src", NodeFnUpdate(|_: &S| async { Ok(up()) })).unwrap();
    g.add_node_simple("join", NodeFnUpdate(|_: &S| async { Ok(SUpdate { done: Some(true), ..up() }) }))
        .unwrap();
    for i in 0..k {
        g.add_node_simple(
            format!("b{i}"),
            NodeFnUpdate(move |_: &S| async move { Ok(SUpdate { out: Some(vec![i as i64]), ..up() }) }),
        )
        .unwrap();
    }
    g.set_entry_point("src");
    for i in 0..k {
        g.add_edge("src", format!("b{i}"));
        g.add_edge(format!("b{i}"), "join");
    }
    g.set_finish_point("join");
    fin(g, cp)
}
fn say_g(cp: &Option<Arc<dyn CheckpointSaver>>) -> Arc<G> {
    let mut g = StateGraph::<S>::new();
    g.add_node_simple(
        "say",
        NodeFnUpdate(|s: &S| {
            let n = s.n;
            async move {
                Ok(SUpdate {
                    n: Some(n + 1),
                    messages: Some(vec![Msg { role: "assistant".into(), content: msg_text(n as usize) }]),
                    ..up()
                })
            }
        }),
    )
    .unwrap();
    start(&mut g, "say");
    let mut p = PathMap::new();
    p.insert("again", "say");
    p.insert(END, END);
    g.add_conditional_edges("say", Arc::new(r100), p);
    fin(g, cp)
}
fn cfg() -> RunnableConfig {
    let mut c = RunnableConfig::new().with_thread_id("t");
    c.recursion_limit = 1_000_000;
    c
}
/// Neither `invoke_async` nor `stream` hands the checkpointer to the engine in 0.4.0 (see the probe);
/// `execute_with_emitter` does, so checkpointed runs go through it.
async fn go(g: Arc<G>, s: S, emit: bool) -> S {
    if !emit {
        return g.invoke_async(s, &cfg()).await.unwrap().value;
    }
    let (tx, mut rx) = tokio::sync::mpsc::channel(256);
    let drain = tokio::spawn(async move { while rx.recv().await.is_some() {} });
    let r = g.execute_with_emitter(s, &cfg(), EventEmitter::new(tx, StreamMode::Custom)).await.unwrap();
    drain.await.unwrap();
    r
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let st = cp == "memory";
        let mk = || -> Option<Arc<dyn CheckpointSaver>> {
            if cp.starts_with("none") { None } else { Some(Arc::new(MemorySaver::new())) }
        };
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || {
                let c = mk();
                (loop_g(&c), c)
            },
            move |(g, c)| async move {
                let r = go(g, S::default(), st).await;
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
            move |(g, c)| async move {
                let r = go(g, S::default(), st).await;
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
            move |(g, c)| async move {
                let r = go(g, S::default(), st).await;
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
                    let r = go(g, s, st).await;
                    assert_eq!(r.messages.len(), h + 100);
                    (r, c)
                },
            );
        }
    }
}
