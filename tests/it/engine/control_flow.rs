//! B: supersteps, edges and routes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use superstep::{
    CompileError, Cx, END, NodeError, NodeOptions, RetryPolicy, Route, RunError, RunOptions, START, State,
    StateGraph, Status, StreamMode, topology::ProblemKind,
};

use crate::support::{
    Calls, Plain, failed, h, head, json, line, logging_node, names, on_every_store, say, task, told,
};

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// `a` counts to `end`.
fn counter(end: i64) -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("counter");
    let a = graph.add_node("a", async |state: Plain, _: Cx| Plain::update().x(state.x + 1));
    graph.add_edge(START, a);
    let router = move |state: &Plain| if state.x < end { Next::Again } else { Next::Done };
    graph.add_conditional_edges(a, router, |route| match route {
        Next::Again => a,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

#[tokio::test]
async fn each_router_of_a_node_has_to_return_a_route() {
    for routes in [[true, false], [false, true], [true, true]] {
        let mut graph = StateGraph::<Plain>::new("g");
        let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
        graph.add_edge(START, a);
        graph.add_edge(b, END);
        for returns in routes {
            let router = move |_: &Plain| if returns { vec![Next::Done] } else { vec![] };
            graph.add_conditional_edges(a, router, |route| match route {
                Next::Again => b,
                Next::Done => END,
            });
        }
        let ran = graph.compile().unwrap().run(Plain::update()).await;
        if routes == [true, true] {
            assert_eq!(ran.unwrap().state.log_text(), "a");
            continue;
        }
        assert_eq!(
            failed(ran).to_string(),
            "SS104: superstep 1: node `a` has conditional edges, and a router returned no route; return a route, or route to \
             END"
        );
    }
}

#[tokio::test]
async fn updates_report_each_node_and_values_each_state_from_the_input() {
    let graph = line(&["a", "b"]);
    let config = RunOptions::new;
    assert_eq!(
        told(&graph, Plain::update(), config(), &[StreamMode::Updates]).await,
        [r#"update 1 a: {"log":["a"]}"#, r#"update 2 b: {"log":["b"]}"#]
    );
    assert_eq!(
        told(&graph, Plain::update(), config(), &[StreamMode::Values]).await,
        ["values 0: []", "values 1: [a]", "values 2: [a b]"]
    );
}

#[derive(Route, Clone, Copy)]
enum Way {
    Left,
    Right,
    End,
}

/// `START → a ⇢ {l, r, END}`, by the routes that `choose` makes.
fn fork_in_the_road(choose: fn(&Plain) -> Vec<Way>) -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("roads");
    let [a, l, r] = ["a", "l", "r"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_conditional_edges(a, choose, |way| match way {
        Way::Left => l,
        Way::Right => r,
        Way::End => END,
    });
    graph.compile().unwrap()
}

async fn walked(choose: fn(&Plain) -> Vec<Way>) -> Result<String, RunError> {
    let end = fork_in_the_road(choose).run(Plain::update()).await?;
    Ok(end.state.log_text())
}

#[tokio::test]
async fn routes_lead_where_the_map_says() {
    assert_eq!(walked(|_| vec![Way::Left]).await.unwrap(), "a l");
    assert_eq!(walked(|_| vec![Way::End]).await.unwrap(), "a");
    assert_eq!(walked(|_| vec![Way::End, Way::Right]).await.unwrap(), "a r");
    assert_eq!(walked(|_| vec![Way::Right, Way::Left, Way::Right]).await.unwrap(), "a l r");
}

#[tokio::test]
async fn a_router_reads_the_writes_of_its_node_and_not_of_siblings() {
    let seen = |state: &Plain| if state.log_text() == "b" { Next::Done } else { Next::Again };
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b, wrong] = ["a", "b", "wrong"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_conditional_edges(b, seen, |route| match route {
        Next::Again => wrong,
        Next::Done => END,
    });
    let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b");
}

on_every_store! {
    async fn a_router_that_chooses_nothing_is_an_error(backend: Backend) {
        let graph = backend.keep(fork_in_the_road(|_| vec![]));
        let error = failed(graph.thread("t").run(Plain::update()).await);
        assert!(matches!(&error, RunError::Route { step: 1, .. }), "{error}");
        let head = head(&graph).await;
        assert_eq!((names(&head.next).as_str(), head.values.log_text().as_str()), ("a", ""));
        assert_eq!(task(&head.tasks[0]).2, error.to_string());
        let repaired = backend.keep(fork_in_the_road(|_| vec![Way::Left]));
        assert_eq!(repaired.thread("t").resume().await.unwrap().state.log_text(), "a l");
    }

    async fn an_input_that_start_routes_nowhere_leaves_no_trace(backend: Backend) {
        let graph = |routes: fn(&Plain) -> Vec<Way>| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = logging_node(&mut graph, "a");
            graph.add_conditional_edges(START, routes, |_| a);
            backend.keep(graph.compile().unwrap())
        };
        let lost = graph(|_| vec![]);
        let error = failed(lost.thread("t").run(Plain::update()).await);
        assert!(matches!(&error, RunError::Route { step: 0, .. }), "{error}");
        assert_eq!(h(&lost).await, []);
        assert_eq!(graph(|_| vec![Way::Left]).thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a");
    }

    async fn the_step_limit_stops_a_run_and_a_resume_goes_on(backend: Backend) {
        let graph = backend.keep(counter(5));
        let error = failed(graph.thread("t").step_limit(3).run(Plain::update()).await);
        assert!(
            matches!(&error, RunError::StepLimit { limit: 3, next } if names(next) == "a"),
            "{error}"
        );
        let stopped = head(&graph).await;
        assert_eq!((stopped.values.x, names(&stopped.next).as_str()), (3, "a"));
        assert_eq!(stopped.checkpoint.unwrap().control.step, 3);
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.state.x, end.status), (5, Status::Completed));
    }
}

#[tokio::test]
async fn as_many_supersteps_pass_as_the_limit_says() {
    let run =
        async |step_limit| counter(5).without_thread().step_limit(step_limit).run(Plain::update()).await;
    assert_eq!(run(5).await.unwrap().state.x, 5);
    let error = failed(run(4).await);
    assert!(matches!(&error, RunError::StepLimit { limit: 4, .. }), "{error}");
    let error = failed(run(0).await);
    assert!(matches!(&error, RunError::ZeroStepLimit), "{error}");
}

on_every_store! {
    async fn a_thread_needs_an_input_and_a_run_needs_a_thread(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let error = failed(graph.thread("t").resume().await);
        assert!(matches!(&error, RunError::EmptyThread { thread } if thread.as_str() == "t"), "{error}");
        let error = failed(graph.run(Plain::update()).await);
        assert!(matches!(&error, RunError::NoThread { graph } if graph == "line"), "{error}");
        assert_eq!(h(&graph).await, []);
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a");
    }
}

#[tokio::test]
async fn a_node_may_return_nothing() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| ());
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let told = told(&graph, Plain::update(), RunOptions::new(), &[StreamMode::Updates]).await;
    assert_eq!(told, ["update 1 a: {}"]);
}

