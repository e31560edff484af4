//! Graphs through the layer: effects, interrupts, forks, replays, copies, texts, redaction, prunes, subgraphs, rotation.

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use superstep_graph::{
    Answers, Checkpointer, CompiledGraph, Cx, END, Log, MemoryCheckpointer, NodeError, START, State,
    StateGraph, Status,
    checkpoint::{
        Retention,
        text::{self, ExportOptions, Redaction},
    },
    node::Persistence,
};
use superstep_sealed::{Rekeyed, SealOptions, SealedCheckpointer};

use crate::support::{Folder, with_keys};

#[derive(State, Clone, Debug, Default)]
struct Order {
    item: String,
    #[channel(append)]
    log: Log<String>,
}

#[derive(State, Clone, Debug, Default)]
struct Visits {
    visits: u32,
}

/// Pays once, asks, and counts its visits in a subgraph that remembers them.
fn orders(paid: &Arc<AtomicUsize>) -> CompiledGraph<Order> {
    let mut visits = StateGraph::<Visits>::new("visits");
    let visit =
        visits.add_node("visit", async |state: Visits, _: Cx| Visits::update().visits(state.visits + 1));
    visits.add_edge(START, visit);
    visits.add_edge(visit, END);
    let visits = visits.compile().unwrap().with_persistence(Persistence::PerNode);

    let paid = paid.clone();
    let mut graph = StateGraph::<Order>::new("orders");
    let pay = graph.add_node("pay", move |state: Order, cx: Cx| {
        let paid = paid.clone();
        async move {
            let receipt: String = cx
                .once("pay", async |_key| {
                    paid.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, std::io::Error>(format!("receipt for {}", state.item))
                })
                .await?;
            let answer: String = cx.interrupt("sure", "the secret question").await;
            Ok::<_, NodeError>(Order::update().log([receipt, answer]))
        }
    });
    let count = graph.add_subgraph_with(
        "count",
        &visits,
        |_: &Order| Visits::update(),
        |visits: &Visits| Order::update().log([format!("visit {}", visits.visits)]),
    );
    graph.add_edge(START, pay);
    graph.add_edge(pay, count);
    graph.add_edge(count, END);
    graph.compile().unwrap()
}

fn log(state: &Order) -> Vec<String> {
    state.log.iter().cloned().collect()
}

