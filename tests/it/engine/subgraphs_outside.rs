//! External access to subgraphs: events, state, commands, breakpoints, cancellation.

use futures::StreamExt;
use serde_json::json;
use superstep::{
    CheckpointId, Command, CompiledGraph, Cx, END, Event, NodeError, Route, RunError, START, State,
    StateGraph, Status, StreamMode, Streaming, node::Persistence,
};

use super::subgraphs::{Inner, InnerUpdate, asking, parent};
use crate::support::{
    Calls, Plain, PlainUpdate, Stuck, failed, head, id_prefixes, line, logging_node, names, on_every_store,
    say, t,
};

/// Formats an event as `(path) what node`.
fn short(event: &Event<Plain>) -> String {
    let short = |event: serde_json::Value| {
        let data = &event["data"];
        let node = data["node"].as_str().unwrap_or_default().to_owned();
        format!("{} {node}", event["event"].as_str().unwrap_or_default())
    };
    match event {
        Event::Subgraph { path, event } => format!("({path}) {}", short(event.clone())),
        event => format!("() {}", short(serde_json::to_value(event).unwrap())),
    }
}

#[derive(Route, Clone, Copy)]
enum Next {
    P2,
}

/// `sub → p3`, and `p2` if a node of the subgraph says so: `i1` writes and `i2` leaves.
fn left(sub: &CompiledGraph<Plain>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("parent");
    let sub = graph.add_routing_subgraph::<Next>("sub", sub);
    let (p2, p3) = (logging_node(&mut graph, "p2"), logging_node(&mut graph, "p3"));
    graph.add_edge(START, sub);
    graph.add_edge(sub, p3);
    graph.add_routes(sub, |Next::P2| p2);
    graph.compile().unwrap()
}

fn leaving(calls: &Calls) -> CompiledGraph<Plain> {
    let mut sub = StateGraph::<Plain>::new("sub");
    let i1 = logging_node(&mut sub, "i1");
    let i2 =
        sub.add_node_with("i2", calls.clone(), async |calls: Calls, state: Plain, cx: Cx| -> PlainUpdate {
            calls.add(&cx);
            if state.log_text().contains("stay") {
                return say("stayed");
            }
            cx.leave(Command::<Plain, Next>::update(say("fromsub")).goto(Next::P2)).await
        });
    sub.add_edge(START, i1);
    sub.add_edge(i1, i2);
    sub.compile().unwrap()
}

