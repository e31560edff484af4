//! Items sent to workers, and their crash safety.

use futures::StreamExt;
use superstep::{CompiledGraph, Cx, END, Event, Log, NodeError, Route, START, State, StateGraph, StreamMode};

use crate::support::{failed, head, on_every_store};

#[derive(State, Clone, Debug, Default)]
struct Sums {
    #[channel(append)]
    log: Log<i64>,
    x: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Z,
}

/// `S -> p`, which sends 3 and 1 to `w` and goes to `z`. `w` fails on 1 unless it is repaired.
fn a5(repaired: bool) -> CompiledGraph<Sums> {
    let mut graph = StateGraph::<Sums>::new("a5");
    let p = graph.add_node("p", async |_: Sums, _: Cx| {});
    let w = graph.add_worker("w", move |item: i64, _: Sums, _: Cx| async move {
        if item == 1 && !repaired {
            return Err(NodeError::new("no"));
        }
        Ok(Sums::update().log([item]))
    });
    let z = graph.add_node("z", async |_: Sums, _: Cx| Sums::update().log([26]));
    graph.add_edge(START, p);
    graph.add_fan_out(p, |_: &Sums| [3, 1], w);
    graph.add_conditional_edges(p, |_: &Sums| Next::Z, |Next::Z| z);
    graph.add_edge(w, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn tasks_of_edges_precede_items_in_sending_order() {
    let end = a5(true).run(Sums::update()).await.unwrap();
    assert_eq!(end.state.log, [26, 3, 1]);
}

#[tokio::test]
async fn a_map_and_its_join() {
    let mut graph = StateGraph::<Sums>::new("b4");
    let w = graph.add_worker("w", async |item: i64, _: Sums, _: Cx| Sums::update().log([item * 2]));
    let join =
        graph.add_node("j", async |state: Sums, _: Cx| Sums::update().x(state.log.iter().sum::<i64>()));
    graph.add_fan_out(START, |state: &Sums| if state.x == 1 { vec![] } else { vec![3, 1, 2] }, w);
    graph.add_edge(w, join);
    let graph = graph.compile().unwrap();
    let end = graph.run(Sums::update()).await.unwrap();
    assert_eq!((end.state.log.iter().copied().collect::<Vec<_>>(), end.state.x), (vec![6, 2, 4], 12));

    let mut stream = graph.stream(Sums::update(), [StreamMode::Updates]);
    let mut wrote = Vec::new();
    while let Some(event) = stream.next().await {
        let Event::Update { node, .. } = event else { panic!("{event:?}") };
        wrote.push(node.to_string());
    }
    assert_eq!(wrote, ["w", "w", "w", "j"]);

    let nothing = graph.run(Sums::update().x(1)).await.unwrap();
    assert_eq!((nothing.state.log.len(), nothing.state.x), (0, 1));
}

on_every_store! {
    async fn items_are_stored_with_the_checkpoint_and_survive_a_failure(backend: Backend) {
        let graph = backend.keep(a5(false));
        let error = failed(graph.thread("t").run(Sums::update()).await);
        assert_eq!(error.to_string(), "SS101: superstep 2: node `w` failed after 1 attempt");
        let stored = head(&graph).await.checkpoint.unwrap().control;
        assert_eq!(stored.items.into_iter().collect::<Vec<_>>(), [(1, "3".to_owned()), (2, "1".to_owned())]);

        let end = backend.keep(a5(true)).thread("t").resume().await.unwrap();
        assert_eq!(end.state.log, [26, 3, 1]);
    }
}

#[test]
fn err_an_edge_to_a_worker_has_no_item() {
    let mut graph = StateGraph::<Sums>::new("g");
    let w = graph.add_worker("w", async |_: i64, _: Sums, _: Cx| {});
    graph.add_edge(START, w);
    let error = graph.compile().err().unwrap();
    assert_eq!(
        error.problems[0].kind.to_string(),
        "SS009: node `w` takes an item, which only a fan-out provides; use `add_fan_out`, or `add_node`"
    );
}
