//! Answers where other features meet them: refused runs, deleted threads, drains, forks and further processes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Map, Value, json};
use superstep::{
    Answers, Command, CompiledGraph, Cx, END, NodeError, Route, RunError, START, State, StateGraph, Status,
    call::Returned, thread::Drain,
};

use crate::support::{Calls, Plain, PlainUpdate, failed, head, names, on_every_store, say};

/// A node that refuses a run whose context does not name the place, and then asks `q`.
fn careful(refuses: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let ask = graph.add_node("ask", move |_: Plain, cx: Cx| async move {
        let here = cx.context::<Map<String, Value>>().is_ok_and(|context| context["place"] == "here");
        let error = || NodeError::new("work elsewhere");
        match (here, refuses) {
            (true, _) => Ok(say(&cx.interrupt::<String>("q", json!({ "pay": 1 })).await)),
            (false, true) => Err(error().refusal()),
            (false, false) => Err(error().fatal()),
        }
    });
    graph.add_edge(START, ask);
    graph.compile().unwrap()
}

/// The same as a nested graph.
fn careful_inside(refuses: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("outer");
    let call = graph.add_node("call", move |_: Plain, cx: Cx| async move {
        let inner = careful(refuses);
        Ok::<_, NodeError>(say(&cx.call(&inner, Plain::update()).await?.log_text()))
    });
    graph.add_edge(START, call);
    graph.compile().unwrap()
}

