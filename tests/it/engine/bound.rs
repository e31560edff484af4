//! Answers are bound to their questions: an answer to one question is never used for another.

use serde::Serialize;
use serde_json::json;
use superstep::{
    Command, CompiledGraph, Cx, Interrupt, RunError, START, State, StateGraph, Status,
    checkpoint::{TaskKey, TaskRecord},
    node::Persistence,
};

use crate::support::{Plain, failed, head, id_prefixes, logging_node, on_every_store, say};

/// `START → pay`, which asks before it pays the amount of the state.
fn paying() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("paying");
    let pay = graph.add_node("pay", pay);
    graph.add_edge(START, pay);
    graph.compile().unwrap()
}

async fn pay(state: Plain, cx: Cx) -> <Plain as State>::Update {
    let yes: bool = cx.interrupt("approve", json!({ "pay": state.x })).await;
    say(&format!("{} {}", if yes { "paid" } else { "kept" }, state.x))
}

#[derive(Serialize)]
struct Straight {
    a: i64,
    b: i64,
}

#[derive(Serialize)]
struct Turned {
    b: i64,
    a: i64,
}

fn amount(x: i64) -> <Plain as State>::Update {
    Plain::update().x(x)
}

/// Returns the only pending question.
async fn waits(graph: &CompiledGraph<Plain>) -> Interrupt {
    let [asked] = &head(graph).await.tasks[0].interrupts[..] else { panic!("one question") };
    asked.clone()
}

fn changed(name: &str, from: &str, now: &Interrupt) -> String {
    let Interrupt { node, question, id, .. } = now;
    format!(
        "SS125: the answer to `{name}` is for another question than the current one of node `{node}`, and \
         was not delivered: it is for {from}, and the current one is {question}; read the question and \
         answer it by its id, `{id}`"
    )
}

