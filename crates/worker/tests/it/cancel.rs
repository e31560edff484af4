//! Jobs that are cancelled, answered, and given back.

use std::{sync::atomic::Ordering, time::Duration};

use superstep_graph::{Cx, END, RunOptions, START, State, StateGraph};
use superstep_postgres::PostgresCheckpointer;
use superstep_worker::{Cancelled, JobState, Jobs, Listed, Worker};
use tokio::sync::oneshot;

use crate::{
    server::shared,
    support::{Control, assert_whole, fresh, input, trip, until_done},
};

#[tokio::test]
async fn a_queued_job_is_removed_and_a_running_one_is_cancelled_at_its_worker() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let queued = jobs.run(&graph, "q", input("q")).send().await.unwrap();
    // Another process cancels.
    let elsewhere = Jobs::open(options.clone()).await.unwrap();
    assert_eq!(elsewhere.cancel(queued).await.unwrap(), Cancelled::Removed);
    assert_eq!(elsewhere.cancel(queued).await.unwrap(), Cancelled::Unknown);
    control.hold("a");
    let running = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let worker = tokio::spawn({
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).run_until(until_done(&jobs)).await }
    });
    control.until_began(1).await;
    assert_eq!(elsewhere.get(running).await.unwrap().unwrap().state, JobState::Running);
    assert!(!elsewhere.retry(running).await.unwrap());
    assert_eq!(elsewhere.cancel(running).await.unwrap(), Cancelled::Requested);
    worker.await.unwrap().unwrap();
    assert_eq!(graph.thread("a").state().await.unwrap().next, ["work"]);
    // The thread can be resumed, here by another job.
    *control.waits.lock().unwrap() = None;
    jobs.resume(&graph, "a").send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn a_worker_that_stops_ends_its_runs_at_a_checkpoint_and_gives_their_jobs_back() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.repeats.store(true, Ordering::SeqCst);
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&jobs).graph(graph.clone()).grace(Duration::from_secs(3600));
    let worker = worker.options(RunOptions::new().step_limit(u32::MAX));
    let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    control.until_began(1).await;
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    let job = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempts, job.worker), (JobState::Queued, 0, None));
    let state = graph.thread("a").state().await.unwrap();
    assert_eq!((state.next, state.values.inputs), (vec!["work".into()], 1));
    control.repeats.store(false, Ordering::SeqCst);
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn a_worker_that_runs_what_is_due_also_stops_at_a_checkpoint() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.repeats.store(true, Ordering::SeqCst);
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let worker = Worker::new(&jobs).graph(graph.clone()).grace(Duration::from_secs(3600));
    let worker = worker.options(RunOptions::new().step_limit(u32::MAX));
    assert_eq!(worker.run_due_until(control.until_began(1)).await.unwrap(), 1);
    let job = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempts, job.worker), (JobState::Queued, 0, None));
    assert_eq!(graph.thread("a").state().await.unwrap().next, ["work"]);
}

#[tokio::test]
async fn a_run_that_does_not_end_in_the_time_of_grace_is_dropped_and_its_job_is_given_back() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.hold("a");
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let worker = Worker::new(&jobs).graph(graph.clone()).grace(Duration::ZERO);
    worker.run_until(control.until_began(1)).await.unwrap();
    let job = jobs.get(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Queued, 0));
    *control.waits.lock().unwrap() = None;
    Worker::new(&jobs).graph(graph.clone()).run_until(until_done(&jobs)).await.unwrap();
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[tokio::test]
async fn a_node_that_drains_its_run_does_not_end_the_others_of_the_worker() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let mut graph = StateGraph::<Form>::new("drains");
    let one = graph.add_node("one", async |_: Form, cx: Cx| {
        cx.drain("enough for today");
        Form::update().yes(1)
    });
    let two = graph.add_node("two", async |_: Form, _: Cx| Form::update().yes(1));
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.add_edge(two, END);
    let graph = graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options).unwrap());
    for thread in ["a", "b"] {
        jobs.run(&graph, thread, Form::update()).send().await.unwrap();
    }
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).concurrency(1).run_due().await.unwrap(), 2);
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
    for thread in ["a", "b"] {
        assert_eq!(graph.thread(thread).state().await.unwrap().values.yes, 1);
    }
}

