//! A thread stores the graph that created it, and is distinguished from earlier threads of its name.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde_json::json;
use superstep::{
    CheckpointId, Command, CompiledGraph, Cx, END, History, RunError, RunOptions, START, State, StateGraph,
    Status, ThreadId,
    checkpoint::{CheckpointMeta, Commit, Retention, Source},
    clock::Clock,
    node::Persistence,
    topology::Control,
};

use crate::support::{Backend, Plain, failed, head, names, on_every_store, say, t, text};

/// `START → a → b → END`, which stops before `b`.
fn named(name: &str, version: Option<&str>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::new(name);
    if let Some(version) = version {
        graph = graph.version(version);
    }
    let a = graph.add_node("a", async |_: Plain, _| say("a"));
    let b = graph.add_node("b", async |_: Plain, _| say("b"));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, END);
    graph.compile().unwrap()
}

/// Returns the errors of another graph for each use of the thread `t`.
async fn every_use(graph: &CompiledGraph<Plain>) -> Vec<RunError> {
    let thread = ThreadId::from("t");
    vec![
        failed(graph.thread("t").run(say("x")).await),
        failed(graph.thread("t").resume().await),
        failed(graph.thread("t").resume_with(Command::update(say("x"))).await),
        failed(graph.thread("t").stream(say("x"), []).outcome().await),
        failed(graph.thread(&thread).state().await),
        failed(graph.thread(&thread).at(CheckpointId(1)).state().await),
        failed(graph.thread(&thread).history().checkpoints().await),
        failed(graph.thread(&thread).history().states().await),
        failed(graph.thread(&thread).drawing().await),
        failed(graph.thread("t").update_as("a", say("x")).await),
        failed(graph.thread("t").fork(None).await),
        failed(graph.thread("t").post(1).await),
        failed(graph.thread(&thread).prune(Retention::Last(1)).await),
        failed(graph.thread("t").replay().run().await.map_err(|error| match error {
            superstep::replay::ReplayError::Run(error) => error,
            other => panic!("{other}"),
        })),
    ]
}

