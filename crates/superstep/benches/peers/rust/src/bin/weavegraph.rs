use async_trait::async_trait;
use peers::*;
use rustc_hash::FxHashMap;
use serde_json::json;
use std::sync::Arc;
use weavegraph::app::App;
use weavegraph::channels::Channel;
use weavegraph::event_bus::EventBus;
use weavegraph::graphs::GraphBuilder;
use weavegraph::message::Message;
use weavegraph::node::{Node, NodeContext, NodeError, NodePartial};
use weavegraph::runtimes::{AppRunner, CheckpointerType};
use weavegraph::state::{StateSnapshot, VersionedState};
use weavegraph::types::NodeKind;

const E: &str = "weavegraph 0.7.0";
fn k(s: &str) -> NodeKind {
    NodeKind::Custom(s.into())
}
fn n(s: &StateSnapshot) -> i64 {
    s.extra.get("n").and_then(|v| v.as_i64()).unwrap_or(0)
}
fn ex(key: &str, v: serde_json::Value) -> FxHashMap<String, serde_json::Value> {
    let mut m = FxHashMap::default();
    m.insert(key.into(), v);
    m
}
struct Inc;
#[async_trait]
impl Node for Inc {
    async fn run(&self, s: StateSnapshot, _: NodeContext) -> Result<NodePartial, NodeError> {
        Ok(NodePartial::new().with_extra(ex("n", json!(n(&s) + 1))))
    }
}
struct Branch(usize);
#[async_trait]
impl Node for Branch {
    async fn run(&self, _: StateSnapshot, _: NodeContext) -> Result<NodePartial, NodeError> {
        Ok(NodePartial::new().with_extra(ex(&format!("b{}", self.0), json!(1))))
    }
}
struct Mark(&'static str);
#[async_trait]
impl Node for Mark {
    async fn run(&self, _: StateSnapshot, _: NodeContext) -> Result<NodePartial, NodeError> {
        Ok(NodePartial::new().with_extra(ex(self.0, json!(true))))
    }
}
struct Say;
#[async_trait]
impl Node for Say {
    async fn run(&self, s: StateSnapshot, _: NodeContext) -> Result<NodePartial, NodeError> {
        let v = n(&s);
        Ok(NodePartial::new()
            .with_extra(ex("n", json!(v + 1)))
            .with_messages(vec![Message::assistant(&msg_text(v as usize))]))
    }
}
fn looped(name: &str, node: impl Node + 'static, limit: i64) -> App {
    let me = name.to_string();
    GraphBuilder::new()
        .add_node(k(name), node)
        .add_edge(NodeKind::Start, k(name))
        .add_edge(k(name), NodeKind::End)
        .add_conditional_edge(
            k(name),
            Arc::new(
                move |s: StateSnapshot| if n(&s) >= limit { vec!["End".into()] } else { vec![me.clone()] },
            ),
        )
        .compile()
        .unwrap()
}
fn chain(len: usize) -> App {
    let mut b = GraphBuilder::new();
    for i in 0..len {
        b = b.add_node(k(&format!("n{i}")), Inc);
    }
    b = b.add_edge(NodeKind::Start, k("n0"));
    for i in 0..len - 1 {
        b = b.add_edge(k(&format!("n{i}")), k(&format!("n{}", i + 1)));
    }
    b.add_edge(k(&format!("n{}", len - 1)), NodeKind::End).compile().unwrap()
}
fn fan(m: usize) -> App {
    let mut b = GraphBuilder::new()
        .add_node(k("src"), Mark("src"))
        .add_node(k("join"), Mark("done"))
        .add_edge(NodeKind::Start, k("src"));
    for i in 0..m {
        let id = format!("b{i}");
        b = b.add_node(k(&id), Branch(i)).add_edge(k("src"), k(&id)).add_edge(k(&id), k("join"));
    }
    b.add_edge(k("join"), NodeKind::End).compile().unwrap()
}
async fn run(app: Arc<App>, save: bool, s: VersionedState) -> (VersionedState, AppRunner) {
    let mut r = AppRunner::builder()
        .app_arc(app)
        .checkpointer(CheckpointerType::InMemory)
        .autosave(save)
        .event_bus(EventBus::with_sinks(vec![]))
        .start_listener(false)
        .build()
        .await;
    r.create_session("s".into(), s).await.unwrap();
    let f = r.run_until_complete("s").await.unwrap();
    (f, r)
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let save = cp == "memory";
        let st = || VersionedState::new_with_messages(vec![]);
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (Arc::new(looped("inc", Inc, 1000)), st()),
            move |(a, s)| async move {
                let r = run(a, save, s).await;
                assert_eq!(n(&r.0.snapshot()), 1000);
                r
            },
        );
        Scenario { engine: E, name: "chain", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (Arc::new(chain(1000)), st()),
            move |(a, s)| async move {
                let r = run(a, save, s).await;
                assert_eq!(n(&r.0.snapshot()), 1000);
                r
            },
        );
        Scenario { engine: E, name: "fanout", saver: cp, size: 100, steps: 1 }.measure(
            &rt,
            || (Arc::new(fan(100)), st()),
            move |(a, s)| async move {
                let r = run(a, save, s).await;
                assert!(r.0.extra.snapshot().contains_key("done"));
                assert!(r.0.extra.snapshot().contains_key("b99"));
                r
            },
        );
        for h in HISTORY {
            Scenario { engine: E, name: "history", saver: cp, size: h, steps: 100 }.measure(
                &rt,
                || {
                    (
                        Arc::new(looped("say", Say, 100)),
                        VersionedState::new_with_messages(
                            (0..h).map(|i| Message::user(&msg_text(i))).collect(),
                        ),
                    )
                },
                move |(a, s)| async move {
                    let r = run(a, save, s).await;
                    assert_eq!(r.0.messages.len(), h + 100);
                    r
                },
            );
        }
    }
}
