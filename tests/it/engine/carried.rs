//! Tasks that an external update leaves pending: they retain their identity.

use serde_json::json;
use superstep::{
    Answers, Command, Cx, END, Interrupt, Route, RunError, START, State, StateGraph, Status, ThreadId,
    checkpoint::Retention, node::Persistence,
};

use super::subgraphs::{asking, parent};
use crate::support::{
    Calls, Plain, PlainUpdate, failed, head, id_at, id_prefixes, logging_node, names, on_every_store, say,
};

#[derive(Route, Clone, Copy)]
enum Then {
    Again,
    End,
}

async fn asks_with_ids(_: Plain, cx: Cx) -> PlainUpdate {
    let _: bool =
        cx.interrupt("q", (cx.id("x"), rand::RngExt::random::<u64>(&mut cx.rng()).to_string())).await;
    say(&cx.id("x"))
}

on_every_store! {
    async fn a_subgraph_that_waits_resumes_after_an_update_of_its_caller(backend: Backend) {
        for (nth, persistence) in [Persistence::PerTask, Persistence::PerNode].into_iter().enumerate() {
            for way in ["command", "update", "two updates", "prune"] {
                let calls = Calls::default();
                let make = || {
                    let sub = asking(&calls).with_persistence(persistence);
                    let mut graph = StateGraph::<Plain>::new("parent");
                    let p = logging_node(&mut graph, "p");
                    let said = |sub: &Plain| say(&sub.log_text());
                    let sub = graph.add_subgraph_with("sub", &sub, |_: &Plain| Plain::update(), said);
                    graph.add_edge(START, p);
                    graph.add_edge(p, sub);
                    backend.keep(graph.compile().unwrap())
                };
                let thread = ThreadId::from(format!("{nth} {way}"));
                let asked = make().thread(&thread).run(say("in")).await.unwrap();
                let end = if way == "command" {
                    make().thread(&thread).answer(&asked.interrupts[0].id, "R").resume_with(Command::update(say("U"))).await.unwrap()
                } else {
                    make().thread(&thread).update_as("p", say("U")).await.unwrap();
                    if way == "two updates" {
                        let twice = vec![vec![(say("V"), "p".into())], vec![(say("W"), "p".into())]];
                        make().thread(&thread).bulk_update(twice).await.unwrap();
                    }
                    if way == "prune" {
                        make().thread(&thread).prune(Retention::Last(1)).await.unwrap();
                    }
                    let waiting = make().thread(&thread).state().await.unwrap();
                    assert_eq!((names(&waiting.next).as_str(), waiting.tasks[0].subgraphs.len()), ("sub", 1));
                    assert_eq!(waiting.tasks[0].interrupts, asked.interrupts);
                    let inside = make().thread(&thread).subgraph::<Plain>(["sub"]).state().await.unwrap();
                    assert_eq!(names(&inside.next), "s2");
                    make().thread(&thread).answer(&asked.interrupts[0].id, "R").resume().await.unwrap()
                };
                let said = if way == "two updates" { "in p U V W s1 R" } else { "in p U s1 R" };
                assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, said), "{way}");
                assert_eq!(calls.all(), "s1 s2 s2", "{way}");
                if way != "prune" {
                    let replayed = make().thread(thread).replay().run().await.unwrap();
                    assert!(replayed.is_same(), "{way}: {replayed}");
                }
            }
        }
    }

    async fn a_subgraph_with_an_external_update_resumes_after_an_update_of_its_caller(backend: Backend) {
        let calls = Calls::default();
        let make = || backend.keep(parent(&calls, &asking(&calls)));
        make().thread("t").run(say("in")).await.unwrap();
        make().thread("t").update_as("p", say("U")).await.unwrap();
        make().thread("t").subgraph::<Plain>(["sub"]).update_as("s1", say("V")).await.unwrap();
        // What it asked before, it asks no more until it runs again.
        let unasked = failed(make().thread("t").answer("q", "R").resume().await);
        assert!(matches!(unasked, RunError::UnknownInterrupt { .. }), "{unasked}");
        assert_eq!(id_prefixes(&make().thread("t").resume().await.unwrap().interrupts), ["sub:2.0/s2:2.0:q"]);
        let end = make().thread("t").answer("q", "R").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("in p U s1 V R", "p s1 s2 s2 s2"));
    }

    async fn a_subgraph_that_waits_remains_in_a_pruned_thread_that_is_copied_or_adopted(backend: Backend) {
        let calls = Calls::default();
        let make = |name: &str| {
            let mut graph = StateGraph::<Plain>::new(name);
            let p = logging_node(&mut graph, "p");
            let sub = graph.add_subgraph("sub", &asking(&calls));
            graph.add_edge(START, p);
            graph.add_edge(p, sub);
            backend.keep(graph.compile().unwrap())
        };
        make("old").thread("t").run(say("in")).await.unwrap();
        make("old").thread("t").update_as("p", say("U")).await.unwrap();
        make("old").thread("t").prune(Retention::Last(1)).await.unwrap();
        make("old").thread("t").copy_to("copy").await.unwrap();
        make("new").thread("t").adopt().await.unwrap();
        for (graph, thread) in [("old", "copy"), ("new", "t")] {
            let end = make(graph).thread(thread).answer("q", "R").resume().await.unwrap();
            assert_eq!(end.state.log_text(), "in p U s1 R", "{thread}");
        }
        assert_eq!(calls.all(), "s1 s2 s2 s2");
    }

    async fn a_task_has_the_key_that_it_had_before_an_update(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let _: bool = cx.interrupt("q", cx.key()).await;
                say(&cx.key())
            });
            let a = logging_node(&mut graph, "a");
            graph.add_edge(START, a);
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        make().thread("t").update(say("U")).await.unwrap();
        let again = make().thread("t").resume_with(Command::update(say("V"))).await.unwrap();
        assert_eq!(again.interrupts, asked.interrupts);
        let end = make().thread("t").answer("q", true).resume().await.unwrap();
        assert_eq!(json!(end.state.log.last()), asked.interrupts[0].question);
        // On a branch of its own the task is another one.
        let before = make().thread("t").history().checkpoints().await.unwrap()[3].id;
        let fork = make().thread("t").at(before).resume().await.unwrap();
        assert_ne!(fork.interrupts[0].question, asked.interrupts[0].question);
    }

    /// A question that contains an id, or randomness, is the same one, also in a graph that the task calls.
    async fn a_task_has_the_ids_and_the_randomness_that_it_had_before_an_update(backend: Backend) {
        let make = || {
            let mut sub = StateGraph::<Plain>::new("sub");
            let inner = sub.add_node("inner", asks_with_ids);
            sub.add_edge(START, inner);
            let mut graph = StateGraph::<Plain>::new("g");
            let a = logging_node(&mut graph, "a");
            let ask = graph.add_node("ask", asks_with_ids);
            let sub = graph.add_subgraph("sub", &sub.compile().unwrap());
            for node in [a, ask, sub] {
                graph.add_edge(START, node);
            }
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        make().thread("t").update_as("a", say("U")).await.unwrap();
        let again = make().thread("t").resume().await.unwrap();
        assert_eq!(again.interrupts, asked.interrupts);
        let answers = Answers::new().answer(&asked.interrupts[0].id, true).answer(&asked.interrupts[1].id, true);
        let end = make().thread("t").answers(answers).resume().await.unwrap();
        assert_eq!(end.status, Status::Completed);
        let ids = |asked: &Interrupt| asked.question[0].as_str().unwrap().to_owned();
        let ids: Vec<String> = asked.interrupts.iter().map(ids).collect();
        assert_eq!(ids, ["1.1.x", "1.2/1.0.x"]);
        assert_eq!(end.state.log.iter().collect::<Vec<_>>(), ["U", &ids[0], &ids[1]]);
        let replayed = make().thread("t").replay().run().await.unwrap();
        assert!(replayed.is_same(), "{replayed}");
    }

    async fn an_answer_is_for_the_question_of_one_superstep(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("ok", "?").await));
            graph.add_edge(START, ask);
            let then = |state: &Plain| if state.log.len() < 2 { Then::Again } else { Then::End };
            graph.add_conditional_edges(ask, then, |then| match then {
                Then::Again => ask,
                Then::End => END,
            });
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        let second = make().thread("t").answer(id_at(&asked.interrupts, "ask:1.0:ok"), "one").resume().await.unwrap();
        assert_eq!(id_prefixes(&second.interrupts), ["ask:2.0:ok"]);
        let stale = failed(make().thread("t").answer(id_at(&asked.interrupts, "ask:1.0:ok"), "one").resume().await);
        assert!(matches!(stale, RunError::UnknownInterrupt { .. }), "{stale}");
        assert_eq!(make().thread("t").answer(id_at(&second.interrupts, "ask:2.0:ok"), "two").resume().await.unwrap().state.log_text(), "one two");
    }

    /// An update includes `a`, and the slots of the workers' tasks decrease.
    async fn an_answer_is_for_the_item_that_asked_it(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = logging_node(&mut graph, "a");
            let worker = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| {
                let answer: String = cx.interrupt("approve", item).await;
                say(&format!("{item} {answer}"))
            });
            graph.add_edge(START, a);
            graph.add_fan_out(START, |_: &Plain| [10, 9_999], worker);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["w:1.1:approve", "w:1.2:approve"]);
        make().thread("t").update(say("U")).await.unwrap();
        let moved = head(&make()).await;
        let waiting: Vec<_> = moved.tasks.iter().flat_map(|task| task.interrupts.clone()).collect();
        assert_eq!(waiting, asked.interrupts);
        let half = make().thread("t").answer(id_at(&asked.interrupts, "w:1.1:approve"), "yes").resume().await.unwrap();
        assert_eq!(half.interrupts, asked.interrupts[1..]);
        let end = make().thread("t").answer(id_at(&asked.interrupts, "w:1.2:approve"), "no").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "a U 10 yes 9999 no");
    }

    async fn an_update_after_a_command_is_made_in_the_name_of_who_ran_before_it(backend: Backend) {
        for (nth, command) in [Command::update(say("U")), Command::new().goto("c")].into_iter().enumerate() {
            let make = || {
                let mut graph = StateGraph::<Plain>::new("g");
                let a = logging_node(&mut graph, "a");
                let [b, c] = ["b", "c"].map(|name| {
                    graph.add_node(name, async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await))
                });
                graph.add_edge(START, a);
                graph.add_edge(a, b);
                graph.add_edge(b, END);
                graph.add_edge(c, END);
                backend.keep(graph.compile().unwrap())
            };
            let thread = || make().thread(nth.to_string());
            thread().run(Plain::update()).await.unwrap();
            thread().resume_with(command).await.unwrap();
            thread().update(say("V")).await.unwrap();
            let state = thread().state().await.unwrap();
            let expected = [("a U V", "b"), ("a V", "b c")][nth];
            assert_eq!((state.values.log_text().as_str(), names(&state.next).as_str()), expected);
            // Of a fork whose parent is gone nobody knows.
            thread().fork(None).await.unwrap();
            thread().prune(Retention::Last(1)).await.unwrap();
            let error = failed(thread().update(say("W")).await);
            assert_eq!(
                error.to_string(),
                format!(
                    "SS190: thread `{nth}`: the node that ran last is no longer stored, so the node of the \
                     update is ambiguous; name a node"
                )
            );
        }
    }

    async fn who_names_the_head_means_the_tasks_that_wait_there(backend: Backend) {
        for way in ["answer", "update", "command"] {
            let calls = Calls::default();
            let make = || {
                let mut graph = StateGraph::<Plain>::new("g");
                let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                    calls.add(&cx);
                    say("a")
                });
                let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
                graph.add_edge(START, a);
                graph.add_edge(START, ask);
                backend.keep(graph.compile().unwrap())
            };
            let asked = make().thread(way).run(Plain::update()).await.unwrap();
            let answers = || Answers::new().answer(asked.interrupts[0].id.as_str(), "R");
            let end = match way {
                "update" => {
                    make().thread(way).at(asked.checkpoint).update(say("U")).await.unwrap();
                    make().thread(way).answers(answers()).resume().await.unwrap()
                }
                "command" => make().thread(way).at(asked.checkpoint).answers(answers()).resume_with(Command::update(say("U"))).await.unwrap(),
                _ => make().thread(way).at(asked.checkpoint).answers(answers()).resume().await.unwrap(),
            };
            assert_eq!(end.state.log_text(), if way == "answer" { "a R" } else { "a U R" }, "{way}");
            assert_eq!(calls.all(), "a", "{way}");
        }
    }
}
