//! Answers of jobs, and another feature at the same time.

use std::sync::Arc;

use superstep_graph::{CompiledGraph, Cx, END, START, State, StateGraph};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{JobState, Jobs, Listed, Worker};
use tokio::sync::{Notify, oneshot};

use crate::{
    server::shared,
    support::{Form, fresh, log_entry, until_done},
};

/// Builds a graph with this name whose node asks this question, as one version of a program does.
fn asking(options: &PostgresOptions, name: &str, question: &'static str) -> CompiledGraph<Form> {
    let mut graph = StateGraph::<Form>::new(name);
    let ask = graph.add_node_with("ask", question, async |question: &'static str, _: Form, cx: Cx| {
        let answer: String = cx.interrupt("sure", question).await;
        log_entry(&answer)
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options.clone()).unwrap())
}

async fn waiting(graph: &CompiledGraph<Form>, thread: &str) -> String {
    graph.thread(thread).state().await.unwrap().tasks[0].interrupts[0].id.clone()
}

#[tokio::test]
async fn an_answer_that_the_other_version_of_a_graph_does_not_accept_is_dead_and_not_done() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let (old, new) = (asking(&options, "asking", "Pay 10?"), asking(&options, "asking", "Pay 1,000?"));
    let worker = |graph: &CompiledGraph<Form>| Worker::new(&jobs).graph(graph.clone());
    jobs.run(&old, "t", Form::update()).send().await.unwrap();
    worker(&old).run_due().await.unwrap();
    let asked = waiting(&old, "t").await;
    let late = jobs.answer(&old, "t", &asked, "yes").attempts(2).send().await.unwrap();
    assert_eq!(worker(&new).run_due().await.unwrap(), 1);
    let failed = jobs.get(late).await.unwrap().unwrap();
    let error = failed.last_error.unwrap();
    assert!(error.starts_with("SS125: the answer to ") && error.contains("1,000"), "{error}");
    assert_eq!((failed.state, failed.attempts), (JobState::Queued, 1));
    // The changed question waits, under another id.
    let changed = waiting(&new, "t").await;
    assert_ne!(changed, asked);
    assert_eq!(worker(&new).at_ms(failed.run_at_ms + 1).run_due().await.unwrap(), 1);
    let dead = jobs.get(late).await.unwrap().unwrap();
    let error = format!("no interrupt has the id `{asked}`");
    assert_eq!((dead.state, dead.last_error), (JobState::Dead, Some(error)));
    assert_eq!(waiting(&new, "t").await, changed);
    jobs.answer(&new, "t", &changed, "no").send().await.unwrap();
    assert_eq!(worker(&new).run_due().await.unwrap(), 1);
    assert_eq!(new.thread("t").state().await.unwrap().values.log, ["no".to_owned()]);
}

#[tokio::test]
async fn either_version_of_a_graph_accepts_an_answer_to_a_question_that_both_ask() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let (old, new) = (asking(&options, "asking", "Pay?"), asking(&options, "asking", "Pay?"));
    for (thread, first, second) in [("a", &old, &new), ("b", &new, &old)] {
        jobs.run(first, thread, Form::update()).send().await.unwrap();
        Worker::new(&jobs).graph(first.clone()).run_due().await.unwrap();
        let asked = waiting(first, thread).await;
        jobs.answer(first, thread, &asked, "yes").send().await.unwrap();
        Worker::new(&jobs).graph(second.clone()).run_due().await.unwrap();
        assert_eq!(first.thread(thread).state().await.unwrap().values.log, ["yes".to_owned()]);
    }
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}

#[tokio::test]
async fn an_answer_to_a_thread_that_was_adopted_since_is_refused_and_one_to_its_new_graph_counts() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let (old, new) = (asking(&options, "old", "?"), asking(&options, "new", "?"));
    let worker = || Worker::new(&jobs).graph(old.clone()).graph(new.clone());
    jobs.run(&old, "t", Form::update()).send().await.unwrap();
    worker().run_due().await.unwrap();
    let asked = waiting(&old, "t").await;
    let late = jobs.answer(&old, "t", &asked, "late").attempts(1).send().await.unwrap();
    new.thread("t").adopt().await.unwrap();
    worker().run_due().await.unwrap();
    let refused = jobs.get(late).await.unwrap().unwrap();
    assert_eq!(refused.state, JobState::Dead);
    let error = refused.last_error.unwrap();
    assert!(error.contains("SS176") || error.contains("belongs to graph `new`"), "{error}");
    let state = new.thread("t").state().await.unwrap();
    assert_eq!((state.next.len(), state.tasks[0].interrupts[0].id.clone()), (1, asked.clone()));
    jobs.answer(&new, "t", &asked, "yes").send().await.unwrap();
    worker().run_due().await.unwrap();
    assert_eq!(new.thread("t").state().await.unwrap().values.log, ["yes".to_owned()]);
    // The answer of the old graph does not come to life when the thread is given back.
    old.thread("t").adopt().await.unwrap();
    assert!(jobs.retry(late).await.unwrap());
    worker().run_due().await.unwrap();
    assert_eq!(old.thread("t").state().await.unwrap().values.log, ["yes".to_owned()]);
}

