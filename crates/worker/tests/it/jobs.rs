//! Jobs that are sent, run, repeated, and fail.

use std::{sync::atomic::Ordering, time::Duration};

use superstep_graph::{Checkpointer as _, ThreadId, error::chain};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{Cancelled, JobState, Jobs, Listed, Worker};

use crate::{
    server::shared,
    support::{Control, assert_whole, fresh, input, trip, until_done},
};

#[tokio::test]
async fn a_job_runs_a_thread_to_its_end() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let listed = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((listed.state, listed.attempts, listed.work.as_deref()), (JobState::Queued, 0, Some("run")));
    assert_eq!((listed.graph.as_str(), listed.thread.as_deref()), ("trip", Some("a")));
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}

#[tokio::test]
async fn a_worker_takes_only_jobs_of_its_graphs() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let jobs = Jobs::open(options.clone()).await.unwrap();
    jobs.run("other", "a", serde_json::json!({})).send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(trip(&options, &control)).run_due().await.unwrap(), 0);
    assert_eq!(jobs.list(Listed::In(JobState::Queued)).await.unwrap().len(), 1);
}

/// PostgreSQL stores JSON with these texts and forms, and its functions reject them.
#[tokio::test]
async fn a_job_with_any_json_is_listed_beside_the_others() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let send =
        |thread: &'static str, text: &str| jobs.run("g", thread, serde_json::json!({ "text": text })).send();
    let (nul, named, umlaut) =
        (send("t", "a\0b").await.unwrap(), send("n\0", "").await.unwrap(), send("ü", "").await.unwrap());
    let schema = format!("{}_jobs", options.schema);
    for payload in [r#"{"work":5}"#, r#"{"thread":"\u00fc","work":{"resume":{}}}"#, "7"] {
        server.sql(&format!("SELECT id FROM {schema}.add_job('other', '{payload}')"));
    }
    let listed = jobs.list(Listed::All).await.unwrap();
    let about: Vec<_> = listed.iter().map(|job| (job.thread.as_deref(), job.work.as_deref())).collect();
    let run = Some("run");
    assert_eq!(
        about,
        [
            (Some("t"), run),
            (Some("n\0"), run),
            (Some("ü"), run),
            (None, None),
            (Some("ü"), Some("resume")),
            (None, None)
        ]
    );
    let of = async |thread: &str| jobs.list(Listed::Of(thread.into())).await.unwrap();
    assert_eq!(of("t").await, [jobs.get(nul).await.unwrap().unwrap()]);
    assert_eq!(of("n\0").await, [jobs.get(named).await.unwrap().unwrap()]);
    assert_eq!(of("ü").await, [listed[2].clone(), listed[4].clone()]);
    assert_eq!((listed[2].id, of("u").await.len()), (umlaut, 0));
    server.sql(&format!("UPDATE {schema}._private_jobs SET attempts = max_attempts WHERE id = {nul}"));
    assert_eq!(jobs.list(Listed::In(JobState::Dead)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_job_that_is_sent_or_delivered_twice_runs_its_thread_once() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let send = || jobs.run(&graph, "a", input("a")).id("order-17").send();
    assert_eq!(send().await.unwrap(), send().await.unwrap());
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    // It comes again, also after another input of the thread.
    send().await.unwrap();
    jobs.run(&graph, "a", input("b")).send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).concurrency(1).run_due().await.unwrap(), 2);
    send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_eq!(control.began(), ["a", "b"]);
    assert_eq!(graph.thread("a").state().await.unwrap().values.inputs, 2);
}

#[tokio::test]
async fn a_job_whose_end_was_not_stored_continues_its_thread() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    jobs.run(&graph, "a", input("a")).id("order-17").send().await.unwrap();
    // A worker that has accepted the input, and ends before the node.
    let thread = graph.thread("a").input_id("order-17").break_before(["work"]);
    thread.run(input("a")).await.unwrap();
    assert_eq!(control.began(), [""; 0]);
    Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap();
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn a_job_of_a_busy_thread_waits_without_an_attempt() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let other = PostgresCheckpointer::open(options.clone()).unwrap();
    let lease = other.lease(&ThreadId::from("a")).await.unwrap();
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap();
    let waiting = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((waiting.state, waiting.attempts), (JobState::Queued, 0));
    assert_eq!(waiting.last_error.as_deref(), Some("another run has the thread"));
    drop(lease);
    // The end of an opening includes the release of its leases.
    drop(other);
    Worker::new(&jobs).graph(graph.clone()).run_until(until_done(&jobs)).await.unwrap();
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn jobs_run_in_the_order_of_their_priority() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    for (name, priority) in [("late", 7), ("soon", 0), ("first", -7), ("second", -6)] {
        jobs.run(&graph, name, input(name)).priority(priority).send().await.unwrap();
    }
    assert_eq!(Worker::new(&jobs).graph(graph).concurrency(1).run_due().await.unwrap(), 4);
    assert_eq!(control.began(), ["first", "second", "soon", "late"]);
}

