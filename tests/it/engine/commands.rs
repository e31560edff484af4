//! Nodes that choose the next nodes.

use std::time::Duration;

use superstep::{
    Command, CompileError, Cx, END, NodeRef, Route, RunError, START, State, StateGraph, Status, WorkerRef,
    error::EngineError, topology::ProblemKind,
};

use crate::support::{
    Calls, Plain, Stuck, entries, failed, h, head, logging_node, names, on_every_store, say, task, text,
};

#[derive(Route, Clone, Copy, Debug, PartialEq)]
enum Way {
    B,
    C,
    End,
}

/// `START → a`, where `a` says its name and takes these routes; `b` and `c` end.
fn roads(
    ways: &'static [Way],
    more: impl FnOnce(&mut StateGraph<Plain>, NodeRef, NodeRef),
) -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("roads");
    let a = graph.add_routing_node("a", move |_: Plain, _: Cx| async move {
        ways.iter().fold(Command::update(say("a")), |command, way| command.goto(*way))
    });
    let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_routes(a, |way| match way {
        Way::B => b,
        Way::C => c,
        Way::End => END,
    });
    more(&mut graph, a.into(), b);
    graph.compile().unwrap()
}

async fn walked(graph: superstep::CompiledGraph<Plain>) -> Result<String, RunError> {
    Ok(graph.run(Plain::update()).await?.state.log_text())
}

#[tokio::test]
async fn a_goto_adds_to_a_plain_edge() {
    let graph = roads(&[Way::C], |graph, a, b| graph.add_edge(a, b));
    assert_eq!(walked(graph).await.unwrap(), "a b c");
}

#[tokio::test]
async fn a_command_has_several_targets_or_ends() {
    assert_eq!(walked(roads(&[Way::C, Way::B, Way::C], |_, _, _| ())).await.unwrap(), "a b c");
    assert_eq!(walked(roads(&[Way::End], |_, _, _| ())).await.unwrap(), "a");
    assert_eq!(walked(roads(&[Way::End, Way::C], |_, _, _| ())).await.unwrap(), "a c");
    assert_eq!(walked(roads(&[], |graph, a, b| graph.add_edge(a, b))).await.unwrap(), "a b");
}

#[tokio::test]
async fn a_command_goes_beside_conditional_edges() {
    let graph = roads(&[Way::C], |graph, a, b| {
        let router = |state: &Plain| if state.log_text() == "a" { Way::B } else { Way::End };
        graph.add_conditional_edges(a, router, |way| if way == Way::B { b } else { END });
    });
    assert_eq!(walked(graph).await.unwrap(), "a b c");
}

#[tokio::test]
async fn commands_in_a_list_are_applied_in_order() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_routing_node("a", async |state: Plain, _: Cx| {
        if state.x < 0 {
            return Err(superstep::NodeError::new("x is negative"));
        }
        let second = Command::update(say("2").x(2)).goto(Way::B);
        Ok(vec![Command::new().goto(Way::C), Command::update(say("1").x(1)), second])
    });
    let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_routes(a, |way| match way {
        Way::B => b,
        Way::C => c,
        Way::End => END,
    });
    let graph = graph.compile().unwrap();
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!((end.state.log_text().as_str(), end.state.x), ("1 2 b c", 2));
    let error = failed(graph.run(Plain::update().x(-1)).await);
    assert_eq!(text(&error), "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: x is negative");
}

#[tokio::test]
async fn a_route_is_a_command_and_so_are_several() {
    let mut graph = StateGraph::<Plain>::new("g");
    let ways = |state: &Plain| if state.x == 0 { Way::C } else { Way::End };
    let a = graph.add_routing_node("a", move |state: Plain, _: Cx| async move { ways(&state) });
    let b =
        graph
            .add_routing_node_with("b", vec![Way::End, Way::C], async |ways: Vec<Way>, _: Plain, _: Cx| ways);
    let c = logging_node(&mut graph, "c");
    graph.add_edge(START, a);
    for node in [a, b] {
        graph.add_routes(node, |way| match way {
            Way::B => b.into(),
            Way::C => c,
            Way::End => END,
        });
    }
    let graph = graph.compile().unwrap();
    assert_eq!(graph.warnings().len(), 0);
    assert_eq!(walked(graph).await.unwrap(), "c");
}

