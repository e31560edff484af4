//! Threads that are recorded again with a changed graph.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use superstep::{
    Answers, CompiledGraph, Cx, END, Log, MemoryCheckpointer, NodeError, NodeFailure, NodeOptions,
    OnUnfinished, Retries, RetryPolicy, START, State, StateGraph,
    checkpoint::text::{self, ExportOptions},
    replay::ReplayError,
    thread::AsNode,
};

use super::{Outside, Ticks};
use crate::support::{line, say};

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    log: Log<String>,
    ms: i64,
}

#[derive(superstep::Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// The difference between the graph and the recorded one.
#[derive(Clone, Copy, Debug, Default)]
struct Edit {
    word: &'static str,
    question: &'static str,
    cents: u32,
    more: bool,
    rounds: usize,
}

const SAME: Edit = Edit { word: "paid", question: "Pay?", cents: 20, more: false, rounds: 2 };

fn orders(edit: Edit, outside: &Outside, store: Arc<MemoryCheckpointer>) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("orders");
    let pay = graph.add_node_with(
        "pay",
        outside.clone(),
        move |outside: Outside, order: Order, cx: Cx| async move {
            cx.compared("charge", || json!({ "cents": edit.cents })).await;
            let receipt = cx.recorded("charge", async || outside.done()).await;
            let kept: usize = cx.once("keep", async |_| Ok::<_, NodeError>(outside.done())).await?;
            if order.log.len() == 1 && !cx.interrupt::<bool>("sure", edit.question).await {
                return Ok(Order::update());
            }
            if edit.more {
                let _more = cx.recorded("more", async || outside.done()).await;
            }
            Ok::<_, NodeError>(
                Order::update().log([format!("{} {receipt} {kept}", edit.word)]).ms(cx.now_ms()),
            )
        },
    );
    graph.add_edge(START, pay);
    let next = move |order: &Order| if order.log.len() <= edit.rounds { Next::Again } else { Next::Done };
    graph.add_conditional_edges(pay, next, move |next| match next {
        Next::Again => pay,
        Next::Done => END,
    });
    graph.compile().unwrap().with_checkpointer(store)
}

async fn recorded() -> (Outside, Arc<MemoryCheckpointer>) {
    let (outside, store) = (Outside::default(), Arc::new(MemoryCheckpointer::new()));
    let graph = orders(SAME, &outside, store.clone());
    graph.thread("t").metadata("who", json!("me")).run(Order::update().log(["in".to_owned()])).await.unwrap();
    graph.thread("t").answers(Answers::new().answer("sure", json!(true))).resume().await.unwrap();
    graph
        .thread("t")
        .metadata("who", json!("you"))
        .run(Order::update().log(["more".to_owned()]))
        .await
        .unwrap();
    (outside, store)
}