on_every_store! {
    async fn a_thread_is_used_by_the_graph_that_began_it_and_by_no_other(backend: Backend) {
        let (ours, other) = (backend.keep(named("ours", Some("2"))), backend.keep(named("other", None)));
        ours.thread("t").run(say("in")).await.unwrap();
        let before = ours.thread("t").history().checkpoints().await.unwrap();
        for error in every_use(&other).await {
            assert_eq!(
                error.to_string(),
                "SS176: thread `t` belongs to graph `ours`, version `2`, and this is graph `other`; use that graph, or another \
                 thread, or make the thread this graph's with `Thread::adopt`"
            );
        }
        assert_eq!(ours.thread("t").history().checkpoints().await.unwrap(), before);
        // What knows of no graph does not ask for one.
        other.thread("t").copy_to("copy").await.unwrap();
        assert!(failed(other.thread("copy").state().await).to_string().starts_with("SS176"));
        other.thread("copy").delete().await.unwrap();
    }

    async fn an_adopted_thread_is_the_other_graphs_with_all_of_its_checkpoints(backend: Backend) {
        let (old, new) = (backend.keep(named("old", None)), backend.keep(named("new", Some("1"))));
        let config = t().metadata("who", "ada");
        old.configured(config).run(say("1")).await.unwrap();
        assert_eq!(
            failed(new.thread("nobody").adopt().await).to_string(),
            "SS110: thread `nobody` has no checkpoint to resume from; give it an input first"
        );
        new.thread("t").adopt().await.unwrap();
        assert_eq!(new.thread("t").run(say("2")).await.unwrap().state.log_text(), "1 a b 2 a b");
        let history = new.thread("t").history().states().await.unwrap();
        assert_eq!(history.len(), 8);
        assert!(history.iter().all(|snapshot| snapshot.graph.as_ref().unwrap().to_string() == "`new`, version `1`"));
        assert_eq!(history[7].checkpoint.as_ref().unwrap().metadata["who"], "ada", "the rest is as it was");
        for error in every_use(&old).await {
            assert!(error.to_string().starts_with("SS176: thread `t` belongs to graph `new`, version `1`"), "{error}");
        }
    }

    async fn another_version_of_a_graph_resumes_and_reports_it(backend: Backend) {
        let versions = [None, Some("1"), Some("2"), Some("1")];
        for version in versions {
            let graph = backend.keep(named("g", version));
            assert_eq!(graph.version(), version);
            graph.thread("t").run(say("in")).await.unwrap();
            let graph = head(&graph).await.graph.unwrap();
            assert_eq!((graph.name.as_str(), graph.version.as_deref()), ("g", version));
        }
    }

    async fn a_thread_of_an_older_program_belongs_to_the_graph_that_resumes_it(backend: Backend) {
        let store = backend.open();
        let old = Commit {
            parent: None,
            source: Source::Update,
            control: Control::new(0, vec!["b".into()]),
            created_ms: 0,
            metadata: Default::default(),
            applied: Vec::new(),
            snapshot: None,
            fingerprints: None,
            records: Vec::new(),
        };
        store.commit(&"t".into(), None, old).await.unwrap();
        for name in ["one", "other"] {
            let snapshot = head(&named(name, None).with_checkpointer(store.clone())).await;
            assert_eq!((names(&snapshot.next), snapshot.graph), ("b".to_owned(), None));
        }
        named("one", None).with_checkpointer(store.clone()).thread("t").resume().await.unwrap();
        let other = named("other", None).with_checkpointer(store);
        assert!(failed(other.thread("t").resume().await).to_string().starts_with("SS176: thread `t` belongs to graph `one`, "));
    }

    async fn every_kind_of_checkpoint_says_whose_it_is(backend: Backend) {
        let store = backend.open();
        let graph = named("g", Some("7")).with_checkpointer(store.clone());
        graph.thread("t").update_as("a", say("0")).await.unwrap();
        graph.thread("t").resume_with(Command::update(say("1"))).await.unwrap();
        graph.thread("t").run(say("2")).await.unwrap();
        graph.thread("t").fork(CheckpointId(1)).await.unwrap();
        graph.thread("t").resume().await.unwrap();
        graph.thread("t").at(CheckpointId(1)).resume().await.unwrap();
        graph.thread("t").prune(Retention::Last(4)).await.unwrap();
        graph.thread("t").durability(superstep::Durability::Exit).run(say("3")).await.unwrap();
        let owner = |meta: &CheckpointMeta| meta.graph().map(|graph| graph.to_string());
        let raw = store.history(&"t".into(), History::default()).await.unwrap();
        assert!(raw.len() >= 5);
        assert!(raw.iter().all(|meta| owner(meta).as_deref() == Some("`g`, version `7`")), "{raw:?}");
        // It is the driver's own, and not among what a caller remembers.
        let shown = graph.thread("t").history().checkpoints().await.unwrap();
        assert!(shown.iter().all(|meta| meta.metadata.is_empty()), "{shown:?}");
    }

    async fn a_subgraph_is_not_gone_on_with_by_another_graph(backend: Backend) {
        let inner = |name: &str, persistence| {
            let mut graph = StateGraph::<Plain>::new(name);
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
                let _: bool = cx.interrupt("ok", "?").await;
                say("answered")
            });
            graph.add_edge(START, ask);
            graph.add_edge(ask, END);
            graph.compile().unwrap().with_persistence(persistence)
        };
        let outer = |inner: CompiledGraph<Plain>| {
            let mut graph = StateGraph::<Plain>::new("outer");
            let sub = graph.add_node_with("sub", inner, async |inner, _: Plain, cx: Cx| {
                let ended = cx.call(&inner, say("in")).await?;
                Ok::<_, superstep::NodeError>(say(&ended.log_text()))
            });
            graph.add_edge(START, sub);
            graph.add_edge(sub, END);
            graph.compile().unwrap()
        };
        for (nth, persistence) in [Persistence::PerTask, Persistence::PerNode].into_iter().enumerate() {
            let thread = format!("t{nth}");
            let before = backend.keep(outer(inner("before", persistence)));
            before.thread(thread.as_str()).run(Plain::update()).await.unwrap();
            let after = backend.keep(outer(inner("after", persistence)));
            let error = failed(after.thread(thread.as_str()).resume().await);
            let error = superstep::error::chain(&error);
            assert!(error.contains(&format!("SS176: thread `{thread}/sub")), "{error}");
            assert!(error.contains("belongs to graph `before`, and this is graph `after`"), "{error}");
        }
    }

    async fn keys_of_a_thread_that_is_begun_again_are_new_even_if_no_time_went_by(backend: Backend) {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let told = keys.clone();
        let mut graph = StateGraph::<Plain>::new("g");
        let inner = {
            let mut inner = StateGraph::<Plain>::new("inner");
            let told = keys.clone();
            let node = inner.add_node("node", move |_: Plain, cx: Cx| {
                told.lock().unwrap().push(cx.key());
                async {}
            });
            inner.add_edge(START, node);
            inner.compile().unwrap()
        };
        let a = graph.add_node("a", move |_: Plain, cx: Cx| {
            told.lock().unwrap().push(cx.key());
            async {}
        });
        let sub = graph.add_subgraph("sub", &inner);
        graph.add_edge(START, a);
        graph.add_edge(a, sub);
        let graph = backend.keep(graph.compile().unwrap());
        let taken = || std::mem::take(&mut *keys.lock().unwrap());

        let mut seen: Vec<String> = Vec::new();
        for life in 0..4 {
            // Created by an input, or by an external update.
            if life % 2 == 0 {
                graph.thread("t").clock(Still).run(say("in")).await.unwrap();
            } else {
                graph.thread("t").clock(Still).update_as(START_NAME, say("in")).await.unwrap();
                graph.thread("t").clock(Still).resume().await.unwrap();
            }
            let ran = taken();
            assert_eq!(ran.len(), 2, "{ran:?}");
            assert!(ran.iter().all(|key| !seen.contains(key)), "{ran:?} is among {seen:?}");
            // A replay has the keys that there were.
            graph.thread("t").replay().run().await.unwrap().assert_same();
            let replayed = taken();
            assert!(replayed.is_empty() || replayed == ran, "{replayed:?} {ran:?}");
            // A fork is on the same thread.
            graph.thread("t").clock(Still).at(CheckpointId(1)).resume().await.unwrap();
            seen.extend(ran);
            let forked = taken();
            assert!(forked.iter().all(|key| !seen.contains(key)), "{forked:?} is among {seen:?}");
            seen.extend(forked);
            graph.thread("t").delete().await.unwrap();
        }
    }
}

