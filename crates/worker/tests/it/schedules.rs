//! Schedules of several workers.

use superstep_worker::{Jobs, Listed, Schedule, Worker};

use crate::{
    server::shared,
    support::{Control, fresh, input, trip},
};

/// 2100-01-04, a Monday, at 9:30 in Berlin.
const MONDAY: i64 = 4_102_734_600_000;

const DAY: i64 = 86_400_000;

#[tokio::test]
async fn a_time_of_a_schedule_makes_one_job_among_several_workers() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let elsewhere = Jobs::open(options).await.unwrap();
    let schedule = || {
        let times = Schedule::new("digest", "0 9 * * 1-5", "Europe/Berlin").unwrap();
        times.run("trip", "digest-{time}", input("digest")).unwrap()
    };
    let worker = |jobs: &Jobs, now_ms| {
        Worker::new(jobs).graph(graph.clone()).schedule(schedule()).at_ms(now_ms).run_due()
    };
    // A schedule begins when it is known: the times before that are not its own.
    let begin = Worker::new(&jobs).graph(graph.clone()).schedule(schedule());
    assert_eq!(begin.run_due().await.unwrap(), 0);
    let (one, other) = tokio::join!(worker(&jobs, MONDAY), worker(&elsewhere, MONDAY));
    // A worker that claims nothing may have made the job of the other.
    assert_eq!(one.unwrap() + other.unwrap() + worker(&jobs, MONDAY).await.unwrap(), 1);
    assert_eq!(worker(&elsewhere, MONDAY + 60_000).await.unwrap(), 0);
    let thread = graph.thread("digest-2100-01-04T08:00Z").state().await.unwrap();
    assert_eq!(thread.values.inputs, 1);
    // The two times that no worker saw make one job.
    assert_eq!(worker(&jobs, MONDAY + 2 * DAY).await.unwrap(), 1);
    assert_eq!(control.began().len(), 2);
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}

#[tokio::test]
async fn every_worker_runs_a_stored_schedule_until_it_is_paused_or_removed() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let elsewhere = Jobs::open(options).await.unwrap();
    let digest = |graph: &str| {
        let times = Schedule::new("digest", "0 9 * * 1-5", "Europe/Berlin").unwrap();
        times.run(graph, "digest-{time}", input("digest")).unwrap()
    };
    let worker = async |jobs: &Jobs, now_ms| {
        Worker::new(jobs).graph(graph.clone()).at_ms(now_ms).run_due().await.unwrap()
    };
    assert!(jobs.store_schedule(&digest("trip")).await.unwrap());
    assert!(!elsewhere.store_schedule(&digest("other")).await.unwrap());
    let stored = elsewhere.schedules().await.unwrap().remove(0);
    assert_eq!(
        (stored.name.as_str(), stored.times.as_str(), stored.zone.as_str()),
        ("digest", "0 9 * * 1-5", "Europe/Berlin")
    );
    assert_eq!(
        (stored.graph.as_str(), stored.thread.as_str(), stored.paused),
        ("trip", "digest-{time}", false)
    );
    assert!(stored.next_ms.is_some() && stored.last_ms.is_none(), "{stored:?}");
    let (one, other) = tokio::join!(worker(&jobs, MONDAY), worker(&elsewhere, MONDAY));
    assert_eq!(one + other + worker(&jobs, MONDAY).await, 1);
    assert_eq!(graph.thread("digest-2100-01-04T08:00Z").state().await.unwrap().values.inputs, 1);
    assert_eq!(jobs.schedules().await.unwrap()[0].last_ms, Some(MONDAY - 30 * 60_000));

    // The times of a pause are not made up for: it begins again at the time of the server, which is before all of these.
    assert!(elsewhere.pause_schedule("digest").await.unwrap());
    let paused = jobs.schedules().await.unwrap().remove(0);
    assert!(paused.paused && paused.next_ms.is_none() && paused.last_ms.is_none(), "{paused:?}");
    assert_eq!(worker(&jobs, MONDAY + DAY).await, 0);
    assert!(elsewhere.resume_schedule("digest").await.unwrap());
    // Not paused, so that nothing begins again.
    assert!(elsewhere.resume_schedule("digest").await.unwrap());
    assert_eq!(worker(&jobs, MONDAY + DAY).await, 1);
    assert_eq!(control.began().len(), 2);

    assert!(jobs.remove_schedule("digest").await.unwrap());
    for gone in [
        jobs.remove_schedule("digest").await,
        jobs.pause_schedule("digest").await,
        jobs.resume_schedule("digest").await,
    ] {
        assert!(!gone.unwrap());
    }
    assert_eq!(worker(&jobs, MONDAY + 2 * DAY).await, 0);
    assert_eq!(jobs.schedules().await.unwrap(), []);
    // Another one of its name has times of its own.
    assert!(jobs.store_schedule(&digest("trip")).await.unwrap());
    assert_eq!(worker(&jobs, MONDAY + 2 * DAY).await, 1);
}

