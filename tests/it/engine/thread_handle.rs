//! The handle to a thread: each operation, in sequence, next to the equivalent calls of the graph.

use std::sync::Arc;

use serde::Serialize;
use superstep::{
    MemoryStore, OnUnfinished,
    checkpoint::{Retention, Source},
    clock::Clock,
    prelude::*,
};

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    log: Log<String>,
    paid: i64,
}

#[derive(Serialize)]
struct Decision {
    approved: bool,
    by: &'static str,
}

async fn check(order: Order, _: Cx) -> OrderUpdate {
    Order::update().log([format!("checked {}", order.paid)])
}

async fn pay(_: Order, cx: Cx) -> OrderUpdate {
    let decision: serde_json::Value = cx.interrupt("approve", "pay?").await;
    let by = decision["by"].as_str().unwrap_or("nobody").to_owned();
    Order::update().paid(10).log([format!("paid by {by}")])
}

fn graph() -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("order");
    let check = graph.add_node("check", check);
    let pay = graph.add_node("pay", pay);
    graph.add_edge(START, check);
    graph.add_edge(check, pay);
    graph.add_edge(pay, END);
    graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new())
}

#[tokio::test]
async fn a_handle_runs_answers_changes_forks_and_replays_its_thread() {
    let graph = graph();
    let order = graph.thread("order-7");
    assert_eq!(order.id(), Some(&ThreadId::from("order-7")));
    assert!(order.state().await.unwrap().checkpoint.is_none());

    let waiting = order.run(Order::update()).await.unwrap();
    assert!(waiting.status == Status::Interrupted && waiting.interrupts.len() == 1, "{:?}", waiting.status);
    let decision = Decision { approved: true, by: "ada" };
    assert!(decision.approved);
    let paid = order.answer("approve", &decision).resume().await.unwrap();
    assert_eq!(paid.state.log.iter().collect::<Vec<_>>(), ["checked 0", "paid by ada"]);

    // The options of a clone are independent: this handle has no answer.
    assert_eq!(order.resume().await.unwrap().state.paid, 10);
    let history = order.history().checkpoints().await.unwrap();
    let before_pay = order.history().pending("pay").states().await.unwrap().remove(0);
    assert_eq!(before_pay.values.paid, 0);
    assert_eq!(before_pay.tasks[0].result.as_ref().unwrap().paid, Some(10));
    let page = order.history().limit(1).before(history[0].id).checkpoints().await.unwrap();
    assert_eq!(page[0].id, history[1].id);
    let at = before_pay.checkpoint.unwrap().id;
    assert_eq!(order.at(at).state().await.unwrap().next, ["pay"]);
    order.replay().run().await.unwrap().assert_same();

    order.fork(at).await.unwrap();
    assert_eq!(order.state().await.unwrap().values.paid, 0);
    let copy = order.copy_to("order-8").await.unwrap();
    copy.update_as("pay", Order::update().paid(3)).await.unwrap();
    assert_eq!(copy.state().await.unwrap().values.paid, 3);
    assert!(copy.state().await.unwrap().next.is_empty());
    assert_eq!(order.state().await.unwrap().next, ["pay"]);
    assert!(copy.prune(Retention::Last(1)).await.unwrap() > 0);
    copy.delete().await.unwrap();
    assert!(copy.state().await.unwrap().checkpoint.is_none());
}

#[tokio::test]
async fn options_of_a_handle_are_those_of_the_run() {
    struct At(i64);
    impl Clock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }
    }
    let graph = graph();
    let order =
        graph.thread("order-7").clock(At(77)).metadata("customer", "ada").break_before(["pay"]).step_limit(5);
    let stopped = order.run(Order::update()).await.unwrap();
    assert!(stopped.status == Status::Interrupted && stopped.interrupts.is_empty(), "{:?}", stopped.status);
    let first = order.history().metadata("customer", "ada").checkpoints().await.unwrap();
    assert_eq!((first.len(), first[0].source, first[0].created_ms), (1, Source::Input, 77));

    let discarded = order.on_unfinished(OnUnfinished::Discard).run(Order::update()).await.unwrap();
    assert_eq!(discarded.state.log.len(), 2);
    let error = graph.thread("order-7").step_limit(0).run(Order::update()).await.unwrap_err();
    assert!(error.to_string().starts_with("SS107: `step_limit` must be at least 1"), "{error}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_serialized_is_refused_and_the_question_still_waits() {
    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("out of paper"))
        }
    }
    let order = graph().thread("order-7");
    order.run(Order::update()).await.unwrap();
    let error = order.answer("approve", Broken).resume().await.unwrap_err();
    let RunError::Unstorable { what, source } = &error else { panic!("{error}") };
    assert_eq!((what.as_str(), source.to_string().as_str()), ("the answer `approve`", "out of paper"));
    assert_eq!(order.state().await.unwrap().tasks[0].interrupts.len(), 1);
    assert_eq!(
        order.answer("approve", Decision { approved: true, by: "bob" }).resume().await.unwrap().state.paid,
        10
    );
}

#[test]
fn futures_of_runs_are_moved_at_no_cost() {
    let order = graph().thread("order-7");
    let pointers = 2 * size_of::<usize>();
    assert_eq!(size_of_val(&order.run(Order::update())), pointers);
    assert_eq!(size_of_val(&order.resume()), pointers);
}

#[test]
fn a_backend_is_taken_by_value_and_shared() {
    let shared = Arc::new(MemoryCheckpointer::new());
    let erased: Arc<dyn Checkpointer> = shared.clone();
    let _ = graph().with_checkpointer(MemoryCheckpointer::new());
    let _ = graph().with_checkpointer(shared);
    let _ = graph().with_checkpointer(erased).with_store(MemoryStore::new());
}
