//! Nodes that follow each other.

use super::*;
use superstep_testing::{assert_transition, chain};

#[tokio::test]
async fn a_chain_stops_before_a_node() {
    let charges = Charges::default();
    let planned = chain(&order(&charges), "plan").until("pay").state(two_parts()).run().await.unwrap();
    assert_eq!(planned.nodes(), ["plan"]);
    assert_eq!((planned[0].after.cents, charges.load(Ordering::SeqCst)), (12, 0));
}

#[tokio::test]
async fn a_chain_reports_every_task_in_order() {
    let graph = order(&Charges::default());
    let test = chain(&graph, "plan").state(two_parts()).answer("approve", true).effect("charge", "r-1");
    let all = test.run().await.unwrap();
    assert_eq!(all.nodes(), ["plan", "pay", "pack", "pack", "send"]);
    assert_eq!(all[4].after.packed.last().map(String::as_str), Some("2 parts"));
    assert_transition!(all, @r#"
    node `plan` in superstep 1
    update
      cents 5
    state
      cents 7 → 12
    next
      pay
    events
      planning {"parts":2}

    node `pay` in superstep 2
    update
      cents 2
      receipt "r-1"
    state
      cents 12 → 14
      receipt null → "r-1"
    next
      pack "lid"
      pack "box"
      send (waits for pack)
    events
      piece of m "paying"
    effects
      charge "r-1"
      rate 2

    node `pack` in superstep 3
    item "lid"
    update
      packed ["lid by 3.0.box"]
    state
      packed + "lid by 3.0.box"
    next
      send (waits for pay)

    node `pack` in superstep 3
    item "box"
    update
      packed ["box by 3.1.box"]
    state
      packed + "box by 3.1.box"
    next
      send (waits for pay)

    node `send` in superstep 4
    update
      packed ["2 parts"]
    state
      packed + "2 parts"
    next
      __end__
    "#);
}

#[tokio::test]
async fn a_chain_ends_at_a_question_and_at_a_failure() {
    let graph = order(&Charges::default());
    let asked = chain(&graph, "plan").state(two_parts()).run().await.unwrap();
    assert_eq!((asked.nodes(), asked[1].questions[0].key.as_str()), (vec!["plan", "pay"], "approve"));
    let state = Order { cents: -10, ..two_parts() };
    let failed = chain(&graph, "plan").state(state).answer("approve", true).run().await.unwrap();
    assert_eq!(failed.nodes(), ["plan", "pay"]);
    assert_eq!((failed[0].error_text(), failed[1].error_text().is_some()), (None, true));
}

#[tokio::test]
async fn a_chain_that_does_not_reach_its_end_is_an_error() {
    let graph = order(&Charges::default());
    let state = Order { cents: 100, ..Order::default() };
    let error = chain(&graph, "plan").until("send").state(state).run().await.unwrap_err();
    assert_eq!(error.to_string(), "the chain from `plan` did not reach `send`: it ended after `plan`");
}

#[tokio::test]
async fn two_chains_are_equal() {
    let graph = order(&Charges::default());
    let run = async || {
        let test = chain(&graph, "plan").state(two_parts()).answer("approve", true).effect("charge", "r-1");
        test.run().await.unwrap().to_string()
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn breakpoints_of_the_graph_do_not_stop_a_chain() {
    let mut graph = StateGraph::<Order>::new("g");
    let [a, b, c] = ["a", "b", "c"].map(|name| graph.add_node(name, async |_: Order, _: Cx| ()));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, c);
    graph.stop_before(b);
    let graph = graph.compile().unwrap();
    assert_eq!(chain(&graph, "a").until("c").run().await.unwrap().nodes(), ["a", "b"]);
}

#[tokio::test]
async fn a_sibling_that_is_finished_does_not_run_again_after_an_answer() {
    let runs = Charges::default();
    let mut graph = StateGraph::<Order>::new("g");
    let start = graph.add_node("start", async |_: Order, _: Cx| ());
    let ask = graph.add_node("ask", async |_: Order, cx: Cx| {
        cx.emit("asking", ());
        Order::update().receipt(cx.interrupt::<String>("name", "who?").await)
    });
    let count = graph.add_node_with("count", runs.clone(), async |runs: Charges, _: Order, cx: Cx| {
        cx.emit("counted", runs.fetch_add(1, Ordering::SeqCst));
        Order::update().cents(1)
    });
    graph.add_edge(START, start);
    graph.add_edge(start, ask);
    graph.add_edge(start, count);
    let graph = graph.compile().unwrap();
    let both = chain(&graph, "start").answer("name", "Ada").run().await.unwrap();
    assert_eq!((both.nodes(), runs.load(Ordering::SeqCst)), (vec!["start", "ask", "count"], 1));
    let events: Vec<_> = both.iter().map(|transition| transition.events.len()).collect();
    assert_eq!(
        (events, both[1].after.receipt.as_deref(), both[2].after.cents),
        (vec![0, 1, 1], Some("Ada"), 1)
    );
    let open = chain(&graph, "start").run().await.unwrap();
    assert_eq!((open[1].questions.len(), open[2].questions.len(), open[2].next.is_none()), (1, 0, true));
}
