//! Two features at the same time.

use std::sync::{Arc, atomic::Ordering};

use superstep_graph::{Checkpointer, CompiledGraph, Cx, END, START, State, StateGraph, ThreadId};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{Cancelled, JobState, Jobs, Listed, Schedule, Worker};
use tokio::sync::Notify;

use crate::{
    server::shared,
    support::{Control, Form, assert_whole, fresh, input, log_entry, trip, until_done},
};

#[tokio::test]
async fn tables_are_rewritten_while_workers_run() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let store = PostgresCheckpointer::open(options).unwrap();
    let names: Vec<String> = (0..24).map(|nth| format!("t{nth}")).collect();
    // One is in the middle of a superstep all the time.
    control.hold("t0");
    for name in &names {
        jobs.run(&graph, name, input(name)).send().await.unwrap();
    }
    let worker = tokio::spawn({
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).run_until(until_done(&jobs)).await }
    });
    control.until_began(1).await;
    store.vacuum().await.unwrap();
    control.until_began(names.len()).await;
    store.vacuum().await.unwrap();
    control.release.notify_one();
    worker.await.unwrap().unwrap();
    // Each of them ran once: none lost its lease.
    assert_eq!(control.began().len(), names.len());
    for name in &names {
        assert_whole(&graph.thread(name).state().await.unwrap().values);
    }
    store.verify().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_is_removed_while_its_job_runs_makes_no_other() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let hourly =
        || Schedule::new("hourly", "0 * * * *", "UTC").unwrap().run("trip", "h", input("h")).unwrap();
    assert!(jobs.store_schedule(&hourly()).await.unwrap());
    control.hold("h");
    // 2100-01-04.
    let day_ms = 4_102_704_000_000;
    let worker = tokio::spawn({
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).at_ms(day_ms).run_due().await }
    });
    control.until_began(1).await;
    assert!(jobs.remove_schedule("hourly").await.unwrap());
    assert_eq!(jobs.list(Listed::In(JobState::Running)).await.unwrap().len(), 1);
    // One of the same name begins anew while the job of the old one runs.
    assert!(jobs.store_schedule(&hourly()).await.unwrap());
    assert!(jobs.remove_schedule("hourly").await.unwrap());
    *control.waits.lock().unwrap() = None;
    control.release.notify_one();
    assert_eq!(worker.await.unwrap().unwrap(), 1);
    assert_whole(&graph.thread("h").state().await.unwrap().values);
    let later = Worker::new(&jobs).graph(graph).at_ms(day_ms + 86_400_000).run_due();
    assert_eq!((later.await.unwrap(), jobs.list(Listed::All).await.unwrap()), (0, Vec::new()));
    assert_eq!(control.began(), ["h"]);
}

/// Builds `one → two`, whose first node drains its run and then waits.
fn draining(options: &PostgresOptions, at: &Arc<Notify>, release: &Arc<Notify>) -> CompiledGraph<Form> {
    let mut graph = StateGraph::<Form>::new("draining");
    let signals = (at.clone(), release.clone());
    let one = graph.add_node_with(
        "one",
        signals,
        async |(at, release): (Arc<Notify>, Arc<Notify>), _: Form, cx: Cx| {
            cx.drain("enough for today");
            at.notify_one();
            release.notified().await;
            log_entry("one")
        },
    );
    let two = graph.add_node("two", async |_: Form, _: Cx| log_entry("two"));
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.add_edge(two, END);
    graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options.clone()).unwrap())
}

#[tokio::test]
async fn a_job_whose_run_drains_itself_is_cancelled_or_done_and_its_thread_can_be_resumed() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let (at, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let graph = draining(&options, &at, &release);
    for (thread, is_cancelled) in [("cancelled", true), ("drained", false)] {
        let id = jobs.run(&graph, thread, Form::update()).send().await.unwrap();
        let worker = tokio::spawn(Worker::new(&jobs).graph(graph.clone()).run_until({
            let jobs = jobs.clone();
            async move { until_done(&jobs).await }
        }));
        at.notified().await;
        if is_cancelled {
            assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Requested);
        } else {
            release.notify_one();
        }
        worker.await.unwrap().unwrap();
        assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Unknown);
        let next = if is_cancelled { "one" } else { "two" };
        assert_eq!(graph.thread(thread).state().await.unwrap().next, [next]);
        // Nobody drains it a second time but the node itself.
        while !graph.thread(thread).state().await.unwrap().next.is_empty() {
            release.notify_one();
            jobs.resume(&graph, thread).send().await.unwrap();
            assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
        }
        let log = graph.thread(thread).state().await.unwrap().values.log;
        assert_eq!(log, ["one", "two"].map(str::to_owned));
    }
}

