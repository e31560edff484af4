//! Continuing from an older checkpoint.

use superstep::{CheckpointId, RunError, checkpoint::Source};

use crate::support::{Plain, entries, failed, h, head, json, line, logging_node, on_every_store, say, task};

/// Returns the newest checkpoint of the superstep.
async fn at(graph: &superstep::CompiledGraph<Plain>, step: i64) -> CheckpointId {
    let history = graph.thread("t").history().states().await.unwrap();
    let found = history.iter().filter_map(|snapshot| snapshot.checkpoint.as_ref());
    found.filter(|meta| meta.control.step == step).map(|meta| meta.id).next().unwrap()
}

on_every_store! {
    async fn an_update_of_an_older_checkpoint_makes_a_branch_and_keeps_the_other(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        let old = at(&graph, 1).await;
        let forked = graph
            .thread("t").at(old).update_as("a", say("FORK"))
            .await
            .unwrap();
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in a FORK b");

        let history = graph.thread("t").history().states().await.unwrap();
        let shown: Vec<_> = history
            .iter()
            .map(|snapshot| {
                let meta = snapshot.checkpoint.as_ref().unwrap();
                let parent = meta.parent.map_or(0, |id| id.0);
                (meta.id.0, parent, meta.source.as_str(), meta.control.step, snapshot.values.log_text())
            })
            .collect();
        assert_eq!(
            shown,
            [
                (6, 5, "loop", 3, "in a FORK b".to_owned()),
                (5, 3, "update", 2, "in a FORK".to_owned()),
                (4, 3, "loop", 2, "in a b".to_owned()),
                (3, 2, "loop", 1, "in a".to_owned()),
                (2, 1, "loop", 0, "in".to_owned()),
                (1, 0, "input", -1, String::new()),
            ]
        );
        assert_eq!(forked, CheckpointId(5));
    }

    async fn a_fork_runs_the_tasks_of_its_checkpoint_again(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!(graph.thread("t").at(at(&graph, 1).await).resume().await.unwrap().state.log_text(), "in a b");
        assert_eq!(
            h(&graph).await,
            entries(&[
                ("loop", 3, ""),
                ("fork", 2, "b"),
                ("loop", 2, ""),
                ("loop", 1, "b"),
                ("loop", 0, "a"),
                ("input", -1, "__start__"),
            ])
        );
    }

    async fn a_fork_from_the_input_folds_the_same_input(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!(graph.thread("t").at(CheckpointId(1)).resume().await.unwrap().state.log_text(), "in a");
        assert_eq!(
            h(&graph).await[..3],
            entries(&[("loop", 2, ""), ("loop", 1, "a"), ("fork", 0, "__start__")])
        );
    }

    async fn both_branches_of_a_fork_keep_their_states_and_results(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        let old = at(&graph, 1).await;
        graph.thread("t").at(old).update_as("a", say("left")).await.unwrap();
        graph.thread("t").resume().await.unwrap();
        graph.thread("t").at(old).update_as("a", say("right")).await.unwrap();
        graph.thread("t").resume().await.unwrap();

        let graph = backend.keep(line(&["a", "b"]));
        let history = graph.thread("t").history().states().await.unwrap();
        let ends: Vec<_> = history.iter().filter(|s| s.next.is_empty()).map(|s| s.values.log_text()).collect();
        assert_eq!(ends, ["in a right b", "in a left b", "in a b"]);
        // Supersteps of the same number on different branches do not mix.
        for snapshot in history.iter().filter(|s| s.checkpoint.as_ref().unwrap().source == Source::Update) {
            assert_eq!(snapshot.tasks.iter().map(task).collect::<Vec<_>>(), [(
                "b".to_owned(),
                json(&say("b")),
                String::new()
            )]);
        }
    }

    async fn a_new_input_may_follow_an_older_checkpoint(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let first = graph.thread("t").run(say("1")).await.unwrap();
        graph.thread("t").run(say("2")).await.unwrap();
        let end = graph.thread("t").at(first.checkpoint).run(say("other 2")).await.unwrap();
        assert_eq!(end.state.log_text(), "1 a other 2 a");
        assert_eq!(head(&graph).await.values, end.state);
    }

    async fn a_fork_from_a_checkpoint_that_is_not_there_changes_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        graph.thread("t").run(say("1")).await.unwrap();
        for result in [graph.thread("t").at(CheckpointId(99)).resume().await, graph.thread("t").at(CheckpointId(99)).run(say("2")).await] {
            let error = failed(result);
            assert!(matches!(error, RunError::UnknownCheckpoint { checkpoint: CheckpointId(99), .. }));
        }
        assert!(graph.thread("t").at(CheckpointId(99)).update_as("a", say("u")).await.is_err());
        assert_eq!(h(&graph).await.len(), 3);
    }

    async fn a_fork_that_the_graph_cannot_run_changes_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        let without_b = backend.keep(line(&["a"]));
        let error = failed(without_b.thread("t").at(at(&graph, 1).await).resume().await);
        assert!(matches!(&error, RunError::Restore { .. }), "{error}");
        assert_eq!(h(&without_b).await.len(), 4);
    }

    async fn an_update_of_a_thread_that_someone_runs_is_refused(backend: Backend) {
        let store = backend.open();
        let mut graph = superstep::StateGraph::new("g");
        let a = logging_node(&mut graph, "a");
        graph.add_edge(superstep::START, a);
        let graph = graph.compile().unwrap().with_checkpointer(store.clone());
        let lease = store.lease(&"t".into()).await.unwrap();
        let error = failed(graph.thread("t").update_as("a", say("u")).await);
        assert!(
            matches!(&error, RunError::Checkpoint(superstep::checkpoint::CheckpointError::Busy { .. })),
            "{error}"
        );
        drop(lease);
        graph.thread("t").update_as("a", say("u")).await.unwrap();
    }
}
