//! Threads that a new build of a program cannot resume, found before it is deployed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use superstep::{
    Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, RunError, START, State, StateGraph, ThreadId,
};

use crate::support::text;

#[derive(State, Clone, Debug, Default)]
struct Order {
    items: u32,
    paid: bool,
}

fn encoded() -> Arc<dyn Checkpointer> {
    Arc::new(MemoryCheckpointer::new().keeping_values(false))
}

/// A graph whose node waits for a person.
fn orders<S: State>(
    node: &str,
    update: fn(bool) -> S::Update,
    store: &Arc<dyn Checkpointer>,
) -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("orders");
    let ask =
        graph.add_node(node, move |_: S, cx: Cx| async move { update(cx.interrupt("pay", "pay?").await) });
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

async fn reasons<S: State>(graph: &CompiledGraph<S>) -> Vec<(ThreadId, String)> {
    let lost = graph.check_threads().await.unwrap();
    lost.into_iter().map(|(thread, reason)| (thread, text(&reason))).collect()
}

fn paid(paid: bool) -> <Order as State>::Update {
    Order::update().paid(paid)
}

#[tokio::test]
async fn a_lost_node_and_a_changed_channel_are_named_for_waiting_and_finished_threads() {
    #[derive(State, Clone, Debug, Default)]
    struct Renamed {
        items: Vec<String>,
        paid: bool,
    }

    let store = encoded();
    let now = orders::<Order>("approve", paid, &store);
    now.thread("finished").run(Order::update().items(1)).await.unwrap();
    now.thread("finished").answer("pay", true).resume().await.unwrap();
    now.thread("waiting").run(Order::update().items(1)).await.unwrap();
    now.thread("empty").run(Order::update()).await.unwrap();
    assert_eq!(reasons(&now).await, []);

    let lost = reasons(&orders::<Order>("confirm", paid, &store)).await;
    let threads: Vec<&str> = lost.iter().map(|(thread, _)| thread.as_str()).collect();
    assert_eq!(threads, ["empty", "waiting"], "{lost:?}");
    assert!(lost[0].1.contains("`approve`"), "{lost:?}");

    let lost = reasons(&orders::<Renamed>("approve", |paid| Renamed::update().paid(paid), &store)).await;
    let threads: Vec<&str> = lost.iter().map(|(thread, _)| thread.as_str()).collect();
    assert_eq!(threads, ["finished", "waiting"], "{lost:?}");
    assert!(lost[0].1.contains("does not fit"), "{lost:?}");

    // Nothing has changed, and nothing was stored.
    assert_eq!(reasons(&now).await, []);
    now.thread("waiting").answer("pay", true).resume().await.unwrap();
}

#[tokio::test]
async fn a_thread_of_another_graph_is_not_listed() {
    let store = encoded();
    orders::<Order>("approve", paid, &store).thread("t").run(Order::update()).await.unwrap();
    let mut other = StateGraph::<Order>::new("other");
    let node = other.add_node("node", async |_: Order, _: Cx| Order::update());
    other.add_edge(START, node);
    let other = other.compile().unwrap().with_checkpointer(store);
    assert_eq!(reasons(&other).await, []);
    let error = other.thread("t").check().await.unwrap_err();
    assert!(matches!(error, RunError::OtherGraph { .. }), "{error:?}");
    other.thread("unknown").check().await.unwrap();
}

fn fan_out<I: Serialize + for<'de> Deserialize<'de> + Clone + Send + Sync + 'static>(
    items: Vec<I>,
    store: &Arc<dyn Checkpointer>,
) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("orders");
    let plan = graph.add_node("plan", async |_: Order, _: Cx| Order::update());
    let pay = graph.add_worker("pay", async |_: I, _: Order, cx: Cx| {
        let _: bool = cx.interrupt("pay", "pay?").await;
        Order::update()
    });
    graph.add_edge(START, plan);
    graph.add_fan_out(plan, move |_: &Order| items.clone(), pay);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

#[tokio::test]
async fn a_pending_item_of_another_type_is_named() {
    let store = encoded();
    fan_out(vec![1, 2], &store).thread("t").run(Order::update()).await.unwrap();
    assert_eq!(reasons(&fan_out(vec![1, 2], &store)).await, []);
    let lost = reasons(&fan_out(vec!["one".to_owned()], &store)).await;
    assert!(lost.len() == 1 && lost[0].1.contains("the item of node `pay` does not fit"), "{lost:?}");
}

/// A subgraph on its caller's state, or on one of its own.
fn nested(node: &str, is_mapped: bool, store: &Arc<dyn Checkpointer>) -> CompiledGraph<Order> {
    let mut inner = StateGraph::<Order>::new("inner");
    let ask = inner.add_node(node, async |_: Order, cx: Cx| paid(cx.interrupt("pay", "pay?").await));
    inner.add_edge(START, ask);
    let inner = inner.compile().unwrap();
    let mut graph = StateGraph::<Order>::new("orders");
    let sub = match is_mapped {
        true => graph.add_subgraph_with(
            "sub",
            &inner,
            |order: &Order| Order::update().items(order.items),
            |end: &Order| paid(end.paid),
        ),
        false => graph.add_subgraph("sub", &inner),
    };
    graph.add_edge(START, sub);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

#[tokio::test]
async fn a_lost_node_of_a_pending_subgraph_is_named() {
    for is_mapped in [true, false] {
        let store = encoded();
        nested("approve", is_mapped, &store).thread("t").run(Order::update()).await.unwrap();
        assert_eq!(reasons(&nested("approve", is_mapped, &store)).await, []);
        let lost = reasons(&nested("confirm", is_mapped, &store)).await;
        assert!(lost.len() == 1 && lost[0].1.contains("`approve`"), "{is_mapped}: {lost:?}");
    }
}