on_every_store! {
    async fn a_copy_has_no_key_of_a_thread_that_had_its_name(backend: Backend) {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let told = keys.clone();
        let mut graph = StateGraph::<Plain>::new("g");
        let pay = graph.add_node("pay", move |_: Plain, cx: Cx| {
            let told = told.clone();
            async move {
                let _: bool = cx.interrupt("ok", "?").await;
                told.lock().unwrap().push(cx.key());
            }
        });
        graph.add_edge(START, pay);
        let graph = backend.keep(graph.compile().unwrap());
        let on = |thread: &str| RunOptions::new().thread(thread).clock(Still);
        let approved = || on("copy").answer("ok", true);
        graph.configured(on("t")).run(say("in")).await.unwrap();
        for life in 0..4 {
            match life {
                2 => drop(graph.configured(on("copy")).run(say("in")).await.unwrap()),
                _ => drop(graph.thread("t").copy_to("copy").await.unwrap()),
            }
            // What waits there waits in the copy.
            assert_eq!(graph.configured(approved()).resume().await.unwrap().status, Status::Completed);
            graph.thread("copy").delete().await.unwrap();
        }
        let keys = keys.lock().unwrap();
        let different: BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), 4, "{keys:?}");
    }

    async fn what_the_engine_notes_with_a_checkpoint_is_nothing_that_a_caller_may_say(backend: Backend) {
        let graph = backend.keep(named("g", None));
        graph.thread("t").metadata("$mine", json!("x")).run(say("in")).await.unwrap();
        for name in ["$graph", "$nonce", "$origins", "$memories", "$outside", "$task"] {
            let refused = [
                graph.thread("t").metadata(name, json!("x")).run(say("in")).await.map(drop),
                graph.thread("t").metadata(name, json!("x")).update_as(START_NAME, say("in")).await.map(drop),
                graph.thread("t").metadata(name, json!("x")).fork(None).await.map(drop),
            ];
            for error in refused.map(failed) {
                assert_eq!(
                    text(&error),
                    format!(
                        "SS192: the entry `{name}` of the metadata of thread `t` cannot be stored as JSON \
                         and read back unchanged; give it another form\n  cause: entries of this name are \
                         the engine's own"
                    )
                );
            }
        }
    }
}

/// A fixed clock.
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        1_000
    }
}

const START_NAME: &str = "__start__";

#[tokio::test]
async fn equal_runs_in_memory_have_equal_histories() {
    let mut histories = Vec::new();
    for _ in 0..2 {
        let backend = Backend::memory();
        let graph = backend.keep(named("g", None));
        for _ in 0..2 {
            graph.thread("t").delete().await.unwrap();
            graph.thread("t").clock(Still).run(say("in")).await.unwrap();
        }
        let history = backend.open().history(&"t".into(), History::default()).await.unwrap();
        histories.push(history.into_iter().map(|meta| (meta.metadata, meta.control)).collect::<Vec<_>>());
    }
    assert_eq!(histories[0], histories[1]);
    assert_eq!(histories[0][0].0["$nonce"], "1", "it was begun a second time");
}

#[test]
fn names_that_read_as_patterns_or_paths_are_refused() {
    for name in ["*", "a/b", "a*", "[ab]", "what?", "..", "$inbox", r"a\b"] {
        let mut graph = StateGraph::<Plain>::new("g");
        let node = graph.add_node(name, async |_, _| ());
        graph.add_edge(START, node);
        let error = graph.compile().unwrap_err();
        let text = error.problems[0].kind.to_string();
        assert_eq!(
            text,
            format!(
                "SS018: node name `{name}` reads as a pattern or a path: `*` stands for every node, `/` leads into a subgraph, \
                 and names that begin with `$` are superstep's own; choose one without `*`, `?`, `[`, `]`, `/`, `\\`, and no \
                 `$` in front"
            )
        );
    }
    for name in ["a.b", "a-b", "a b", "a!", "näh", "a$"] {
        let mut graph = StateGraph::<Plain>::new("g");
        let node = graph.add_node(name, async |_, _| ());
        graph.add_edge(START, node);
        graph.compile().unwrap();
    }
}
