//! One writer for each thread, among several processes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, Lease, TaskKey, TaskRecord},
};
use superstep_postgres::PostgresOptions;
use tokio::time::Instant;

use crate::{
    server::shared,
    support::{Other, fresh, line, load, open, superstep, updates},
};

#[track_caller]
fn assert_busy(lease: Result<Lease, CheckpointError>) {
    assert!(matches!(lease, Err(CheckpointError::Busy { .. })), "{lease:?}");
}

/// Options of an opening that waits for the leases of others.
fn patient(options: &PostgresOptions) -> PostgresOptions {
    options.clone().lease_wait(Duration::from_secs(30))
}

#[tokio::test]
async fn a_thread_has_one_writer_among_all_openers_and_the_others_wait_if_they_choose_to() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (one, two, waiting) = (open(&options), open(&options), open(&patient(&options)));
    let thread = ThreadId::from("t");
    let lease = one.lease(&thread).await.unwrap();
    assert_busy(two.lease(&thread).await);
    assert_busy(one.lease(&thread).await);
    let (others, ()) = tokio::join!(waiting.lease(&thread), async { drop(lease) });
    let others = others.unwrap();
    assert_busy(one.lease(&thread).await);
    drop(others);
    drop(waiting);
    // The end of an opening includes the release of its leases.
    drop(two.lease(&thread).await.unwrap());
}

#[tokio::test]
async fn a_lease_outlives_the_checkpointer_that_gave_it() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let one = open(&options);
    let thread = ThreadId::from("t");
    let lease = one.lease(&thread).await.unwrap();
    drop(one);
    let two = open(&options);
    assert_busy(two.lease(&thread).await);
    drop(lease);
    two.lease(&thread).await.unwrap();
}

#[tokio::test]
async fn an_owner_that_lives_keeps_its_lease_for_longer_than_its_time() {
    let Some(server) = shared() else { return };
    // Long enough that the owner extends it in time on a machine at work.
    let brief = fresh(server).lease(Duration::from_secs(6));
    let one = open(&brief);
    let two = open(&brief.lease_wait(Duration::from_secs(13)));
    let thread = ThreadId::from("t");
    let _lease = one.lease(&thread).await.unwrap();
    let begun = Instant::now();
    assert_busy(two.lease(&thread).await);
    assert!(begun.elapsed() >= Duration::from_secs(12));
    line(&one, &thread, 2).await;
}

