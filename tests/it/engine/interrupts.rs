//! D: interrupts and breakpoints.

use std::{future::ready, panic::AssertUnwindSafe, time::Duration};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{Either, select},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use superstep::{
    Answers, CompiledGraph, Cx, END, Event, NodeError, OnUnfinished, RunError, START, State, StateGraph,
    Status, StreamMode,
};

use crate::support::{
    Backend, Calls, Plain, entries, failed, h, head, id_at, id_prefixes, line, logging_node, names,
    on_every_store, say,
};

/// `START → pre → ask → end`; `ask` asks `q` and says the answer.
fn asking(calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let pre = logging_node(&mut graph, "pre");
    let ask = graph.add_node_with("ask", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        let answer: String = cx.interrupt("q", json!({ "q": 1 })).await;
        say(&answer)
    });
    let end = logging_node(&mut graph, "end");
    graph.add_edge(START, pre);
    graph.add_edge(pre, ask);
    graph.add_edge(ask, end);
    graph.add_edge(end, END);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_node_asks_and_runs_again_with_the_answer(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(asking(&calls));
        let asked = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((asked.status, asked.state.log_text().as_str()), (Status::Interrupted, "pre"));
        let [interrupt] = &asked.interrupts[..] else { panic!("{:?}", asked.interrupts) };
        assert_eq!((id_prefixes(&asked.interrupts), interrupt.key.as_str()), (vec!["ask:2.0:q"], "q"));
        assert_eq!((interrupt.node.as_str(), &interrupt.question), ("ask", &json!({ "q": 1 })));
        let waiting = head(&graph).await;
        assert_eq!(names(&waiting.next), "ask");
        assert_eq!(waiting.tasks[0].interrupts, asked.interrupts);
        assert_eq!(h(&graph).await.len(), 3);

        // Another process.
        let end = backend.keep(asking(&calls)).thread("t").answer("q", "yes").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "pre yes end"));
        assert_eq!(calls.named("ask"), 2);
    }

    async fn resuming_without_an_answer_asks_the_same_question_again(backend: Backend) {
        let graph = backend.keep(asking(&Calls::default()));
        let first = graph.thread("t").run(Plain::update()).await.unwrap();
        let again = graph.thread("t").resume().await.unwrap();
        assert_eq!((again.status, &again.interrupts), (Status::Interrupted, &first.interrupts));
        assert_eq!(graph.thread("t").answer(&first.interrupts[0].id, "by id").resume().await.unwrap().state.log_text(), "pre by id end");
    }

    async fn a_new_input_while_a_question_waits_is_the_callers_choice(backend: Backend) {
        let graph = backend.keep(asking(&Calls::default()));
        graph.thread("t").run(Plain::update()).await.unwrap();
        let error = failed(graph.thread("t").run(say("new")).await);
        assert!(matches!(&error, RunError::Unfinished { next, .. } if names(next) == "ask"), "{error}");
        let both = failed(graph.thread("t").answer("q", "yes").run(say("new")).await);
        assert!(matches!(both, RunError::InputAndAnswers), "{both}");
        let modes = [StreamMode::Updates];
        let told: Vec<_> = graph.thread("t").on_unfinished(OnUnfinished::Discard).stream(say("NEW"), modes).collect().await;
        let [Event::Discarded { nodes }, Event::Update { .. }, Event::Interrupt(again)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((names(nodes).as_str(), again.key.as_str()), ("ask", "q"));
        assert_eq!(head(&graph).await.values.log_text(), "pre NEW pre");
        assert_eq!(graph.thread("t").answer("q", "yes").resume().await.unwrap().state.log_text(), "pre NEW pre yes end");
    }

    async fn two_questions_of_one_node_are_asked_one_after_the_other(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let a: String = cx.interrupt("q1", ()).await;
                let b: String = cx.interrupt("q2", ()).await;
                say(&format!("{a}{b}"))
            });
            graph.add_edge(START, ask);
            graph.compile().unwrap()
        };
        let keys = |asked: &[superstep::Interrupt]| asked.iter().map(|asked| asked.key.clone()).collect::<Vec<_>>();
        let first = backend.keep(make()).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(keys(&first.interrupts), ["q1"]);
        let second = backend.keep(make()).thread("t").answer("q1", "A").resume().await.unwrap();
        assert_eq!(keys(&second.interrupts), ["q2"]);
        let stale = failed(backend.keep(make()).thread("t").answer("q1", "X").resume().await);
        let waits = &second.interrupts[0].id;
        assert_eq!(stale.to_string(), format!("SS118: no interrupt `q1` is waiting; the thread waits for `{waits}`"));
        assert_eq!(backend.keep(make()).thread("t").answer("q2", "B").resume().await.unwrap().state.log_text(), "AB");
    }

    async fn answers_without_a_question_are_refused_and_change_nothing(backend: Backend) {
        let graph = backend.keep(asking(&Calls::default()));
        let asked = graph.thread("t").run(Plain::update()).await.unwrap();
        let id = asked.interrupts[0].id.as_str();
        for name in ["other", "ask:1.0:q", "ask:2.0:q", "ask:2.1:q", ""] {
            let error = failed(graph.thread("t").answer(name, "yes").resume().await);
            let wanted = format!("SS118: no interrupt `{name}` is waiting; the thread waits for `{id}`");
            assert_eq!(error.to_string(), wanted);
        }
        let twice = Answers::new().answer("q", "a").answer(id, "b");
        let error = failed(graph.thread("t").answers(twice).resume().await);
        assert!(matches!(error, RunError::AmbiguousAnswer { .. }), "{error}");
        assert_eq!(head(&graph).await.tasks[0].interrupts.len(), 1);
        graph.thread("t").answer("q", "yes").resume().await.unwrap();
        let late = failed(graph.thread("t").answer("q", "yes").resume().await);
        assert_eq!(late.to_string(), "SS118: no interrupt `q` is waiting; the thread waits for none");
    }

    async fn an_answer_to_a_thread_that_never_ran_is_an_error(backend: Backend) {
        let error = failed(backend.keep(asking(&Calls::default())).thread("t").answer("q", "yes").resume().await);
        assert!(matches!(error, RunError::EmptyThread { .. }), "{error}");
    }

    async fn falsy_answers_are_answers(backend: Backend) {
        for (n, value) in [json!(null), json!(false), json!(0), json!(""), json!([]), json!({})].into_iter().enumerate() {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let answer: Value = cx.interrupt("q", ()).await;
                say(&answer.to_string())
            });
            graph.add_edge(START, ask);
            let graph = backend.keep(graph.compile().unwrap());
            graph.thread(format!("t{n}")).run(Plain::update()).await.unwrap();
            let answers = Answers::new().answer("q", value.clone());
            assert_eq!(graph.thread(format!("t{n}")).answers(answers).resume().await.unwrap().state.log_text(), value.to_string());
        }
    }

    async fn an_answer_of_the_wrong_type_is_refused_and_the_question_still_waits(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let (a, b): (bool, bool) = (cx.interrupt("a", ()).await, cx.interrupt("b", ()).await);
                say(&format!("{a} {b}"))
            });
            graph.add_edge(START, ask);
            graph.compile().unwrap()
        };
        let graph = backend.keep(make());
        graph.thread("t").run(Plain::update()).await.unwrap();
        graph.thread("t").answer("a", true).resume().await.unwrap();
        let error = failed(graph.thread("t").answer("b", "maybe").resume().await);
        assert_eq!(
            superstep::error::chain(&error),
            "SS120: superstep 1: the answer to `b` does not have the type that node `ask` expects: invalid \
             type: string \"maybe\", expected a boolean; answer it again"
        );
        let waiting = head(&graph).await;
        assert_eq!((names(&waiting.next).as_str(), waiting.tasks[0].interrupts[0].key.as_str()), ("ask", "b"));
        assert_eq!(backend.keep(make()).thread("t").answer("b", false).resume().await.unwrap().state.log_text(), "true false");
    }

    async fn a_question_shows_the_schema_of_its_answer(backend: Backend) {
        #[derive(Deserialize, JsonSchema)]
        struct Approval {
            ok: bool,
            #[serde(default)]
            n: i64,
        }
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let ask = graph.add_node_with("ask", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            let Approval { ok, n } = cx.ask("approve", "Refund?").await;
            say(&format!("{ok} {n}"))
        });
        graph.add_edge(START, ask);
        let graph = backend.keep(graph.compile().unwrap());
        let asked = graph.thread("t").run(Plain::update()).await.unwrap();
        let schema = asked.interrupts[0].schema.as_ref().unwrap();
        assert_eq!((&schema["properties"]["ok"]["type"], &schema["required"]), (&json!("boolean"), &json!(["ok"])));
        assert_eq!((&schema["properties"]["n"]["type"], &schema["properties"]["n"]["default"]), (&json!("integer"), &json!(0)));
        assert_eq!(head(&graph).await.tasks[0].interrupts, asked.interrupts);

        let error = failed(graph.thread("t").answer("approve", json!({ "ok": "maybe" })).resume().await);
        assert!(superstep::error::chain(&error).contains("\"maybe\""), "{error}");
        assert_eq!(head(&graph).await.tasks[0].interrupts, asked.interrupts);
        assert_eq!(graph.thread("t").answer("approve", json!({ "ok": true })).resume().await.unwrap().state.log_text(), "true 0");
    }

    async fn a_node_asks_again_until_the_answer_will_do(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let mut question = "How old are you?".to_owned();
                for round in 0.. {
                    let answer: String = cx.interrupt(&format!("age.{round}"), &question).await;
                    match answer.parse::<i64>() {
                        Ok(age) => return Plain::update().x(age),
                        Err(_) => question = format!("`{answer}` is no number. How old are you?"),
                    }
                }
                unreachable!("it asks for ever")
            });
            graph.add_edge(START, ask);
            graph.compile().unwrap()
        };
        backend.keep(make()).thread("t").run(Plain::update()).await.unwrap();
        let again = backend.keep(make()).thread("t").answer("age.0", "abc").resume().await.unwrap();
        assert_eq!(again.interrupts[0].question, json!("`abc` is no number. How old are you?"));
        assert_eq!(backend.keep(make()).thread("t").answer("age.1", "42").resume().await.unwrap().state.x, 42);
    }

    async fn a_node_cannot_swallow_its_interrupt(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
            // All attempts of a node: catching errors and panics, and racing the question against another
            // future.
            let asked = AssertUnwindSafe(cx.interrupt::<String>("q", ())).catch_unwind();
            match select(Box::pin(asked), Box::pin(ready(()))).await {
                Either::Left((Ok(answer), _)) => say(&answer),
                Either::Left((Err(_), _)) => say("caught"),
                Either::Right(_) => say("overtaken"),
            }
        });
        graph.add_edge(START, ask);
        let graph = backend.keep(graph.compile().unwrap());
        let asked = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((asked.status, asked.interrupts.len()), (Status::Interrupted, 1));
        assert_eq!(graph.thread("t").answer("q", "yes").resume().await.unwrap().state.log_text(), "yes");
    }

    async fn two_questions_under_one_key_fail_their_node_and_a_repeated_one_counts_once(backend: Backend) {
        let make = |items: [i64; 2]| {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", move |_: Plain, cx: Cx| async move {
                let asked = items.map(|item| {
                    let cx = cx.clone();
                    async move { cx.interrupt::<String>("q", item).await }
                });
                say(&futures::future::join_all(asked).await.join("+"))
            });
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let error = failed(make([1, 2]).thread("t").run(Plain::update()).await);
        assert_eq!(
            superstep::error::chain(&error),
            "SS101: superstep 1: node `ask` failed after 1 attempt: SS124: a task of node `ask` asks two questions under the \
             key `q` at the same time; give each of its questions another key"
        );
        assert_eq!(make([1, 1]).thread("t").resume().await.unwrap().interrupts.len(), 1);
        assert_eq!(make([1, 1]).thread("t").answer("q", "R").resume().await.unwrap().state.log_text(), "R+R");
    }

    async fn a_fork_from_before_the_question_asks_again(backend: Backend) {
        let graph = backend.keep(asking(&Calls::default()));
        graph.thread("t").run(Plain::update()).await.unwrap();
        let before = head(&graph).await.checkpoint.unwrap().id;
        graph.thread("t").answer("q", "old").resume().await.unwrap();
        let asked = graph.thread("t").at(before).resume().await.unwrap();
        assert_eq!(asked.status, Status::Interrupted);
        assert_eq!(graph.thread("t").answer("q", "new").resume().await.unwrap().state.log_text(), "pre new end");
        let said: Vec<_> = graph.thread("t").history().states().await.unwrap();
        assert!(said.iter().any(|snapshot| snapshot.values.log_text() == "pre old end"));
    }

    async fn several_questions_are_answered_in_any_order_and_siblings_do_not_run_again(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            for name in ["a", "b"] {
                let node = graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                    calls.add(&cx);
                    let answer: String = cx.interrupt("q", ()).await;
                    say(&answer)
                });
                graph.add_edge(START, node);
            }
            let free = graph.add_node_with("free", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                say("free")
            });
            graph.add_edge(START, free);
            graph.compile().unwrap()
        };
        let asked = backend.keep(make()).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["a:1.0:q", "b:1.1:q"]);
        let [a, b] = ["a:1.0:q", "b:1.1:q"].map(|place| id_at(&asked.interrupts, place));
        let unclear = failed(backend.keep(make()).thread("t").answer("q", "?").resume().await);
        assert_eq!(
            unclear.to_string(),
            format!("SS119: the answer `q` is ambiguous; answer once, by the id of the interrupt: `{a}`, \
                `{b}`")
        );
        let half = backend.keep(make()).thread("t").answer(&b, "B").resume().await.unwrap();
        assert_eq!((half.status, half.interrupts.len()), (Status::Interrupted, 1));
        let end = backend.keep(make()).thread("t").answer("q", "A").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "A B free");
        assert_eq!([calls.named("a"), calls.named("b"), calls.named("free")], [2, 2, 1]);
    }

    async fn answers_outlive_a_failure_of_the_node_that_got_them(backend: Backend) {
        let make = |repaired: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", move |_: Plain, cx: Cx| async move {
                let answer: String = cx.interrupt("q", ()).await;
                if repaired { Ok(say(&answer)) } else { Err(NodeError::new("no")) }
            });
            graph.add_edge(START, ask);
            graph.compile().unwrap()
        };
        backend.keep(make(false)).thread("t").run(Plain::update()).await.unwrap();
        failed(backend.keep(make(false)).thread("t").answer("q", "yes").resume().await);
        let failed = head(&backend.keep(make(false))).await;
        assert_eq!(failed.tasks[0].error.as_deref(), Some("SS101: superstep 1: node `ask` failed after 1 attempt: no"));
        assert_eq!(backend.keep(make(true)).thread("t").resume().await.unwrap().state.log_text(), "yes");
    }

    async fn a_run_stops_before_and_after_breakpoints_and_passes_them_when_it_goes_on(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        let at_b = graph.thread("t").break_before(["b"]).run(Plain::update()).await.unwrap();
        assert_eq!((at_b.status, at_b.interrupts.len(), at_b.state.log_text().as_str()), (Status::Interrupted, 0, "a"));
        assert_eq!(names(&head(&graph).await.next), "b");
        // Nobody asked, so an answer is refused as any other that nobody waits for.
        let nobody = failed(graph.thread("t").answer("q", "yes").resume().await);
        assert!(matches!(nobody, RunError::UnknownInterrupt { .. }), "{nobody}");
        let after_b = graph.thread("t").break_before(["b"]).break_after(["b"]).resume().await.unwrap();
        assert_eq!((after_b.status, after_b.state.log_text().as_str()), (Status::Interrupted, "a b"));
        assert_eq!(names(&head(&graph).await.next), "c");
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "a b c"));

        // After `a` and before `b` is one stop, and the end of the graph is none.
        assert_eq!(graph.thread("u").break_before(["b"]).break_after(["a", "c"]).run(Plain::update()).await.unwrap().state.log_text(), "a");
        assert_eq!(graph.thread("u").break_before(["b"]).break_after(["a", "c"]).resume().await.unwrap().status, Status::Completed);

        assert_eq!(graph.thread("v").break_before(["*"]).run(Plain::update()).await.unwrap().state.log_text(), "");
        assert_eq!(graph.thread("v").break_before(["*"]).resume().await.unwrap().state.log_text(), "a");
        assert_eq!(graph.thread("v").break_before(["*"]).resume().await.unwrap().state.log_text(), "a b");
        let unknown = failed(graph.thread("t").break_before(["nope"]).run(Plain::update()).await);
        assert!(matches!(&unknown, RunError::UnknownNode { node, .. } if node == "nope"), "{unknown}");
        assert_eq!(h(&graph).await[..1], entries(&[("loop", 3, "")]));
    }

    async fn a_graph_has_breakpoints_of_its_own(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, b, c] = ["a", "b", "c"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            graph.add_edge(b, c);
            graph.stop_after(a);
            graph.stop_before(b);
            graph.compile().unwrap()
        };
        let graph = backend.keep(make());
        let at_b = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((at_b.status, at_b.state.log_text().as_str()), (Status::Interrupted, "a"));
        assert_eq!(names(&head(&graph).await.next), "b");
        // Beside those of the run.
        assert_eq!(graph.thread("t").break_before(["c"]).resume().await.unwrap().state.log_text(), "a b");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "a b c");

        // They apply also if another graph calls it.
        let outer = |sub: &CompiledGraph<Plain>| {
            let mut graph = StateGraph::<Plain>::new("outer");
            let sub = graph.add_subgraph("sub", sub);
            graph.add_edge(START, sub);
            backend.keep(graph.compile().unwrap())
        };
        let stopped = outer(&make()).thread("outer").run(say("in")).await.unwrap();
        assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Interrupted, "in"));
        assert_eq!(outer(&make()).thread("outer").resume().await.unwrap().state.log_text(), "in a b c");
        let nowhere = outer(&make().with_persistence(superstep::node::Persistence::Ephemeral));
        let error = failed(nowhere.thread("nowhere").run(say("in")).await);
        assert!(superstep::error::chain(&error).contains("SS154"), "{error}");
    }
}