#[tokio::test]
async fn an_answer_that_waited_for_a_run_which_was_answered_otherwise_fails() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let graph = asking(&options, "asking", "Pay?");
    let worker = || Worker::new(&jobs).graph(graph.clone());
    jobs.run(&graph, "t", Form::update()).send().await.unwrap();
    worker().run_due().await.unwrap();
    let asked = waiting(&graph, "t").await;
    let late = jobs.answer(&graph, "t", &asked, "yes").attempts(1).send().await.unwrap();
    let interactive = asking(&options, "asking", "Pay?");
    let lease = {
        use superstep_graph::Checkpointer as _;
        let store = PostgresCheckpointer::open(options.clone()).unwrap();
        let lease = store.lease(&"t".into()).await.unwrap();
        assert_eq!(worker().run_due().await.unwrap(), 1);
        lease
    };
    drop(lease);
    let waits = jobs.get(late).await.unwrap().unwrap();
    assert_eq!(waits.last_error.as_deref(), Some("another run has the thread"));
    interactive.thread("t").answer(&asked, "no").resume().await.unwrap();
    assert_eq!(worker().at_ms(waits.run_at_ms + 1).run_due().await.unwrap(), 1);
    let dead = jobs.get(late).await.unwrap().unwrap();
    let error = format!("no interrupt has the id `{asked}`");
    assert_eq!((dead.state, dead.last_error), (JobState::Dead, Some(error)));
    assert_eq!(graph.thread("t").state().await.unwrap().values.log, ["no".to_owned()]);
}

/// Builds a graph that asks, and works at the same time until it is released.
fn busy_and_asking(
    options: &PostgresOptions,
    began: &Arc<Notify>,
    release: &Arc<Notify>,
) -> CompiledGraph<Form> {
    let mut graph = StateGraph::<Form>::new("both");
    let ask = graph.add_node("ask", async |_: Form, cx: Cx| {
        let answer: String = cx.interrupt("sure", "Pay?").await;
        log_entry(&answer)
    });
    let signals = (began.clone(), release.clone());
    let work = graph.add_node_with(
        "work",
        signals,
        async |(began, release): (Arc<Notify>, Arc<Notify>), _: Form, _: Cx| {
            began.notify_one();
            release.notified().await;
            log_entry("worked")
        },
    );
    let end = graph.add_node("end", async |_: Form, _: Cx| log_entry("end"));
    graph.add_edge(START, ask);
    graph.add_edge(START, work);
    graph.add_join([ask, work], end);
    graph.add_edge(end, END);
    graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options.clone()).unwrap())
}

#[tokio::test]
async fn an_approval_that_waits_survives_the_end_of_its_worker_and_work_beside_it_is_not_repeated() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let graph = busy_and_asking(&options, &began, &release);
    jobs.run(&graph, "t", Form::update()).send().await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&jobs).graph(graph.clone()).grace(std::time::Duration::from_secs(3600));
    let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    began.notified().await;
    stop.send(()).unwrap();
    release.notify_one();
    worker.await.unwrap().unwrap();
    let asked = waiting(&graph, "t").await;
    // Nothing is due, or the run that waits is found to wait.
    Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap();
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
    assert_eq!(waiting(&graph, "t").await, asked);
    jobs.answer(&graph, "t", &asked, "yes").send().await.unwrap();
    Worker::new(&jobs).graph(graph.clone()).run_until(until_done(&jobs)).await.unwrap();
    let log = graph.thread("t").state().await.unwrap().values.log;
    assert_eq!(log, ["yes", "worked", "end"].map(str::to_owned));
}
