//! Cached nodes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use superstep::{
    Answers, Command, CompiledGraph, Cx, END, NodeError, Route, RunError, RunOptions, START, State,
    StateGraph, Status, StreamMode, clock::Clock, node::CachePolicy,
};

use crate::support::{Calls, Plain, Stuck, failed, logging_node, on_every_store, say, told};

/// A manually set clock.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicI64>);

impl Hand {
    fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Caches results that depend on `x` for a second.
fn for_a_second() -> CachePolicy<Plain> {
    CachePolicy::new(|state: &Plain| state.x.to_string()).ttl(Duration::from_secs(1))
}

/// `START → a → END`; `a` says its name and the number of its call.
fn counting(calls: &Calls, policy: CachePolicy<Plain>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        say(&format!("a{}", calls.named("a")))
    });
    graph.cache(a, policy);
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_second_run_emits_the_same_update_marked_cached_until_it_is_too_old() {
    let (calls, clock) = (Calls::default(), Hand::default());
    let graph = counting(&calls, for_a_second());
    let config = || RunOptions::new().clock(clock.clone());
    let modes = [StreamMode::Updates, StreamMode::Tasks];
    let run = async |input| told(&graph, input, config(), &modes).await;
    let first = r#"update 1 a: {"log":["a1"]}"#;
    assert_eq!(run(Plain::update()).await, ["start 1 a #1", first, "end 1 a #1"]);
    clock.advance(999);
    assert_eq!(run(Plain::update()).await, [r#"update 1 a (cached): {"log":["a1"]}"#]);
    assert_eq!(calls.all(), "a");
    clock.advance(1);
    let second = r#"update 1 a: {"log":["a2"]}"#;
    assert_eq!(run(Plain::update()).await, ["start 1 a #1", second, "end 1 a #1"]);
    // The lifetime restarts, and another key is another result.
    clock.advance(999);
    assert_eq!(run(Plain::update()).await, [r#"update 1 a (cached): {"log":["a2"]}"#]);
    assert_eq!(run(Plain::update().x(1)).await[1], r#"update 1 a: {"log":["a3"]}"#);

    graph.clone().clear_cache();
    assert_eq!(run(Plain::update()).await[1], r#"update 1 a: {"log":["a4"]}"#);
    assert_eq!(run(Plain::update()).await, [r#"update 1 a (cached): {"log":["a4"]}"#]);
}

#[tokio::test]
async fn a_cache_has_a_capacity_and_without_a_ttl_entries_stay() {
    let calls = Calls::default();
    let (policy, clock) = (CachePolicy::new(|state: &Plain| state.x.to_string()), Hand::default());
    let graph = counting(&calls, policy);
    for _ in 0..3 {
        assert_eq!(
            graph.without_thread().clock(clock.clone()).run(Plain::update()).await.unwrap().state.log_text(),
            "a1"
        );
        clock.advance(i64::MAX / 4);
    }
    let none = counting(&calls, CachePolicy::new(|_: &Plain| String::new()).capacity(0));
    for _ in 0..2 {
        none.without_thread().clock(clock.clone()).run(Plain::update()).await.unwrap();
    }
    assert_eq!(calls.all(), "a a a");
}

on_every_store! {
    async fn a_cached_update_is_stored_as_any_other(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(counting(&calls, for_a_second()));
        graph.thread("first").run(Plain::update()).await.unwrap();
        graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!(calls.all(), "a");
        assert_eq!(crate::support::head(&graph).await.values.log_text(), "in a1");
    }

    async fn errors_and_interrupts_are_never_cached_nor_what_an_answer_made(backend: Backend) {
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            match calls.named("a") {
                1 => Err(NodeError::new("no")),
                2 => panic!("no"),
                _ => Ok(say(&cx.interrupt::<String>("who", ()).await)),
            }
        });
        graph.cache(a, CachePolicy::new(|_: &Plain| String::new()));
        graph.add_edge(START, a);
        let graph = backend.keep(graph.compile().unwrap());
        failed(graph.thread("t").run(Plain::update()).await);
        failed(graph.thread("t").resume().await);
        assert_eq!(graph.thread("t").resume().await.unwrap().status, Status::Interrupted);
        let answers = |who: &str| Answers::new().answer("who", who);
        let end = graph.thread("t").answers(answers("Ada")).resume().await.unwrap();
        assert_eq!(end.state.log_text(), "Ada");
        // The node of another user runs, and its result has nothing of Ada's.
        assert_eq!(graph.thread("u").run(Plain::update()).await.unwrap().status, Status::Interrupted);
        let end = graph.thread("u").answers(answers("Bo")).resume().await.unwrap();
        assert_eq!(end.state.log_text(), "Bo");
    }

    /// `a` and `b` run in parallel; only at its first call `a` writes the channel that `b` writes.
    async fn what_its_superstep_refuses_is_not_cached(backend: Backend) {
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            if calls.named("a") == 1 { say("a").x(1) } else { say("a") }
        });
        let b = graph.add_node("b", async |_: Plain, _: Cx| say("b").x(2));
        graph.cache(a, CachePolicy::new(|_: &Plain| String::new()));
        graph.add_edge(START, a);
        graph.add_edge(START, b);
        let graph = backend.keep(graph.compile().unwrap());
        let error = failed(graph.thread("t").run(Plain::update()).await);
        assert!(matches!(error, RunError::Conflict { .. }), "{error}");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "a b");
        // Once it is accepted it is.
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a b a b");
        assert_eq!(calls.all(), "a a");
    }

    /// The state of the subgraph is changed while it waits, after it was stopped, or after it failed.
    async fn a_result_with_an_external_update_of_a_subgraph_is_not_cached(backend: Backend) {
        for way in ["question", "second question", "breakpoint", "cached meanwhile", "failure", "crash"] {
            let (calls, stuck) = (Calls::default(), Stuck::default());
            let graph = backend.keep(with_a_cached_subgraph(way, &calls, &stuck));
            let [edited, other] = ["edited", "other"].map(|thread| graph.thread(format!("{way}, {thread}")));
            let stops = if ["breakpoint", "cached meanwhile"].contains(&way) { vec!["sub/b"] } else { Vec::new() };
            let stopping = edited.break_before(stops);
            match way {
                "crash" => stuck.crash(stopping.run(Plain::update())).await,
                _ => drop(stopping.run(Plain::update()).await),
            }
            if way == "second question" {
                edited.answer("q", "A").resume().await.unwrap();
            }
            let author = if way.ends_with("question") { "b" } else { "a" };
            edited.subgraph::<Plain>(["sub"]).update_as(author, say("EDIT")).await.unwrap();
            if way == "failure" {
                failed(edited.resume().await);
            }
            let run_other = async || other.run(Plain::update()).await.unwrap();
            let early = if way == "cached meanwhile" { Some(run_other().await) } else { None };
            let said = match way {
                "question" => "a EDIT",
                "second question" => "A EDIT",
                _ => "a EDIT b",
            };
            assert_eq!(edited.resume().await.unwrap().state.log_text(), said, "{way}");
            let end = match early {
                Some(end) => end,
                None => run_other().await,
            };
            let asks = way.ends_with("question");
            assert_eq!(end.status, if asks { Status::Interrupted } else { Status::Completed }, "{way}");
            assert_eq!(end.state.log_text(), if asks { "" } else { "a b" }, "{way}");
        }
    }
}

/// `START → sub → END`, where `sub` is `a → b` and cached.
fn with_a_cached_subgraph(way: &'static str, calls: &Calls, stuck: &Stuck) -> CompiledGraph<Plain> {
    let mut sub = StateGraph::<Plain>::new("sub");
    let a = sub.add_node("a", move |_: Plain, cx: Cx| async move {
        match way {
            "second question" => say(&cx.interrupt::<String>("q", "first").await),
            _ => say("a"),
        }
    });
    let deps = (calls.clone(), stuck.clone());
    let b =
        sub.add_node_with("b", deps, move |(calls, stuck): (Calls, Stuck), _: Plain, cx: Cx| async move {
            calls.add(&cx);
            match (way, calls.named("b")) {
                ("question" | "second question", _) => Ok(say(&cx.interrupt::<String>("q", "?").await)),
                ("failure", 1 | 2) => Err(NodeError::new("no").fatal()),
                ("crash", 1) => {
                    stuck.here().await;
                    Ok(say("b"))
                }
                _ => Ok(say("b")),
            }
        });
    sub.add_edge(START, a);
    sub.add_edge(a, b);
    let mut graph = StateGraph::<Plain>::new("cached");
    let sub = graph.add_subgraph("sub", &sub.compile().unwrap());
    graph.cache(sub, CachePolicy::new(|_: &Plain| String::new()));
    graph.add_edge(START, sub);
    graph.compile().unwrap()
}

#[tokio::test]
async fn the_item_of_a_worker_belongs_to_the_key() {
    let calls = Calls::default();
    let mut graph = StateGraph::<Plain>::new("g");
    let counted = calls.clone();
    let worker = graph.add_worker("w", move |item: u32, _: Plain, cx: Cx| {
        counted.add(&cx);
        async move { say(&item.to_string()) }
    });
    graph.cache(worker, CachePolicy::new(|_: &Plain| String::new()));
    graph.add_fan_out(START, |state: &Plain| 0..u32::try_from(state.x).unwrap(), worker);
    let graph = graph.compile().unwrap();
    let run = async |items| {
        let end = graph.run(Plain::update().x(items)).await.unwrap();
        (end.state.log_text(), calls.named("w"))
    };
    assert_eq!(run(2).await, ("0 1".to_owned(), 2));
    assert_eq!(run(3).await, ("0 1 2".to_owned(), 3));
}

#[derive(Route, Clone, Copy, Debug)]
enum Way {
    Left,
    Right,
}

#[tokio::test]
async fn where_a_node_goes_is_cached_along() {
    let calls = Calls::default();
    let mut graph = StateGraph::<Plain>::new("g");
    let counted = calls.clone();
    let a = graph.add_routing_node("a", move |state: Plain, cx: Cx| {
        counted.add(&cx);
        async move { Command::update(say("a")).goto(if state.x == 0 { Way::Left } else { Way::Right }) }
    });
    let [left, right] = ["left", "right"].map(|name| logging_node(&mut graph, name));
    graph.add_routes(a, |way| match way {
        Way::Left => left,
        Way::Right => right,
    });
    graph.cache(a, CachePolicy::new(|state: &Plain| state.x.to_string()));
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    for (x, said) in [(0, "a left"), (1, "a right"), (0, "a left"), (1, "a right")] {
        let end = graph.run(Plain::update().x(x)).await.unwrap();
        assert_eq!(end.state.log_text(), said);
    }
    assert_eq!(calls.named("a"), 2);
}

#[tokio::test]
async fn a_key_that_panics_is_a_failure_of_its_node() {
    let policy = CachePolicy::new(|_: &Plain| panic!("no key"));
    let error = failed(counting(&Calls::default(), policy).run(Plain::update()).await);
    assert_eq!(
        crate::support::text(&error),
        "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: panicked: no key"
    );
}

mod stored {
    //! Results in the store of the graph.

    use superstep::{
        MemoryCheckpointer, MemoryStore, Store, StreamMode,
        store::{Namespace, Operation, Search},
    };

    use super::*;

    fn by_x() -> CachePolicy<Plain> {
        CachePolicy::new(|state: &Plain| state.x.to_string()).stored()
    }

    #[tokio::test]
    async fn another_program_uses_a_stored_result_until_it_is_too_old_or_cleared() {
        let (calls, clock, store) = (Calls::default(), Hand::default(), Arc::new(MemoryStore::new()));
        // Each is a program of its own, with nothing in memory.
        let program = || counting(&calls, by_x().ttl(Duration::from_secs(1))).with_store(store.clone());
        let config = || RunOptions::new().clock(clock.clone());
        let modes = [StreamMode::Updates, StreamMode::Tasks];
        let run = async |input| told(&program(), input, config(), &modes).await;
        let first = r#"update 1 a: {"log":["a1"]}"#;
        let cached = r#"update 1 a (cached): {"log":["a1"]}"#;
        assert_eq!(run(Plain::update()).await, ["start 1 a #1", first, "end 1 a #1"]);
        assert_eq!(run(Plain::update()).await, [cached]);
        assert_eq!(run(Plain::update().x(1)).await[1], r#"update 1 a: {"log":["a2"]}"#);
        clock.advance(999);
        assert_eq!(run(Plain::update()).await, [cached]);
        clock.advance(1);
        assert_eq!(run(Plain::update()).await[1], r#"update 1 a: {"log":["a3"]}"#);

        // What is in memory does not outlive what is stored.
        let graph = program();
        told(&graph, Plain::update(), config(), &modes).await;
        clock.advance(1_000);
        assert_eq!(told(&graph, Plain::update(), config(), &modes).await[1], r#"update 1 a: {"log":["a4"]}"#);
        assert_eq!(graph.clear_stored_cache().await.unwrap(), 2);
        assert_eq!(run(Plain::update()).await[1], r#"update 1 a: {"log":["a5"]}"#);
    }

    #[tokio::test]
    async fn a_result_of_another_graph_node_key_or_item_is_not_used() {
        let store = Arc::new(MemoryStore::new());
        let run = async |graph: &str, node: &str, x: i64, items: &'static [u32]| {
            let (calls, node) = (Calls::default(), node.to_owned());
            let mut built = StateGraph::<Plain>::new(graph);
            let counted = calls.clone();
            let worker = built.add_worker(&node, move |item: u32, _: Plain, cx: Cx| {
                counted.add(&cx);
                async move { say(&item.to_string()) }
            });
            built.cache(worker, by_x());
            built.add_fan_out(START, move |_: &Plain| items.iter().copied(), worker);
            let built = built.compile().unwrap().with_store(store.clone());
            let end = built.run(Plain::update().x(x)).await.unwrap();
            (end.state.log_text(), calls.all().split_whitespace().count())
        };
        assert_eq!(run("g", "w", 1, &[1, 2]).await, ("1 2".to_owned(), 2));
        assert_eq!(run("g", "w", 1, &[1, 2, 3, 3]).await, ("1 2 3 3".to_owned(), 2));
        for (graph, node, x) in [("h", "w", 1), ("g", "v", 1), ("g", "w", 2)] {
            assert_eq!(run(graph, node, x, &[1]).await.1, 1, "{graph} {node} {x}");
        }
        assert_eq!(run("g", "w", 1, &[3, 1]).await, ("3 1".to_owned(), 0));
    }

    #[tokio::test]
    async fn where_a_node_goes_is_stored_along_and_a_node_that_is_gone_is_no_result() {
        let store = Arc::new(MemoryStore::new());
        let run = async |right: &'static str| {
            let calls = Calls::default();
            let mut graph = StateGraph::<Plain>::new("g");
            let counted = calls.clone();
            let a = graph.add_routing_node("a", move |_: Plain, cx: Cx| {
                counted.add(&cx);
                async move { Command::update(say("a")).goto(Way::Right) }
            });
            let [left, right] = ["left", right].map(|name| logging_node(&mut graph, name));
            graph.add_routes(a, |way| match way {
                Way::Left => left,
                Way::Right => right,
            });
            graph.cache(a, by_x());
            graph.add_edge(START, a);
            let graph = graph.compile().unwrap().with_store(store.clone());
            (graph.run(Plain::update()).await.unwrap().state.log_text(), calls.named("a"))
        };
        assert_eq!(run("right").await, ("a right".to_owned(), 1));
        assert_eq!(run("right").await, ("a right".to_owned(), 0));
        assert_eq!(run("other").await, ("a other".to_owned(), 1));
    }

    on_every_store! {
        async fn a_thread_with_a_stored_result_is_replayed_without_the_store(backend: Backend) {
            let (calls, store) = (Calls::default(), Arc::new(MemoryStore::new()));
            let graph = || backend.keep(counting(&calls, by_x()));
            graph().with_store(store.clone()).run_on("first").await;
            graph().with_store(store).run_on("t").await;
            assert_eq!(calls.all(), "a");
            assert_eq!(crate::support::head(&graph()).await.values.log_text(), "a1");
            graph().thread("t").replay().run().await.unwrap().assert_same();
            assert_eq!(calls.all(), "a");
        }
    }

    trait RunOn {
        async fn run_on(&self, thread: &str);
    }

    impl RunOn for CompiledGraph<Plain> {
        async fn run_on(&self, thread: &str) {
            self.thread(thread).run(Plain::update()).await.unwrap();
        }
    }

    /// The superstep of the first run is not over.
    #[tokio::test]
    async fn a_result_beside_a_task_that_waits_or_fails_is_cached() {
        for fails in [false, true] {
            for is_stored in [false, true] {
                let (calls, store) = (Calls::default(), Arc::new(MemoryStore::new()));
                let mut graph = StateGraph::<Plain>::new("g");
                let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                    calls.add(&cx);
                    say("a")
                });
                let beside = graph.add_node("beside", move |_: Plain, cx: Cx| async move {
                    // Until `a` has ended.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    match fails {
                        true => Err(NodeError::new("down").fatal()),
                        false => Ok(say(&cx.interrupt::<String>("q", "?").await)),
                    }
                });
                let policy = CachePolicy::new(|state: &Plain| state.x.to_string());
                graph.cache(a, if is_stored { policy.stored() } else { policy });
                for node in [a, beside] {
                    graph.add_edge(START, node);
                }
                let graph = graph
                    .compile()
                    .unwrap()
                    .with_store(store.clone())
                    .with_checkpointer(MemoryCheckpointer::new());
                for thread in ["one", "two"] {
                    let end = graph.thread(thread).run(Plain::update()).await;
                    assert_eq!(end.is_err(), fails);
                }
                assert_eq!(calls.named("a"), 1, "fails: {fails}, stored: {is_stored}");
                let stored = store.search(Search::everywhere()).await.unwrap().len();
                assert_eq!(stored, usize::from(is_stored));
            }
        }
    }

    #[tokio::test]
    async fn a_graph_without_a_store_cannot_use_a_stored_cache() {
        let error = failed(counting(&Calls::default(), by_x()).run(Plain::update()).await);
        insta::assert_snapshot!(crate::support::text(&error), @r"
        SS126: the cache of node `a` cannot be read or written
          cause: the graph has no store; add one with `CompiledGraph::with_store`
        ");
    }

    /// Other items are not read as results.
    #[tokio::test]
    async fn an_item_that_is_no_result_is_replaced() {
        let (calls, store) = (Calls::default(), Arc::new(MemoryStore::new()));
        let graph = || counting(&calls, by_x()).with_store(store.clone());
        graph().run(Plain::update()).await.unwrap();
        let found = store.search(Search::everywhere()).await.unwrap().remove(0).item;
        assert_eq!(found.namespace.labels().next(), Some("superstep-cache"));
        insta::assert_json_snapshot!(found.value, @r#"
        {
          "of": [
            "g",
            "a",
            "0",
            null
          ],
          "update": "{\"log\":[\"a1\"]}"
        }
        "#);
        let namespace: Namespace = found.namespace;
        for wrong in [
            serde_json::json!("text"),
            serde_json::json!({"of": ["g", "a", "1", null], "update": "{}"}),
            serde_json::json!({"of": ["g", "a", "0", null], "update": "{\"nothing\":1}"}),
            serde_json::json!({"of": ["g", "a", "0", null], "update": "{", "until_ms": 1}),
        ] {
            let before = calls.named("a");
            let put = Operation::Put {
                namespace: namespace.clone(),
                key: found.key.clone(),
                value: wrong.clone(),
                options: superstep::store::PutOptions::default(),
            };
            store.batch(vec![put]).await.unwrap();
            graph().run(Plain::update()).await.unwrap();
            assert_eq!(calls.named("a"), before + 1, "{wrong}");
            graph().run(Plain::update()).await.unwrap();
            assert_eq!(calls.named("a"), before + 1, "{wrong}");
        }
    }
}