#[tokio::test]
async fn asking_without_a_checkpointer_is_an_error() {
    let error = failed(asking(&Calls::default()).run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS121: superstep 2: node `ask` interrupted the run with `q`, but the graph has no checkpointer to \
         store it; add one with `with_checkpointer`"
    );
}

#[tokio::test]
async fn an_interrupt_is_an_event_in_every_mode() {
    let graph = asking(&Calls::default());
    let graph = graph.with_checkpointer(std::sync::Arc::new(superstep::MemoryCheckpointer::new()));
    let events: Vec<_> = graph.thread("t").stream(Plain::update(), [StreamMode::Updates]).collect().await;
    let [Event::Update { .. }, Event::Interrupt(asked)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(id_prefixes(std::slice::from_ref(asked)), ["ask:2.0:q"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_concurrent_future_is_detected() {
    // In memory, where the clock of the test does not advance during requests.
    let backend = Backend::memory();
    for called in [false, true] {
        let asks = asking(&Calls::default());
        let mut graph = StateGraph::<Plain>::new("g");
        let ask = graph.add_node_with(
            "ask",
            asks,
            move |asks: CompiledGraph<Plain>, _: Plain, cx: Cx| async move {
                let beside = tokio::spawn(async move {
                    // By now the node waits only for this future, which no event would wake.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if called {
                        let state = cx.call(&asks, Plain::update()).await?;
                        return Ok(say(&state.log_text()));
                    }
                    Ok::<_, NodeError>(say(&cx.interrupt::<String>("q", ()).await))
                });
                beside.await.expect("it does not panic")
            },
        );
        graph.add_edge(START, ask);
        let graph = backend.keep(graph.compile().unwrap());
        let asked = graph.thread(if called { "called" } else { "t" }).run(Plain::update());
        let asked = tokio::time::timeout(Duration::from_secs(9), asked).await.expect("the run ends").unwrap();
        assert_eq!((asked.status, asked.interrupts.len()), (Status::Interrupted, 1));
        let answers = Answers::new().answer("q", "yes");
        let end = graph.thread(if called { "called" } else { "t" }).answers(answers).resume().await.unwrap();
        assert_eq!(end.state.log_text(), if called { "pre yes end" } else { "yes" });
    }
}
