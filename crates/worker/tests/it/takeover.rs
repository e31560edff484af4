//! Several workers: they share the work, and take over that of a dead one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use superstep_graph::{CompiledGraph, Cx, END, Log, NodeError, START, State, StateGraph};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{Jobs, Worker};
use tokio::sync::Barrier;

use crate::{
    server::shared,
    support::{fresh, until_done},
};

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    log: Log<String>,
}

const SCHEMA: &str = "SUPERSTEP_TEST_SCHEMA";
const URL: &str = "SUPERSTEP_TEST_URL";
const BOOK: &str = "SUPERSTEP_TEST_BOOK";

/// Creates a graph whose node books a payment in a file, and then waits for ever if it runs in the other process.
fn payment(options: &PostgresOptions, book: PathBuf, waits: bool) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("payment");
    let begin = graph.add_node("begin", async |_, _| Order::update().log(["begin".to_owned()]));
    let pay = graph.add_node_with(
        "pay",
        (book, waits),
        async |(book, waits): (PathBuf, bool), _: Order, cx: Cx| {
            let paid: String = cx
                .once("pay", async |key: String| {
                    let mut book = fs::OpenOptions::new().create(true).append(true).open(&book)?;
                    writeln!(book, "{key}")?;
                    Ok::<_, std::io::Error>(key)
                })
                .await?;
            if waits {
                println!("other: paid");
                std::future::pending::<()>().await;
            }
            Ok::<_, NodeError>(Order::update().log([format!("paid {paid}")]))
        },
    );
    graph.add_edge(START, begin);
    graph.add_edge(begin, pay);
    graph.add_edge(pay, END);
    graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options.clone()).unwrap())
}

/// Options whose leases end soon after their process.
fn brief(url: &str, schema: String) -> PostgresOptions {
    let (lease, lease_wait) = (Duration::from_secs(1), Duration::from_millis(50));
    PostgresOptions::new(url).schema(schema).lease(lease).lease_wait(lease_wait).connections(4)
}

/// Runs in the other process only.
#[tokio::test]
async fn the_other_process() {
    let var = |name| std::env::var(name).ok();
    let (Some(schema), Some(url), Some(book)) = (var(SCHEMA), var(URL), var(BOOK)) else { return };
    let options = brief(&url, schema);
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let graph = payment(&options, book.into(), true);
    Worker::new(&jobs)
        .graph(graph)
        .heartbeat(Duration::from_millis(200))
        .run_until(std::future::pending())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_killed_process_is_finished_by_another_one() {
    let Some(server) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let book: &Path = &folder.path().join("book");
    let (url, schema) = (server.url(), server.schema());
    let options = brief(&url, schema.clone());
    let jobs = Jobs::open(options.clone()).await.unwrap();
    let graph = payment(&options, book.to_owned(), false);
    jobs.run(&graph, "order", Order::update()).send().await.unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "takeover::the_other_process", "--nocapture"]);
    other.env(SCHEMA, &schema).env(URL, &url).env(BOOK, book).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("other: paid")), "the other process ended");
    other.kill().unwrap();
    other.wait().unwrap();
    let worker = Worker::new(&jobs).graph(graph.clone()).heartbeat(Duration::from_millis(200));
    worker.run_until(until_done(&jobs)).await.unwrap();
    let booked = fs::read_to_string(book).unwrap();
    let key = booked.lines().next().unwrap();
    assert_eq!(booked, format!("{key}\n"));
    let state = graph.thread("order").state().await.unwrap();
    assert_eq!(state.values.log, ["begin".to_owned(), format!("paid {key}")]);
    assert!(state.next.is_empty());
}

#[tokio::test]
async fn two_workers_share_the_jobs_of_a_database() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (one, other) =
        (Jobs::open(options.clone()).await.unwrap(), Jobs::open(options.clone()).await.unwrap());
    // Each worker has one slot, so that both are at work when two nodes meet.
    let meeting = Arc::new(Barrier::new(2));
    let mut graph = StateGraph::<Order>::new("meet");
    let meet = graph.add_node_with("meet", meeting, async |meeting: Arc<Barrier>, _: Order, _: Cx| {
        meeting.wait().await;
        Order::update()
    });
    graph.add_edge(START, meet);
    graph.add_edge(meet, END);
    let graph = graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options).unwrap());
    for nth in 0..10 {
        one.run(&graph, format!("t{nth}"), Order::update()).send().await.unwrap();
    }
    let work = |jobs: &Jobs| {
        let (jobs, graph) = (jobs.clone(), graph.clone());
        async move { Worker::new(&jobs).graph(graph).concurrency(1).run_until(until_done(&jobs)).await }
    };
    let (first, second) = tokio::join!(work(&one), work(&other));
    first.unwrap();
    second.unwrap();
}