/// `START → p`, which sends 3, goes to `z`, and sends 1.
fn senders(declared: bool) -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("senders");
    let w: WorkerRef<i64> = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| say(&item.to_string()));
    let p = graph.add_routing_node_with("p", w, async |w: WorkerRef<i64>, _: Plain, _: Cx| {
        Command::new().send(w, 3).goto(Way::B).send(w, 1)
    });
    let z = logging_node(&mut graph, "z");
    graph.add_edge(START, p);
    graph.add_routes(p, |_| z);
    if declared {
        graph.add_sends(p, w);
    }
    graph.compile().unwrap()
}

#[tokio::test]
async fn items_of_a_command_follow_its_targets() {
    assert_eq!(walked(senders(true)).await.unwrap(), "z 3 1");
}

#[tokio::test]
async fn a_node_may_send_and_go_nowhere() {
    let mut graph = StateGraph::<Plain>::new("g");
    let w = graph.add_worker("w", async |item: String, _: Plain, _: Cx| say(&item));
    let p = graph.add_routing_node_with("p", w, async |w: WorkerRef<String>, state: Plain, _: Cx| {
        let words = state.log.iter().filter(|word| word.len() > 1).cloned();
        words.fold(Command::<Plain>::without_routes(), |command, word| command.send(w, word))
    });
    graph.add_edge(START, p);
    graph.add_sends(p, w);
    let graph = graph.compile().unwrap();
    let run = async |words: [&str; 2]| {
        let input = Plain::update().log(words.map(str::to_owned));
        graph.run(input).await.unwrap().state.log_text()
    };
    assert_eq!(run(["one", "two"]).await, "one two one two");
    assert_eq!(run(["a", "b"]).await, "a b");
}

on_every_store! {
    async fn a_send_that_is_not_declared_is_an_error(backend: Backend) {
        let error = failed(backend.keep(senders(false)).thread("t").run(Plain::update()).await);
        assert!(matches!(&error, RunError::Route { step: 1, error: EngineError::UnknownSend { .. } }), "{error}");
        assert_eq!(
            error.to_string(),
            "SS104: superstep 1: node `p` sent an item to `w`, which it does not declare; declare it with `add_sends`"
        );
        assert_eq!(names(&head(&backend.keep(senders(false))).await.next), "p");
        assert_eq!(backend.keep(senders(true)).thread("t").resume().await.unwrap().state.log_text(), "z 3 1");
    }

    async fn a_node_that_goes_nowhere_is_an_error(backend: Backend) {
        let graph = backend.keep(roads(&[], |_, _, _| ()));
        let error = failed(graph.thread("t").run(Plain::update()).await);
        assert_eq!(
            error.to_string(),
            "SS104: superstep 1: routing node `a` returned no route, and no edge leaves it; return a route, \
             or one that leads to END"
        );
        let head = head(&graph).await;
        assert_eq!((names(&head.next).as_str(), head.values.log_text().as_str()), ("a", ""));
        assert_eq!(task(&head.tasks[0]).2, error.to_string());
        assert_eq!(backend.keep(roads(&[Way::B], |_, _, _| ())).thread("t").resume().await.unwrap().state.log_text(), "a b");
    }
}

#[tokio::test]
async fn a_worker_of_another_graph_cannot_be_sent_to() {
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = other.add_worker("w", async |_: i64, _: Plain, _: Cx| ());
    let mut graph = StateGraph::<Plain>::new("g");
    let p = graph.add_routing_node("p", move |_: Plain, _: Cx| async move {
        Command::without_routes().send(stranger, 1)
    });
    graph.add_edge(START, p);
    let error = failed(graph.compile().unwrap().run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS104: superstep 1: node `p` sent an item to a worker of another graph, which it does not declare; \
         declare it with `add_sends`"
    );
}

#[tokio::test]
async fn an_item_without_json_form_fails_its_node() {
    let mut graph = StateGraph::<Plain>::new("g");
    let w = graph.add_worker("w", async |_: std::collections::BTreeMap<(u8, u8), u8>, _: Plain, _: Cx| ());
    let p = graph.add_routing_node("p", move |_: Plain, _: Cx| async move {
        Command::without_routes().send(w, [((1, 2), 3)].into())
    });
    graph.add_edge(START, p);
    graph.add_sends(p, w);
    let error = failed(graph.compile().unwrap().run(Plain::update()).await);
    assert_eq!(
        text(&error),
        "SS101: superstep 1: node `p` failed after 1 attempt\n  cause: an item of its command cannot be \
         stored: at `/[1,2]`: key must be a string"
    );
}