#[tokio::test]
async fn a_job_waits_for_its_time() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let time = 4_102_444_800_000;
    jobs.run(&graph, "a", input("a")).at_ms(time).send().await.unwrap();
    let id = jobs.run(&graph, "b", input("b")).delay(Duration::from_secs(86_400)).send().await.unwrap();
    let worker = || Worker::new(&jobs).graph(graph.clone());
    assert_eq!(worker().run_due().await.unwrap(), 0);
    let delayed = jobs.get(id).await.unwrap().unwrap();
    assert!((86_399_000..=86_401_000).contains(&(delayed.run_at_ms - delayed.created_at_ms)), "{delayed:?}");
    assert_eq!(worker().at_ms(delayed.run_at_ms + 1).run_due().await.unwrap(), 1);
    assert_eq!(worker().at_ms(time - 1).run_due().await.unwrap(), 0);
    assert_eq!(worker().at_ms(time).run_due().await.unwrap(), 1);
    assert_eq!(control.began(), ["b", "a"]);
}

#[tokio::test]
async fn a_waiting_worker_wakes_up_for_a_delayed_job() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    jobs.run(&graph, "a", input("a")).delay(Duration::from_millis(300)).send().await.unwrap();
    let worker = Worker::new(&jobs).graph(graph).heartbeat(Duration::from_secs(3600));
    worker.run_until(until_done(&jobs)).await.unwrap();
    assert_eq!(control.began(), ["a"]);
}

#[tokio::test]
async fn jobs_of_one_key_run_one_after_another() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.hold("a1");
    for name in ["a1", "a2", "a3"] {
        jobs.run(&graph, name, input(name)).key("ada").send().await.unwrap();
    }
    let worker = tokio::spawn({
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).run_until(until_done(&jobs)).await }
    });
    control.until_began(1).await;
    // Its slots are free for others.
    jobs.run(&graph, "b", input("b")).send().await.unwrap();
    control.until_began(2).await;
    assert_eq!(control.began(), ["a1", "b"]);
    control.release.notify_one();
    worker.await.unwrap().unwrap();
    assert_eq!(control.began(), ["a1", "b", "a2", "a3"]);
}

#[tokio::test]
async fn a_graph_has_its_own_limit() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    for name in ["a", "b", "c", "d"] {
        jobs.run(&graph, name, input(name)).send().await.unwrap();
    }
    assert_eq!(Worker::new(&jobs).graph_at_most(graph, 1).concurrency(4).run_due().await.unwrap(), 4);
    assert_eq!(control.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_job_that_fails_is_dead_until_it_is_retried_or_removed() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.fails.store(true, Ordering::SeqCst);
    let one = jobs.run(&graph, "a", input("a")).attempts(1).send().await.unwrap();
    let other = jobs.run(&graph, "b", input("b")).attempts(1).send().await.unwrap();
    let worker = || Worker::new(&jobs).graph(graph.clone());
    assert_eq!(worker().concurrency(1).run_due().await.unwrap(), 2);
    let dead = jobs.list(Listed::In(JobState::Dead)).await.unwrap();
    assert_eq!(dead.iter().map(|job| job.id).collect::<Vec<_>>(), [one, other]);
    assert!(dead[0].last_error.as_ref().unwrap().starts_with("SS101: "), "{dead:?}");
    assert!(dead[0].last_error.as_ref().unwrap().ends_with("no train"), "{dead:?}");
    assert_eq!(jobs.cancel(other).await.unwrap(), Cancelled::Removed);
    control.fails.store(false, Ordering::SeqCst);
    assert_eq!(worker().run_due().await.unwrap(), 0);
    assert!(jobs.retry(one).await.unwrap());
    assert_eq!(worker().run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
    assert!(!jobs.retry(one).await.unwrap());
}

#[tokio::test]
async fn a_failed_attempt_is_followed_by_another_one_later() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.fails.store(true, Ordering::SeqCst);
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let worker = || Worker::new(&jobs).graph(graph.clone());
    assert_eq!(worker().run_due().await.unwrap(), 1);
    let waiting = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((waiting.state, waiting.attempts, waiting.max_attempts), (JobState::Queued, 1, 10));
    assert!(waiting.run_at_ms >= waiting.created_at_ms + 2_000, "{waiting:?}");
    control.fails.store(false, Ordering::SeqCst);
    assert_eq!(worker().at_ms(waiting.run_at_ms + 1).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn an_input_that_does_not_fit_is_a_failure_of_the_job() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let unfit = serde_json::json!({"name": 7});
    let id = jobs.run(&graph, "a", unfit).attempts(1).send().await.unwrap();
    Worker::new(&jobs).graph(graph).run_due().await.unwrap();
    let dead = jobs.get(id).await.unwrap().unwrap();
    let error = dead.last_error.unwrap();
    assert!(error.starts_with("the input does not fit the state: "), "{error}");
}

#[tokio::test]
async fn no_output_has_the_password() {
    let Some(server) = shared() else { return };
    let jobs = Jobs::open(fresh(server)).await.unwrap();
    assert!(!format!("{jobs:?} {:?}", jobs.resume("trip", "a")).contains("s3cret"));
    let brief = |url: &str| PostgresOptions::new(url).reconnect(Duration::ZERO);
    for url in ["postgres://ada:s3cret@%2Fnowhere/app", "postgres://ada:s3cret@x@y/app", "mysql://s3cret"] {
        let error = Jobs::open(brief(url)).await.unwrap_err();
        let text = format!("{error:?} {}", chain(&error));
        assert!(!text.contains("s3cret") && !text.contains("ada"), "{text}");
    }
}

#[tokio::test]
async fn an_error_of_the_database_has_its_code() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    server.sql(&format!("DROP SCHEMA {}_jobs CASCADE", options.schema));
    let error = chain(&jobs.list(Listed::All).await.unwrap_err());
    assert!(error.contains("cannot list the jobs (SQLSTATE 42P01) in database"), "{error}");
}