#[tokio::test]
async fn a_worker_at_work_notices_changed_schedules_without_polling() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let worker = tokio::spawn({
        let (jobs, control, graph) = (jobs.clone(), control.clone(), graph.clone());
        async move {
            let worker =
                Worker::new(&jobs).graph(graph).at_ms(MONDAY).heartbeat(std::time::Duration::from_secs(3600));
            worker.run_until(control.until_began(2)).await
        }
    });
    // The worker is at work.
    jobs.run(&graph, "a", input("a")).send().await.unwrap();
    control.until_began(1).await;
    let hourly = Schedule::new("hourly", "0 * * * *", "UTC").unwrap();
    assert!(jobs.store_schedule(&hourly.run("trip", "h", input("h")).unwrap()).await.unwrap());
    worker.await.unwrap().unwrap();
    assert_eq!(control.began(), ["a", "h"]);
}

#[tokio::test]
async fn a_stored_schedule_that_a_program_cannot_read_is_reported_and_stops_no_other() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    for name in ["good", "long", "odd", "wide"] {
        let times = Schedule::new(name, "0 9 * * *", "UTC").unwrap();
        assert!(jobs.store_schedule(&times.run("trip", name, input(name)).unwrap()).await.unwrap());
    }
    let table = format!("{}_jobs.superstep_schedules", options.schema);
    server.sql(&format!("UPDATE {table} SET zone = 'Mars/Olympus' WHERE name = 'odd'"));
    server.sql(&format!("UPDATE {table} SET input = to_json(repeat('x', 1048575)) WHERE name = 'long'"));
    server.sql(&format!("UPDATE {table} SET thread = repeat('x', 2000000) WHERE name = 'wide'"));
    assert_eq!(Worker::new(&jobs).graph(graph).at_ms(MONDAY).run_due().await.unwrap(), 1);
    assert_eq!(control.began(), ["good"]);
    let mut stored = jobs.schedules().await.unwrap();
    let (wide, odd, long) = (stored.remove(3), stored.remove(2), stored.remove(1));
    let problem = wide.problem.unwrap();
    assert_eq!(problem, "SS401: schedule `wide`: its thread is longer than 1024 characters");
    assert_eq!(wide.thread.len(), 1_025);
    assert_eq!(long.problem.as_deref(), Some("SS401: schedule `long`: its input is longer than 1 MiB"));
    let problem = odd.problem.unwrap();
    assert!(problem.starts_with("SS401: schedule `odd`: unknown time zone `Mars/Olympus`"), "{problem}");
    assert_eq!(odd.next_ms, None);
}

#[tokio::test]
async fn a_schedule_whose_job_the_database_rejects_stops_no_other() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let jobs_table = format!("{}_jobs._private_jobs", options.schema);
    server.sql(&format!("ALTER TABLE {jobs_table} ADD CHECK (key NOT LIKE 'schedule bad %')"));
    let worker = || {
        ["bad", "good"].into_iter().fold(Worker::new(&jobs).graph(graph.clone()), |worker, name| {
            let times = Schedule::new(name, "0 9 * * *", "UTC").unwrap();
            worker.schedule(times.run("trip", name, input(name)).unwrap())
        })
    };
    assert_eq!(worker().run_due().await.unwrap(), 0);
    jobs.run(&graph, "a", input("a")).send().await.unwrap();
    assert_eq!(worker().at_ms(MONDAY).run_due().await.unwrap(), 2);
    let mut began = control.began();
    began.sort_unstable();
    assert_eq!(began, ["a", "good"]);
}