fn problems(error: &CompileError) -> Vec<&ProblemKind> {
    error.problems.iter().map(|problem| &problem.kind).collect()
}

#[test]
fn every_mistake_in_a_graph_is_reported_at_once_with_its_line() {
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = logging_node(&mut other, "stranger");
    let mut graph = StateGraph::<Plain>::new("broken");
    let first = line!() + 1;
    let a = graph.add_node("a", async |_: Plain, _: Cx| ());
    graph.add_node("a", async |_: Plain, _: Cx| ());
    graph.add_node("__start__", async |_: Plain, _: Cx| ());
    graph.add_node("END", async |_: Plain, _: Cx| ());
    graph.add_node("x|y", async |_: Plain, _: Cx| ());
    graph.add_node("x:y", async |_: Plain, _: Cx| ());
    graph.add_node("", async |_: Plain, _: Cx| ());
    graph.add_edge(a, stranger);
    graph.add_edge(END, a);
    graph.add_edge(a, START);
    graph.add_conditional_edges(a, |_: &Plain| Next::Done, |_| stranger);
    let error = graph.compile().err().unwrap();
    let found = problems(&error);
    assert!(
        matches!(
            found.as_slice(),
            [
                ProblemKind::DuplicateNode(duplicate, _),
                ProblemKind::ReservedName(start),
                ProblemKind::ReservedName(end),
                ProblemKind::BadName(bar),
                ProblemKind::BadName(colon),
                ProblemKind::BadName(empty),
                ProblemKind::ForeignNode(_),
                ProblemKind::OutOfEnd,
                ProblemKind::IntoStart,
                ProblemKind::ForeignNode(_),
                ProblemKind::ForeignNode(_),
                ProblemKind::NoStart,
            ] if duplicate.as_str() == "a" && start.as_str() == "__start__" && end.as_str() == "END"
                && bar.as_str() == "x|y" && colon.as_str() == "x:y" && empty.as_str().is_empty()
        ),
        "{found:?}"
    );
    let lines = error.problems.iter().map(|problem| problem.place.line() - first);
    assert_eq!(lines.collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 11]);
    assert!(error.problems.iter().all(|problem| problem.place.file().ends_with("control_flow.rs")));
}