on_every_store! {
    async fn the_events_of_a_subgraph_come_with_its_path(backend: Backend) {
        let graph = backend.keep(parent(&Calls::default(), &asking(&Calls::default())));
        let streaming = || Streaming::from(StreamMode::Updates).subgraphs();
        let told: Vec<String> = graph.thread("t").stream(say("in"), streaming()).map(|event| short(&event)).collect().await;
        assert_eq!(told, ["() update p", "(sub:0@3) update s1", "(sub:0@3) interrupt s2", "() interrupt s2"]);
        let told: Vec<String> =
            graph.thread("t").answer("q", "R").resume_stream(streaming()).map(|event| short(&event)).collect().await;
        assert_eq!(told, ["(sub:0@3) update s2", "() update sub"]);
        let told: Vec<String> =
            graph.thread("other").stream(say("in"), StreamMode::Updates).map(|event| short(&event)).collect().await;
        assert_eq!(told, ["() update p", "() interrupt s2"], "nobody asked for those of subgraphs");
    }

    async fn the_state_of_a_subgraph_is_seen_while_its_task_is_to_run(backend: Backend) {
        let graph = backend.keep(parent(&Calls::default(), &asking(&Calls::default())));
        graph.thread("t").run(say("in")).await.unwrap();
        let sub = graph.thread("t").subgraph::<Plain>(["sub"]).state().await.unwrap();
        assert_eq!((sub.values.log_text().as_str(), names(&sub.next).as_str()), ("in p s1", "s2"));
        assert_eq!(id_prefixes(&sub.tasks[0].interrupts), ["s2:2.0:q"]);
        let [child] = &head(&graph).await.tasks[0].subgraphs[..] else { panic!("one subgraph") };
        assert_eq!(child.to_string(), "t/sub:0@3");
        let refused = |path: &'static [&str]| {
            let graph = graph.clone();
            async move { failed(graph.thread("t").subgraph::<Plain>(path.iter().copied()).state().await).to_string() }
        };
        assert_eq!(
            refused(&["sub", "x"]).await,
            "SS155: graph `sub` has no stored subgraph `x`: it has no such node"
        );
        assert_eq!(
            refused(&["p"]).await,
            "SS155: graph `parent` has no stored subgraph `p`: the node was not added as a subgraph"
        );
        let wrong = failed(graph.thread("t").subgraph::<Inner>(["sub"]).state().await).to_string();
        assert_eq!(wrong, "SS155: graph `parent` has no stored subgraph `sub`: its state is of another type");
        let sub = |at: u64| graph.thread("t").at(CheckpointId(at)).subgraph::<Plain>(["sub"]);
        assert_eq!(sub(3).state().await.unwrap().values.log_text(), "in p s1");
        let only = "SS155: graph `parent` has no stored subgraph `sub`: it is found at the head of the thread only, not `at` \
                    another checkpoint";
        assert_eq!(failed(sub(2).state().await).to_string(), only);
        assert_eq!(failed(sub(2).update(say("EDIT")).await).to_string(), only);
        let seeded = failed(graph.thread(child).state().await).to_string();
        assert!(seeded.starts_with("SS155: "), "{seeded}");
        graph.thread("t").answer("q", "R").resume().await.unwrap();
        assert_eq!(
            refused(&["sub"]).await,
            "SS155: graph `parent` has no stored subgraph `sub`: the node is not pending"
        );
    }

    async fn the_state_of_a_subgraph_is_changed_from_outside(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(parent(&calls, &asking(&calls)));
        graph.thread("t").run(say("in")).await.unwrap();
        graph.thread("t").subgraph::<Plain>(["sub"]).update_as("s2", say("EDIT")).await.unwrap();
        let sub = graph.thread("t").subgraph::<Plain>(["sub"]).state().await.unwrap();
        assert_eq!((sub.values.log_text().as_str(), names(&sub.next).as_str()), ("in p s1 EDIT", ""));
        assert_eq!(head(&graph).await.tasks[0].interrupts, []);
        let late = failed(graph.thread("t").answer("q", "R").resume().await);
        assert!(matches!(late, RunError::UnknownInterrupt { .. }), "{late}");
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in p s1 EDIT"));
        assert_eq!(calls.all(), "p s1 s2");
    }

    async fn a_node_leaves_its_graph_with_a_command_for_the_caller(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(left(&leaving(&calls)));
        let end = graph.thread("t").run(say("in")).await.unwrap();
        // What the subgraph wrote before is not merged; the plain edge is followed beside the command.
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in fromsub p2 p3"));
        let end = graph.thread("u").run(say("stay")).await.unwrap();
        assert_eq!(end.state.log_text(), "stay i1 stayed p3");
    }

    async fn a_node_leaves_a_graph_with_its_own_state_with_a_command_for_the_caller(backend: Backend) {
        let mut sub = StateGraph::<Inner>::new("sub");
        let i = sub.add_node("i", async |state: Inner, cx: Cx| -> InnerUpdate {
            if state.x == 0 {
                return Inner::update().said(["stayed"]);
            }
            cx.leave(Command::<Plain, Next>::update(say("left")).goto(Next::P2)).await
        });
        sub.add_edge(START, i);
        let sub = sub.compile().unwrap();
        let mut graph = StateGraph::<Plain>::new("parent");
        let sub = graph.add_routing_subgraph_with(
            "sub",
            &sub,
            |state: &Plain| Inner::update().said(["in"]).x(state.x),
            |sub: &Inner| Plain::update().log(sub.said.iter().cloned()),
        );
        let (p2, p3) = (logging_node(&mut graph, "p2"), logging_node(&mut graph, "p3"));
        graph.add_edge(START, sub);
        graph.add_edge(sub, p3);
        graph.add_routes(sub, |Next::P2| p2);
        let graph = backend.keep(graph.compile().unwrap());
        // The output mapping is applied only if the graph completes.
        assert_eq!(graph.thread("t").run(Plain::update().x(0)).await.unwrap().state.log, ["in", "stayed", "p3"]);
        assert_eq!(graph.thread("u").run(Plain::update().x(1)).await.unwrap().state.log, ["left", "p2", "p3"]);
    }

    async fn a_command_reaches_the_next_graph_only(backend: Backend) {
        let mut mid = StateGraph::<Plain>::new("mid");
        let sub = mid.add_routing_subgraph::<Next>("sub", &leaving(&Calls::default()));
        let m2 = logging_node(&mut mid, "m2");
        mid.add_edge(START, sub);
        mid.add_routes(sub, |Next::P2| m2);
        let mut outer = StateGraph::<Plain>::new("outer");
        let mid = outer.add_subgraph("mid", &mid.compile().unwrap());
        let o = logging_node(&mut outer, "o");
        outer.add_edge(START, mid);
        outer.add_edge(mid, o);
        let outer = backend.keep(outer.compile().unwrap());
        assert_eq!(outer.thread("t").run(say("in")).await.unwrap().state.log_text(), "in fromsub m2 o");
    }

    async fn a_command_without_a_receiver_is_an_error(backend: Backend) {
        let alone = failed(backend.keep(leaving(&Calls::default())).thread("t").run(say("in")).await);
        assert_eq!(
            alone.to_string(),
            "SS156: superstep 2: node `i2` left the graph with a command for its caller, but the graph has \
             no caller; return a `Command` from a routing node instead, or run the graph that has this one \
             as a subgraph"
        );
        let graph = backend.keep(parent(&Calls::default(), &leaving(&Calls::default())));
        let error = failed(graph.thread("u").run(say("in")).await);
        assert_eq!(
            superstep::error::chain(&error),
            "SS101: superstep 2: node `sub` failed after 1 attempt: SS157: the graph that node `sub` calls was left with a \
             command that it does not take; use `add_routing_subgraph` or `GraphCall::or_left`, with the state and the routes of \
             the command"
        );
    }

    async fn a_run_stops_at_a_breakpoint_in_a_subgraph_and_passes_it(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(parent(&calls, &line(&["a", "b"])));
        let stop = |name: &str| t().break_before([name]);
        let unknown = failed(graph.configured(stop("sub/x")).run(say("in")).await);
        assert!(matches!(unknown, RunError::UnknownNode { .. }), "{unknown}");
        let stopped = graph.configured(stop("sub/b")).run(say("in")).await.unwrap();
        assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Interrupted, "in p"));
        let sub = graph.thread("t").subgraph::<Plain>(["sub"]).state().await.unwrap();
        assert_eq!((sub.values.log_text().as_str(), names(&sub.next).as_str()), ("in p a", "b"));
        let end = graph.configured(stop("sub/b")).resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in p a b"));
        let nowhere = parent(&calls, &line(&["a", "b"]).with_persistence(Persistence::Ephemeral));
        let config = stop("sub/b").thread("u");
        let error = failed(backend.keep(nowhere).configured(config).run(say("in")).await);
        assert!(superstep::error::chain(&error).contains("SS154"), "{error}");
    }

    async fn a_cancelled_run_cancels_its_subgraph_which_resumes_later(backend: Backend) {
        let (stuck, calls) = (Stuck::default(), Calls::default());
        let make = |stuck: Option<Stuck>| {
            let mut sub = StateGraph::<Plain>::new("sub");
            let a = sub.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                say("a")
            });
            let b = sub.add_node_with("b", stuck, async |stuck: Option<Stuck>, _: Plain, _: Cx| {
                if let Some(stuck) = stuck {
                    stuck.here().await
                }
                say("b")
            });
            sub.add_edge(START, a);
            sub.add_edge(a, b);
            backend.keep(parent(&calls, &sub.compile().unwrap()))
        };
        let config = t();
        let (graph, cancel) = (make(Some(stuck.clone())), config.get_cancel().clone());
        let run = graph.configured(config).run(say("in"));
        let stop = async {
            stuck.reached().await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(run, stop);
        let ended = ended.unwrap();
        assert_eq!((ended.status, ended.state.log_text().as_str()), (Status::Cancelled, "in p"));
        assert_eq!(head(&graph).await.tasks[0].error.as_deref(), Some("cancelled"));
        assert_eq!(make(None).thread("t").resume().await.unwrap().state.log_text(), "in p a b");
        assert_eq!(calls.all(), "p a");
    }

    async fn a_drained_run_stops_inside_its_subgraph(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut sub = StateGraph::<Plain>::new("sub");
            let a = sub.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                cx.drain("enough");
                say("a")
            });
            let b = logging_node(&mut sub, "b");
            sub.add_edge(START, a);
            sub.add_edge(a, b);
            backend.keep(parent(&calls, &sub.compile().unwrap()))
        };
        let drained = make().thread("t").run(say("in")).await.unwrap();
        assert_eq!((drained.status, drained.drained.as_deref()), (Status::Drained, Some("enough")));
        assert_eq!(make().thread("t").resume().await.unwrap().state.log_text(), "in p a b");
        assert_eq!(calls.all(), "p a");
    }

    async fn a_failure_in_a_subgraph_is_its_nodes_and_it_resumes_after_the_finished_tasks(backend: Backend) {
        let calls = Calls::default();
        let make = |works: bool| {
            let mut sub = StateGraph::<Plain>::new("sub");
            let a = sub.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                say("a")
            });
            let b = sub.add_node_with("b", works, async |works: bool, _: Plain, _: Cx| {
                if works { Ok(say("b")) } else { Err(NodeError::new("no luck")) }
            });
            sub.add_edge(START, a);
            sub.add_edge(a, b);
            backend.keep(parent(&calls, &sub.compile().unwrap()))
        };
        let error = failed(make(false).thread("t").run(say("in")).await);
        assert_eq!(
            superstep::error::chain(&error),
            "SS101: superstep 2: node `sub` failed after 1 attempt: SS101: superstep 2: node `b` failed after 1 attempt: no \
             luck"
        );
        assert_eq!(make(true).thread("t").resume().await.unwrap().state.log_text(), "in p a b");
        assert_eq!(calls.all(), "p a");
    }

    /// The update would take the place of the input that its caller gives to it.
    async fn a_subgraph_that_has_not_begun_cannot_be_updated(backend: Backend) {
        let mut sub = StateGraph::<Inner>::new("inner");
        let a = sub.add_node("a", async |state: Inner, cx: Cx| {
            let _: bool = cx.interrupt("q", ()).await;
            Inner::update().said([format!("x{}", state.x)])
        });
        sub.add_edge(START, a);
        let sub = sub.compile().unwrap();
        let mut graph = StateGraph::<Plain>::new("parent");
        let said = |sub: &Inner| Plain::update().log(sub.said.iter().cloned().collect::<Vec<_>>());
        let mapped = graph.add_subgraph_with("sub", &sub, |state: &Plain| Inner::update().x(state.x), said);
        graph.add_edge(START, mapped);
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").break_before(["sub"]).run(Plain::update().x(7)).await.unwrap();
        let refused = async || {
            let error = failed(graph.thread("t").subgraph::<Inner>(["sub"]).update(Inner::update().x(1)).await);
            let wanted = "SS155: graph `parent` has no stored subgraph `sub`: nothing of it is stored yet";
            assert!(error.to_string().starts_with(wanted), "{error}");
        };
        refused().await;
        graph.thread("t").resume().await.unwrap();
        graph.thread("t").fork(None).await.unwrap();
        refused().await;
        graph.thread("t").resume().await.unwrap();
        assert_eq!(graph.thread("t").answer("q", true).resume().await.unwrap().state.log_text(), "x7");
        let replayed = graph.thread("t").replay().run().await.unwrap();
        assert!(replayed.is_same(), "{replayed}");
    }

    async fn ids_and_keys_of_a_subgraph_are_its_own(backend: Backend) {
        let mut sub = StateGraph::<Inner>::new("sub");
        let a = sub.add_node("a", async |_: Inner, cx: Cx| {
            let thread = cx.thread().unwrap().to_string();
            Inner::update().said([cx.id("m"), thread, cx.path().to_string(), json!(cx.key()).to_string()])
        });
        sub.add_edge(START, a);
        let sub = sub.compile().unwrap();
        let mut graph = StateGraph::<Plain>::new("parent");
        let node = graph.add_node_with("n", sub, async |sub, _: Plain, cx: Cx| {
            let ended: Inner = cx.call(&sub, Inner::update()).key("k").await?;
            let mut said: Vec<String> = ended.said.iter().cloned().collect();
            assert_eq!(said.pop(), Some(json!(format!("{}:k/1.0", cx.key())).to_string()));
            Ok::<_, NodeError>(Plain::update().log(said))
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        let end = backend.keep(graph.compile().unwrap()).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(end.state.log_text(), "1.0:k/1.0.m t n:0@2:k");
    }
}
