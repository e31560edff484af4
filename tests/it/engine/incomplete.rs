//! External updates of a superstep in which some tasks have finished and others have not.

use superstep::{
    Command, CompiledGraph, Cx, Durability, END, NodeError, NodeFailure, NodeOptions, NodeRef, RunError,
    START, State, StateGraph, Status, ThreadId, checkpoint::Retention, node::Persistence, thread::AsNode,
};

use crate::support::{Plain, failed, head, logging_node, names, on_every_store, say};

/// An update between the pause of a thread and the answer to its question.
const WAYS: [&str; 5] = ["none", "update", "two updates", "command", "prune"];

async fn change(graph: &CompiledGraph<Plain>, thread: &ThreadId, way: &str) {
    let thread = graph.thread(thread);
    match way {
        "none" => return,
        "command" => drop(thread.resume_with(Command::update(say("U"))).await.unwrap()),
        _ => drop(thread.update(say("U")).await.unwrap()),
    }
    if way == "two updates" {
        thread.update(Plain::update().x(2)).await.unwrap();
    }
    if way == "prune" {
        thread.prune(Retention::Last(1)).await.unwrap();
    }
}

/// `START ⇒ w` for three items; the second fails, and its error handler asks. `j` waits for `w`.
fn handled() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("handled");
    let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| match item {
        2 => Err(NodeError::new("down").fatal()),
        item => Ok(say(&format!("w{item}"))),
    });
    let h = graph.add_error_handler(w, "h", async |_: NodeFailure, _: Plain, cx: Cx| {
        say(&cx.interrupt::<String>("k", "instead?").await)
    });
    let [x, j] = ["x", "j"].map(|name| logging_node(&mut graph, name));
    graph.add_fan_out(START, |_: &Plain| [1, 2, 3], w);
    graph.add_join([w], j);
    graph.add_edge(h, x);
    graph.compile().unwrap()
}

/// `START ⇒ w ⇒ v`, where the second item of `w` asks, and only then sends items. `j` waits for `v`, and `last`
/// for `j` and `w`.
fn chain() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("chain");
    let w = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| match item {
        2 => say(&cx.interrupt::<String>("k", "go on?").await),
        item => say(&format!("w{item}")),
    });
    let v = graph.add_worker("v", async |item: i64, _: Plain, _: Cx| say(&format!("v{item}")));
    let [j, last] = ["j", "last"].map(|name| logging_node(&mut graph, name));
    let sends = |state: &Plain| if state.log.iter().any(|word| word == "h") { vec![7, 8] } else { vec![] };
    graph.add_fan_out(START, |_: &Plain| [1, 2], w);
    graph.add_fan_out(w, sends, v);
    graph.add_join([v], j);
    graph.add_join([j, w.into()], last);
    graph.compile().unwrap()
}

/// The graph as the subgraph of another one.
fn nested(sub: &CompiledGraph<Plain>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("outer");
    let sub = graph.add_subgraph("sub", sub);
    let after = logging_node(&mut graph, "after");
    graph.add_edge(START, sub);
    graph.add_edge(sub, after);
    graph.compile().unwrap()
}