#[tokio::test]
async fn an_unreachable_node_is_a_warning_and_a_duplicate_edge_is_not() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = logging_node(&mut graph, "a");
    logging_node(&mut graph, "orphan");
    graph.add_edge(START, a);
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    assert_eq!(graph.warnings().len(), 1);
    assert_eq!(graph.warnings()[0].kind, ProblemKind::Unreachable("orphan".into()));
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a");
}

#[tokio::test(start_paused = true)]
async fn no_more_tasks_run_at_once_than_allowed() {
    for (max_concurrency, expected) in [(Some(4), 4), (Some(1), 1), (None, 20)] {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut graph = StateGraph::<Plain>::new("g");
        for number in 0..20 {
            let counters = (running.clone(), most.clone());
            let node = graph.add_node_with(
                &format!("n{number:02}"),
                counters,
                async |counters, _: Plain, cx: Cx| {
                    let (running, most): (Arc<AtomicUsize>, Arc<AtomicUsize>) = counters;
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    cx.sleep(Duration::from_millis(10)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    say(cx.node().as_str())
                },
            );
            graph.add_edge(START, node);
        }
        let end = graph
            .compile()
            .unwrap()
            .without_thread()
            .max_concurrency(max_concurrency)
            .run(Plain::update())
            .await
            .unwrap();
        assert_eq!(most.load(Ordering::SeqCst), expected);
        assert_eq!(end.state.log.len(), 20);
    }
}

/// Returns the maximum number of concurrent tasks of each of two workers, and in total, and the final log.
async fn most_at_once(limit: Option<usize>, config: RunOptions) -> ([usize; 2], usize, Vec<String>) {
    let counters: [(AtomicUsize, AtomicUsize); 3] = Default::default();
    let counters = Arc::new(counters);
    let mut graph = StateGraph::<Plain>::new("g");
    for (which, name) in ["limited", "other"].into_iter().enumerate() {
        let counters = counters.clone();
        let worker = graph.add_worker(name, move |item: u32, _: Plain, cx: Cx| {
            let counters = counters.clone();
            async move {
                for (now, most) in [&counters[which], &counters[2]] {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                }
                cx.sleep(Duration::from_millis(u64::from(item % 3) + 1)).await;
                for (now, _) in [&counters[which], &counters[2]] {
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                say(&format!("{}{item}", cx.node()))
            }
        });
        if which == 0 {
            graph.configure(worker, NodeOptions::new().max_concurrency(limit));
        }
        graph.add_fan_out(START, move |_: &Plain| 0..10_u32, worker);
    }
    let graph = graph.compile().unwrap();
    let end = graph.configured(config).run(Plain::update()).await.unwrap();
    let said = end.state.log.iter().cloned().collect();
    let most = |of: usize| counters[of].1.load(Ordering::SeqCst);
    ([most(0), most(1)], most(2), said)
}

#[tokio::test(start_paused = true)]
async fn no_more_tasks_of_a_node_run_at_once_than_it_allows() {
    let all = |name: &str| (0..10).map(|item| format!("{name}{item}")).collect::<Vec<_>>();
    let expected = [all("limited"), all("other")].concat();
    for (limit, at_once) in [(Some(3), 3), (Some(1), 1), (Some(0), 1), (Some(99), 10), (None, 10)] {
        let (most, both, said) = most_at_once(limit, RunOptions::new()).await;
        assert_eq!((most, both), ([at_once, 10], at_once + 10), "{limit:?}");
        assert_eq!(said, expected);
    }
    // Both limits apply, and a node at its limit does not block others.
    let config = || RunOptions::new().max_concurrency(5);
    let (most, both, said) = most_at_once(Some(2), config()).await;
    assert_eq!((most[0], both, said), (2, 5, expected));
}

#[tokio::test(start_paused = true)]
async fn retried_tasks_respect_the_limit_of_their_node() {
    let mut graph = StateGraph::<Plain>::new("g");
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (running, most.clone());
    let worker = graph.add_worker("w", move |item: u32, _: Plain, cx: Cx| {
        let (running, most) = counters.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            cx.sleep(Duration::from_millis(10)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            if cx.attempt() == 1 { Err(NodeError::new("not yet")) } else { Ok(say(&item.to_string())) }
        }
    });
    let retry = RetryPolicy::default().initial(Duration::from_millis(1)).jitter(Duration::ZERO);
    let options = NodeOptions::new().retry(retry).max_concurrency(2);
    graph.configure(worker, options);
    graph.add_fan_out(START, |_: &Plain| 0..7_u32, worker);
    let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!((end.state.log_text().as_str(), most.load(Ordering::SeqCst)), ("0 1 2 3 4 5 6", 2));
}

on_every_store! {
    async fn a_task_that_its_nodes_limit_held_back_is_dropped_with_the_run_and_runs_later(backend: Backend) {
        let make = |hangs: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let worker = graph.add_worker("w", move |item: u32, _: Plain, cx: Cx| async move {
                if item == 1 && hangs {
                    cx.cancel().cancel();
                    std::future::pending::<()>().await;
                }
                say(&item.to_string())
            });
            graph.configure(worker, NodeOptions::new().max_concurrency(1));
            graph.add_fan_out(START, |_: &Plain| 0..4_u32, worker);
            backend.keep(graph.compile().unwrap())
        };
        let end = make(true).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(end.status, Status::Cancelled);
        let tasks: Vec<_> = head(&make(false)).await.tasks.iter().map(|it| task(it).2).collect();
        assert_eq!(tasks, ["", "cancelled", "cancelled", "cancelled"]);
        assert_eq!(make(false).thread("t").resume().await.unwrap().state.log_text(), "0 1 2 3");
    }

    async fn a_failing_node_cancels_its_siblings(backend: Backend) {
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let ok = graph.add_node_with("ok", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            cx.sleep(Duration::from_secs(60)).await;
            calls.add(&cx);
        });
        let bad = graph.add_node("bad", async |_: Plain, _: Cx| Err::<(), _>(std::fmt::Error));
        graph.add_edge(START, ok);
        graph.add_edge(START, bad);
        let graph = backend.keep(graph.compile().unwrap());
        let error = failed(graph.thread("t").run(Plain::update()).await);
        assert!(
            matches!(&error, RunError::Node { node, step: 1, attempts: 1, source }
                if node.as_str() == "bad" && source.is::<std::fmt::Error>()),
            "{error}"
        );
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(calls.all(), "", "ok is dropped, not left running");
        let head = head(&graph).await;
        assert_eq!(names(&head.next), "bad ok");
        let tasks: Vec<_> = head.tasks.iter().map(task).collect();
        let cause = format!("{error}: {}", std::fmt::Error);
        let none = || json(&());
        assert_eq!(
            tasks,
            [("bad".to_owned(), none(), cause), ("ok".to_owned(), none(), "cancelled".to_owned())]
        );
    }
}