on_every_store! {
    /// Also if both threads were deleted and created again.
    async fn an_id_of_a_question_is_that_of_one_thread(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "pay?").await));
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        for _ in 0..2 {
            let mut ids = Vec::new();
            for thread in ["one", "two"] {
                ids.push(graph().thread(thread).run(Plain::update()).await.unwrap().interrupts.remove(0).id);
            }
            assert_ne!(ids[0], ids[1]);
            let error = failed(graph().thread("two").answer(&ids[0], "yes").resume().await);
            assert!(matches!(&error, RunError::ChangedQuestion(_)) && error.is_rejected_answer(), "{error}");
            assert_eq!(graph().thread("two").answer(&ids[1], "yes").resume().await.unwrap().state.log_text(), "yes");
            for thread in ["one", "two"] {
                backend.open().delete(&thread.into()).await.unwrap();
            }
        }
    }

    async fn an_answer_to_a_run_that_the_node_refuses_is_not_taken_and_the_question_waits(backend: Backend) {
        for (at, make) in [careful, careful_inside].into_iter().enumerate() {
            let thread = format!("t{at}");
            let on = |refuses: bool, place: &str| {
                backend.keep(make(refuses)).thread(&*thread).context(json!({ "place": place }))
            };
            let asked = on(true, "here").run(Plain::update()).await.unwrap();
            let id = &asked.interrupts[0].id;
            // Not even a second time, and without an answer.
            for answers in [Answers::new().answer(id, "no"), Answers::new().answer(id, "yes"), Answers::new()] {
                let error = failed(on(true, "there").answers(answers).resume().await);
                assert!(superstep::error::chain(&error).contains("work elsewhere"), "{error}");
                let waiting = on(true, "there").state().await.unwrap();
                assert_eq!(waiting.tasks[0].interrupts, asked.interrupts);
                assert!(waiting.tasks[0].error.as_deref().unwrap().contains("work elsewhere"));
            }
            let again = on(true, "here").resume().await.unwrap();
            assert_eq!((again.status, &again.interrupts), (Status::Interrupted, &asked.interrupts));
            let end = on(true, "here").answer(id, "late").resume().await.unwrap();
            assert_eq!(end.state.log_text(), "late");
        }
    }

    async fn an_answer_to_a_run_in_which_the_node_fails_is_retained(backend: Backend) {
        for (at, make) in [careful, careful_inside].into_iter().enumerate() {
            let thread = format!("t{at}");
            let on = |place: &str| backend.keep(make(false)).thread(&*thread).context(json!({ "place": place }));
            on("here").run(Plain::update()).await.unwrap();
            failed(on("there").answer("q", "yes").resume().await);
            assert_eq!(on("here").resume().await.unwrap().state.log_text(), "yes");
        }
    }

    async fn a_question_that_has_no_answer_yet_outlives_a_failure(backend: Backend) {
        let on = |place: &str| backend.keep(careful(false)).thread("t").context(json!({ "place": place }));
        let asked = on("here").run(Plain::update()).await.unwrap();
        failed(on("there").resume().await);
        assert_eq!(on("there").state().await.unwrap().tasks[0].interrupts, asked.interrupts);
        assert_eq!(on("here").answer(&asked.interrupts[0].id, "yes").resume().await.unwrap().state.log_text(), "yes");
    }

    async fn the_same_question_of_a_thread_that_was_begun_again_is_another_one(backend: Backend) {
        let graph = |name: &'static str| {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node(name, async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "pay 1?").await));
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let asks = graph("ask");
        let mut ids = Vec::new();
        for _ in 0..3 {
            let asked = asks.thread("t").run(Plain::update()).await.unwrap();
            let id = asked.interrupts[0].id.clone();
            for old in &ids {
                let error = failed(asks.thread("t").answer(old, "yes").resume().await);
                assert!(matches!(error, RunError::ChangedQuestion(_)), "{error}");
            }
            let waiting = head(&asks).await;
            assert_eq!(waiting.tasks[0].interrupts[0].id, id, "and a reader finds the same id");
            ids.push(id);
            asks.thread("t").delete().await.unwrap();
        }
        // Without a deletion the superstep and the checkpoint differ.
        let mut rounds = StateGraph::<Plain>::new("rounds");
        let ask = rounds.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "pay 1?").await));
        rounds.add_edge(START, ask);
        rounds.add_conditional_edges(ask, |state: &Plain| if state.log.len() < 3 { Turn::Again } else { Turn::End }, |turn| match turn {
            Turn::Again => ask,
            Turn::End => END,
        });
        let rounds = backend.keep(rounds.compile().unwrap());
        let mut asked = rounds.thread("rounds").run(Plain::update()).await.unwrap();
        let mut old = Vec::new();
        while let [one] = &asked.interrupts[..] {
            let id = one.id.clone();
            for old in &old {
                failed(rounds.thread("rounds").answer(old, "late").resume().await);
            }
            old.push(id.clone());
            asked = rounds.thread("rounds").answer(&id, "yes").resume().await.unwrap();
        }
        assert_eq!((asked.state.log_text().as_str(), old.len()), ("yes yes yes", 3));
        // Input that discards the question leads to another one.
        let first = asks.thread("u").run(Plain::update()).await.unwrap();
        let discard = asks.thread("u").on_unfinished(superstep::OnUnfinished::Discard);
        let second = discard.run(Plain::update()).await.unwrap();
        assert_ne!(first.interrupts[0].id, second.interrupts[0].id);
        failed(asks.thread("u").answer(&first.interrupts[0].id, "yes").resume().await);
    }

    async fn questions_are_answered_one_by_one_in_other_processes(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            for name in ["a", "b"] {
                let node = graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                    let first: String = cx.interrupt("first", cx.node()).await;
                    let second: String = cx.interrupt("second", cx.node()).await;
                    calls.add(&cx);
                    say(&format!("{}:{first}{second}", cx.node()))
                });
                graph.add_edge(START, node);
            }
            backend.keep(graph.compile().unwrap())
        };
        let mut asked = make().thread("t").run(Plain::update()).await.unwrap();
        let mut taken: Vec<String> = Vec::new();
        while asked.status == Status::Interrupted {
            // An answer that was taken is no longer accepted.
            for old in &taken {
                failed(make().thread("t").answer(old, "again").resume().await);
            }
            let waiting = head(&make()).await;
            let waiting: Vec<_> = waiting.tasks.iter().flat_map(|task| &task.interrupts).map(|asked| asked.id.clone()).collect();
            let id = waiting.last().unwrap();
            asked = make().thread("t").answer(id, taken.len().to_string()).resume().await.unwrap();
            taken.push(id.clone());
        }
        assert_eq!((asked.state.log_text().as_str(), taken.len()), ("a:23 b:01", 4));
        assert_eq!(calls.all(), "b a");
    }

    async fn an_approval_beside_an_edit_and_a_drain_is_for_what_was_asked(backend: Backend) {
        let effects = Arc::new(AtomicUsize::new(0));
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let stop = graph.add_node("stop", async |_: Plain, cx: Cx| {
                cx.drain("maintenance");
                say("stop")
            });
            let pay = graph.add_node_with("pay", effects.clone(), async |effects: Arc<AtomicUsize>, state: Plain, cx: Cx| {
                let yes: bool = cx.interrupt("pay", json!({ "pay": state.x })).await;
                effects.fetch_add(usize::from(yes), Ordering::SeqCst);
                say(&format!("paid {}", state.x))
            });
            let end = graph.add_node("end", async |_: Plain, _: Cx| say("end"));
            graph.add_edge(START, stop);
            graph.add_edge(stop, pay);
            graph.add_edge(pay, end);
            graph.add_edge(end, END);
            backend.keep(graph.compile().unwrap())
        };
        assert_eq!(make().thread("t").run(Plain::update().x(1)).await.unwrap().status, Status::Drained);
        let drained = Drain::new();
        drained.request("at once");
        // A drained run does not ask, and one that is not asks.
        let nothing = make().thread("t").drain(drained.clone()).resume().await.unwrap();
        assert_eq!((nothing.status, nothing.interrupts.len()), (Status::Drained, 0));
        let asked = make().thread("t").resume().await.unwrap();
        let id = asked.interrupts[0].id.clone();
        // The answer comes with a drained run: it is stored, the node does not run, and then the state is edited.
        let held = make().thread("t").drain(drained.clone()).answer(&id, true).resume().await.unwrap();
        assert_eq!((held.status, effects.load(Ordering::SeqCst)), (Status::Drained, 0));
        make().thread("t").update(Plain::update().x(1_000_000)).await.unwrap();
        let error = failed(make().thread("t").resume().await);
        assert!(matches!(error, RunError::ChangedQuestion(_)), "{error}");
        assert_eq!(effects.load(Ordering::SeqCst), 0);
        let asks = head(&make()).await.tasks[0].interrupts[0].clone();
        assert_eq!(asks.question, json!({ "pay": 1_000_000 }));
        failed(make().thread("t").answer(&id, true).resume().await);
        let end = make().thread("t").answer(&asks.id, true).resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), effects.load(Ordering::SeqCst)), ("stop paid 1000000 end", 1));
    }

    async fn a_drained_graph_that_would_leave_resumes_where_it_was(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut inner = StateGraph::<Plain>::new("inner");
            let first = inner.add_node_with("first", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                cx.drain("maintenance");
                say("first")
            });
            let ask = inner.add_node_with("ask", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| -> PlainUpdate {
                calls.add(&cx);
                let word: String = cx.interrupt("q", "Which word?").await;
                cx.leave(Command::<Plain, To>::update(say(&word)).goto(To::Other)).await
            });
            inner.add_edge(START, first);
            inner.add_edge(first, ask);
            let inner = inner.compile().unwrap();
            let mut graph = StateGraph::<Plain>::new("outer");
            let other = graph.add_node("other", async |_: Plain, _: Cx| say("other"));
            let call = graph.add_routing_node_with("call", (inner, calls.clone()), async |(inner, calls): (CompiledGraph<Plain>, Calls), _: Plain, cx: Cx| {
                calls.add(&cx);
                match cx.call(&inner, say("in")).or_left::<Plain, To>().await? {
                    Returned::Command(command) => Ok::<_, NodeError>(command),
                    Returned::State(state) => Ok(Command::update(say(&format!("not left: {}", state.log_text())))),
                }
            });
            graph.add_routes(call, |to| match to { To::Other => other });
            graph.add_edge(START, call);
            backend.keep(graph.compile().unwrap())
        };
        let drained = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((drained.status, names(&head(&make()).await.next).as_str()), (Status::Drained, "call"));
        let asked = make().thread("t").resume().await.unwrap();
        assert_eq!(asked.status, Status::Interrupted);
        let stop = Drain::new();
        stop.request("again");
        let id = &asked.interrupts[0].id;
        let held = make().thread("t").drain(stop.clone()).answer(id, "word").resume().await.unwrap();
        assert_eq!((held.status, held.state.log_text().as_str()), (Status::Drained, ""));
        let end = make().thread("t").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "word other"));
        assert_eq!((calls.named("first"), calls.named("ask")), (1, 2));
    }

    async fn a_caller_drops_the_answers_that_its_called_graph_has_stored(backend: Backend) {
        let make = || {
            let mut inner = StateGraph::<Plain>::new("inner");
            let ask = inner.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "next?").await));
            inner.add_edge(START, ask);
            inner.add_conditional_edges(ask, |state: &Plain| if state.log.len() < 9 { Turn::Again } else { Turn::End }, |turn| match turn {
                Turn::Again => ask,
                Turn::End => END,
            });
            let inner = inner.compile().unwrap();
            let mut graph = StateGraph::<Plain>::new("outer");
            let call = graph.add_node_with("call", inner, async |inner: CompiledGraph<Plain>, _: Plain, cx: Cx| {
                Ok::<_, NodeError>(say(&cx.call(&inner, Plain::update()).await?.log_text()))
            });
            graph.add_edge(START, call);
            backend.keep(graph.compile().unwrap())
        };
        let (mut asked, mut most) = (make().thread("t").run(Plain::update()).await.unwrap(), 0);
        for n in 0..9 {
            let id = asked.interrupts[0].id.clone();
            asked = make().thread("t").answer(&id, format!("word{n}")).resume().await.unwrap();
            let tasks = backend.open().load(&"t".into(), None).await.unwrap().unwrap().tasks;
            let stored = format!("{tasks:?}");
            most = most.max((0..9).filter(|n| stored.contains(&format!("word{n}"))).count());
        }
        assert_eq!((asked.status, asked.state.log_text().split(' ').count()), (Status::Completed, 9));
        assert!(most <= 1, "{most} answers of earlier supersteps in the record of the caller");
    }

    async fn an_older_checkpoint_is_asked_about_anew_and_its_answer_stays_on_its_branch(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let a: String = cx.interrupt("a", "a?").await;
                let b: String = cx.interrupt("b", "b?").await;
                say(&format!("{a}{b}"))
            });
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let first = make().thread("t").run(Plain::update()).await.unwrap();
        let waits = first.checkpoint.unwrap();
        let old = first.interrupts[0].id.clone();
        make().thread("t").answer(&old, "A").resume().await.unwrap();
        make().thread("t").answer("b", "B").resume().await.unwrap();
        // An answer to the head's question is none to that of a fork.
        let wrong = failed(make().thread("t").at(waits).answer(&old, "X").resume().await);
        assert!(matches!(wrong, RunError::UnknownInterrupt { .. } | RunError::ChangedQuestion(_)), "{wrong}");
        let fork = make().thread("t").at(waits).resume().await.unwrap();
        let id = fork.interrupts[0].id.clone();
        assert_ne!(id, old);
        failed(make().thread("t").answer(&old, "X").resume().await);
        // The handle of the fork's head, twice.
        let here = make().thread("t").at(fork.checkpoint.unwrap());
        let second = here.answer(&id, "C").resume().await.unwrap();
        assert_eq!(second.interrupts[0].key, "b");
        let answered = here.answer(&second.interrupts[0].id, "D");
        let end = answered.resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "CD"));
        // The same handle again: its checkpoint is no longer the head, so it would be a fork, which has not asked yet.
        let again = failed(answered.resume().await);
        assert!(matches!(again, RunError::UnknownInterrupt { .. } | RunError::ChangedQuestion(_)), "{again}");
        assert_eq!(head(&make()).await.values.log_text(), "CD", "nothing was begun");
    }
}

