//! The order of the jobs of one key if the first of them waits, or loses its worker.

use std::time::Duration;

use superstep_graph::{Checkpointer as _, CompiledGraph, RunOptions, ThreadId};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{JobId, JobState, Jobs, Listed, Worker};
use tokio::sync::oneshot;

use crate::{
    server::{Server, shared},
    support::{Control, Trip, assert_whole, fresh, input, trip, until_done},
};

/// A database with the jobs `a1` and `a2` of one key.
struct Pair {
    options: PostgresOptions,
    control: Control,
    jobs: Jobs,
    graph: CompiledGraph<Trip>,
    ids: [JobId; 2],
}

impl Pair {
    async fn new(server: &Server) -> Self {
        let (options, control) = (fresh(server), Control::default());
        let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
        let send = async |name| jobs.run(&graph, name, input(name)).key("ada").send().await.unwrap();
        let ids = [send("a1").await, send("a2").await];
        Self { options, control, jobs, graph, ids }
    }

    fn worker(&self) -> Worker {
        Worker::new(&self.jobs).graph(self.graph.clone())
    }

    async fn assert_done(&self) {
        assert_eq!(self.jobs.list(Listed::All).await.unwrap(), []);
        for name in ["a1", "a2"] {
            assert_whole(&self.graph.thread(name).state().await.unwrap().values);
        }
    }
}

#[tokio::test]
async fn a_job_remains_the_first_of_its_key_if_its_worker_stops_after_a_superstep() {
    let Some(server) = shared() else { return };
    let pair = Pair::new(server).await;
    pair.control.repeats.store(true, std::sync::atomic::Ordering::SeqCst);
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = pair.worker().grace(Duration::from_secs(3600));
    let worker = worker.options(RunOptions::new().step_limit(u32::MAX));
    let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    pair.control.until_began(1).await;
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    pair.control.repeats.store(false, std::sync::atomic::Ordering::SeqCst);
    pair.worker().run_until(until_done(&pair.jobs)).await.unwrap();
    let began = pair.control.began();
    let first = began.iter().position(|name| name == "a2").unwrap();
    assert_eq!((first, began.len()), (began.len() - 1, first + 1), "{began:?}");
    pair.assert_done().await;
}

#[tokio::test]
async fn a_job_remains_the_first_of_its_key_if_its_worker_drops_it() {
    let Some(server) = shared() else { return };
    let pair = Pair::new(server).await;
    pair.control.hold("a1");
    pair.worker().grace(Duration::ZERO).run_until(pair.control.until_began(1)).await.unwrap();
    let job = pair.jobs.get(pair.ids[0]).await.unwrap().unwrap();
    assert_eq!((job.state, job.last_error.as_deref()), (JobState::Queued, Some("the worker stopped")));
    *pair.control.waits.lock().unwrap() = None;
    pair.worker().run_until(until_done(&pair.jobs)).await.unwrap();
    assert_eq!(pair.control.began(), ["a1", "a1", "a2"]);
    pair.assert_done().await;
}

#[tokio::test]
async fn a_job_remains_the_first_of_its_key_if_its_worker_dies() {
    let Some(server) = shared() else { return };
    let pair = Pair::new(server).await;
    let locked = "SET locked_by = 'gone', locked_at = now() - interval '1 hour'";
    let (schema, first) = (format!("{}_jobs", pair.options.schema), pair.ids[0]);
    server.sql(&format!(
        "UPDATE {schema}._private_jobs {locked}, attempts = 1 WHERE id = {first};
         UPDATE {schema}._private_job_queues {locked}"
    ));
    assert_eq!(pair.worker().run_due().await.unwrap(), 2);
    assert_eq!(pair.control.began(), ["a1", "a2"]);
    pair.assert_done().await;
}

#[tokio::test]
async fn a_job_whose_thread_is_busy_is_not_overtaken_by_those_of_its_key_and_holds_no_others_up() {
    let Some(server) = shared() else { return };
    let pair = Pair::new(server).await;
    let interactive = PostgresCheckpointer::open(pair.options.clone()).unwrap();
    let lease = interactive.lease(&ThreadId::from("a1")).await.unwrap();
    pair.jobs.run(&pair.graph, "b", input("b")).send().await.unwrap();
    // Nor does it count as a run.
    assert_eq!(pair.worker().limit_of_all("trip", 1).concurrency(1).run_due().await.unwrap(), 2);
    assert_eq!(pair.control.began(), ["b"]);
    let queued = pair.jobs.list(Listed::In(JobState::Queued)).await.unwrap();
    let listed = queued.iter().map(|job| (job.id, job.attempts, job.last_error.as_deref()));
    let busy = Some("another run has the thread");
    assert_eq!(listed.collect::<Vec<_>>(), [(pair.ids[0], 0, busy), (pair.ids[1], 0, None)]);

    // A worker that stays tries it again, until the other run ends.
    let worker = tokio::spawn({
        let (jobs, worker) = (pair.jobs.clone(), pair.worker());
        async move { worker.run_until(until_done(&jobs)).await }
    });
    pair.jobs.run(&pair.graph, "c", input("c")).send().await.unwrap();
    pair.control.until_began(2).await;
    drop(lease);
    // The end of an opening includes the release of its leases.
    drop(interactive);
    worker.await.unwrap().unwrap();
    assert_eq!(pair.control.began(), ["b", "c", "a1", "a2"]);
    pair.assert_done().await;
}

#[tokio::test]
async fn a_key_whose_job_another_worker_has_removed_is_unlocked_by_the_one_that_had_it_last() {
    let Some(server) = shared() else { return };
    let pair = Pair::new(server).await;
    pair.control.hold("a1");
    let worker = tokio::spawn({
        let (jobs, worker) = (pair.jobs.clone(), pair.worker().heartbeat(Duration::from_millis(50)));
        async move { worker.run_until(until_done(&jobs)).await }
    });
    pair.control.until_began(1).await;
    // As by a worker that slept through the time after which it counts as dead, and had finished the run before.
    server.sql(&format!("DELETE FROM {}_jobs._private_jobs WHERE id = {}", pair.options.schema, pair.ids[0]));
    pair.control.release.notify_one();
    worker.await.unwrap().unwrap();
    assert_eq!(pair.control.began(), ["a1", "a2"]);
    pair.assert_done().await;
}
