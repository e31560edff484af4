//! External commands, on a thread that is suspended or finished.

use superstep::{
    Answers, Command, CompiledGraph, Cx, END, NodeError, NodeOptions, RunError, START, State, StateGraph,
    Status, StreamMode,
};

use crate::support::{
    Calls, Plain, entries, failed, h, head, id_at, id_prefixes, line, line_of, logging_node, names,
    on_every_store, say,
};

#[derive(State, Clone, Debug, Default)]
struct Noted {
    #[channel(ephemeral)]
    note: String,
    read: String,
}

/// `START → a → b → c`, stopped before `b`.
async fn stopped(graph: CompiledGraph<Plain>) -> CompiledGraph<Plain> {
    let stopped = graph.thread("t").break_before(["b"]).run(Plain::update()).await.unwrap();
    assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Interrupted, "a"));
    graph
}

on_every_store! {
    async fn a_goto_from_outside_adds_to_what_was_to_run(backend: Backend) {
        let graph = stopped(backend.keep(line(&["a", "b", "c"]))).await;
        let end = graph.thread("t").resume_with(Command::new().goto("c")).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "a b c c"));
        let expected = [("loop", 4, ""), ("loop", 3, "c"), ("update", 2, "b c"), ("loop", 1, "b"), ("loop", 0, "a")];
        assert_eq!(h(&graph).await[..5], entries(&expected));
    }

    async fn an_update_from_outside_comes_before_what_was_to_run(backend: Backend) {
        let graph = stopped(backend.keep(line(&["a", "b", "c"]))).await;
        let end = graph.thread("t").resume_with(Command::update(say("U"))).await.unwrap();
        assert_eq!(end.state.log_text(), "a U b c");
        assert_eq!(h(&graph).await[3..5], entries(&[("loop", 1, "b"), ("loop", 0, "a")]));
        assert_eq!(backend.keep(line(&["a", "b", "c"])).thread("t").state().await.unwrap().values.log_text(), "a U b c");
    }

    async fn a_finished_thread_goes_where_a_command_says(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        graph.thread("t").run(Plain::update()).await.unwrap();
        let end = graph.thread("t").resume_with(Command::update(say("U")).goto("c")).await.unwrap();
        assert_eq!(end.state.log_text(), "a b c U c");
        let end = graph.thread("t").resume_with(Command::update(say("V"))).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "a b c U c V"));
        let end = graph.thread("t").resume_with(Command::new().goto("__end__")).await.unwrap();
        assert_eq!(end.state.log_text(), "a b c U c V");
    }

    async fn a_command_without_an_update_leaves_ephemeral_values_to_the_next_superstep(backend: Backend) {
        let build = || {
            let mut graph = StateGraph::<Noted>::new("noted");
            let a = graph.add_node("a", async |_: Noted, _: Cx| Noted::update().note("from a"));
            let b = graph.add_node("b", async |_: Noted, _: Cx| ());
            let c = graph.add_node("c", async |noted: Noted, cx: Cx| {
                cx.interrupt::<bool>("ok", "?").await;
                Noted::update().read(noted.note)
            });
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            graph.add_edge(b, END);
            graph.add_edge(c, END);
            backend.keep(graph.compile().unwrap())
        };
        let graph = build();
        graph.thread("t").break_before(["b"]).run(Noted::update()).await.unwrap();
        let end = graph.thread("t").resume_with(Command::new().goto("c")).await.unwrap();
        assert_eq!(end.status, Status::Interrupted);
        let stored = build().thread("t").state().await.unwrap().values;
        assert_eq!((&end.state.note, &end.state.read), (&stored.note, &stored.read));
        let end = build().thread("t").answer("ok", true).resume().await.unwrap();
        assert_eq!(end.state.read, "from a");
    }

    async fn a_command_on_an_older_checkpoint_begins_a_branch(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        graph.thread("t").run(Plain::update()).await.unwrap();
        let history = graph.thread("t").history().checkpoints().await.unwrap();
        let after_a = history.iter().find(|meta| names(&meta.control.next) == "b").unwrap().id;
        let end = graph.thread("t").at(after_a).resume_with(Command::update(say("U")).goto("c")).await.unwrap();
        assert_eq!(end.state.log_text(), "a U b c c");
        let history = graph.thread("t").history().checkpoints().await.unwrap();
        let update = history.iter().find(|meta| meta.source.as_str() == "update").unwrap();
        assert_eq!(update.parent, Some(after_a));
    }

    async fn a_command_that_leads_nowhere_leaves_no_trace(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
            let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| say(&item.to_string()));
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            graph.add_fan_out(b, |_| Vec::<i64>::new(), w);
            (backend.keep(graph.compile().unwrap()), w)
        };
        let (graph, w) = graph();
        let error = failed(graph.thread("t").resume_with(Command::new().goto("b")).await);
        assert!(matches!(&error, RunError::EmptyThread { .. }), "{error}");
        graph.thread("t").break_before(["b"]).run(Plain::update()).await.unwrap();
        let before = h(&graph).await;
        for name in ["z", "__start__", ""] {
            let error = failed(graph.thread("t").resume_with(Command::update(say("U")).goto(name)).await);
            assert_eq!(error.to_string(), format!("SS113: graph `g` has no node `{name}`; use a name that was given to `add_node`"));
        }
        let error = failed(graph.thread("t").resume_with(Command::new().goto("w")).await);
        let way = "SS140: a command cannot lead to node `w` of graph `g`: it takes an item; send it one with `Command::send`";
        assert_eq!(error.to_string(), way);
        let mut other = StateGraph::<Plain>::new("other");
        let stranger = other.add_worker("w", async |_: i64, _: Plain, _: Cx| ());
        let error = failed(graph.thread("t").resume_with(Command::new().send(stranger, 1)).await);
        assert!(matches!(&error, RunError::NoWayIn { .. }), "{error}");
        assert_eq!(h(&graph).await, before);
        let end = graph.thread("t").resume_with(Command::new().send(w, 5).send(w, 4)).await.unwrap();
        assert_eq!(end.state.log_text(), "a b 5 4");
    }

    /// Two tasks are interrupted, one is done. The command is given with one answer; the other question still
    /// waits.
    async fn answers_are_given_with_a_command(backend: Backend) {
        let calls = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = |graph: &mut StateGraph<Plain>, name: &str| {
                graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                    calls.add(&cx);
                    let answer: String = cx.interrupt("q", "?").await;
                    say(&answer)
                })
            };
            let b = logging_node(&mut graph, "b");
            let [m, n] = ["m", "n"].map(|name| ask(&mut graph, name));
            let (k, after) = (logging_node(&mut graph, "k"), logging_node(&mut graph, "a"));
            for node in [b, m, n] {
                graph.add_edge(START, node);
            }
            graph.add_edge(b, after);
            graph.add_edge(k, END);
            backend.keep(graph.compile().unwrap())
        };
        let first = graph().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&first.interrupts), ["m:1.1:q", "n:1.2:q"]);
        let answers = Answers::new().answer(id_at(&first.interrupts, "n:1.2:q"), "N");
        let second = graph().thread("t").answers(answers).resume_with(Command::update(say("U")).goto("k")).await.unwrap();
        assert_eq!((second.status, calls.all().as_str()), (Status::Interrupted, "m n n"));
        // Finished tasks are folded first, and their successors run together with the rest.
        let now = head(&graph()).await;
        assert_eq!((names(&now.next).as_str(), now.values.log_text().as_str()), ("m", "b U a k N"));
        assert_eq!(second.interrupts, first.interrupts[..1]);
        let answers = Answers::new().answer("q", "M");
        let end = graph().thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("b U a k M N", "m n n m"));
    }

    async fn a_deferred_node_that_has_begun_retains_its_answers_and_effects(backend: Backend) {
        let charges = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = logging_node(&mut graph, "a");
            let d = graph.add_node_with("d", charges.clone(), async |charges: Calls, _: Plain, cx: Cx| {
                let charge = async |_| {
                    charges.add(&cx);
                    Ok::<_, NodeError>(())
                };
                cx.once("charge", charge).await?;
                let answer: String = cx.interrupt("q", "?").await;
                Ok::<_, NodeError>(say(&answer))
            });
            graph.configure(d, NodeOptions::new().deferred());
            graph.add_edge(START, a);
            graph.add_edge(START, d);
            backend.keep(graph.compile().unwrap())
        };
        graph().thread("t").run(Plain::update()).await.unwrap();
        let end = graph().thread("t").answer("q", "A").resume_with(Command::new().goto("a")).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "a a A"));
        assert_eq!(charges.all(), "d");
        // Likewise for an update in the name of another node.
        let thread = |name: &str| graph().thread(name);
        thread("u").run(Plain::update()).await.unwrap();
        thread("u").update_as("__start__", say("U")).await.unwrap();
        let end = thread("u").answer("q", "A").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), charges.all().as_str()), ("a U a A", "d d"));
        // One that has not begun waits again.
        thread("v").break_before(["d"]).run(Plain::update()).await.unwrap();
        let asked = thread("v").resume_with(Command::new().goto("a")).await.unwrap();
        assert_eq!((asked.status, asked.state.log_text().as_str()), (Status::Interrupted, "a a"));
    }

    async fn workers_keep_their_items_and_failures_beside_a_command(backend: Backend) {
        let graph = |mends: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let w = graph.add_worker("w", move |item: i64, _: Plain, cx: Cx| async move {
                match (item, mends) {
                    (2, _) => {
                        let answer: String = cx.interrupt("q", item).await;
                        Ok(say(&answer))
                    }
                    (3, false) => Err("it breaks"),
                    _ => Ok(say(&item.to_string())),
                }
                .map_err(NodeError::new)
            });
            let p = graph.add_routing_node("p", move |_: Plain, _: Cx| async move {
                [1, 2, 3].into_iter().fold(Command::without_routes(), |command, item| command.send(w, item))
            });
            let b = logging_node(&mut graph, "b");
            graph.add_edge(START, p);
            graph.add_edge(b, END);
            graph.add_sends(p, w);
            (backend.keep(graph.compile().unwrap()), w)
        };
        failed(graph(false).0.thread("t").run(Plain::update()).await);
        let (graph, w) = graph(true);
        let asked = graph.thread("t").resume_with(Command::update(say("U")).goto("b").send(w, 4));
        let asked = asked.await.unwrap();
        assert_eq!(asked.interrupts[0].question, 2);
        let answers = Answers::new().answer("q", "two");
        let end = graph.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!(end.state.log_text(), "1 U b two 3 4");
    }
}

#[tokio::test]
async fn a_command_is_streamed_as_a_checkpoint_and_its_successors() {
    let graph = stopped(crate::support::Backend::memory().keep(line(&["a", "b", "c"]))).await;
    let modes = [StreamMode::Updates, StreamMode::Checkpoints];
    let mut stream = graph.thread("t").resume_stream_with(Command::update(say("U")).goto("c"), modes);
    let mut lines = Vec::new();
    while let Some(event) = futures::StreamExt::next(&mut stream).await {
        lines.push(line_of(&event));
    }
    assert_eq!(
        lines,
        [
            "checkpoint update 2 -> [b c]",
            r#"update 3 b: {"log":["b"]}"#,
            r#"update 3 c: {"log":["c"]}"#,
            "checkpoint loop 3 -> [c]",
            r#"update 4 c: {"log":["c"]}"#,
            "checkpoint loop 4 -> []",
        ]
    );
}

#[tokio::test]
async fn a_graph_without_checkpointer_takes_no_command() {
    let error = failed(line(&["a"]).thread("t").resume_with(Command::new().goto("a")).await);
    assert!(matches!(&error, RunError::NoCheckpointer { .. }), "{error}");
}
