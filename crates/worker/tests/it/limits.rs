//! Limits of graphs over all workers, and checks before runs.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use superstep_graph::ThreadId;
use superstep_worker::{JobState, Jobs, Listed, Worker};

use crate::{
    server::shared,
    support::{Control, assert_whole, fresh, input, trip, until_done},
};

#[tokio::test]
async fn a_limit_over_all_workers_holds_and_wakes_the_worker_that_waits_for_it() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let graph = trip(&options, &control);
    for name in ["a", "b", "c", "d", "e", "f"] {
        jobs.run(&graph, name, input(name)).send().await.unwrap();
    }
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (options, graph) = (options.clone(), graph.clone());
            tokio::spawn(async move {
                let jobs = Jobs::open(options).await.unwrap();
                // Only notifications wake it.
                let worker = Worker::new(&jobs).graph(graph).limit_of_all("trip", 2);
                worker.heartbeat(Duration::from_secs(3600)).run_until(until_done(&jobs)).await
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(control.began().len(), 6);
    assert!(control.most.load(Ordering::SeqCst) <= 2, "{:?}", control.most);
}

#[tokio::test]
async fn a_graph_at_its_limit_leaves_the_slots_of_its_workers_to_others() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, elsewhere) =
        (Jobs::open(options.clone()).await.unwrap(), Jobs::open(options.clone()).await.unwrap());
    let graph = trip(&options, &control);
    control.hold("held");
    jobs.run(&graph, "held", input("held")).send().await.unwrap();
    let holder = tokio::spawn({
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).limit_of_all("trip", 1).run_until(until_done(&jobs)).await }
    });
    control.until_began(1).await;
    let waiting = jobs.run(&graph, "w", input("w")).priority(-1).send().await.unwrap();
    // Another worker may not take it.
    let other = || Worker::new(&elsewhere).graph(graph.clone()).limit_of_all("trip", 1);
    assert_eq!(other().run_due().await.unwrap(), 0);
    let listed = jobs.get(waiting).await.unwrap().unwrap();
    assert_eq!((listed.state, listed.attempts), (JobState::Queued, 0));
    control.release.notify_one();
    holder.await.unwrap().unwrap();
    assert_eq!(control.began(), ["held", "w"]);
    assert_whole(&graph.thread("w").state().await.unwrap().values);
}

#[tokio::test]
async fn a_worker_checks_the_thread_immediately_before_each_run() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let refused = Arc::new(Mutex::new(true));
    let worker = || {
        let refused = refused.clone();
        Worker::new(&jobs).graph(graph.clone()).admit(move |thread: ThreadId| {
            let is_refused = *refused.lock().unwrap() && thread.as_str() == "a";
            async move { if is_refused { Err("the thread is not trusted".to_owned()) } else { Ok(()) } }
        })
    };
    let one = jobs.run(&graph, "a", input("a")).attempts(1).send().await.unwrap();
    jobs.run(&graph, "b", input("b")).send().await.unwrap();
    assert_eq!(worker().run_due().await.unwrap(), 2);
    assert_eq!(control.began(), ["b"]);
    let dead = jobs.list(Listed::In(JobState::Dead)).await.unwrap();
    assert_eq!(dead[0].last_error.as_deref(), Some("the thread may not run: the thread is not trusted"));
    *refused.lock().unwrap() = false;
    assert!(jobs.retry(one).await.unwrap());
    assert_eq!(worker().run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn a_job_sets_only_what_the_inputs_of_its_worker_have() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Name {
        name: String,
    }
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let worker = || Worker::new(&jobs).graph_of_inputs(graph.clone(), |it: Name| input(&it.name));
    jobs.run(&graph, "a", serde_json::json!({"name": "a"})).send().await.unwrap();
    let wide = serde_json::json!({"name": "b", "inputs": 7});
    let wide = jobs.run(&graph, "b", wide).attempts(1).send().await.unwrap();
    assert_eq!(worker().run_due().await.unwrap(), 2);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
    let error = jobs.get(wide).await.unwrap().unwrap().last_error.unwrap();
    assert!(error.starts_with("the input does not fit the state: unknown field `inputs`"), "{error}");
    // A value is in no error.
    let secret = jobs.run(&graph, "c", serde_json::json!("a secret")).attempts(1).send().await.unwrap();
    assert_eq!(worker().run_due().await.unwrap(), 1);
    let error = jobs.get(secret).await.unwrap().unwrap().last_error.unwrap();
    assert_eq!(error, "the input does not fit the state: invalid type: string, expected struct Name");
    assert_eq!(control.began(), ["a"]);
}