#[tokio::test]
async fn a_cancelled_job_of_a_worker_that_stops_or_dies_is_not_run_elsewhere_unless_it_is_retried() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    let table = format!("{}_jobs._private_jobs", options.schema);
    let worker = || Worker::new(&jobs).graph(graph.clone());
    // Claimed by a worker that does not see the request, and then given back.
    let claimed = async |name: &str| {
        let id = jobs.run(&graph, name, input(name)).send().await.unwrap();
        server.sql(&format!("UPDATE {table} SET locked_at = now(), locked_by = 'gone' WHERE id = {id}"));
        assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Requested);
        assert!(!jobs.retry(id).await.unwrap());
        server.sql(&format!("UPDATE {table} SET locked_at = null, locked_by = null WHERE id = {id}"));
        id
    };
    claimed("a").await;
    assert_eq!(worker().run_due().await.unwrap(), 1);
    assert_eq!((control.began(), jobs.list(Listed::All).await.unwrap()), (vec![], vec![]));
    // The later request applies.
    let again = claimed("b").await;
    assert!(jobs.retry(again).await.unwrap());
    assert_eq!(worker().run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("b").state().await.unwrap().values);
    let removed = claimed("c").await;
    assert_eq!(jobs.cancel(removed).await.unwrap(), Cancelled::Removed);
    assert!(!jobs.retry(removed).await.unwrap());
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_its_worker_drains_is_done() {
    let Some(server) = shared() else { return };
    let (options, control) = (fresh(server), Control::default());
    let (jobs, graph) = (Jobs::open(options.clone()).await.unwrap(), trip(&options, &control));
    control.hold("a");
    let id = jobs.run(&graph, "a", input("a")).send().await.unwrap();
    let worker = Worker::new(&jobs).graph(graph.clone()).grace(Duration::from_secs(3600));
    // It drains, and its node does not end.
    let worker = tokio::spawn({
        let control = control.clone();
        async move { worker.run_until(control.until_began(1)).await }
    });
    control.until_began(1).await;
    assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Requested);
    worker.await.unwrap().unwrap();
    assert_eq!(jobs.get(id).await.unwrap(), None);
    // The thread is left to be resumed.
    *control.waits.lock().unwrap() = None;
    jobs.resume(&graph, "a").send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
}

#[derive(State, Clone, Debug, Default)]
struct Form {
    #[channel(sum)]
    yes: i64,
}

async fn ask(_: Form, cx: Cx) -> FormUpdate {
    let yes: bool = cx.interrupt("sure", "?").await;
    Form::update().yes(i64::from(yes))
}

#[tokio::test]
async fn an_answer_is_accepted_once_and_by_its_id() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (jobs, schema) = (Jobs::open(options.clone()).await.unwrap(), options.schema.clone());
    let mut graph = StateGraph::<Form>::new("form");
    let (one, two) = (graph.add_node("one", ask), graph.add_node("two", ask));
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.add_edge(two, END);
    let graph = graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options).unwrap());
    let worker = || Worker::new(&jobs).graph(graph.clone());
    jobs.run(&graph, "f", Form::update()).send().await.unwrap();
    worker().run_due().await.unwrap();
    let asked = graph.thread("f").state().await.unwrap().tasks[0].interrupts[0].clone();
    // The key would fit the second question too.
    for wrong in ["sure", "nothing"] {
        let id = jobs.answer(&graph, "f", wrong, true).attempts(2).send().await.unwrap();
        worker().run_due().await.unwrap();
        let failed = jobs.get(id).await.unwrap().unwrap();
        assert_eq!(failed.last_error.unwrap(), format!("no interrupt has the id `{wrong}`"));
        assert!(jobs.retry(id).await.unwrap());
        worker().run_due().await.unwrap();
        assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Removed);
    }
    // An answer that was refused has not run: it is not the resumption of an earlier delivery.
    let id = jobs.answer(&graph, "f", "nothing", true).attempts(1).send().await.unwrap();
    worker().admit(|_| std::future::ready(Err("not now".to_owned()))).run_due().await.unwrap();
    let refused = jobs.get(id).await.unwrap().unwrap().last_error.unwrap();
    assert_eq!(refused, "the thread may not run: not now");
    assert!(jobs.retry(id).await.unwrap());
    worker().run_due().await.unwrap();
    let failed = jobs.get(id).await.unwrap().unwrap().last_error.unwrap();
    assert_eq!(failed, "no interrupt has the id `nothing`");
    assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Removed);
    // An answer that is cancelled before it ran leaves the question.
    let cancelled = jobs.answer(&graph, "f", &asked.id, true).send().await.unwrap();
    assert_eq!(jobs.cancel(cancelled).await.unwrap(), Cancelled::Removed);
    assert_eq!(worker().run_due().await.unwrap(), 0);
    assert_eq!(graph.thread("f").state().await.unwrap().tasks[0].interrupts.first(), Some(&asked));
    jobs.answer(&graph, "f", &asked.id, true).send().await.unwrap();
    worker().run_due().await.unwrap();
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
    let state = graph.thread("f").state().await.unwrap();
    assert_eq!((state.values.yes, state.next), (1, vec!["two".into()]));
    // The same answer again, of a worker that was killed before it removed the job.
    let again = jobs.answer(&graph, "f", &asked.id, true).send().await.unwrap();
    let table = format!("{schema}_jobs._private_jobs");
    server.sql(&format!(
        "UPDATE {table} SET last_error = 'Job recovered after worker interruption' WHERE id = {again}"
    ));
    worker().run_due().await.unwrap();
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
    let state = graph.thread("f").state().await.unwrap();
    assert_eq!((state.values.yes, state.next), (1, vec!["two".into()]));
}
