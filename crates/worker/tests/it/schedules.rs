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