#[tokio::test]
async fn a_thread_lives_encrypted_through_all_its_operations() {
    let folder = Folder::new();
    let paid = Arc::new(AtomicUsize::new(0));
    // Each opens the database anew, as another process does.
    let open = |keys: &[u8]| -> Arc<dyn Checkpointer> {
        folder.open_sealed(SealOptions { required: true, ..with_keys(keys) })
    };
    let with = |keys: &[u8]| orders(&paid).with_checkpointer(open(keys));

    let input = Order::update().item("tea".to_owned());
    let waiting = with(&[1]).thread("t").run(input).await.unwrap();
    assert_eq!(waiting.status, Status::Interrupted);
    assert_eq!(waiting.interrupts[0].question, "the secret question");
    let answers = || Answers::new().answer("sure", "yes");
    let done = with(&[1]).thread("t").answers(answers()).resume().await.unwrap();
    assert_eq!(log(&done.state), ["receipt for tea", "yes", "visit 1"]);
    assert_eq!(paid.load(Ordering::Relaxed), 1, "the effect was not repeated");

    // Rotation between two turns.
    let layer = SealedCheckpointer::new(folder.open(), with_keys(&[2, 1]));
    assert_eq!(layer.rekey(&"t".into()).await.unwrap(), Rekeyed::Changed);
    drop(layer);
    let graph = with(&[2]);
    graph.thread("t").run(Order::update().item("cup".to_owned())).await.unwrap();
    let done = graph.thread("t").answers(answers()).resume().await.unwrap();
    assert_eq!(log(&done.state)[3..], ["receipt for cup", "yes", "visit 2"]);
    graph.thread("t").replay().run().await.unwrap().assert_same();

    // Without the layer a copy would have no keys.
    let raw = orders(&paid).with_checkpointer(folder.open());
    let refused = format!("{:?}", raw.thread("t").copy_to("raw").await.err());
    assert!(refused.contains("thread `t` is encrypted; copy it through `SealedCheckpointer`"), "{refused}");

    // A copy, whose names and memories are its own.
    graph.thread("t").copy_to("copy").await.unwrap();
    let copy = with(&[2]);
    assert_eq!(log(&copy.thread("copy").state().await.unwrap().values), log(&done.state));
    copy.thread("copy").replay().run().await.unwrap().assert_same();

    // A fork.
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    let first = history.iter().rev().find(|meta| meta.control.next.is_empty()).unwrap().id;
    graph.thread("t").at(first).run(Order::update().item("pot".to_owned())).await.unwrap();
    let forked = with(&[2]).thread("t").answers(answers()).resume().await.unwrap();
    assert_eq!(log(&forked.state)[3..], ["receipt for pot", "yes", "visit 2"]);

    // A text is readable; a redacted one has no secret; both import to a readable database and back.
    let text = graph.thread("copy").export().await.unwrap();
    assert!(text.contains("receipt for tea") && !text.contains("$sealed"));
    let redaction = Redaction::new().channel("log");
    let options = ExportOptions::new().redaction(redaction);
    assert!(!graph.thread("copy").export_with(&options).await.unwrap().contains("receipt for tea\",\"yes"));
    let readable = MemoryCheckpointer::new();
    text::import(&readable, &mut Cursor::new(&text)).await.unwrap();
    assert_eq!(text::export(&readable, &"copy".into(), &Default::default()).await.unwrap(), text);
    let back = MemoryCheckpointer::new();
    let back = SealedCheckpointer::new(back, SealOptions { required: true, ..with_keys(&[3]) });
    text::import(&back, &mut Cursor::new(&text)).await.unwrap();
    assert_eq!(text::export(&back, &"copy".into(), &Default::default()).await.unwrap(), text);

    // A prune.
    let pruned = with(&[2]).thread("t").prune(Retention::Last(1)).await.unwrap();
    assert!(pruned > 5, "{pruned}");
    let state = with(&[2]).thread("t").state().await.unwrap();
    assert_eq!(log(&state.values), log(&forked.state));
    let children = open(&[2]).children(&"t".into()).await.unwrap();
    assert!(children.iter().all(|child| !child.as_str().contains("$keys")), "{children:?}");
}

#[tokio::test]
async fn an_effect_is_not_repeated_after_a_kill() {
    let folder = Folder::new();
    let (paid, waits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let graph = || {
        let (paid, waits) = (paid.clone(), waits.clone());
        let mut graph = StateGraph::<Order>::new("orders");
        let pay = graph.add_node("pay", move |_: Order, cx: Cx| {
            let (paid, waits) = (paid.clone(), waits.clone());
            async move {
                let receipt: String = cx
                    .once("pay", async |_key| {
                        paid.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, std::io::Error>("receipt".to_owned())
                    })
                    .await?;
                if waits.fetch_add(1, Ordering::Relaxed) == 0 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, NodeError>(Order::update().log([receipt]))
            }
        });
        graph.add_edge(START, pay);
        graph.add_edge(pay, END);
        let store = folder.open_sealed(SealOptions { required: true, ..with_keys(&[1]) });
        graph.compile().unwrap().with_checkpointer(store)
    };
    {
        let first = graph();
        let thread = first.thread("t");
        let mut run = Box::pin(thread.run(Order::update()));
        while waits.load(Ordering::Relaxed) == 0 {
            assert!(futures::poll!(&mut run).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let done = graph().thread("t").resume().await.unwrap();
    assert_eq!((log(&done.state), paid.load(Ordering::Relaxed)), (vec!["receipt".to_owned()], 1));
}
