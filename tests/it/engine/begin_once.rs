//! Several tasks and processes that begin one thread.

use futures::future::join_all;
use superstep::{CompiledGraph, OnExisting, RunError, Status, Thread, checkpoint::CheckpointError};

use super::subgraphs::{asking, parent};
use crate::support::{Backend, Calls, Plain, failed, on_every_store, say};

/// The number of processes.
const MANY: usize = 6;

/// Returns handles to one thread, each as of a process of its own.
fn openings(
    backend: &Backend,
    graph: impl Fn() -> CompiledGraph<Plain>,
    what: OnExisting,
) -> Vec<Thread<Plain>> {
    (0..MANY).map(|_| backend.keep(graph()).thread("order").on_existing(what)).collect()
}

/// Returns whether a run was refused because of the thread itself, or of a run at the same time.
fn is_refused(error: &RunError) -> bool {
    use CheckpointError::{Busy, ThreadExists};
    matches!(error, RunError::Checkpoint(Busy { .. } | ThreadExists { .. }))
}

on_every_store! {
    async fn one_of_many_begins_a_thread_and_the_others_are_refused(backend: Backend) {
        let calls = Calls::default();
        let processes = openings(&backend, || counting(&calls), OnExisting::Refuse);
        let ends = join_all(processes.iter().map(|thread| thread.run(say("in")))).await;
        let refused: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert_eq!((refused.len(), refused.iter().all(|error| is_refused(error))), (MANY - 1, true), "{refused:?}");
        for thread in &processes {
            let error = failed(thread.run(say("again")).await);
            assert!(matches!(error, RunError::Checkpoint(CheckpointError::ThreadExists { .. })), "{error}");
        }
        assert_eq!(calls.all(), "a");
        // The default is the next turn.
        processes[0].on_existing(OnExisting::Accept).run(say("next")).await.unwrap();
        assert_eq!(calls.all(), "a a");
    }

    async fn one_of_many_begins_a_thread_and_the_others_get_its_outcome(backend: Backend) {
        let calls = Calls::default();
        let processes = openings(&backend, || counting(&calls), OnExisting::Resume);
        let ends = join_all(processes.iter().map(|thread| thread.run(say("in")))).await;
        assert!(ends.iter().filter_map(|end| end.as_ref().err()).all(is_refused), "{ends:?}");
        for thread in &processes {
            let end = thread.run(say("again")).await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in a"));
        }
        assert_eq!(calls.all(), "a");
    }

    async fn a_repeated_begin_of_an_unfinished_thread_resumes_it(backend: Backend) {
        let calls = Calls::default();
        let [first, second] = [(); 2].map(|()| {
            let graph = backend.keep(parent(&calls, &asking(&calls)));
            graph.thread("order").on_existing(OnExisting::Resume)
        });
        let asked = first.run(say("in")).await.unwrap();
        let again = second.run(say("in")).await.unwrap();
        assert_eq!((asked.interrupts.len(), &again.interrupts), (1, &asked.interrupts));
        let refused = failed(second.on_existing(OnExisting::Refuse).run(say("in")).await);
        assert!(is_refused(&refused), "{refused}");
        second.answer(&asked.interrupts[0].id, "yes").resume().await.unwrap();
        let end = first.run(say("in")).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in p s1 yes"));
        assert_eq!(calls.all(), "p s1 s2 s2 s2");
    }

    async fn an_unknown_thread_is_told_from_a_finished_one(backend: Backend) {
        let graph = backend.keep(counting(&Calls::default()));
        let thread = graph.thread("order");
        let unknown = thread.state().await.unwrap();
        assert_eq!((unknown.next.len(), unknown.exists(), unknown.is_finished()), (0, false, false));
        thread.break_before(["a"]).run(say("in")).await.unwrap();
        let stopped = thread.state().await.unwrap();
        assert_eq!((stopped.next.len(), stopped.exists(), stopped.is_finished()), (1, true, false));
        thread.resume().await.unwrap();
        let finished = thread.state().await.unwrap();
        assert_eq!((finished.next.len(), finished.exists(), finished.is_finished()), (0, true, true));
    }
}

/// `a`, which is counted.
fn counting(calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = superstep::StateGraph::<Plain>::new("order");
    let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: superstep::Cx| {
        calls.add(&cx);
        tokio::task::yield_now().await;
        say("a")
    });
    graph.add_edge(superstep::START, a);
    graph.add_edge(a, superstep::END);
    graph.compile().unwrap()
}
