//! Nodes behind plain edges and routes: an update beside unfinished tasks that may lead to them as well runs none of them early.

use superstep::{
    Command, CompiledGraph, Cx, Durability, END, NodeError, NodeFailure, Route, START, State, StateGraph,
    Status, checkpoint::Retention, thread::AsNode,
};

use crate::support::{Plain, head, logging_node, names, on_every_store, say};

#[derive(Route, Clone, Copy)]
enum Next {
    Total,
    End,
}

/// The edge from the worker to `total`.
const EDGES: [&str; 3] = ["plain", "route", "handler"];

/// `START ⇒ w` for three items, of which the second asks; `total` after `w` by a plain edge, by a route, or, if `w` fails after
/// the answer, by its error handler.
fn reducing(edge: &'static str) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("reducing");
    let w = graph.add_worker("w", move |item: i64, _: Plain, cx: Cx| async move {
        match item {
            2 if edge == "handler" => Err(NodeError::new("down").fatal()),
            2 => Ok(say(&cx.interrupt::<String>("k", "?").await)),
            item => Ok(say(&format!("w{item}"))),
        }
    });
    let total = graph.add_node("total", async |state: Plain, _: Cx| {
        let items = state.log.iter().filter(|word| *word != "U").count();
        say(&format!("total{items}"))
    });
    graph.add_fan_out(START, |_: &Plain| [1, 2, 3], w);
    match edge {
        "route" => graph.add_conditional_edges(
            w,
            |_: &Plain| Next::Total,
            |next| match next {
                Next::Total => total,
                Next::End => END,
            },
        ),
        _ => graph.add_edge(w, total),
    }
    if edge == "handler" {
        let h = graph.add_error_handler(w, "h", async |_: NodeFailure, _: Plain, cx: Cx| {
            say(&cx.interrupt::<String>("k", "instead?").await)
        });
        graph.add_edge(h, END);
    }
    graph.compile().unwrap()
}

/// `START → (a, ask)`, `j` after both by plain edges, `beside` after `a`.
fn diamond() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("diamond");
    let [a, j, beside] = ["a", "j", "beside"].map(|name| logging_node(&mut graph, name));
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
    for to in [a, ask] {
        graph.add_edge(START, to);
        graph.add_edge(to, j);
    }
    graph.add_edge(a, beside);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_reducing_node_runs_once_after_the_last_item_across_updates(backend: Backend) {
        for edge in EDGES {
            for durability in [Durability::Sync, Durability::Exit] {
                for way in ["update", "two updates", "command", "prune", "copy"] {
                    let name = format!("{edge} {durability:?} {way}");
                    let graph = || backend.keep(reducing(edge));
                    let thread = || graph().thread(&*name).durability(durability);
                    thread().run(Plain::update()).await.unwrap();
                    match way {
                        "command" => drop(thread().resume_with(Command::update(say("U"))).await.unwrap()),
                        _ => drop(thread().update(say("U")).await.unwrap()),
                    }
                    match way {
                        "two updates" => drop(thread().update(Plain::update().x(2)).await.unwrap()),
                        "prune" => drop(thread().prune(Retention::Last(1)).await.unwrap()),
                        _ => {}
                    }
                    let waits = thread().state().await.unwrap().checkpoint.unwrap().control;
                    assert_eq!((names(&waits.next), waits.held.len()), ("w".to_owned(), 1), "{name}");
                    // Another run in between, which leaves it waiting.
                    assert_eq!(thread().resume().await.unwrap().status, Status::Interrupted);
                    let thread = || match way {
                        "copy" => graph().thread(format!("{name} copied")),
                        _ => thread(),
                    };
                    if way == "copy" {
                        graph().thread(&*name).copy_to(format!("{name} copied")).await.unwrap();
                    }
                    let end = thread().answer("k", "h").resume().await.unwrap();
                    assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "w1 w3 U h total3"), "{name}");
                    if way != "prune" {
                        let replayed = thread().replay().run().await.unwrap();
                        assert!(replayed.is_same(), "{name}: {replayed}");
                    }
                }
            }
        }
    }

    async fn a_node_after_two_nodes_runs_once_after_an_update_between_them(backend: Backend) {
        let graph = || backend.keep(diamond());
        graph().thread("t").run(Plain::update()).await.unwrap();
        graph().thread("t").update(say("U")).await.unwrap();
        assert_eq!(names(&head(&graph()).await.next), "ask beside", "other successors run at once");
        graph().thread("t").resume().await.unwrap();
        let end = graph().thread("t").answer("k", "yes").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "a U yes beside j"));
        // Updates in the names of both.
        graph().thread("two").run(Plain::update()).await.unwrap();
        for node in ["a", "ask"] {
            graph().thread("two").update_as(node, say(node)).await.unwrap();
        }
        assert_eq!(graph().thread("two").resume().await.unwrap().state.log_text(), "a ask beside j");
    }

    async fn an_update_in_the_name_of_a_node_that_waits_replaces_it(backend: Backend) {
        let graph = || backend.keep(reducing("plain"));
        graph().thread("t").run(Plain::update()).await.unwrap();
        graph().thread("t").update(say("U")).await.unwrap();
        graph().thread("t").update_as("total", say("by hand")).await.unwrap();
        assert!(head(&graph()).await.checkpoint.unwrap().control.held.is_empty());
        graph().thread("t").update_as(AsNode::End, Plain::update()).await.unwrap();
        assert_eq!(graph().thread("t").resume().await.unwrap().state.log_text(), "w1 w3 U by hand");
    }
}