on_every_store! {
    async fn where_a_node_went_is_stored_with_what_it_wrote(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        // In the next attempt, the node would take another route.
        let graph = |way: Way, item: i64, hangs: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| say(&item.to_string()));
            let a = graph.add_routing_node_with("a", calls.clone(), move |calls: Calls, _: Plain, cx: Cx| async move {
                calls.add(&cx);
                Command::update(say("a")).goto(way).send(w, item)
            });
            let hang = graph.add_node_with("hang", stuck.clone(), move |stuck: Stuck, _: Plain, cx: Cx| async move {
                // By then `a` is recorded.
                cx.sleep(Duration::from_secs(1)).await;
                if hangs {
                    stuck.here().await;
                }
            });
            let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, a);
            graph.add_edge(START, hang);
            graph.add_sends(a, w);
            graph.add_routes(a, |way| match way {
                Way::B => b,
                Way::C => c,
                Way::End => END,
            });
            backend.keep(graph.compile().unwrap())
        };
        let first = graph(Way::B, 1, true);
        stuck.crash(first.thread("t").run(Plain::update())).await;
        drop(first);
        let end = graph(Way::C, 2, false).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("a b 1", "a"));
    }

    /// The better outcome: the router is a separate node, so that it can be interrupted.
    async fn a_router_that_asks_is_asked_again_and_not_what_came_before_it(backend: Backend) {
        let calls = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                say("a")
            });
            let router = graph.add_routing_node_with("router", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                let to: String = cx.interrupt("where", "b or c?").await;
                if to == "b" { Way::B } else { Way::C }
            });
            let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, a);
            graph.add_edge(a, router);
            graph.add_routes(router, |way| match way {
                Way::B => b,
                Way::C => c,
                Way::End => END,
            });
            backend.keep(graph.compile().unwrap())
        };
        let asked = graph().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((asked.status, asked.state.log_text().as_str()), (Status::Interrupted, "a"));
        assert_eq!((head(&graph()).await.values.log_text().as_str(), calls.all().as_str()), ("a", "a router"));
        assert_eq!(h(&graph()).await[0], entries(&[("loop", 1, "router")])[0]);
        let answers = superstep::Answers::new().answer("where", "b");
        let end = graph().thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("a b", "a router router"));
    }
}

fn problems(graph: StateGraph<Plain>) -> CompileError {
    graph.compile().err().unwrap()
}

#[test]
fn routes_are_declared_once_and_lead_to_nodes_of_the_graph() {
    let route = async |_: Plain, _: Cx| Way::B;
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = other.add_routing_node("stranger", route);
    let mut graph = StateGraph::<Plain>::new("broken");
    let w = graph.add_worker("w", async |_: i64, _: Plain, _: Cx| ());
    let first = line!() + 1;
    let a = graph.add_routing_node("a", route);
    let b = graph.add_routing_node("b", route);
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_routes(b, |_| END);
    graph.add_routes(b, |_| a.into());
    graph.add_routes(b, |_| w.into());
    graph.add_routes(stranger, |_| END);
    let error = problems(graph);
    let kinds: Vec<_> = error.problems.iter().map(|problem| &problem.kind).collect();
    assert!(matches!(kinds[0], ProblemKind::NoRoutes(node) if node.as_str() == "a"), "{error}");
    assert!(
        matches!(kinds[1], ProblemKind::RoutesTwice(node, place) if node.as_str() == "b" && place.line() == first + 4)
    );
    assert!(matches!(kinds[2], ProblemKind::RoutesTwice(..)));
    assert!(matches!(kinds[3..6], [ProblemKind::WorkerWithoutItem(_), ..]));
    assert!(matches!(kinds[6], ProblemKind::ForeignNode(_)), "{error}");
    let lines: Vec<_> = error.problems.iter().map(|problem| problem.place.line() - first).collect();
    assert_eq!(lines[..4], [0, 5, 6, 6]);
    let codes: Vec<_> = error.problems.iter().map(|problem| problem.to_string()).collect();
    assert!(codes[0].contains("SS011: routing node `a` has no targets"), "{}", codes[0]);
    assert!(codes[1].contains("SS012: the routes of node `b` are declared twice, first at "), "{}", codes[1]);
}

#[test]
fn every_target_of_a_routing_node_is_drawn() {
    let graph = senders(true);
    let text = graph.topology().text();
    for arrow in ["p     ┄┄▶ w  (each item)", "p     ┄┄▶ z  (B)", "p     ┄┄▶ z  (C)"] {
        assert!(text.contains(arrow), "{text}");
    }
    assert!(roads(&[Way::End], |_, _, _| ()).topology().mermaid().contains("\"End\" .-> end_"));
}