on_every_store! {
    async fn an_answer_to_what_was_asked_before_an_edit_is_refused_and_both_are_shown(backend: Backend) {
        for by_id in [true, false] {
            backend.open().delete(&"t".into()).await.unwrap();
            let graph = backend.keep(paying());
            let asked = graph.thread("t").run(amount(1)).await.unwrap();
            let old = &asked.interrupts[0].id;
            graph.thread("t").update(amount(1_000_000)).await.unwrap();
            assert_eq!(waits(&graph).await, asked.interrupts[0], "what was asked waits until it is asked again");

            let name = if by_id { old } else { "approve" };
            let error = failed(graph.thread("t").answer(name, true).resume().await).to_string();
            let now = waits(&graph).await;
            assert_eq!(error, changed("approve", r#"{"pay":1}"#, &now));
            assert_eq!(now.question, json!({ "pay": 1_000_000 }));
            // Repeated, also in another process, with the id of a replaced question.
            let graph = backend.keep(paying());
            let late = failed(graph.thread("t").answer(old, true).resume().await).to_string();
            assert_eq!(late, changed(old, r#"{"pay":1}"#, &now));
            assert_eq!(graph.thread("t").resume().await.unwrap().interrupts, std::slice::from_ref(&now), "it is the same when it is asked again");
            let late = failed(graph.thread("t").answer(old, true).resume().await).to_string();
            assert_eq!(late, changed(old, r#"{"pay":1}"#, &now));
            assert_eq!(graph.thread("t").answer(&now.id, true).resume().await.unwrap().state.log_text(), "paid 1000000");
        }
    }

    async fn an_answer_by_key_is_to_what_waits_when_it_is_given(backend: Backend) {
        let graph = backend.keep(paying());
        let asked = graph.thread("t").run(amount(1)).await.unwrap();
        graph.thread("t").update(amount(5)).await.unwrap();
        // Who resumes first sees what is asked now.
        let again = graph.thread("t").resume().await.unwrap();
        assert_eq!((id_prefixes(&again.interrupts), &again.interrupts[0].question), (vec!["pay:1.0:approve"], &json!({ "pay": 5 })));
        let late = failed(graph.thread("t").answer(&asked.interrupts[0].id, true).resume().await).to_string();
        assert_eq!(late, changed(&asked.interrupts[0].id, r#"{"pay":1}"#, &again.interrupts[0]));
        assert_eq!(graph.thread("t").answer("approve", true).resume().await.unwrap().state.log_text(), "paid 5");
    }

    async fn an_edit_that_comes_with_the_answer_is_an_edit_before_it(backend: Backend) {
        let graph = backend.keep(paying());
        graph.thread("t").run(amount(1)).await.unwrap();
        let error = failed(graph.thread("t").answer("approve", true).resume_with(Command::update(amount(9))).await);
        assert!(matches!(error, RunError::ChangedQuestion { .. }), "{error}");
        // An unrelated edit does not change the question.
        let id = waits(&graph).await.id;
        let end = graph.thread("t").answer(&id, false).resume_with(Command::update(say("note"))).await.unwrap();
        assert_eq!(end.state.log_text(), "note kept 9");
    }

    async fn forks_of_one_checkpoint_ask_under_ids_of_their_own(backend: Backend) {
        let graph = backend.keep(paying());
        let first = graph.thread("t").run(amount(1)).await.unwrap();
        let mut ids = vec![first.interrupts[0].id.clone()];
        // Who names the head means its tasks.
        graph.thread("t").fork(None).await.unwrap();
        for x in [1, 1, 1_000_000] {
            graph.thread("t").at(first.checkpoint).update(amount(x)).await.unwrap();
            let asked = graph.thread("t").resume().await.unwrap();
            assert_eq!(asked.interrupts[0].question, json!({ "pay": x }));
            for other in &ids {
                let error = failed(graph.thread("t").answer(other, true).resume().await).to_string();
                assert!(error.contains("SS118") || error.contains("SS125"), "{error}");
            }
            ids.push(asked.interrupts[0].id.clone());
        }
        for _ in 0..2 {
            let asked = graph.thread("t").at(first.checkpoint).resume().await.unwrap();
            assert!(!ids.contains(&asked.interrupts[0].id), "{ids:?}");
            ids.push(asked.interrupts[0].id.clone());
        }
        assert_eq!(graph.thread("t").answer(&ids[5], true).resume().await.unwrap().state.log_text(), "paid 1");
    }

    async fn an_answer_that_was_stored_before_an_edit_is_given_back(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |state: Plain, cx: Cx| {
                let one: String = cx.interrupt("one", json!({ "x": state.x })).await;
                let two: String = cx.interrupt("two", "and?").await;
                say(&format!("{}: {one} {two}", state.x))
            });
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        make().thread("t").run(amount(1)).await.unwrap();
        let second = make().thread("t").answer("one", "A").resume().await.unwrap();
        make().thread("t").update(amount(2)).await.unwrap();
        let error = failed(make().thread("t").answer(&second.interrupts[0].id, "B").resume().await).to_string();
        let now = waits(&make()).await;
        assert_eq!((error, now.key.as_str()), (changed("one", r#"{"x":1}"#, &now), "one"));
        // The other answer is to what is still asked.
        assert_eq!(make().thread("t").answer("one", "C").resume().await.unwrap().state.log_text(), "2: C B");
    }

    async fn the_order_of_a_map_is_no_other_question(backend: Backend) {
        let make = |turned: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", move |_: Plain, cx: Cx| async move {
                say(&match turned {
                    true => cx.interrupt::<String>("q", Turned { b: 2, a: 1 }).await,
                    false => cx.interrupt("q", Straight { a: 1, b: 2 }).await,
                })
            });
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make(false).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(make(true).thread("t").resume().await.unwrap().interrupts, asked.interrupts);
        assert_eq!(make(true).thread("t").answer("q", "R").resume().await.unwrap().state.log_text(), "R");
    }

    async fn an_answer_that_an_older_program_stored_is_taken(backend: Backend) {
        let store = backend.open();
        let graph = paying().with_checkpointer(store.clone());
        let asked = graph.thread("t").run(amount(1)).await.unwrap();
        let task = TaskKey { thread: "t".into(), checkpoint: asked.checkpoint.unwrap(), slot: 0 };
        let record: TaskRecord =
            serde_json::from_value(json!({ "end": "interrupted", "questions": [], "answers": { "approve": "true" } })).unwrap();
        store.record(&task, record).await.unwrap();
        drop((graph, store));
        assert_eq!(backend.keep(paying()).thread("t").resume().await.unwrap().state.log_text(), "paid 1");
    }

    async fn a_question_that_an_older_program_stored_can_be_answered(backend: Backend) {
        let store = backend.open();
        let graph = paying().with_checkpointer(store.clone());
        let asked = graph.thread("t").run(amount(1)).await.unwrap();
        let task = TaskKey { thread: "t".into(), checkpoint: asked.checkpoint.unwrap(), slot: 0 };
        let question = json!({ "key": "approve", "question": r#"{"pay":1}"# });
        let record = json!({ "end": "interrupted", "questions": [question], "answers": {} });
        store.record(&task, serde_json::from_value(record).unwrap()).await.unwrap();
        drop((graph, store));
        let graph = backend.keep(paying());
        assert_eq!(waits(&graph).await, asked.interrupts[0]);
        assert_eq!(graph.thread("t").answer(&asked.interrupts[0].id, true).resume().await.unwrap().state.log_text(), "paid 1");
    }

    /// The subgraph gets the amount each time it starts, and once if it is stored.
    async fn what_a_subgraph_asks_is_bound_too(backend: Backend) {
        for persistence in [Persistence::Ephemeral, Persistence::PerTask, Persistence::PerNode] {
            backend.open().delete(&"t".into()).await.unwrap();
            let make = || {
                let mut inner = StateGraph::<Plain>::new("inner");
                let pay = inner.add_node("pay", pay);
                inner.add_edge(START, pay);
                let mut middle = StateGraph::<Plain>::new("middle");
                let inner = inner.compile().unwrap().with_persistence(persistence);
                let said = |inner: &Plain| say(&inner.log_text());
                let inner = middle.add_subgraph_with("inner", &inner, |state: &Plain| amount(state.x), said);
                middle.add_edge(START, inner);
                let middle = middle.compile().unwrap().with_persistence(persistence);
                let mut graph = StateGraph::<Plain>::new("outer");
                let middle = graph.add_subgraph_with("middle", &middle, |state: &Plain| amount(state.x), said);
                let end = logging_node(&mut graph, "end");
                graph.add_edge(START, middle);
                graph.add_edge(middle, end);
                backend.keep(graph.compile().unwrap())
            };
            let asked = make().thread("t").run(amount(1)).await.unwrap();
            let old = asked.interrupts[0].id.clone();
            assert_eq!(id_prefixes(&asked.interrupts), ["middle:1.0/inner:1.0/pay:1.0:approve"]);
            make().thread("t").update(amount(7)).await.unwrap();
            if persistence == Persistence::Ephemeral {
                let error = failed(make().thread("t").answer(&old, true).resume().await).to_string();
                assert_eq!(error, changed("approve", r#"{"pay":1}"#, &waits(&make()).await));
            } else {
                let path = &["middle", "inner"];
                make().thread("t").subgraph::<Plain>(path.iter().copied()).update(amount(7)).await.unwrap();
                make().thread("t").resume().await.unwrap();
            }
            let now = waits(&make()).await;
            assert_eq!((now.question, now.id != old), (json!({ "pay": 7 }), true));
            let late = failed(make().thread("t").answer(&old, true).resume().await);
            assert!(matches!(late, RunError::ChangedQuestion { .. }), "{late}");
            let end = make().thread("t").answer(&now.id, true).resume().await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "paid 7 end"), "{persistence:?}");
        }
    }
}
