use async_trait::async_trait;
use graph_flow::{
    Context, ExecutionStatus, FlowRunner, Graph, GraphBuilder, InMemorySessionStorage, NextAction, Session,
    SessionStorage, Task, TaskResult, fanout::FanOutTask,
};
use peers::*;
use std::sync::Arc;

const E: &str = "graph-flow 0.8.1";
struct Inc {
    id: String,
    cont: NextAction,
    limit: i64,
}
#[async_trait]
impl Task for Inc {
    fn id(&self) -> &str {
        &self.id
    }
    async fn run(&self, c: Context) -> graph_flow::Result<TaskResult> {
        let v: i64 = c.get("n").unwrap_or(0) + 1;
        c.set("n", v)?;
        Ok(TaskResult::new(None, if v >= self.limit { NextAction::End } else { self.cont.clone() }))
    }
}
struct Noop(String);
#[async_trait]
impl Task for Noop {
    fn id(&self) -> &str {
        &self.0
    }
    async fn run(&self, _c: Context) -> graph_flow::Result<TaskResult> {
        Ok(TaskResult::new(None, NextAction::End))
    }
}
struct Say {
    cont: NextAction,
    limit: i64,
}
#[async_trait]
impl Task for Say {
    fn id(&self) -> &str {
        "say"
    }
    async fn run(&self, c: Context) -> graph_flow::Result<TaskResult> {
        let v: i64 = c.get("n").unwrap_or(0) + 1;
        c.set("n", v)?;
        c.add_assistant_message(msg_text(v as usize));
        Ok(TaskResult::new(None, if v >= self.limit { NextAction::End } else { self.cont.clone() }))
    }
}
fn act(cp: &str) -> NextAction {
    if cp == "none" { NextAction::ContinueAndExecute } else { NextAction::Continue }
}
fn loop_g(cp: &str) -> Graph {
    GraphBuilder::new("g")
        .add_task(Arc::new(Inc { id: "inc".into(), cont: act(cp), limit: 1000 }))
        .add_edge("inc", "inc")
        .set_start_task("inc")
        .build()
        .unwrap()
}
fn chain_g(cp: &str, len: usize) -> Graph {
    let mut b = GraphBuilder::new("g");
    for i in 0..len {
        b = b.add_task(Arc::new(Inc { id: format!("n{i}"), cont: act(cp), limit: len as i64 }));
    }
    for i in 0..len - 1 {
        b = b.add_edge(format!("n{i}"), format!("n{}", i + 1));
    }
    b.set_start_task("n0").build().unwrap()
}
fn fan_g(cp: &str, k: usize) -> Graph {
    let kids: Vec<Arc<dyn Task>> = (0..k).map(|i| Arc::new(Noop(format!("b{i}"))) as Arc<dyn Task>).collect();
    GraphBuilder::new("g")
        .add_task(FanOutTask::new("fan", kids).with_next_action(act(cp)))
        .add_task(Arc::new(Noop("join".into())))
        .add_edge("fan", "join")
        .set_start_task("fan")
        .build()
        .unwrap()
}
fn say_g(cp: &str) -> Graph {
    GraphBuilder::new("g")
        .add_task(Arc::new(Say { cont: act(cp), limit: 100 }))
        .add_edge("say", "say")
        .set_start_task("say")
        .build()
        .unwrap()
}
async fn drive(
    g: Arc<Graph>,
    st: Option<Arc<dyn SessionStorage>>,
    mut s: Session,
) -> (Session, Option<Arc<dyn SessionStorage>>) {
    match st {
        None => {
            let r = g.execute_session(&mut s).await.unwrap();
            assert!(matches!(r.status, ExecutionStatus::Completed));
            (s, None)
        }
        Some(st) => {
            let id = s.id.clone();
            st.save(s).await.unwrap();
            let r = FlowRunner::new(g, st.clone());
            loop {
                if matches!(r.run(&id).await.unwrap().status, ExecutionStatus::Completed) {
                    break;
                }
            }
            (st.get(&id).await.unwrap().unwrap(), Some(st))
        }
    }
}
fn store(cp: &str) -> Option<Arc<dyn SessionStorage>> {
    match cp {
        "none" => None,
        _ => Some(Arc::new(InMemorySessionStorage::new())),
    }
}
fn main() {
    let rt = runtime();
    for cp in ["none", "memory"] {
        let ses = |t: &str| Session::new_from_task("s".into(), t);
        Scenario { engine: E, name: "loop", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (Arc::new(loop_g(cp)), store(cp), ses("inc")),
            |(g, st, s)| async move {
                let r = drive(g, st, s).await;
                assert_eq!(r.0.context.get::<i64>("n"), Some(1000));
                r
            },
        );
        Scenario { engine: E, name: "chain", saver: cp, size: 1000, steps: 1000 }.measure(
            &rt,
            || (Arc::new(chain_g(cp, 1000)), store(cp), ses("n0")),
            |(g, st, s)| async move {
                let r = drive(g, st, s).await;
                assert_eq!(r.0.context.get::<i64>("n"), Some(1000));
                r
            },
        );
        Scenario { engine: E, name: "fanout", saver: cp, size: 100, steps: 1 }.measure(
            &rt,
            || (Arc::new(fan_g(cp, 100)), store(cp), ses("fan")),
            |(g, st, s)| async move { drive(g, st, s).await },
        );
        for h in HISTORY {
            Scenario { engine: E, name: "history", saver: cp, size: h, steps: 100 }.measure(
                &rt,
                || {
                    let mut s = ses("say");
                    s.context = Context::with_max_chat_messages(1_000_000);
                    for i in 0..h {
                        s.context.add_user_message(msg_text(i));
                    }
                    (Arc::new(say_g(cp)), store(cp), s)
                },
                move |(g, st, s)| async move {
                    let r = drive(g, st, s).await;
                    assert_eq!(r.0.context.chat_history_len(), h + 100);
                    r
                },
            );
        }
    }
}
