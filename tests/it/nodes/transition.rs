//! The parts of a transition.

use std::time::Duration;

use super::*;
use superstep::{JsonChannels, JsonState, JsonUpdate};
use superstep_testing::{Transition, assert_transition, node};

/// Returns the parts of an update, its route, and its error.
fn seen(transition: &Transition<Order>) -> (String, Vec<String>, Option<String>) {
    (transition.update_json().to_string(), transition.route(), transition.error_text())
}

#[tokio::test]
async fn a_snapshot_of_a_node_is_one_line() {
    let graph = order(&Charges::default());
    assert_transition!(graph, "plan", two_parts(), @r#"
    node `plan` in superstep 1
    update
      cents 5
    state
      cents 7 → 12
    next
      pay
    events
      planning {"parts":2}
    "#);
    assert_transition!(&graph, "plan", Order { cents: 100, ..Order::default() }, @r#"
    node `plan` in superstep 1
    update
      cents 5
    state
      cents 100 → 105
    next
      __end__
    events
      planning {"parts":0}
    "#);
}

#[tokio::test]
async fn a_snapshot_may_be_in_a_file() {
    assert_transition!(order(&Charges::default()), "plan", two_parts());
}

#[tokio::test]
async fn a_question_without_an_answer_stays_open() {
    let charges = Charges::default();
    let graph = order(&charges);
    let asked = node(&graph, "pay").state(two_parts()).run().await.unwrap();
    assert_eq!(seen(&asked), ("null".to_owned(), Vec::new(), None));
    assert_eq!((asked.questions.len(), charges.load(Ordering::SeqCst)), (1, 0));
    assert_eq!((asked.before == asked.after, asked.next.is_none()), (true, true));
    assert_transition!(asked, @r#"
    node `pay` in superstep 1
    events
      piece of m "paying"
    questions
      approve {"cents":7}
    "#);
}

#[tokio::test]
async fn effects_run_after_the_answer_and_are_reported() {
    let charges = Charges::default();
    let graph = order(&charges);
    let paid = node(&graph, "pay").state(two_parts()).answer("approve", true).run().await.unwrap();
    assert_eq!((charges.load(Ordering::SeqCst), paid.questions.len()), (1, 0));
    assert_eq!(paid.after, Order { receipt: Some("live-1".to_owned()), cents: 9, ..two_parts() });
    assert_eq!(paid.sends(), [("pack", json!("lid")), ("pack", json!("box"))]);
    assert_transition!(paid, @r#"
    node `pay` in superstep 1
    update
      cents 2
      receipt "live-1"
    state
      cents 7 → 9
      receipt null → "live-1"
    next
      pack "lid"
      pack "box"
      send (waits for pack)
    events
      piece of m "paying"
    effects
      charge "live-1"
      rate 2
    "#);
    let refused = node(&graph, "pay").state(two_parts()).answer("approve", false).run().await.unwrap();
    assert_eq!((refused.update_json(), charges.load(Ordering::SeqCst)), (json!({}), 1));
}

#[tokio::test]
async fn given_results_replace_effects_of_both_kinds() {
    let charges = Charges::default();
    let graph = order(&charges);
    let test = node(&graph, "pay").state(two_parts()).answer("approve", true);
    let paid = test.effect("charge", "r-1").effect("rate", 30).run().await.unwrap();
    assert_eq!((charges.load(Ordering::SeqCst), paid.after.cents), (0, 37));
    assert_eq!(paid.update_json(), json!({ "cents": 30, "receipt": "r-1" }));
    assert_eq!(json!(paid.effects), json!({ "charge": "r-1", "rate": 30 }));
}

#[tokio::test]
async fn a_given_result_of_another_type_fails_the_node() {
    let graph = order(&Charges::default());
    let test = || node(&graph, "pay").state(two_parts()).answer("approve", true);
    let paid = test().effect("rate", "high").run().await.unwrap();
    insta::assert_snapshot!(paid.error_text().unwrap(), @r#"SS101: superstep 1: node `pay` failed after 1 attempt: the effect `rate` was given "high", which does not fit its type"#);
    let paid = test().effect("charge", 5).run().await.unwrap();
    insta::assert_snapshot!(paid.error_text().unwrap(), @"SS101: superstep 1: node `pay` failed after 1 attempt: SS167: the stored result of `once` for `charge` does not fit its current type; read it in its stored form, or use another name to repeat the effect: invalid type: integer `5`, expected a string at line 1 column 1");
}

#[tokio::test]
async fn a_failure_is_not_retried_and_names_what_would_follow() {
    let charges = Charges::default();
    let graph = order(&charges);
    let failed = node(&graph, "pay").state(Order { cents: -1, ..two_parts() }).answer("approve", true);
    let failed = failed.run().await.unwrap();
    assert_eq!((charges.load(Ordering::SeqCst), failed.attempt), (1, 1));
    let after = failed.after_failure.as_ref().unwrap();
    assert_eq!((after.is_fatal, after.attempts), (false, 3));
    assert_transition!(failed, @r#"
    node `pay` in superstep 1
    events
      piece of m "paying"
    effects
      charge failed: the card is declined
    error
      SS101: superstep 1: node `pay` failed after 1 attempt: the card is declined
      a run makes 3 attempts
      then `recover` runs
    "#);
}

#[tokio::test(start_paused = true)]
async fn with_retries_a_node_is_retried_and_its_handler_runs() {
    let charges = Charges::default();
    let graph = order(&charges);
    let test = node(&graph, "pay").state(Order { cents: -1, ..two_parts() }).answer("approve", true);
    let recovered = test.with_retries().run().await.unwrap();
    assert_eq!(charges.load(Ordering::SeqCst), 3);
    assert_transition!(recovered, @r#"
    node `recover` in superstep 1
    update
      receipt "pay failed: the card is declined"
    state
      receipt null → "pay failed: the card is declined"
    next
      __end__
    "#);
}

#[tokio::test]
async fn an_error_handler_receives_a_failure() {
    let graph = order(&Charges::default());
    let recovered = node(&graph, "recover").failure("no money").run().await.unwrap();
    assert_transition!(recovered, @r#"
    node `recover` in superstep 1
    update
      receipt "pay failed: no money"
    state
      receipt null → "pay failed: no money"
    next
      __end__
    "#);
}

#[tokio::test]
async fn a_worker_takes_an_item() {
    let graph = order(&Charges::default());
    assert_transition!(node(&graph, "pack").item("lid").step(4).run().await.unwrap(), @r#"
    node `pack` in superstep 4
    item "lid"
    update
      packed ["lid by 4.0.box"]
    state
      packed + "lid by 4.0.box"
    next
      send (waits for pay)
    "#);
    let failed = node(&graph, "pack").item("").run().await.unwrap();
    assert_transition!(failed, @r#"
    node `pack` in superstep 1
    item ""
    error
      SS101: superstep 1: node `pack` failed after 1 attempt: an empty part
      data {"part":""}
    "#);
    let misfit = node(&graph, "pack").item(5).run().await.unwrap();
    insta::assert_snapshot!(misfit.error_text().unwrap(), @"SS101: superstep 1: node `pack` failed after 1 attempt: its stored item does not fit the type that the node takes now: invalid type: integer `5`, expected a string at line 1 column 1");
}

#[tokio::test]
async fn a_panic_is_the_error_of_its_node() {
    let mut graph = StateGraph::<Order>::new("g");
    let bad = graph.add_node("bad", async |_: Order, _: Cx| -> OrderUpdate { panic!("no stock") });
    graph.add_edge(START, bad);
    let graph = graph.compile().unwrap();
    let failed = node(&graph, "bad").run().await.unwrap();
    assert!(failed.after_failure.as_ref().unwrap().is_fatal);
    assert_transition!(failed, @"
    node `bad` in superstep 1
    error
      SS101: superstep 1: node `bad` failed after 1 attempt: panicked: no stock
    ");
}

#[tokio::test]
async fn two_runs_are_equal() {
    let mut graph = StateGraph::<Order>::new("g");
    let draw = graph.add_node("draw", async |_: Order, cx: Cx| {
        use rand::RngExt as _;
        let drawn: u32 = cx.rng().random();
        cx.emit("drawn", json!({ "n": drawn, "key": cx.key(), "id": cx.id("x"), "now": cx.now_ms() }));
        cx.emit("place", json!([cx.thread(), cx.step(), cx.attempt(), cx.remaining_steps()]));
    });
    graph.add_edge(START, draw);
    let graph = graph.compile().unwrap();
    let one = node(&graph, "draw").run().await.unwrap().to_string();
    assert_eq!(node(&graph, "draw").run().await.unwrap().to_string(), one);
    insta::assert_snapshot!(one, @r#"
    node `draw` in superstep 1
    next
      __end__
    events
      drawn {"id":"1.0.x","key":"test/1@1700000000000/1.0","n":2105577212,"now":1700000000000}
      place ["test",1,1,999]
    "#);
    let other = node(&graph, "draw").seed(1).now(60_000).step(9).thread("t").run().await.unwrap();
    insta::assert_snapshot!(other, @r#"
    node `draw` in superstep 9
    next
      __end__
    events
      drawn {"id":"9.0.x","key":"t/1@60000/9.0","n":2248486898,"now":60000}
      place ["t",9,1,999]
    "#);
}

#[tokio::test]
async fn noted_values_are_given_too() {
    let mut graph = StateGraph::<Order>::new("g");
    let note = graph.add_node("note", async |_: Order, cx: Cx| {
        Order::update().receipt(cx.noted("load", "low".to_owned()))
    });
    graph.add_edge(START, note);
    let graph = graph.compile().unwrap();
    let live = node(&graph, "note").run().await.unwrap();
    assert_eq!((live.after.receipt.as_deref(), json!(live.effects)), (Some("low"), json!({ "load": "low" })));
    let given = node(&graph, "note").effect("load", "high").run().await.unwrap();
    assert_eq!(given.after.receipt.as_deref(), Some("high"));
    let misfit = node(&graph, "note").effect("load", 1).run().await.unwrap();
    assert!(
        misfit.error_text().unwrap().ends_with("the effect `load` was given 1, which does not fit its type")
    );
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_applies() {
    let mut graph = StateGraph::<Order>::new("g");
    let slow = graph.add_node("slow", async |_: Order, cx: Cx| cx.sleep(Duration::from_secs(9)).await);
    graph.configure(slow, NodeOptions::new().timeout(Duration::from_secs(1)));
    graph.add_edge(START, slow);
    let graph = graph.compile().unwrap();
    let late = node(&graph, "slow").run().await.unwrap();
    insta::assert_snapshot!(late.error_text().unwrap(), @"SS101: superstep 1: node `slow` failed after 1 attempt: ran longer than its timeout of 1s");
}

#[tokio::test]
async fn a_state_of_json_has_transitions() {
    let channels: JsonChannels = serde_json::from_value(json!({ "log": { "reducer": "append" } })).unwrap();
    let mut graph = StateGraph::with_initial("g", JsonState::new(&channels).unwrap());
    let say = graph.add_node("say", async |_: JsonState, _: Cx| JsonUpdate::new().write("log", json!(["a"])));
    graph.add_edge(START, say);
    let graph = graph.compile().unwrap();
    assert_transition!(node(&graph, "say").run().await.unwrap(), @r#"
    node `say` in superstep 1
    update
      log ["a"]
    state
      log + "a"
    next
      __end__
    "#);
}

#[tokio::test]
async fn a_node_sees_values_that_are_never_stored_and_its_context() {
    let mut graph = StateGraph::<Order>::new("g");
    let look = graph.add_node("look", async |order: Order, cx: Cx| {
        let user: String = cx.context()?;
        Ok::<_, NodeError>(Order::update().receipt(format!("{user} {} {:?}", order.session, order.hint)))
    });
    graph.add_edge(START, look);
    let graph = graph.compile().unwrap();
    let state = Order { session: 7, hint: Some("now".to_owned()), ..Order::default() };
    let looked = node(&graph, "look").state(state).context("ada").run().await.unwrap();
    assert_eq!(looked.after.receipt.as_deref(), Some(r#"ada 7 Some("now")"#));
    assert_eq!((looked.after.session, looked.after.hint), (7, None));
}

#[tokio::test]
async fn a_node_starts_with_the_initial_state_of_its_graph() {
    let mut graph = StateGraph::with_initial("g", two_parts());
    let count =
        graph.add_node("count", async |order: Order, _: Cx| Order::update().cents(order.parts.len() as i64));
    graph.add_edge(START, count);
    let graph = graph.compile().unwrap();
    assert_eq!(node(&graph, "count").run().await.unwrap().after.cents, 9);
}

#[tokio::test]
async fn a_cached_node_runs_in_every_test() {
    let runs = Charges::default();
    let mut graph = StateGraph::<Order>::new("g");
    let count = graph.add_node_with("count", runs.clone(), async |runs: Charges, _: Order, _: Cx| {
        runs.fetch_add(1, Ordering::SeqCst);
    });
    graph.cache(count, CachePolicy::new(|_| "one".to_owned()));
    graph.add_edge(START, count);
    let graph = graph.compile().unwrap();
    for _ in 0..2 {
        node(&graph, "count").run().await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_node_uses_the_store_of_its_graph() {
    let mut graph = StateGraph::<Order>::new("g");
    let keep = graph.add_node("keep", async |_: Order, cx: Cx| {
        let name = Namespace::new(["orders"])?;
        cx.store()?.put(&name, "last", json!(5)).await?;
        Ok::<_, NodeError>(())
    });
    graph.add_edge(START, keep);
    let store = Arc::new(MemoryStore::new());
    let graph = graph.compile().unwrap().with_store(store.clone());
    let kept = node(&graph, "keep").run().await.unwrap();
    assert_eq!(kept.error_text(), None);
    let found = superstep::Store::get(&*store, &Namespace::new(["orders"]).unwrap(), "last").await.unwrap();
    assert_eq!(found.unwrap().value, json!(5));
}

#[tokio::test]
async fn a_subgraph_runs_as_a_node() {
    let mut outer = StateGraph::<Order>::new("outer");
    let shop = outer.add_subgraph("shop", &order(&Charges::default()));
    outer.add_edge(START, shop);
    outer.add_edge(shop, END);
    let outer = outer.compile().unwrap();
    let asked = node(&outer, "shop").state(two_parts()).run().await.unwrap();
    assert_transition!(asked, @r#"
    node `shop` in superstep 1
    events
      shop/plan: planning {"parts":2}
      shop/pay: piece of m "paying"
    questions
      pay: approve {"cents":12}
    "#);
    let test = node(&outer, "shop").state(two_parts()).answer("approve", true);
    assert_transition!(test.run().await.unwrap(), @r#"
    node `shop` in superstep 1
    update
      cents 5
      $then [
        {
          "cents": 2,
          "packed": [
            "lid by 1.0/3.0.box"
          ],
          "receipt": "live-1"
        },
        {
          "packed": [
            "box by 1.0/3.1.box"
          ]
        },
        {
          "packed": [
            "2 parts"
          ]
        }
      ]
    state
      packed + "lid by 1.0/3.0.box"
      packed + "box by 1.0/3.1.box"
      packed + "2 parts"
      cents 7 → 14
      receipt null → "live-1"
    next
      __end__
    events
      shop/pay: piece of m "paying"
    "#);
}

#[tokio::test]
async fn questions_that_follow_each_other_take_their_answers_in_order() {
    let mut graph = StateGraph::<Order>::new("g");
    let ask = graph.add_node("ask", async |_: Order, cx: Cx| {
        let first: String = cx.interrupt("name", "first").await;
        let last: String = cx.interrupt("family", "last").await;
        Order::update().receipt(format!("{first} {last}"))
    });
    graph.add_edge(START, ask);
    let graph = graph.compile().unwrap();
    let asked = node(&graph, "ask").answer("name", "Ada").run().await.unwrap();
    assert_eq!(asked.questions[0].key, "family");
    let named = node(&graph, "ask").answer("family", "Lovelace").answer("name", "Ada").run().await.unwrap();
    assert_eq!(named.after.receipt.as_deref(), Some("Ada Lovelace"));
    let misfit = node(&graph, "ask").answer("name", 5).run().await.unwrap();
    insta::assert_snapshot!(misfit.error_text().unwrap(), @"SS120: superstep 1: the answer to `name` does not have the type that node `ask` expects: invalid type: integer `5`, expected a string; answer it again");
}
