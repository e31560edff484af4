//! Graphs of any state, in JSON.

use std::sync::Arc;

use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use superstep::{
    Streaming,
    erased::{InputError, JsonGraph, JsonOutcome, JsonRun, JsonThread, of_inputs},
    prelude::*,
    thread::AsNode,
};

#[derive(State, Clone, Debug, Default)]
struct Order {
    euros: u32,
    #[channel(append)]
    notes: Log<String>,
    admin: bool,
}

/// A node that asks for the payment, and one that sends the order. An order of 13 euros is a failure.
fn orders() -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("orders").version("2");
    let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
        let paid: bool = cx.interrupt("pay", order.euros).await;
        Order::update().notes([format!("paid: {paid}")])
    });
    let send = graph.add_node("send", async |_: Order, _| Order::update().notes(["sent"]));
    graph.add_edge(START, pay);
    graph.add_edge(pay, send);
    graph.add_edge(send, END);
    graph.failed_end(send, |order| (order.euros == 13).then(|| "13 is bad luck".to_owned()));
    graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new())
}

fn options() -> RunOptions {
    RunOptions::new().thread("o-1")
}

async fn run(thread: &dyn JsonThread, run: JsonRun) -> JsonOutcome {
    thread.run(run).unwrap().await.unwrap()
}

fn input(euros: impl Into<Value>) -> JsonRun {
    JsonRun::Input(json!({ "euros": euros.into() }))
}

#[tokio::test]
async fn a_thread_runs_waits_and_is_changed_in_json() {
    let graph: Arc<dyn JsonGraph> = orders().into();
    assert_eq!((graph.name(), graph.version()), ("orders", Some("2")));
    assert_eq!(json!(graph.initial().unwrap()), json!({"euros": 0, "notes": [], "admin": false}));
    let thread = graph.thread(options());
    assert!(thread.state().await.unwrap().checkpoint.is_none());

    let payment = graph.thread(options().input_id("i-1"));
    let asks = run(&*payment, input(5)).await;
    assert_eq!((asks.status, asks.interrupts.len()), (Status::Interrupted, 1));
    let repeated = run(&*payment, input(5)).await;
    assert_eq!(repeated.interrupts[0].id, asks.interrupts[0].id);
    let state = thread.state().await.unwrap();
    assert!(state.only_waits() && state.next[0].as_str() == "pay", "{state:?}");
    let again = thread.run(input(7)).unwrap().await.unwrap_err();
    assert!(again.is_unfinished(), "{again}");

    let answered = graph.thread(options().answer(&asks.interrupts[0].id, true));
    let sent = run(&*answered, JsonRun::Resume).await;
    assert_eq!((sent.status, &sent.failed_end), (Status::Completed, &None));
    assert_eq!(sent.state.values().unwrap()["notes"], json!(["paid: true", "sent"]));

    let goto = vec!["send".to_owned()];
    let command = JsonRun::Command { update: Some(json!({"notes": ["lost"]})), goto };
    let sent_again = run(&*thread, command).await;
    assert_eq!(sent_again.state.values().unwrap()["notes"], json!(["paid: true", "sent", "lost", "sent"]));
    thread.fork(sent.checkpoint).await.unwrap();
    assert_eq!(thread.state().await.unwrap().state.values().unwrap()["notes"], json!(["paid: true", "sent"]));

    thread.update(AsNode::from("pay"), &json!({"euros": 13})).unwrap().await.unwrap();
    let failed = run(&*thread, JsonRun::Resume).await;
    assert_eq!(failed.failed_end.as_deref(), Some("13 is bad luck"));
}

#[tokio::test]
async fn the_events_of_a_stream_are_json() {
    let graph: Arc<dyn JsonGraph> = orders().into();
    let mut events =
        graph.thread(options()).stream(input(5), Streaming::from([StreamMode::Updates])).unwrap();
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        names.push(event.unwrap()["event"].as_str().unwrap().to_owned());
    }
    assert_eq!(names, ["interrupt"]);
    assert_eq!(events.outcome().await.unwrap().status, Status::Interrupted);
}

#[tokio::test]
async fn json_sets_only_what_converted_inputs_have() {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Price {
        price: u32,
    }
    let graph = of_inputs(orders(), |it: Price| Order::update().euros(it.price));
    assert_eq!(graph.input_schema(), json!(true));
    let stored = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    let thread = stored.thread(options());
    let wide = json!({"price": 5, "admin": true});
    let update = Some(wide.clone());
    let refused: [Option<InputError>; 4] = [
        graph.check(&wide).err(),
        thread.run(JsonRun::Input(wide.clone())).err(),
        thread.run(JsonRun::Command { update, goto: Vec::new() }).err(),
        thread.update(AsNode::Input, &wide).err(),
    ];
    for refused in refused {
        let expected = "the input does not fit the state: unknown field `admin`, expected `price` at `admin`";
        assert_eq!(refused.unwrap().to_string(), expected);
    }
    let asks = run(&*thread, JsonRun::Input(json!({"price": 5}))).await;
    assert_eq!(asks.state.values().unwrap()["euros"], 5);
    assert!(graph.thread(options()).state().await.unwrap().checkpoint.is_none());
}
