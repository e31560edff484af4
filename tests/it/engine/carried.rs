//! Tasks that an external update leaves pending: they retain their identity.

use serde_json::json;
use superstep::{
    Answers, Command, Cx, END, Keep, Persistence, Replay, Route, RunConfig, RunError, START, State,
    StateGraph, Status,
};

use super::subgraphs::{answer, asking, parent};
use crate::support::{Calls, Plain, failed, head, id_at, names, on_every_store, places, say, sayer, t};

#[derive(Route, Clone, Copy)]
enum Then {
    Again,
    End,
}

on_every_store! {
    async fn a_subgraph_that_waits_goes_on_after_an_update_of_its_caller(backend: Backend) {
        for (nth, persistence) in [Persistence::Inherited, Persistence::Own].into_iter().enumerate() {
            for way in ["command", "update", "two updates", "prune"] {
                let calls = Calls::default();
                let make = || {
                    let sub = asking(&calls).with_persistence(persistence);
                    let mut graph = StateGraph::<Plain>::new("parent");
                    let p = sayer(&mut graph, "p");
                    let said = |sub: &Plain| say(&sub.said());
                    let sub = graph.add_subgraph_with("sub", &sub, |_: &Plain| Plain::update(), said);
                    graph.add_edge(START, p);
                    graph.add_edge(p, sub);
                    backend.keep(graph.compile().unwrap())
                };
                let t = || RunConfig::thread(format!("{nth} {way}"));
                let thread = t().thread.unwrap();
                let asked = make().invoke(say("in"), t()).await.unwrap();
                let answered = || RunConfig { answers: Answers::new().answer(&asked.interrupts[0].id, "R"), ..t() };
                let end = if way == "command" {
                    make().resume_with(Command::update(say("U")), answered()).await.unwrap()
                } else {
                    make().update_state(t(), say("U"), "p").await.unwrap();
                    if way == "two updates" {
                        let twice = vec![vec![(say("V"), "p".into())], vec![(say("W"), "p".into())]];
                        make().bulk_update_state(t(), twice).await.unwrap();
                    }
                    if way == "prune" {
                        make().prune_thread(&thread, Keep::Last(1)).await.unwrap();
                    }
                    let waiting = make().get_state(&thread, None).await.unwrap();
                    assert_eq!((names(&waiting.next).as_str(), waiting.tasks[0].subgraphs.len()), ("sub", 1));
                    assert_eq!(waiting.tasks[0].interrupts, asked.interrupts);
                    let inside = make().get_subgraph_state::<Plain>(&thread, &["sub"]).await.unwrap();
                    assert_eq!(names(&inside.next), "s2");
                    make().resume(answered()).await.unwrap()
                };
                let said = if way == "two updates" { "in p U V W s1 R" } else { "in p U s1 R" };
                assert_eq!((end.status, end.state.said().as_str()), (Status::Completed, said), "{way}");
                assert_eq!(calls.all(), "s1 s2 s2", "{way}");
                if way != "prune" {
                    let replayed = Replay::of(&make(), thread).run().await.unwrap();
                    assert!(replayed.is_same(), "{way}: {replayed}");
                }
            }
        }
    }

    async fn a_subgraph_that_was_changed_from_outside_goes_on_after_an_update_of_its_caller(backend: Backend) {
        let calls = Calls::default();
        let make = || backend.keep(parent(&calls, &asking(&calls)));
        make().invoke(say("in"), t()).await.unwrap();
        make().update_state(t(), say("U"), "p").await.unwrap();
        make().update_subgraph_state::<Plain>(t(), &["sub"], say("V"), "s1").await.unwrap();
        // Its earlier question is void until it runs again.
        let unasked = failed(make().resume(answer("q", "R")).await);
        assert!(matches!(unasked, RunError::UnknownInterrupt { .. }), "{unasked}");
        assert_eq!(places(&make().resume(t()).await.unwrap().interrupts), ["sub:2.0/s2:2.0:q"]);
        let end = make().resume(answer("q", "R")).await.unwrap();
        assert_eq!((end.state.said().as_str(), calls.all().as_str()), ("in p U s1 V R", "p s1 s2 s2 s2"));
    }

    async fn a_task_has_the_key_that_it_had_before_an_update(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let _: bool = cx.interrupt("q", cx.key()).await;
                say(&cx.key())
            });
            let a = sayer(&mut graph, "a");
            graph.add_edge(START, a);
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().invoke(Plain::update(), t()).await.unwrap();
        make().update_state(t(), say("U"), None).await.unwrap();
        let again = make().resume_with(Command::update(say("V")), t()).await.unwrap();
        assert_eq!(again.interrupts, asked.interrupts);
        let end = make().resume(answer("q", true)).await.unwrap();
        assert_eq!(json!(end.state.log.last()), asked.interrupts[0].question);
        // On another branch the task is a different one.
        let before = make().get_history(&"t".into(), Default::default()).await.unwrap()[3].id;
        let fork = make().resume(RunConfig { checkpoint: Some(before), ..t() }).await.unwrap();
        assert_ne!(fork.interrupts[0].question, asked.interrupts[0].question);
    }

    async fn d5_an_answer_is_for_the_question_of_one_superstep(backend: Backend) {
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
        let asked = make().invoke(Plain::update(), t()).await.unwrap();
        let second = make().resume(answer(&id_at(&asked.interrupts, "ask:1.0:ok"), "one")).await.unwrap();
        assert_eq!(places(&second.interrupts), ["ask:2.0:ok"]);
        let stale = failed(make().resume(answer(&id_at(&asked.interrupts, "ask:1.0:ok"), "one")).await);
        assert!(matches!(stale, RunError::UnknownInterrupt { .. }), "{stale}");
        assert_eq!(make().resume(answer(&id_at(&second.interrupts, "ask:2.0:ok"), "two")).await.unwrap().state.said(), "one two");
    }

    /// An update includes `a`, and the slots of the workers' tasks decrease.
    async fn d5_an_answer_is_for_the_item_that_asked_it(backend: Backend) {
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = sayer(&mut graph, "a");
            let worker = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| {
                let answer: String = cx.interrupt("approve", item).await;
                say(&format!("{item} {answer}"))
            });
            graph.add_edge(START, a);
            graph.add_fan_out(START, |_: &Plain| [10, 9_999], worker);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().invoke(Plain::update(), t()).await.unwrap();
        assert_eq!(places(&asked.interrupts), ["w:1.1:approve", "w:1.2:approve"]);
        make().update_state(t(), say("U"), None).await.unwrap();
        let moved = head(&make()).await;
        let waiting: Vec<_> = moved.tasks.iter().flat_map(|task| task.interrupts.clone()).collect();
        assert_eq!(waiting, asked.interrupts);
        let half = make().resume(answer(&id_at(&asked.interrupts, "w:1.1:approve"), "yes")).await.unwrap();
        assert_eq!(half.interrupts, asked.interrupts[1..]);
        let end = make().resume(answer(&id_at(&asked.interrupts, "w:1.2:approve"), "no")).await.unwrap();
        assert_eq!(end.state.said(), "a U 10 yes 9999 no");
    }

    async fn an_update_after_a_command_is_made_in_the_name_of_who_ran_before_it(backend: Backend) {
        for (nth, command) in [Command::update(say("U")), Command::new().goto("c")].into_iter().enumerate() {
            let make = || {
                let mut graph = StateGraph::<Plain>::new("g");
                let a = sayer(&mut graph, "a");
                let [b, c] = ["b", "c"].map(|name| {
                    graph.add_node(name, async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await))
                });
                graph.add_edge(START, a);
                graph.add_edge(a, b);
                graph.add_edge(b, END);
                graph.add_edge(c, END);
                backend.keep(graph.compile().unwrap())
            };
            let (t, thread) = (|| RunConfig::thread(nth.to_string()), nth.to_string().into());
            make().invoke(Plain::update(), t()).await.unwrap();
            make().resume_with(command, t()).await.unwrap();
            make().update_state(t(), say("V"), None).await.unwrap();
            let state = make().get_state(&thread, None).await.unwrap();
            let expected = [("a U V", "b"), ("a V", "b c")][nth];
            assert_eq!((state.values.said().as_str(), names(&state.next).as_str()), expected);
            // A fork whose parent is deleted is unknown.
            make().fork(t()).await.unwrap();
            make().prune_thread(&thread, Keep::Last(1)).await.unwrap();
            let error = failed(make().update_state(t(), say("W"), None).await);
            assert_eq!(
                error.to_string(),
                format!(
                    "SS190: thread `{nth}`: who ran last is not stored any more, so it is not clear in whose name to update \
                     the state; name a node"
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
            let asked = make().invoke(Plain::update(), RunConfig::thread(way)).await.unwrap();
            let at_head = || RunConfig { checkpoint: asked.checkpoint, ..RunConfig::thread(way) };
            let answers = || Answers::new().answer(asked.interrupts[0].id.as_str(), "R");
            let answered = |config| RunConfig { answers: answers(), ..config };
            let end = match way {
                "update" => {
                    make().update_state(at_head(), say("U"), None).await.unwrap();
                    make().resume(answered(RunConfig::thread(way))).await.unwrap()
                }
                "command" => make().resume_with(Command::update(say("U")), answered(at_head())).await.unwrap(),
                _ => make().resume(answered(at_head())).await.unwrap(),
            };
            assert_eq!(end.state.said(), if way == "answer" { "a R" } else { "a U R" }, "{way}");
            assert_eq!(calls.all(), "a", "{way}");
        }
    }
}
