//! Copied, pruned and deleted threads.

use std::{collections::BTreeSet, io::Cursor};

use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, MemoryCheckpointer, RunError, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, Prune, Retention,
        text::{self, ExportOptions},
    },
    thread::StateSnapshot,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use crate::support::{Calls, Plain, entries, failed, h, head, json, line, on_every_store, say, task};

/// Returns the description of a checkpoint, without the existence of its parent.
fn seen(snapshot: &StateSnapshot<Plain>) -> String {
    let meta = snapshot.checkpoint.as_ref().unwrap();
    let meta = CheckpointMeta { parent_pruned: false, ..meta.clone() };
    let tasks: Vec<_> = snapshot.tasks.iter().map(task).collect();
    let [log, meta, tasks] = [json(&snapshot.values.log), json(&meta), json(&tasks)];
    format!("{log} {} {:?} {meta} {tasks}", snapshot.values.x, snapshot.next)
}

/// Lists the checkpoints, newest first.
async fn all(graph: &CompiledGraph<Plain>, thread: &str) -> Vec<String> {
    let history = graph.thread(thread).history().states().await.unwrap();
    history.iter().map(seen).collect()
}

async fn ids(graph: &CompiledGraph<Plain>) -> Vec<u64> {
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    history.iter().map(|meta| meta.id.0).collect()
}