/// Returns the query of the time when the lease of a thread ends.
fn end_of(thread: &str) -> String {
    format!("SELECT expires_at::text FROM leases WHERE name = '{thread}'")
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_while_a_write_holds_one_and_requests_use_all_connections() {
    let Some(server) = shared() else { return };
    let options = fresh(server)
        .lease(Duration::from_secs(2))
        .connections(1)
        .statement_timeout(Duration::from_secs(600));
    let (store, thread) = (Arc::new(open(&options)), ThreadId::from("a"));
    let _leases = (store.lease(&thread).await.unwrap(), store.lease(&"b".into()).await.unwrap());
    line(&*store, &thread, 1).await;
    let other = Other::connect(server, &options).await;
    other.sql("BEGIN; SELECT FROM threads FOR UPDATE").await;
    let head = Some(CheckpointId(1));
    let commit = tokio::spawn({
        let (store, thread) = (store.clone(), thread.clone());
        async move { store.commit(&thread, head, superstep(head, "2")).await }
    });
    other.until_waiting(1).await;
    for lease in ["a", "b"].map(end_of) {
        let end = other.text(&lease).await;
        other.until_other(&lease, &end).await;
    }
    assert!(!commit.is_finished());
    other.sql("COMMIT").await;
    assert_eq!(commit.await.unwrap().unwrap(), CheckpointId(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_row_is_locked_delays_the_renewal_of_no_other() {
    let Some(server) = shared() else { return };
    let options = fresh(server).lease(Duration::from_secs(2));
    let store = open(&options);
    let _leases = [store.lease(&"a".into()).await.unwrap(), store.lease(&"b".into()).await.unwrap()];
    let other = Other::connect(server, &options).await;
    other.sql("BEGIN; SELECT FROM leases WHERE name = 'a' FOR UPDATE").await;
    // The first renewal may have been made before the lock.
    for _ in 0..2 {
        let end = other.text(&end_of("b")).await;
        other.until_other(&end_of("b"), &end).await;
    }
    let end = other.text(&end_of("a")).await;
    other.sql("COMMIT").await;
    other.until_other(&end_of("a"), &end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_waits_for_the_write_that_its_owner_is_about_to_store() {
    let Some(server) = shared() else { return };
    // No renewal comes between.
    let options = fresh(server).lease(Duration::from_secs(3600));
    let (one, two, thread) = (Arc::new(open(&options)), Arc::new(open(&options)), ThreadId::from("t"));
    let lease = one.lease(&thread).await.unwrap();
    line(&*one, &thread, 1).await;
    let (other, third) = (Other::connect(server, &options).await, Other::connect(server, &options).await);
    other.sql("BEGIN; SELECT FROM threads FOR UPDATE").await;
    let commit = tokio::spawn({
        let (one, thread, head) = (one.clone(), thread.clone(), Some(CheckpointId(1)));
        async move { one.commit(&thread, head, superstep(head, "2")).await }
    });
    other.until_waiting(1).await;
    third.sql("UPDATE leases SET expires_at = '2000-01-01'").await;
    let taken = tokio::spawn({
        let (two, thread) = (two.clone(), thread.clone());
        async move { (two.lease(&thread).await, load(&*two, &thread).await.head) }
    });
    other.until_waiting(2).await;
    let released = third.text("SELECT clock_timestamp()::text").await;
    other.sql("COMMIT").await;
    assert_eq!(commit.await.unwrap().unwrap(), CheckpointId(2));
    let (taken, head) = taken.await.unwrap();
    assert_eq!((taken.is_ok(), head), (true, CheckpointId(2)));
    // Its whole time begins after the wait.
    let is_whole = format!(
        "SELECT (expires_at >= '{released}'::timestamptz + interval '3600 seconds')::text FROM leases"
    );
    assert_eq!(third.text(&is_whole).await, "true");
    // The first owner notices, also where the head is another one.
    let late = one.commit(&thread, Some(CheckpointId(1)), superstep(Some(CheckpointId(1)), "3")).await;
    assert!(matches!(late, Err(CheckpointError::LeaseLost { .. })), "{late:?}");
    drop(lease);
}

/// Another process with a lease of the thread `t`, at checkpoint 1.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

const SCHEMA: &str = "SUPERSTEP_TEST_SCHEMA";
const URL: &str = "SUPERSTEP_TEST_URL";

impl Process {
    fn start(url: &str, options: &PostgresOptions) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "leases::the_other_process", "--nocapture"]);
        command.env(SCHEMA, &options.schema).env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self { child, output };
        assert_eq!(other.says(), "ready");
        other
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, message)) = line.trim_end().split_once("other: ") {
                return message.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in the other process only.
#[tokio::test]
async fn the_other_process() {
    let (Ok(schema), Ok(url)) = (std::env::var(SCHEMA), std::env::var(URL)) else { return };
    let lease = Duration::from_millis(500);
    let store = open(&PostgresOptions::new(url).schema(schema).lease(lease));
    let thread = ThreadId::from("t");
    let _lease = store.lease(&thread).await.unwrap();
    line(&store, &thread, 1).await;
    let head = CheckpointId(1);
    let task = TaskKey { thread: thread.clone(), checkpoint: head, slot: 0 };
    let started = TaskRecord::Started { attempts: 0, once: [("paid".to_owned(), "1".into())].into() };
    store.record(&task, started.clone()).await.unwrap();
    println!("other: ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let results = [
        store.commit(&thread, Some(head), superstep(Some(head), "\"zombie\"")).await.map(drop),
        store.record(&task, started).await,
        store.add_effects(&task, [("twice".to_owned(), "2".into())].into()).await.map(drop),
        store.commit(&"t\u{1f}child:0@1".into(), None, superstep(None, "\"zombie\"")).await.map(drop),
        store.delete(&thread).await,
    ];
    for result in results {
        println!("other: {}", result.map_or_else(|error| error.to_string(), |()| "stored".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_for_too_long_loses_its_thread_and_stores_nothing_when_it_wakes_up() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let store = open(&patient(&options));
    let mut other = Process::start(&server.url(), &options);
    other.signal(Signal::STOP);
    let thread = ThreadId::from("t");
    let _lease = store.lease(&thread).await.unwrap();
    let before = load(&store, &thread).await;
    other.signal(Signal::CONT);
    other.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    for _ in 0..5 {
        let message = other.says();
        assert!(message.starts_with("SS315: another process has taken over thread `t`"), "{message}");
    }
    assert_eq!(load(&store, &thread).await, before);
    let head = Some(CheckpointId(1));
    store.commit(&thread, head, superstep(head, "2")).await.unwrap();
    assert_eq!(updates(&load(&store, &thread).await), ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_continues_if_no_other_took_its_thread_over() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let store = open(&patient(&options));
    let mut other = Process::start(&server.url(), &options);
    other.signal(Signal::STOP);
    let expired =
        format!("SELECT count(*) FROM {}.leases WHERE expires_at < clock_timestamp()", options.schema);
    while server.sql(&expired) == "0" {}
    other.signal(Signal::CONT);
    other.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(other.says(), "stored");
    let too_late = other.says();
    assert!(too_late.starts_with("SS302"), "{too_late}");
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thread_of_a_killed_process_is_taken_over_after_its_time() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let store = open(&patient(&options));
    let other = Process::start(&server.url(), &options);
    other.signal(Signal::KILL);
    let thread = ThreadId::from("t");
    let _lease = store.lease(&thread).await.unwrap();
    let loaded = load(&store, &thread).await;
    assert_eq!((loaded.head, loaded.tasks.len()), (CheckpointId(1), 1));
    let head = Some(CheckpointId(1));
    store.commit(&thread, head, superstep(head, "2")).await.unwrap();
}