#[tokio::test]
async fn a_job_that_is_sent_again_for_a_copy_of_its_thread_runs_it_once() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let store = PostgresCheckpointer::open(options).unwrap();
    let send = async |thread: &str| {
        jobs.run(&graph, thread, input("a")).id("order-17").send().await.unwrap();
        Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap()
    };
    assert_eq!(send("a").await, 1);
    store.copy(&ThreadId::from("a"), &ThreadId::from("copy")).await.unwrap();
    assert_eq!(send("copy").await, 1);
    assert_whole(&graph.thread("copy").state().await.unwrap().values);
    assert_eq!(control.at_once.load(Ordering::SeqCst), 0);
    assert_eq!(control.began().len(), 1);
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_it_waits_for_its_next_attempt_is_gone_and_leaves_its_thread() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let worker = || Worker::new(&jobs).graph(graph.clone());
    control.fails.store(true, Ordering::SeqCst);
    let id = jobs.run(&graph, "a", input("a")).id("order-17").key("ada").send().await.unwrap();
    worker().run_due().await.unwrap();
    let waiting = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((waiting.state, waiting.attempts), (JobState::Queued, 1));
    assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Removed);
    assert!(!jobs.retry(id).await.unwrap());
    control.fails.store(false, Ordering::SeqCst);
    assert_eq!(worker().at_ms(waiting.run_at_ms + 1).run_due().await.unwrap(), 0);
    assert_eq!(graph.thread("a").state().await.unwrap().next, ["work"]);
    // Its key is free, and the request can be sent again, whose input the thread has.
    jobs.run(&graph, "a", input("a")).id("order-17").key("ada").send().await.unwrap();
    assert_eq!(worker().run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
    assert_eq!(control.began(), ["a", "a"]);
}

#[tokio::test]
async fn a_dead_job_is_not_sent_again_by_its_id_and_runs_once_when_it_is_retried_or_removed_and_sent() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let worker = || Worker::new(&jobs).graph(graph.clone());
    for (name, is_removed) in [("retried", false), ("removed", true)] {
        control.fails.store(true, Ordering::SeqCst);
        let send = || jobs.run(&graph, name, input(name)).id(name).attempts(1).send();
        let dead = send().await.unwrap();
        worker().run_due().await.unwrap();
        control.fails.store(false, Ordering::SeqCst);
        assert_eq!(send().await.unwrap(), dead);
        assert_eq!(worker().run_due().await.unwrap(), 0);
        assert_eq!(jobs.get(dead).await.unwrap().unwrap().state, JobState::Dead);
        if is_removed {
            assert_eq!(jobs.cancel(dead).await.unwrap(), Cancelled::Removed);
            assert_ne!(send().await.unwrap(), dead);
        } else {
            assert!(jobs.retry(dead).await.unwrap());
        }
        assert_eq!(worker().run_due().await.unwrap(), 1);
        assert_whole(&graph.thread(name).state().await.unwrap().values);
    }
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}

#[tokio::test]
async fn a_job_that_waits_for_its_next_attempt_survives_a_change_of_its_schedule_as_it_was_made() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let hourly = |name: &str| {
        let times = Schedule::new("hourly", "0 * * * *", "UTC").unwrap();
        times.run("trip", "{time}", input(name)).unwrap()
    };
    let worker = |now_ms| Worker::new(&jobs).graph(graph.clone()).at_ms(now_ms);
    assert!(jobs.store_schedule(&hourly("old")).await.unwrap());
    control.fails.store(true, Ordering::SeqCst);
    // A second after 2100-01-04T00:00Z, before the next attempt.
    let (now_ms, hour_ms) = (4_102_704_001_000, 3_600_000);
    assert_eq!(worker(now_ms).run_due().await.unwrap(), 1);
    control.fails.store(false, Ordering::SeqCst);
    let waiting = jobs.list(Listed::In(JobState::Queued)).await.unwrap().remove(0);
    assert_eq!((waiting.attempts, waiting.thread.as_deref()), (1, Some("2100-01-04T00:00Z")));
    assert!(jobs.pause_schedule("hourly").await.unwrap());
    assert_eq!(worker(now_ms).run_due().await.unwrap(), 0);
    assert!(jobs.remove_schedule("hourly").await.unwrap());
    assert!(jobs.store_schedule(&hourly("new")).await.unwrap());
    assert_eq!(worker(now_ms + hour_ms).run_due().await.unwrap(), 2);
    let (first, second) = (graph.thread("2100-01-04T00:00Z"), graph.thread("2100-01-04T01:00Z"));
    for (thread, name) in [(first, "old"), (second, "new")] {
        let trip = thread.state().await.unwrap().values;
        assert_eq!(trip.name, name);
        assert_whole(&trip);
    }
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}