/// Runs two turns of `a → b`, and a branch from the first one's checkpoint 3: ids 1 to 8, 9 and 10 on the
/// branch.
async fn two_turns_and_a_branch(graph: &CompiledGraph<Plain>) {
    graph.thread("t").run(say("1")).await.unwrap();
    graph.thread("t").run(say("2")).await.unwrap();
    graph.thread("t").at(CheckpointId(3)).resume().await.unwrap();
    assert_eq!(ids(graph).await, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
}

on_every_store! {
    async fn a_copied_thread_has_the_same_past_and_a_future_of_its_own(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        two_turns_and_a_branch(&graph).await;
        let before = all(&graph, "t").await;
        graph.thread("t").copy_to("copy").await.unwrap();
        assert_eq!(all(&graph, "copy").await, before);
        let end = graph.thread("copy").run(say("3")).await.unwrap();
        assert_eq!((end.state.log_text().as_str(), end.checkpoint), ("1 a b 3 a b", Some(CheckpointId(14))));
        assert_eq!(all(&graph, "t").await, before);
        graph.thread("t").delete().await.unwrap();
        assert_eq!(graph.thread("copy").resume().await.unwrap().state.log_text(), "1 a b 3 a b");
    }

    async fn a_copy_does_not_take_the_place_of_a_thread(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let [from, to] = ["t", "other"].map(ThreadId::from);
        let error = failed(graph.thread(&from).copy_to(&to).await);
        assert_eq!(
            error.to_string(),
            "SS311: thread `t` does not exist; check its name, `threads` lists the existing threads"
        );
        graph.thread("t").run(say("1")).await.unwrap();
        graph.thread("other").run(say("2")).await.unwrap();
        for to in [&from, &to] {
            let error = failed(graph.thread(&from).copy_to(to).await).to_string();
            assert!(error.starts_with("SS310: thread `") && error.contains("` already exists;"), "{error}");
        }
    }

    async fn a_thread_that_someone_runs_is_neither_copied_nor_pruned_nor_deleted(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a"]).with_checkpointer(store.clone());
        graph.thread("t").run(say("1")).await.unwrap();
        let lease = store.lease(&"t".into()).await.unwrap();
        let thread = ThreadId::from("t");
        for error in [
            failed(graph.thread(&thread).copy_to("copy").await),
            failed(graph.thread(&thread).delete().await),
            failed(graph.thread(&thread).prune(Retention::Last(1)).await),
        ] {
            assert!(matches!(&error, RunError::Checkpoint(CheckpointError::Busy { .. })), "{error}");
        }
        drop(lease);
        assert_eq!(h(&graph).await.len(), 3);
        graph.thread(&thread).delete().await.unwrap();
        assert_eq!(h(&graph).await, []);
    }

    async fn retained_checkpoints_are_unchanged_by_a_prune(backend: Backend) {
        let keeps = [
            (Retention::Last(3), &[10, 9, 8][..]),
            (Retention::Last(0), &[10]),
            (Retention::Last(99), &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
            (Retention::Leaves, &[10, 8]),
            (Retention::Only(BTreeSet::from([CheckpointId(3), CheckpointId(5), CheckpointId(6)])), &[10, 6, 5, 3]),
        ];
        for (keep, left) in keeps {
            let graph = backend.keep(line(&["a", "b"]));
            graph.thread("t").delete().await.unwrap();
            two_turns_and_a_branch(&graph).await;
            let mut before = all(&graph, "t").await;
            before.reverse();
            let pruned = graph.thread("t").prune(keep.clone()).await.unwrap();
            assert_eq!((pruned, ids(&graph).await), (10 - left.len(), left.to_vec()), "{keep:?}");
            let kept: Vec<_> = left.iter().map(|id| before[*id as usize - 1].clone()).collect();
            assert_eq!(all(&backend.keep(line(&["a", "b"])), "t").await, kept, "{keep:?}");
            // The thread continues, and so does each retained checkpoint.
            for id in left {
                graph.thread("t").at(CheckpointId(*id)).update_as("b", say("on")).await.unwrap();
            }
            assert_eq!(graph.thread("t").at(CheckpointId(10)).run(say("3"))
                .await.unwrap().state.log_text(), "1 a b 3 a b");
        }
    }

    async fn retained_checkpoints_of_a_prune_have_their_questions(backend: Backend) {
        let graph = line(&["a", "b"]).with_checkpointer(backend.open());
        for who in ["first", "second"] {
            graph.thread("t").metadata("who", who).run(say("1")).await.unwrap();
        }
        let who = async || {
            let history = graph.thread("t").history().checkpoints().await.unwrap();
            let who = |meta: &CheckpointMeta| meta.metadata.get("who").map(ToString::to_string);
            history.iter().map(who).collect::<Vec<_>>()
        };
        let only = |ids: [u64; 2]| Retention::Only(ids.map(CheckpointId).into());
        graph.thread("t").prune(only([3, 8])).await.unwrap();
        let both = ["second", "first"].map(|who| Some(format!("{who:?}")));
        assert_eq!(who().await, both);
        graph.thread("t").prune(Retention::Last(1)).await.unwrap();
        assert_eq!(who().await, both[..1]);
    }

    async fn a_prune_by_time_retains_younger_checkpoints(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        for (input, now) in [("1", 1_000), ("2", 2_000), ("3", 3_000)] {
            let clock = std::sync::Arc::new(superstep::clock::TokioClock::starting_at(now));
            graph.thread("t").clock(clock).run(say(input)).await.unwrap();
        }
        assert_eq!(graph.thread("t").prune(Retention::Since(2_000)).await.unwrap(), 3);
        assert_eq!(ids(&graph).await, [9, 8, 7, 6, 5, 4]);
        assert_eq!(graph.thread("t").prune(Retention::Since(i64::MAX)).await.unwrap(), 5);
        assert_eq!(head(&graph).await.values.log_text(), "1 a 2 a 3 a");
        assert_eq!(graph.thread("nobody").prune(Retention::Last(1)).await.unwrap(), 0);
        let error = failed(graph.thread("t").prune(Retention::Only([CheckpointId(4)].into())).await);
        assert!(matches!(error, RunError::UnknownCheckpoint { checkpoint: CheckpointId(4), .. }), "{error}");
    }

    async fn a_pruned_thread_still_says_which_parents_it_had(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        two_turns_and_a_branch(&graph).await;
        graph.thread("t").prune(Retention::Leaves).await.unwrap();
        let history = graph.thread("t").history().checkpoints().await.unwrap();
        let parents: Vec<_> = history.iter().map(|meta| (meta.id.0, meta.parent.unwrap().0, meta.parent_pruned)).collect();
        assert_eq!(parents, [(10, 9, true), (8, 7, true)]);
    }

    async fn a_prune_leaves_what_finished_tasks_of_the_head_wrote(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(crate::engine::failures::ok_and_bad(false, &calls));
        failed(graph.thread("t").run(say("in")).await);
        graph.thread("t").prune(Retention::Last(1)).await.unwrap();
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "bad ok")]));
        let repaired = backend.keep(crate::engine::failures::ok_and_bad(true, &calls));
        assert_eq!(repaired.thread("t").resume().await.unwrap().state.log_text(), "in bad ok j");
        assert_eq!(calls.named("ok"), 1);
    }

    async fn a_run_deletes_what_is_not_to_be_retained_once_it_is_a_quarter(backend: Backend) {
        let graph = backend.keep(line(&["a"])).with_retention(Retention::Last(8));
        let mut lengths = Vec::new();
        for input in 1..=8 {
            let end = graph.thread("t").run(say(&input.to_string())).await.unwrap();
            let stored = graph.thread("t").state().await.unwrap();
            assert_eq!(stored.values.log_text(), end.state.log_text());
            lengths.push(ids(&graph).await.len());
        }
        // Three checkpoints each time.
        assert_eq!(lengths, [3, 6, 9, 8, 8, 8, 8, 8]);
        assert_eq!(ids(&graph).await[0], 24);
        // The program starts again, and each retained checkpoint can be forked.
        let graph = backend.keep(line(&["a"])).with_retention(Retention::Last(8));
        let end = graph.thread("t").run(say("9")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a 2 a 3 a 4 a 5 a 6 a 7 a 8 a 9 a");
        let oldest = *ids(&graph).await.last().unwrap();
        graph.thread("t").at(CheckpointId(oldest)).update_as("a", say("on")).await.unwrap();
    }

    async fn an_input_of_one_id_is_accepted_once_also_after_a_prune(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let stopped = graph.thread("t").input_id("1").break_before(["a"]).run(say("1")).await.unwrap();
        assert_eq!(stopped.state.log_text(), "1");
        for (id, said) in [("1", "1 a"), ("1", "1 a"), ("2", "1 a 2 a"), ("1", "1 a 2 a"), ("3", "1 a 2 a 3 a")] {
            let end = graph.thread("t").input_id(id).run(say(id)).await.unwrap();
            assert_eq!(end.state.log_text(), said);
        }
        let history = graph.thread("t").history().checkpoints().await.unwrap();
        assert!(history.iter().all(|meta| meta.metadata.is_empty()));
        for last in [5, 1] {
            graph.thread("t").prune(Retention::Last(last)).await.unwrap();
            for id in ["1", "2", "3"] {
                let end = graph.thread("t").input_id(id).run(say(id)).await.unwrap();
                assert_eq!(end.state.log_text(), "1 a 2 a 3 a");
            }
        }
        let end = graph.thread("t").input_id("4").run(say("4")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a 2 a 3 a 4 a");
        // An id belongs to a thread.
        let end = graph.thread("other").input_id("1").run(say("1")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a");
    }

    async fn the_id_of_an_input_outlives_its_branch(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        for id in ["1", "2"] {
            graph.thread("t").input_id(id).run(say(id)).await.unwrap();
        }
        // The second run is on another branch then.
        graph.thread("t").at(CheckpointId(3)).run(say("3")).await.unwrap();
        for last in [6, 3] {
            graph.thread("t").prune(Retention::Last(last)).await.unwrap();
        }
        for id in ["1", "2"] {
            let end = graph.thread("t").input_id(id).run(say(id)).await.unwrap();
            assert_eq!(end.state.log_text(), "1 a 3 a");
        }
    }

    async fn an_input_at_the_id_of_the_head_is_accepted_once(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let first = graph.thread("t").input_id("1").run(say("1")).await.unwrap();
        let older = graph.thread("t").history().checkpoints().await.unwrap()[1].id;
        let here = graph.thread("t").at(first.checkpoint).input_id("1");
        assert_eq!(here.run(say("1")).await.unwrap().state.log_text(), "1 a");
        assert_eq!(ids(&graph).await.len(), 3);
        // A run on another branch is another one.
        assert_eq!(graph.thread("t").at(older).input_id("1").run(say("1")).await.unwrap().state.log_text(), "1 1 a");
        assert_eq!(here.run(say("1")).await.unwrap().state.log_text(), "1 a 1 a");
    }

    async fn the_id_of_the_oldest_retained_input_is_retained(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        for id in 0..66 {
            graph.thread("t").input_id(id.to_string()).run(say("in")).await.unwrap();
        }
        for newest in [66, 67] {
            let kept = [CheckpointId(1), CheckpointId(newest * 3)].into();
            graph.thread("t").prune(Retention::Only(kept)).await.unwrap();
            let before = ids(&graph).await;
            graph.thread("t").input_id("0").run(say("in")).await.unwrap();
            assert_eq!(ids(&graph).await, before);
            graph.thread("t").input_id(newest.to_string()).run(say("in")).await.unwrap();
        }
    }

    async fn the_id_of_an_input_at_an_older_checkpoint_is_not_that_of_the_thread(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        for input in ["1", "2"] {
            graph.thread("t").run(say(input)).await.unwrap();
        }
        let older = graph.thread("t").at(CheckpointId(3)).input_id("x");
        assert_eq!(older.run(say("3")).await.unwrap().state.log_text(), "1 a 3 a");
        for _ in 0..2 {
            let end = graph.thread("t").input_id("x").run(say("4")).await.unwrap();
            assert_eq!(end.state.log_text(), "1 a 3 a 4 a");
        }
    }

    async fn copies_and_imports_know_the_ids_of_inputs(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        for id in ["1", "2"] {
            graph.thread("t").input_id(id).run(say(id)).await.unwrap();
        }
        let check = async |thread: &str| {
            for id in ["1", "2"] {
                let end = graph.thread(thread).input_id(id).run(say(id)).await.unwrap();
                assert_eq!(end.state.log_text(), "1 a 2 a", "{thread}");
            }
            let end = graph.thread(thread).input_id("3").run(say("3")).await.unwrap();
            assert_eq!(end.state.log_text(), "1 a 2 a 3 a");
        };
        let store = backend.open();
        let exported = async || text::export(&*store, &"t".into(), &ExportOptions::default()).await.unwrap();
        let import = async |text: &str, thread: &str| {
            text::check(&mut Cursor::new(text)).unwrap().store(&*store, &thread.into()).await.unwrap();
        };
        let whole = exported().await;
        graph.thread("t").prune(Retention::Last(1)).await.unwrap();
        let pruned = exported().await;
        store.copy(&"t".into(), &"copy".into()).await.unwrap();
        import(&whole, "whole").await;
        import(&pruned, "pruned").await;
        for thread in ["copy", "whole", "pruned", "t"] {
            check(thread).await;
        }
    }

    async fn a_run_that_failed_or_only_read_deletes_nothing(backend: Backend) {
        let calls = Calls::default();
        let keep = |repaired| backend.keep(crate::engine::failures::ok_and_bad(repaired, &calls));
        failed(keep(false).with_retention(Retention::Last(1)).thread("t").run(say("in")).await);
        assert_eq!(ids_of(&keep(false)).await, [2, 1]);
        keep(true).with_retention(Retention::Last(1)).thread("t").resume().await.unwrap();
        let left = ids_of(&keep(true)).await;
        assert_eq!(left.len(), 1, "{left:?}");
        keep(true).with_retention(Retention::Last(1)).thread("t").state().await.unwrap();
        assert_eq!(ids_of(&keep(true)).await, left);
    }

    async fn a_run_deletes_what_is_older_than_its_end_by_an_age(backend: Backend) {
        let age = std::time::Duration::from_millis(2_500);
        let graph = backend.keep(line(&["a"])).with_retention(Retention::Within(age));
        for (input, now) in [("1", 1_000), ("2", 2_000), ("3", 3_000), ("4", 5_000)] {
            let clock = std::sync::Arc::new(superstep::clock::TokioClock::starting_at(now));
            graph.thread("t").clock(clock).run(say(input)).await.unwrap();
        }
        assert_eq!(ids(&graph).await, [12, 11, 10, 9, 8, 7]);
    }
}

async fn ids_of<S: superstep::State>(graph: &CompiledGraph<S>) -> Vec<u64> {
    graph.thread("t").history().checkpoints().await.unwrap().iter().map(|meta| meta.id.0).collect()
}

/// A store that cannot prune, as long as it is set.
struct Stuck(MemoryCheckpointer, std::sync::atomic::AtomicBool);

impl Wrapper for Stuck {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> futures::future::BoxFuture<'_, Result<usize, CheckpointError>> {
        if self.1.load(std::sync::atomic::Ordering::Relaxed) {
            let error = CheckpointError::Busy { thread: thread.clone() };
            return Box::pin(std::future::ready(Err(error)));
        }
        self.0.prune(thread, head, prune)
    }
}

#[tokio::test]
async fn a_prune_that_fails_does_not_change_the_result_of_its_run() {
    let store = std::sync::Arc::new(Wrapped(Stuck(MemoryCheckpointer::new(), true.into())));
    let graph = line(&["a"]).with_checkpointer(store.clone()).with_retention(Retention::Last(1));
    let end = graph.thread("t").run(say("1")).await.unwrap();
    assert_eq!(end.state.log_text(), "1 a");
    assert_eq!(ids(&graph).await, [3, 2, 1]);
    // The next run tries again.
    store.0.1.store(false, std::sync::atomic::Ordering::Relaxed);
    graph.thread("t").run(say("2")).await.unwrap();
    assert_eq!(ids(&graph).await, [6]);
}

/// A store in which another process deletes the thread right before an item is posted to it.
struct Deleted(MemoryCheckpointer);

impl Wrapper for Deleted {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> futures::future::BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            if thread.is_child() {
                self.0.delete(&thread.root()).await?;
            }
            self.0.commit(&thread, expected, next).await
        })
    }
}

#[tokio::test]
async fn a_post_to_a_thread_that_is_deleted_meanwhile_leaves_nothing() {
    let store = std::sync::Arc::new(Wrapped(Deleted(MemoryCheckpointer::new())));
    let graph = line(&["a"]).with_checkpointer(store.clone());
    graph.thread("t").run(say("x")).await.unwrap();
    let error = graph.thread("t").post(1).await.unwrap_err();
    assert!(matches!(error, RunError::EmptyThread { .. }), "{error}");
    assert_eq!(store.children(&"t".into()).await.unwrap(), []);
}