on_every_store! {
    async fn an_answer_to_a_question_of_another_branch_names_its_checkpoint(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let plan = crate::support::logging_node(&mut graph, "plan");
        let ask = graph.add_node("ask", async |plain: Plain, cx: Cx| match plain.x {
            0 => say(&cx.interrupt::<String>("k", "?").await),
            _ => say("nothing to ask"),
        });
        graph.add_edge(START, plan);
        graph.add_edge(plan, ask);
        let graph = backend.keep(graph.compile().unwrap());
        let asked = graph.thread("t").run(say("in")).await.unwrap();
        let (waits, id) = (asked.checkpoint.unwrap(), asked.interrupts[0].id.as_str());
        let planned = graph.thread("t").history().pending("plan").limit(1).checkpoints().await.unwrap()[0].id;
        graph.thread("t").at(planned).update_as("plan", Plain::update().x(1)).await.unwrap();
        let here = graph.thread("t");
        for thread in [here.answer(id, "late"), here.answer("k", "late"), here.at(waits).answer(id, "late")] {
            let error = failed(thread.resume().await);
            assert!(matches!(&error, RunError::UnknownInterrupt { elsewhere: Some(at), .. } if *at == waits), "{error}");
            let expected = format!(
                "is waiting; the thread waits for none; the question waits at checkpoint {waits} of another branch, where it can be \
                 answered only while that is the head; to ask it again on a new branch, resume `at({waits})` without answers"
            );
            assert!(error.to_string().ends_with(&expected), "{error}");
            let error = failed(thread.resume_with(Command::update(say("more"))).await);
            assert!(matches!(&error, RunError::UnknownInterrupt { elsewhere: Some(_), .. }), "{error}");
        }
        let unknown = failed(here.answer("unknown", true).resume().await);
        assert!(matches!(&unknown, RunError::UnknownInterrupt { elsewhere: None, .. }), "{unknown}");
        // That is the way to answer it.
        let again = here.at(waits).resume().await.unwrap();
        let end = here.answer(&again.interrupts[0].id, "yes").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in plan yes");
        // An answered question waits nowhere.
        let late = failed(here.answer(&again.interrupts[0].id, "yes").resume().await);
        assert!(matches!(&late, RunError::UnknownInterrupt { elsewhere: None, .. }), "{late}");
    }
}

#[derive(Route, Clone, Copy)]
enum Turn {
    Again,
    End,
}

#[derive(Route, Clone, Copy)]
enum To {
    Other,
}
