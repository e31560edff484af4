//! C: the history of a thread.

use std::sync::Arc;

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, Checkpointer, Cx, Durability, History, MemoryCheckpointer, OnUnfinished, RunError, START,
    State, StateGraph, Status, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Loaded, Retention, Source},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use crate::support::{Plain, entries, entry, failed, h, head, json, line, names, on_every_store, say, task};

on_every_store! {
    async fn every_superstep_leaves_a_checkpoint_with_its_state_and_results(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!(
            h(&graph).await,
            entries(&[("loop", 2, ""), ("loop", 1, "b"), ("loop", 0, "a"), ("input", -1, "__start__")])
        );
        let history = graph.thread("t").history().states().await.unwrap();
        let values: Vec<_> = history.iter().map(|snapshot| snapshot.values.log_text()).collect();
        assert_eq!(values, ["in a b", "in a", "in", ""]);
        let tasks: Vec<Vec<_>> = history
            .iter()
            .map(|snapshot| snapshot.tasks.iter().map(task).collect())
            .collect();
        let done = |node: &str, word| vec![(node.to_owned(), json(&say(word)), String::new())];
        assert_eq!(tasks, [vec![], done("b", "b"), done("a", "a"), done("__start__", "in")]);
        let parents: Vec<_> = history.iter().map(|snapshot| snapshot.checkpoint.as_ref().unwrap().parent).collect();
        assert_eq!(parents, [Some(CheckpointId(3)), Some(CheckpointId(2)), Some(CheckpointId(1)), None]);
    }

    async fn an_outcome_names_the_last_of_four_checkpoints(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.thread("t").run(say("in")).await.unwrap();
        let history = graph.thread("t").history().states().await.unwrap();
        assert_eq!(history.len(), 4);
        assert_eq!(end.checkpoint, Some(history[0].checkpoint.as_ref().unwrap().id));
        assert_eq!(end.state, history[0].values);
    }

    async fn a_second_run_counts_on_and_keeps_the_older_checkpoints(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("1")).await.unwrap();
        let end = graph.thread("t").run(say("2")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a b 2 a b");
        assert_eq!(
            h(&graph).await,
            entries(&[
                ("loop", 6, ""),
                ("loop", 5, "b"),
                ("loop", 4, "a"),
                ("input", 3, "__start__"),
                ("loop", 2, ""),
                ("loop", 1, "b"),
                ("loop", 0, "a"),
                ("input", -1, "__start__"),
            ])
        );
    }

    async fn an_update_in_a_nodes_name_is_followed_by_what_follows_the_node(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").update_as("a", say("u")).await.unwrap();
        assert_eq!(h(&graph).await, entries(&[("update", 0, "b")]));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "u b");
        assert_eq!(h(&graph).await, entries(&[("loop", 1, ""), ("update", 0, "b")]));
    }

    async fn an_update_in_the_name_of_start_is_an_input_that_waits(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").update_as("__start__", say("u")).await.unwrap();
        assert_eq!(h(&graph).await, entries(&[("update", 0, "a")]));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "u a b");
    }

    async fn an_update_without_a_name_on_a_fresh_thread_is_an_input_that_waits(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").update(say("u")).await.unwrap();
        assert_eq!(h(&graph).await, entries(&[("update", 0, "a")]));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "u a b");
    }

    async fn an_update_in_an_unknown_name_is_an_error_and_stores_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let error = failed(graph.thread("t").update_as("z", say("u")).await);
        assert!(matches!(&error, RunError::UnknownNode { node, .. } if node == "z"), "{error}");
        assert_eq!(h(&graph).await, []);
    }

    async fn a_replay_of_the_last_checkpoint_runs_nothing_and_leaves_a_fork(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let end = graph.thread("t").run(say("in")).await.unwrap();
        let replay = graph.thread("t").at(end.checkpoint).resume().await.unwrap();
        assert_eq!((replay.state.log_text().as_str(), replay.status), ("in a", Status::Completed));
        assert_eq!(
            h(&graph).await,
            entries(&[("fork", 2, ""), ("loop", 1, ""), ("loop", 0, "a"), ("input", -1, "__start__")])
        );
        assert_eq!(replay.checkpoint, Some(CheckpointId(4)));
    }

    async fn a_fork_is_a_copy_of_its_checkpoint_that_waits(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        let forked = graph.thread("t").fork(CheckpointId(3)).await.unwrap();
        assert_eq!(forked, CheckpointId(5));
        let copy = head(&graph).await;
        let meta = copy.checkpoint.as_ref().unwrap();
        assert_eq!((entry(meta), meta.parent), (("fork", 2, "b".to_owned()), Some(CheckpointId(3))));
        assert_eq!(copy.values.log_text(), "in a");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b");
        assert_eq!(h(&graph).await[..2], entries(&[("loop", 3, ""), ("fork", 2, "b")]));
        // The head is forked by default, and an input goes along with its fork.
        assert_eq!(graph.thread("t").fork(None).await.unwrap(), CheckpointId(7));
        assert_eq!(h(&graph).await[0], ("fork", 4, String::new()));
        graph.thread("t").fork(CheckpointId(1)).await.unwrap();
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b");
        let error = failed(graph.thread("nobody").fork(None).await);
        assert!(matches!(&error, RunError::EmptyThread { .. }), "{error}");
    }

    async fn a_finished_thread_resumes_to_its_state_without_a_trace(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let end = graph.thread("t").run(say("in")).await.unwrap();
        let again = graph.thread("t").resume().await.unwrap();
        assert_eq!(again.state, end.state);
        assert_eq!((again.status, again.checkpoint), (Status::Completed, end.checkpoint));
        assert_eq!(h(&graph).await.len(), 3);
    }

    async fn history_is_paged_newest_first(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a", "b"]).with_checkpointer(store.clone());
        for run in ["1", "2", "3"] {
            graph.thread("t").run(say(run)).await.unwrap();
        }
        let page = async |range| store.history(&"t".into(), range).await.unwrap();
        let steps = |metas: &[CheckpointMeta]| metas.iter().map(|meta| meta.control.step).collect::<Vec<_>>();
        let all = page(History::default()).await;
        assert_eq!(all.iter().map(|meta| meta.id.0).collect::<Vec<_>>(), (1..=12).rev().collect::<Vec<_>>());
        assert_eq!(steps(&page(History { limit: Some(2), ..History::default() }).await), [10, 9]);
        let inputs = page(History { source: Some(Source::Input), ..History::default() }).await;
        assert_eq!(steps(&inputs), [7, 3, -1]);
        let before = Some(all[3].id);
        assert_eq!(steps(&page(History { limit: Some(2), before, ..History::default() }).await), [6, 5]);
    }

    async fn history_is_filtered_by_superstep_node_and_metadata(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        for (run, user) in [("1", "kim"), ("2", "lee"), ("3", "kim")] {
            graph.thread("t").metadata("user", user).run(say(run)).await.unwrap();
        }
        let steps = async |range| {
            let found = graph.thread("t").history().range(range).checkpoints().await.unwrap();
            found.iter().map(|meta| meta.control.step).collect::<Vec<_>>()
        };
        let before_b = History { next: Some("b".into()), ..History::default() };
        assert_eq!(steps(before_b.clone()).await, [9, 5, 1]);
        assert_eq!(steps(History { limit: Some(1), ..before_b }).await, [9]);
        assert_eq!(steps(History { step: Some(4), ..History::default() }).await, [4]);
        let metadata = serde_json::Map::from_iter([("user".to_owned(), "kim".into())]);
        assert_eq!(steps(History { metadata, ..History::default() }).await, [7, -1]);
    }

    async fn an_unknown_thread_is_empty_and_so_is_a_deleted_one(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a"]).with_checkpointer(store.clone());
        for _ in 0..2 {
            let empty = head(&graph).await;
            assert_eq!(empty.values, Plain::default());
            assert!(empty.next.is_empty() && empty.tasks.is_empty() && empty.checkpoint.is_none());
            assert_eq!(h(&graph).await, []);
            graph.thread("t").run(say("in")).await.unwrap();
            graph.thread("t").delete().await.unwrap();
        }
        let at = Some(CheckpointId(1));
        let error = failed(graph.thread("t").at(at).state().await);
        assert!(matches!(error, RunError::UnknownCheckpoint { checkpoint: CheckpointId(1), .. }));
    }

    async fn a_number_and_its_text_name_the_same_thread(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        graph.thread(7).run(say("1")).await.unwrap();
        let end = graph.thread("7").run(say("2")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a 2 a");
    }

    async fn every_checkpoint_of_a_long_thread_is_the_state_that_the_run_saw(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("line");
        let a = graph.add_node("a", async |state: Plain, _: Cx| say(&state.x.to_string()).x(state.x + 1));
        graph.add_edge(START, a);
        graph.add_edge(a, a);
        let graph = backend.keep(graph.compile().unwrap());
        let mut seen = Vec::new();
        let mut stream = graph.thread("t").step_limit(300).stream(Plain::update(), [superstep::StreamMode::Values]);
        while let Some(event) = futures::StreamExt::next(&mut stream).await {
            if let superstep::Event::Values { step, state, .. } = event {
                seen.push((step, state));
            }
        }
        assert!(matches!(stream.outcome().await, Err(RunError::StepLimit { limit: 300, .. })));
        assert_eq!(seen.len(), 301);

        let graph = backend.keep(line(&["a"]));
        let history = graph.thread("t").history().states().await.unwrap();
        assert_eq!(history.len(), 302);
        for (snapshot, (step, state)) in history.iter().rev().skip(1).zip(&seen) {
            assert_eq!(snapshot.checkpoint.as_ref().unwrap().control.step, *step);
            assert_eq!(snapshot.values, *state, "superstep {step}");
        }
        let mut next = graph.thread("t").at(CheckpointId(1)).state().await.unwrap();
        assert_eq!((next.values.log.len(), names(&next.next)), (0, "__start__".to_owned()));
        next = head(&graph).await;
        assert_eq!((next.values.log.len(), names(&next.next)), (300, "a".to_owned()));
    }

    async fn the_metadata_and_the_time_of_a_run_stand_in_its_checkpoints(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let clock = superstep::clock::TokioClock::starting_at(1_700_000_000_000);
        let thread = graph.thread("t").clock(clock).metadata("user", "kim").on_unfinished(OnUnfinished::Discard);
        thread.run(say("in")).await.unwrap();
        let history = graph.thread("t").history().states().await.unwrap();
        let metas: Vec<_> = history.iter().map(|snapshot| snapshot.checkpoint.as_ref().unwrap()).collect();
        let users: Vec<_> = metas.iter().map(|meta| (entry(meta).0, meta.metadata.get("user").is_some())).collect();
        assert_eq!(users, [("loop", false), ("loop", false), ("input", true)]);
        assert!(metas.iter().all(|meta| meta.created_ms >= 1_700_000_000_000));
    }

    async fn the_first_superstep_of_a_resumed_run_has_the_metadata_of_that_run(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        for (id, durability, users) in [
            ("sync", Durability::Sync, vec!["kim", "", "", "lee", ""]),
            ("async", Durability::Async, vec!["kim", "", "", "lee", ""]),
            ("exit", Durability::Exit, vec!["kim", "", "lee"]),
        ] {
            let thread = graph.thread(id).durability(durability);
            thread.metadata("user", "kim").break_after(["a"]).run(say("in")).await.unwrap();
            thread.metadata("user", "lee").resume().await.unwrap();
            let mut history = graph.thread(id).history().checkpoints().await.unwrap();
            history.reverse();
            let user = |meta: &CheckpointMeta| meta.metadata.get("user").map_or("", |user| user.as_str().unwrap()).to_owned();
            assert_eq!(history.iter().map(user).collect::<Vec<_>>(), users, "{id}");
            // A prune retains that of the newest run.
            thread.prune(Retention::Last(1)).await.unwrap();
            let head = graph.thread(id).history().checkpoints().await.unwrap();
            assert_eq!(head.iter().map(user).collect::<Vec<_>>(), ["lee"], "{id}");
        }
    }
}

/// A store whose thread has lost its first checkpoint by the time its states are read.
struct Pruning(MemoryCheckpointer);

impl Wrapper for Pruning {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        match at {
            Some(CheckpointId(1)) => Box::pin(async { Ok(None) }),
            at => self.0.load(thread, at),
        }
    }
}

#[tokio::test]
async fn a_history_is_read_while_its_thread_is_pruned() {
    let store: Arc<dyn Checkpointer> = Arc::new(Wrapped(Pruning(MemoryCheckpointer::new())));
    let graph = line(&["a"]).with_checkpointer(store);
    graph.thread("t").run(say("in")).await.unwrap();
    let history = graph.thread("t").history().states().await.unwrap();
    let values: Vec<_> = history.iter().map(|snapshot| snapshot.values.log_text()).collect();
    assert_eq!(values, ["in a", "in"]);
}
