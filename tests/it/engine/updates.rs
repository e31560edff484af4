//! C13 to C15 and on: a state that is changed from outside.

use superstep::{
    AsNode, Breakpoints, CheckpointId, CompiledGraph, History, RunConfig, RunError, START, Source, State,
    StateGraph, Status,
};

use crate::support::{Plain, entries, failed, h, head, line, names, on_every_store, say, sayer, t};

fn before(node: &str) -> RunConfig {
    RunConfig { breakpoints: Breakpoints { before: vec![node.to_owned()], ..Breakpoints::default() }, ..t() }
}

/// `START → (left, right) → join`.
fn side_by_side() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("side_by_side");
    let [left, right, join] = ["left", "right", "join"].map(|name| sayer(&mut graph, name));
    graph.add_edge(START, left);
    graph.add_edge(START, right);
    graph.add_join([left, right], join);
    graph.compile().unwrap()
}

on_every_store! {
    async fn c14_at_a_breakpoint_the_node_that_ran_last_is_meant(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.invoke(say("1"), before("b")).await.unwrap();
        assert_eq!(end.status, Status::Interrupted);
        graph.update_state(t(), say("human"), None).await.unwrap();
        assert_eq!(h(&graph).await[..2], entries(&[("update", 2, "b"), ("loop", 1, "b")]));
        // Who made an update by hand is who ran last.
        graph.update_state(t(), say("again"), AsNode::LastRun).await.unwrap();
        assert_eq!(graph.resume(t()).await.unwrap().state.said(), "1 a human again b");
    }

    async fn c14_if_several_ran_last_the_update_has_to_say_whose_it_is(backend: Backend) {
        let graph = backend.keep(side_by_side());
        graph.invoke(say("1"), before("join")).await.unwrap();
        let stored = h(&graph).await;
        let error = failed(graph.update_state(t(), say("u"), None).await);
        assert_eq!(
            error.to_string(),
            "SS190: thread `t`: `left`, `right` ran last, so it is not clear in whose name to update the state; name \
             one of them"
        );
        assert_eq!(h(&graph).await, stored);
        graph.update_state(t(), say("u"), "left").await.unwrap();
        assert_eq!(graph.resume(t()).await.unwrap().state.said(), "1 left right u join");
    }

    async fn c14_of_older_checkpoints_and_forks_the_node_that_ran_before_them_is_meant(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        graph.invoke(say("in"), t()).await.unwrap();
        let at = |checkpoint| RunConfig { checkpoint: Some(CheckpointId(checkpoint)), ..t() };
        for (checkpoint, next) in [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "")] {
            graph.update_state(at(checkpoint), say("u"), None).await.unwrap();
            assert_eq!(names(&head(&graph).await.next), next, "checkpoint {checkpoint}");
            graph.fork(at(checkpoint)).await.unwrap();
            graph.fork(t()).await.unwrap();
            graph.update_state(t(), say("u"), None).await.unwrap();
            assert_eq!(names(&head(&graph).await.next), next, "a fork of checkpoint {checkpoint}");
        }
    }

    async fn c15_an_update_by_the_end_leaves_nothing_to_run(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.invoke(say("1"), before("b")).await.unwrap();
        graph.update_state(t(), Plain::update(), AsNode::End).await.unwrap();
        assert_eq!(h(&graph).await[..2], entries(&[("update", 2, ""), ("loop", 1, "b")]));
        let end = head(&graph).await;
        assert_eq!((end.values.said().as_str(), end.next.len(), end.tasks.len()), ("1 a", 0, 0));
        assert_eq!(graph.resume(t()).await.unwrap().status, Status::Completed);
        // The thread takes the next input.
        assert_eq!(graph.invoke(say("2"), t()).await.unwrap().state.said(), "1 a 2 a b");
    }

    async fn an_update_by_the_end_may_write_and_drops_what_waits_at_joins(backend: Backend) {
        let graph = backend.keep(side_by_side());
        graph.update_state(t(), say("in"), AsNode::Input).await.unwrap();
        graph.update_state(t(), say("l"), "left").await.unwrap();
        assert!(!head(&graph).await.checkpoint.unwrap().control.arrived.is_empty());
        graph.update_state(t(), say("bye"), "__end__").await.unwrap();
        let end = head(&graph).await;
        assert_eq!((end.values.said().as_str(), end.next.len()), ("in l bye", 0));
        assert!(end.checkpoint.unwrap().control.arrived.is_empty());
    }

    async fn a_bulk_update_makes_a_checkpoint_for_each_superstep(backend: Backend) {
        let graph = backend.keep(side_by_side());
        let last = graph
            .bulk_update_state(
                t(),
                vec![
                    vec![(say("in"), AsNode::Input)],
                    // Folded in the order given.
                    vec![(say("R"), "right".into()), (say("L"), "left".into())],
                    vec![(say("J"), "join".into())],
                ],
            )
            .await
            .unwrap();
        assert_eq!(last, CheckpointId(3));
        assert_eq!(
            h(&graph).await,
            entries(&[("update", 2, ""), ("update", 1, "join"), ("update", 0, "left right")])
        );
        let history = graph.get_state_history(&"t".into(), History::default()).await.unwrap();
        let said: Vec<_> = history.iter().map(|snapshot| snapshot.values.said()).collect();
        assert_eq!(said, ["in R L J", "in R L", "in"]);
        let parents: Vec<_> = history.iter().map(|it| it.checkpoint.as_ref().unwrap().parent).collect();
        assert_eq!(parents, [Some(CheckpointId(2)), Some(CheckpointId(1)), None]);
        assert!(history.iter().all(|it| it.checkpoint.as_ref().unwrap().source == Source::Update));
        // And from an older checkpoint, on a branch of its own.
        let config = RunConfig { checkpoint: Some(CheckpointId(1)), ..t() };
        let updates = vec![vec![(say("l"), "left".into())], vec![(say("r"), "right".into())]];
        assert_eq!(graph.bulk_update_state(config, updates).await.unwrap(), CheckpointId(5));
        assert_eq!(graph.resume(t()).await.unwrap().state.said(), "in l r join");
    }

    async fn a_bulk_update_that_fails_stores_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.invoke(say("in"), t()).await.unwrap();
        let stored = h(&graph).await;
        let good = || vec![(say("u"), AsNode::from("a"))];
        for empty in [vec![], vec![good(), vec![]]] {
            let error = failed(graph.bulk_update_state(t(), empty).await);
            assert!(matches!(error, RunError::NoUpdates { .. }), "{error}");
        }
        let error = failed(graph.bulk_update_state(t(), vec![good(), vec![(say("v"), "z".into())]]).await);
        assert!(matches!(&error, RunError::UnknownNode { node, .. } if node == "z"), "{error}");
        let twice = vec![(Plain::update().x(1), "a".into()), (Plain::update().x(2), "b".into())];
        let error = failed(graph.bulk_update_state(t(), vec![good(), twice]).await);
        assert!(
            matches!(&error, RunError::Conflict { channel, first, second, .. }
                if channel == "x" && first.as_str() == "a" && second.as_str() == "b"),
            "{error}"
        );
        // Two nodes made the last superstep.
        let both = vec![(say("l"), "a".into()), (say("r"), "b".into())];
        let unclear = vec![both, vec![(say("u"), AsNode::LastRun)]];
        let error = failed(graph.bulk_update_state(t(), unclear).await);
        assert!(matches!(&error, RunError::AmbiguousUpdate { .. }), "{error}");
        assert_eq!(h(&graph).await, stored);
    }
}