/// `START → (plan, ask)`, `plan ⇒ w` for two items, `j` after `w`.
fn planned() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("planned");
    let [plan, j] = ["plan", "j"].map(|name| logging_node(&mut graph, name));
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
    let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| say(&format!("w{item}")));
    graph.add_edge(START, plan);
    graph.add_edge(START, ask);
    graph.add_fan_out(plan, |_: &Plain| [1, 2], w);
    graph.add_join([w], j);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_join_waits_for_all_items_across_updates_also_in_an_error_handler(backend: Backend) {
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            for way in WAYS {
                let thread = ThreadId::from(format!("{durability:?} {way}"));
                let graph = || backend.keep(handled());
                graph().thread(&thread).durability(durability).run(Plain::update()).await.unwrap();
                change(&graph(), &thread, way).await;
                let end = graph().thread(&thread).durability(durability).answer("k", "h").resume().await.unwrap();
                let said = if way == "none" { "w1 h w3 j x" } else { "w1 w3 U h j x" };
                assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, said), "{thread}");
                if way != "prune" {
                    let replayed = graph().thread(&thread).replay().run().await.unwrap();
                    assert!(replayed.is_same(), "{thread}: {replayed}");
                }
            }
        }
    }

    async fn a_join_waits_for_all_items_if_the_last_one_is_done_by_hand(backend: Backend) {
        for node in ["w", "h"] {
            for way in ["none", "update"] {
                let thread = ThreadId::from(format!("{node} {way}"));
                let graph = || backend.keep(handled());
                graph().thread(&thread).run(Plain::update()).await.unwrap();
                change(&graph(), &thread, way).await;
                graph().thread(&thread).update_as(node, say("by hand")).await.unwrap();
                let end = graph().thread(&thread).resume().await.unwrap();
                let words = ["w1 w3", if way == "none" { "" } else { " U" }, " by hand j", if node == "h" { " x" } else { "" }];
                assert_eq!(end.state.log_text(), words.concat(), "{thread}");
            }
        }
    }

    async fn a_join_waits_for_the_items_that_waiting_items_may_send(backend: Backend) {
        for way in WAYS {
            let thread = ThreadId::from(way);
            let graph = || backend.keep(chain());
            graph().thread(&thread).run(Plain::update()).await.unwrap();
            change(&graph(), &thread, way).await;
            let end = graph().thread(&thread).answer("k", "h").resume().await.unwrap();
            let said = if way == "none" { "w1 h v7 v8 j last" } else { "w1 U h v7 v8 j last" };
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, said), "{way}");
        }
    }

    async fn a_copy_and_a_fork_of_the_update_wait_for_the_same_items(backend: Backend) {
        let graph = || backend.keep(chain());
        graph().thread("t").run(Plain::update()).await.unwrap();
        let updated = graph().thread("t").update(say("U")).await.unwrap();
        graph().thread("t").copy_to("copy").await.unwrap();
        let end = graph().thread("copy").answer("k", "h").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "w1 U h v7 v8 j last");
        assert_eq!(graph().thread("t").answer("k", "no").resume().await.unwrap().state.log_text(), "w1 U no j last");
        graph().thread("t").at(updated).resume().await.unwrap();
        let end = graph().thread("t").answer("k", "h").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "w1 U h v7 v8 j last");
    }

    async fn joins_of_a_subgraph_wait_across_updates_of_it(backend: Backend) {
        let cases = [(handled as fn() -> CompiledGraph<Plain>, "w1 w3 U h j x after"), (chain, "w1 U h v7 v8 j last after")];
        for (nth, (sub, said)) in cases.into_iter().enumerate() {
            let graph = || backend.keep(nested(&sub()));
            let thread = || graph().thread(nth.to_string());
            thread().run(Plain::update()).await.unwrap();
            let node = ["h", "w"][nth];
            thread().subgraph::<Plain>(["sub"]).update(say("U")).await.unwrap();
            let asked = thread().resume().await.unwrap().interrupts;
            assert_eq!(asked.iter().map(|asked| asked.node.as_str()).collect::<Vec<_>>(), [node]);
            let end = thread().answer("k", "h").resume().await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, said));
        }
    }

    async fn an_update_in_the_name_of_a_deferred_node_replaces_it_while_it_waits(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, b, d, z] = ["a", "b", "d", "z"].map(|name| logging_node(&mut graph, name));
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
            graph.configure(d, NodeOptions::new().deferred());
            graph.add_edge(START, a);
            graph.add_edge(START, b);
            graph.add_edge(a, d);
            graph.add_edge(b, ask);
            graph.add_edge(ask, END);
            graph.add_edge(d, z);
            backend.keep(graph.compile().unwrap())
        };
        for way in WAYS {
            let thread = ThreadId::from(way);
            graph().thread(&thread).run(Plain::update()).await.unwrap();
            let waits = graph().thread(&thread).state().await.unwrap().checkpoint.unwrap();
            assert_eq!(names(&waits.control.deferred), "d");
            if way != "none" {
                graph().thread(&thread).update_as("a", say("A")).await.unwrap();
            }
            if way == "command" {
                graph().thread(&thread).resume_with(Command::new().goto("d")).await.unwrap();
            }
            graph().thread(&thread).update_as("d", say("by hand")).await.unwrap();
            let end = graph().thread(&thread).answer("k", "yes").resume().await.unwrap();
            let said = if way == "none" { "a b by hand yes z" } else { "a b A by hand yes z" };
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, said), "{way}");
        }
        // On a branch of its own as well.
        let waits = graph().thread("none").history().checkpoints().await.unwrap();
        let waits = waits.iter().rev().find(|meta| !meta.control.deferred.is_empty()).unwrap().id;
        graph().thread("none").at(waits).update_as("d", say("D")).await.unwrap();
        graph().thread("none").resume().await.unwrap();
        assert_eq!(graph().thread("none").answer("k", "no").resume().await.unwrap().state.log_text(), "a b D no z");
    }

    async fn an_update_in_the_name_of_a_finished_node_replaces_its_result_and_its_items(backend: Backend) {
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            let graph = || backend.keep(planned());
            let thread = || graph().thread(format!("{durability:?}")).durability(durability);
            thread().run(say("in")).await.unwrap();
            thread().update_as("plan", say("by hand")).await.unwrap();
            let found = thread().state().await.unwrap();
            assert_eq!((found.values.log_text().as_str(), names(&found.next).as_str()), ("in by hand", "ask w w"));
            let end = thread().answer("k", "yes").resume().await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in by hand yes w1 w2 j"));
            assert!(thread().replay().run().await.unwrap().is_same());
        }
        // A second update in its name is one more result.
        let graph = backend.keep(planned());
        graph.thread("two").run(say("in")).await.unwrap();
        let both = vec![(say("one"), AsNode::from("plan")), (say("two"), AsNode::from("plan"))];
        graph.thread("two").bulk_update(vec![both]).await.unwrap();
        assert_eq!(graph.thread("two").answer("k", "yes").resume().await.unwrap().state.log_text(), "in one two yes w1 w2 w1 w2 j");
    }

    async fn an_update_in_the_name_of_a_node_with_several_finished_tasks_has_to_be_for_all_of_them(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
            let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| say(&format!("w{item}")));
            let v = graph.add_worker("v", async |item: i64, _: Plain, _: Cx| say(&format!("v{item}")));
            let j = logging_node(&mut graph, "j");
            graph.add_edge(START, ask);
            graph.add_fan_out(START, |_: &Plain| [1, 2], w);
            graph.add_fan_out(w, |_: &Plain| [1], v);
            graph.add_join([v], j);
            backend.keep(graph.compile().unwrap())
        };
        graph().thread("t").run(Plain::update()).await.unwrap();
        let error = failed(graph().thread("t").update_as("w", say("U")).await);
        assert!(matches!(&error, RunError::UnclearUpdate { updates: 1, finished: true, .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "SS198: thread `t`: 2 tasks of node `w` are in the incomplete superstep, and 1 of the updates are in its name, \
             so the remaining tasks are ambiguous (the task in slot 1, the task in slot 2); give one update for each, \
             name another node, or none"
        );
        assert_eq!(names(&head(&graph()).await.next), "ask", "nothing was stored");
        let both = vec![vec![(say("one"), "w".into()), (say("two"), "w".into())]];
        graph().thread("t").bulk_update(both).await.unwrap();
        assert_eq!(graph().thread("t").answer("k", "yes").resume().await.unwrap().state.log_text(), "one two yes v1 v1 j");
    }

    /// One of the items waits: an update in the name of their node is for that item alone.
    async fn an_update_in_the_name_of_a_worker_replaces_its_unfinished_items_first(backend: Backend) {
        let graph = || backend.keep(chain());
        graph().thread("one").run(Plain::update()).await.unwrap();
        graph().thread("one").update_as("w", say("h")).await.unwrap();
        assert_eq!(graph().thread("one").resume().await.unwrap().state.log_text(), "w1 h v7 v8 j last");
        graph().thread("two").run(Plain::update()).await.unwrap();
        let both = vec![vec![(say("no"), "w".into()), (say("no"), "w".into())]];
        graph().thread("two").bulk_update(both).await.unwrap();
        assert_eq!(graph().thread("two").resume().await.unwrap().state.log_text(), "no no j last");
    }

    async fn an_update_in_the_name_of_an_error_handler_replaces_its_finished_result(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let bad = graph.add_node("bad", async |_: Plain, _: Cx| Err::<(), _>(NodeError::new("down").fatal()));
            let h = graph.add_error_handler(bad, "h", async |_: NodeFailure, _: Plain, _: Cx| say("h"));
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
            let [x, y] = ["x", "y"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, bad);
            graph.add_edge(START, ask);
            graph.add_edge(bad, x);
            graph.add_edge(h, y);
            backend.keep(graph.compile().unwrap())
        };
        for (node, said) in [("h", "by hand yes y"), ("bad", "by hand yes x")] {
            graph().thread(node).run(Plain::update()).await.unwrap();
            graph().thread(node).update_as(node, say("by hand")).await.unwrap();
            assert_eq!(graph().thread(node).answer("k", "yes").resume().await.unwrap().state.log_text(), said);
        }
    }

    async fn a_replaced_result_leaves_nothing_in_the_memory_of_its_graph(backend: Backend) {
        let graph = || {
            let mut sub = StateGraph::<Plain>::new("sub");
            let s = sub.add_node("s", async |state: Plain, _: Cx| say(&format!("turn{}", state.log.len() + 1)));
            sub.add_edge(START, s);
            let sub = sub.compile().unwrap().with_persistence(Persistence::PerNode);
            let mut graph = StateGraph::<Plain>::new("g");
            let last = |sub: &Plain| say(sub.log.last().unwrap());
            let a = graph.add_subgraph_with("a", &sub, |_: &Plain| Plain::update(), last);
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
            graph.add_edge(START, a);
            graph.add_edge(START, ask);
            backend.keep(graph.compile().unwrap())
        };
        for (node, said) in [("a", "EDIT yes turn1"), ("ask", "turn1 EDIT turn2")] {
            graph().thread(node).run(Plain::update()).await.unwrap();
            graph().thread(node).update_as(node, say("EDIT")).await.unwrap();
            if node == "a" {
                graph().thread(node).answer("k", "yes").resume().await.unwrap();
            } else {
                graph().thread(node).resume().await.unwrap();
            }
            assert_eq!(graph().thread(node).run(Plain::update()).await.unwrap().state.log_text(), said);
        }
    }

    /// An edited input that no superstep has applied is not sent twice.
    async fn an_update_as_the_input_replaces_an_input_that_was_not_applied(backend: Backend) {
        let graph = || backend.keep(handled());
        graph().thread("t").run(say("in")).await.unwrap();
        let input = graph().thread("t").history().checkpoints().await.unwrap().last().unwrap().id;
        graph().thread("t").at(input).update_as(AsNode::Input, say("edited")).await.unwrap();
        let found = head(&graph()).await;
        assert_eq!((found.values.log_text().as_str(), names(&found.next).as_str()), ("edited", "w w w"));
    }

    async fn a_subgraph_of_a_finished_task_is_not_found(backend: Backend) {
        let graph = || {
            let mut sub = StateGraph::<Plain>::new("sub");
            let s = logging_node(&mut sub, "s");
            sub.add_edge(START, s);
            let mut asks = StateGraph::<Plain>::new("asks");
            let q = asks.add_node("q", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
            asks.add_edge(START, q);
            let mut graph = StateGraph::<Plain>::new("g");
            let a: NodeRef = graph.add_subgraph("a", &sub.compile().unwrap());
            let b: NodeRef = graph.add_subgraph("b", &asks.compile().unwrap());
            graph.add_edge(START, a);
            graph.add_edge(START, b);
            backend.keep(graph.compile().unwrap())
        };
        graph().thread("t").run(say("in")).await.unwrap();
        let why = "SS155: graph `g` has no stored subgraph `a`: the node is not pending: its task has finished; update the \
                   caller in the name of the node";
        let thread = || graph().thread("t");
        assert_eq!(failed(thread().subgraph::<Plain>(["a"]).update_as("s", say("EDIT")).await).to_string(), why);
        assert_eq!(failed(thread().subgraph::<Plain>(["a"]).state().await).to_string(), why);
        thread().subgraph::<Plain>(["b"]).state().await.unwrap();
        // The advice of the error holds.
        thread().update_as("a", say("EDIT")).await.unwrap();
        assert_eq!(thread().answer("k", "yes").resume().await.unwrap().state.log_text(), "in EDIT yes");
        let why = "SS155: graph `g` has no stored subgraph `a`: the node is not pending";
        assert_eq!(failed(thread().subgraph::<Plain>(["a"]).state().await).to_string(), why);
    }
}
