//! A run that is dropped, and a store that fails.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, NodeError, NodeOptions, RetryPolicy, RunError, START,
    State, StateGraph, ThreadId,
    checkpoint::{CheckpointError, Commit, Source},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use crate::support::{Calls, Plain, Stuck, entries, failed, h, head, names, on_every_store, say};

/// `a → b → c`; b hangs if it is `stuck`.
pub(super) fn hanging(calls: &Calls, stuck: Option<&Stuck>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let mut last = START;
    for name in ["a", "b", "c"] {
        let deps = (calls.clone(), stuck.filter(|_| name == "b").cloned());
        let node =
            graph.add_node_with(name, deps, async |(calls, stuck): (Calls, Option<Stuck>), _, cx: Cx| {
                calls.add(&cx);
                if let Some(stuck) = stuck {
                    stuck.here().await;
                }
                say(cx.node().as_str())
            });
        graph.add_edge(last, node);
        last = node;
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn after_a_crash_finished_nodes_do_not_run_again(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = backend.keep(hanging(&calls, Some(&stuck)));
        stuck.crash(graph.thread("t").run(say("in"))).await;
        drop(graph);

        let graph = backend.keep(hanging(&calls, None));
        let found = head(&graph).await;
        assert_eq!((names(&found.next).as_str(), found.values.log_text().as_str()), ("b", "in a"));
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in a b c");
        assert_eq!(calls.all(), "a b b c");
        assert_eq!(
            h(&graph).await,
            entries(&[
                ("loop", 3, ""),
                ("loop", 2, "c"),
                ("loop", 1, "b"),
                ("loop", 0, "a"),
                ("input", -1, "__start__"),
            ])
        );
    }

    async fn an_accepted_input_outlives_a_crash_before_the_first_node(backend: Backend) {
        let calls = Calls::default();
        let store = Failing::new(backend.open());
        let graph = hanging(&calls, None).with_checkpointer(store.clone());
        store.0.fail_commits.store(true, Ordering::SeqCst);
        let error = failed(graph.thread("t").run(say("in")).await);
        assert!(matches!(&error, RunError::Checkpoint(CheckpointError::Storage { .. })), "{error}");
        assert_eq!(calls.all(), "");

        let graph = backend.keep(hanging(&calls, None));
        assert_eq!(h(&graph).await, entries(&[("input", -1, "__start__")]));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b c");
    }

    async fn a_recorded_task_does_not_run_again_after_a_crash_in_its_superstep(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let side_by_side = |stuck: Option<&Stuck>| {
            let mut graph = StateGraph::<Plain>::new("g");
            for name in ["done", "slow"] {
                let deps = (calls.clone(), stuck.filter(|_| name == "slow").cloned());
                let node = graph.add_node_with(name, deps, async |(calls, stuck): (Calls, Option<Stuck>), _, cx: Cx| {
                    calls.add(&cx);
                    if let Some(stuck) = stuck {
                        stuck.here().await;
                    }
                    say(cx.node().as_str())
                });
                graph.add_edge(START, node);
            }
            backend.keep(graph.compile().unwrap())
        };
        let first = side_by_side(Some(&stuck));
        let recorded = async || {
            first.thread("t").state().await.is_ok_and(|now| names(&now.next) == "slow")
        };
        stuck.crash_once(first.thread("t").run(Plain::update()), recorded).await;
        drop(first);
        let graph = side_by_side(None);
        assert_eq!(names(&head(&graph).await.next), "slow");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "done slow");
        assert_eq!(calls.all(), "done slow slow");
    }

    async fn a_failed_commit_leaves_the_last_checkpoint_and_the_recorded_siblings(backend: Backend) {
        let calls = Calls::default();
        let store = Failing::new(backend.open());
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            for name in ["p", "q"] {
                let node = graph.add_node_with(name, calls.clone(), async |calls: Calls, _, cx: Cx| {
                    calls.add(&cx);
                    if cx.node().as_str() == "q" {
                        cx.sleep(std::time::Duration::from_secs(1)).await;
                    }
                    say(cx.node().as_str())
                });
                graph.add_edge(START, node);
            }
            graph.compile().unwrap()
        };
        store.0.fail_after(2);
        let error = failed(graph().with_checkpointer(store.clone()).thread("t").run(Plain::update()).await);
        assert!(matches!(&error, RunError::Checkpoint(CheckpointError::Storage { .. })), "{error}");
        let graph = backend.keep(graph());
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "p q"), ("input", -1, "__start__")]));
        assert_eq!(names(&head(&graph).await.next), "q");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "p q");
        assert_eq!(calls.all(), "p q q");
    }

    async fn failed_attempts_outlive_a_crash(backend: Backend) {
        let stuck = Stuck::default();
        let graph = |stuck: Option<Stuck>| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node_with("a", stuck, async |stuck: Option<Stuck>, _: Plain, cx: Cx| {
                if let (Some(stuck), 2) = (stuck, cx.attempt()) {
                    stuck.here().await;
                }
                Err::<(), _>(NodeError::new(format!("attempt {}", cx.attempt())))
            });
            graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        stuck.crash(graph(Some(stuck.clone())).thread("t").run(Plain::update())).await;
        let graph = graph(None);
        assert_eq!(head(&graph).await.tasks[0].error.as_deref(), Some("attempt 1"));
        let error = failed(graph.thread("t").resume().await);
        assert!(
            matches!(&error, RunError::Node { attempts: 3, source, .. } if source.to_string() == "attempt 3"),
            "{error}"
        );
        // The next one who tries has all attempts again.
        let error = failed(graph.thread("t").resume().await);
        assert!(matches!(&error, RunError::Node { attempts: 3, .. }), "{error}");
    }
}

/// A store whose commits of supersteps can be made to fail, or whose commits fail after some number.
pub(super) struct Failing {
    store: Arc<dyn Checkpointer>,
    pub(super) fail_commits: AtomicBool,
    commits_left: std::sync::atomic::AtomicUsize,
}

impl Failing {
    pub(super) fn new(store: Arc<dyn Checkpointer>) -> Arc<Wrapped<Self>> {
        let (fail_commits, commits_left) = (AtomicBool::new(false), usize::MAX.into());
        Arc::new(Wrapped(Self { store, fail_commits, commits_left }))
    }

    pub(super) fn fail_after(&self, commits: usize) {
        self.commits_left.store(commits, Ordering::SeqCst);
    }
}

impl Wrapper for Failing {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let spent = self.commits_left.fetch_sub(1, Ordering::SeqCst) == 0;
        if spent || next.source == Source::Loop && self.fail_commits.load(Ordering::SeqCst) {
            let what = "the disk is full".to_owned();
            return Box::pin(async move { Err(CheckpointError::Storage { what, source: None }) });
        }
        self.store.commit(thread, expected, next)
    }
}