async fn text(store: &MemoryCheckpointer) -> String {
    text::export(store, &"t".into(), &ExportOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_changed_graph_records_the_thread_again_without_its_effects() {
    let (outside, store) = recorded().await;
    let (before, times) = (text(&store).await, outside.times());
    for edit in [
        SAME,
        Edit { word: "charged", ..SAME },
        Edit { question: "Really?", ..SAME },
        Edit { cents: 21, ..SAME },
        Edit { rounds: 1, ..SAME },
    ] {
        let target = Arc::new(MemoryCheckpointer::new());
        let graph = orders(edit, &outside, store.clone());
        graph.thread("t").replay().rerecord(target.clone()).await.unwrap();
        let new = orders(edit, &outside, target.clone());
        new.thread("t").replay().run().await.unwrap().assert_same();
        let metadata = |text: &str| text.matches(r#""who":"you""#).count();
        let again = text(&target).await;
        assert_eq!(metadata(&again), metadata(&before), "{edit:?}: {again}");
        let log = new.thread("t").state().await.unwrap().values.log;
        assert!(log.iter().any(|line| line == &format!("{} 3 2", edit.word)), "{edit:?}: {log:?}");
    }
    assert_eq!((outside.times(), text(&store).await), (times, before));
}

#[tokio::test]
async fn what_was_not_recorded_is_named() {
    let (outside, store) = recorded().await;
    let missing = async |edit: Edit| {
        let target = Arc::new(MemoryCheckpointer::new());
        match orders(edit, &outside, store.clone()).thread("t").replay().rerecord(target).await {
            Err(ReplayError::NotRerecorded { missing, .. }) => missing,
            other => panic!("{other:?}"),
        }
    };
    let more = missing(Edit { more: true, ..SAME }).await;
    assert_eq!(more, "the result of the effect `more` of node `pay`");
    let rounds = missing(Edit { rounds: 7, ..SAME }).await;
    assert_eq!(rounds, "the result of the effect `charge` of node `pay`");
    let graph = orders(SAME, &outside, store.clone());
    graph
        .thread("t")
        .update_as(AsNode::from(Some("pay")), Order::update().log(["hand".to_owned()]))
        .await
        .unwrap();
    let update = missing(SAME).await;
    assert_eq!(update, "an external update, which is not an input of the graph");
}

#[derive(State, Clone, Debug, Default)]
struct Counted {
    word: String,
    attempt: u32,
    left: u32,
}

/// A node whose first attempt fails, and that writes its counts; `reads` makes it read the remaining supersteps.
fn counted(
    word: &'static str,
    fails: bool,
    reads: bool,
    store: Arc<MemoryCheckpointer>,
) -> CompiledGraph<Counted> {
    let mut graph = StateGraph::<Counted>::new("counted");
    let count = graph.add_node_with(
        "count",
        (word, fails, reads),
        async |(word, fails, reads), _: Counted, cx: Cx| {
            if fails && cx.attempt() == 1 {
                return Err(NodeError::new("the first attempt"));
            }
            let left = if reads { cx.remaining_steps() } else { 0 };
            Ok(Counted::update().word(word).attempt(cx.attempt()).left(left))
        },
    );
    let retry = RetryPolicy::default().initial(Duration::ZERO).jitter(Duration::ZERO);
    graph.configure(count, NodeOptions::new().retry(Retries::on(|_| true, retry)));
    graph.add_edge(START, count);
    graph.add_edge(count, END);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn a_thread_that_is_recorded_again_has_the_counts_of_its_tasks() {
    let store = Arc::new(MemoryCheckpointer::new());
    let graph = counted("one", true, true, store.clone());
    let end = graph.thread("t").step_limit(7).run(Counted::update()).await.unwrap().state;
    assert_eq!((end.attempt, end.left), (2, 6));

    let target = Arc::new(MemoryCheckpointer::new());
    // The failure is recorded, and does not happen again.
    counted("two", false, true, store.clone()).thread("t").replay().rerecord(target.clone()).await.unwrap();
    let new = counted("two", true, true, target);
    let state = new.thread("t").state().await.unwrap().values;
    assert_eq!((&*state.word, state.attempt, state.left), ("two", 2, 6));
    new.thread("t").replay().run().await.unwrap().assert_same();

    // A count that was not recorded is reported.
    let unread = Arc::new(MemoryCheckpointer::new());
    counted("one", false, false, unread.clone()).thread("t").run(Counted::update()).await.unwrap();
    let target = Arc::new(MemoryCheckpointer::new());
    let again = counted("one", false, true, unread).thread("t").replay().rerecord(target).await;
    match again {
        Err(ReplayError::NotRerecorded { missing, .. }) => {
            assert_eq!(missing, "the number of supersteps that node `count` had left");
        }
        other => panic!("{other:?}"),
    }
}

/// Builds `a`, which fails with data for its error handler `b`, which fails for its handler `c`.
fn falling(outside: &Outside, store: Arc<MemoryCheckpointer>) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("falling");
    let a = graph.add_node_with("a", outside.clone(), async |outside: Outside, _: Order, cx: Cx| {
        let done = cx.recorded("try", async || outside.done()).await;
        Err::<OrderUpdate, _>(NodeError::new("a is down").with_data(done).fatal())
    });
    let b = graph.add_error_handler(a, "b", async |failure: NodeFailure, _: Order, _: Cx| {
        Err::<OrderUpdate, _>(
            NodeError::new(format!("b knows that {}", failure.message)).with_data(failure.data).fatal(),
        )
    });
    let c = graph.add_error_handler(b, "c", async |failure: NodeFailure, _: Order, cx: Cx| {
        Order::update().log([format!("{}: {:?}", failure.message, failure.data)]).ms(cx.now_ms())
    });
    graph.add_edge(START, a);
    graph.add_edge(c, END);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn failures_of_a_node_and_of_its_handler_are_replayed_and_recorded_again() {
    let (outside, store) = (Outside::default(), Arc::new(MemoryCheckpointer::new()));
    let graph = falling(&outside, store.clone());
    let end = graph.thread("t").run(Order::update()).await.unwrap().state;
    assert_eq!(end.log, ["b knows that a is down: Some(Number(1))"]);
    graph.thread("t").replay().run().await.unwrap().assert_same();

    let target = Arc::new(MemoryCheckpointer::new());
    graph.thread("t").replay().rerecord(target.clone()).await.unwrap();
    let again = falling(&outside, target);
    assert_eq!(again.thread("t").state().await.unwrap().values.log, end.log);
    again.thread("t").replay().run().await.unwrap().assert_same();
    assert_eq!(outside.times(), 1);
}

/// A run that is recorded again has no reason to stop.
#[tokio::test]
async fn a_run_whose_tasks_the_next_input_discarded_is_not_recorded_again() {
    let target = async |discards: bool| {
        let store = Arc::new(MemoryCheckpointer::new());
        let graph = line(&["a", "b"]).with_checkpointer(store);
        let thread = graph.thread("t").on_unfinished(OnUnfinished::Discard);
        thread.break_before(["b"]).run(say("1")).await.unwrap();
        if !discards {
            thread.resume().await.unwrap();
        }
        let end = thread.run(say("2")).await.unwrap().state;
        let target = Arc::new(MemoryCheckpointer::new());
        graph.thread("t").replay().rerecord(target.clone()).await.map(|()| (end, target))
    };
    match target(true).await {
        Err(ReplayError::NotRerecorded { missing, .. }) => {
            assert_eq!(missing, "the end of a run whose tasks the next input discarded");
        }
        other => panic!("{other:?}"),
    }
    let (end, target) = target(false).await.unwrap();
    let again = line(&["a", "b"]).with_checkpointer(target);
    assert_eq!(again.thread("t").state().await.unwrap().values, end);
}

#[tokio::test]
async fn a_thread_that_is_recorded_again_has_its_times() {
    let (outside, store) = (Outside::default(), Arc::new(MemoryCheckpointer::new()));
    let graph = falling(&outside, store.clone());
    let thread = graph.thread("t").clock(Ticks::default());
    thread.run(Order::update()).await.unwrap();
    let end = thread.run(Order::update()).await.unwrap().state;

    let target = Arc::new(MemoryCheckpointer::new());
    graph.thread("t").replay().rerecord(target.clone()).await.unwrap();
    let again = falling(&outside, target);
    assert_eq!(again.thread("t").state().await.unwrap().values.ms, end.ms);
    let times = async |graph: &CompiledGraph<Order>| {
        let history = graph.thread("t").history().checkpoints().await.unwrap();
        history.iter().map(|meta| meta.created_ms).collect::<Vec<_>>()
    };
    assert_eq!(times(&again).await, times(&graph).await);
}
