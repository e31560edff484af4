//! The speed of threads and jobs on PostgreSQL, beside the bare statements on the same server and LangGraph's saver.
//!
//! `just postgres-bench` starts a server of its own with the default settings, and prints one line for each figure. With the folder of a
//! Python environment in `SUPERSTEP_LANGGRAPH` it measures LangGraph too.
//!
//! Start at [`main`].

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    dead_code,
    reason = "the numbers are the output, and the server is that of the tests"
)]

#[path = "../../postgres/tests/it/server.rs"]
mod server;

use std::{
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use superstep_graph::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, END, Log, Route, START, State, StateGraph,
    ThreadId,
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_testing::lines::superstep;
use superstep_worker::{Jobs, Worker};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_postgres::{Client, NoTls};

use server::Server;

/// The JSON of an update.
const UPDATE: &str = "\"a short update\"";

/// The connections of both sides.
const CONNECTIONS: usize = 8;

/// The rounds of each comparison, one side after the other.
const ROUNDS: usize = 5;

/// The supersteps of a run that is compared with LangGraph's.
const SUPERSTEPS: usize = 300;

/// The turns of the chat.
const TURNS: usize = 200;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    println!("load before: {}", load());
    let server = Server::start(&["max_connections=200"]).expect("PostgreSQL is installed");
    runtime.block_on(async {
        commits(&server).await;
        langgraph(&server).await;
        newest_state(&server).await;
        queue(&server).await;
    });
    println!("load after: {}", load());
}

fn options(server: &Server) -> PostgresOptions {
    PostgresOptions::new(server.url()).schema(server.schema()).connections(CONNECTIONS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares commits with the bare statements of one: an update of the thread's row, and an insertion.
async fn commits(server: &Server) {
    for (writers, each) in [(1, 400), (64, 40)] {
        let store = Arc::new(PostgresCheckpointer::open(options(server)).unwrap());
        let threads: Vec<ThreadId> = (0..writers).map(|nth| format!("t{nth}").into()).collect();
        let mut leases = Vec::new();
        for thread in &threads {
            leases.push(store.lease(thread).await.unwrap());
        }
        let bare = Bare::new(server, writers, CONNECTIONS.min(writers)).await;
        let (mut ours, mut theirs, mut heads) = (Vec::new(), Vec::new(), vec![None; writers]);
        for _ in 0..=ROUNDS {
            let begun = Instant::now();
            let all = threads.iter().zip(heads.clone()).map(|(thread, head)| {
                let (store, thread) = (store.clone(), thread.clone());
                tokio::spawn(async move { line(&*store, &thread, head, each).await })
            });
            heads = join_all(all).await.into_iter().map(Result::unwrap).collect();
            ours.push((writers * each) as f64 / begun.elapsed().as_secs_f64());
            theirs.push(bare.round(each).await);
        }
        // The first round prepares the statements.
        let (ours, theirs) = (median(ours.split_off(1)), median(theirs.split_off(1)));
        println!(
            "commits, {writers} writers: {ours:.0}/s, bare statements {theirs:.0}/s: {:.2}x",
            theirs / ours
        );
    }
}

async fn line(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    mut head: Option<CheckpointId>,
    each: usize,
) -> Option<CheckpointId> {
    for _ in 0..each {
        head = Some(store.commit(thread, head, superstep(head, UPDATE)).await.unwrap());
    }
    head
}

/// Connections that execute the bare statements, each with its share of the threads.
struct Bare {
    clients: Vec<Arc<Client>>,
    threads: usize,
    schema: String,
}

impl Bare {
    async fn new(server: &Server, threads: usize, connections: usize) -> Self {
        let schema = server.schema();
        server.sql(&format!(
            "CREATE SCHEMA {schema}; CREATE TABLE {schema}.threads (key bigint PRIMARY KEY, head bigint) WITH (fillfactor = 70);
             CREATE TABLE {schema}.checkpoints (thread bigint, id bigint, control text, applied text, PRIMARY KEY (thread, id));
             INSERT INTO {schema}.threads SELECT nth, 0 FROM generate_series(0, {}) nth",
            threads - 1
        ));
        let mut clients = Vec::new();
        for _ in 0..connections {
            let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            clients.push(Arc::new(client));
        }
        Self { clients, threads, schema }
    }

    /// Returns the statements per second.
    async fn round(&self, each: usize) -> f64 {
        let schema = &self.schema;
        let sql = format!(
            "WITH head AS (UPDATE {schema}.threads SET head = head + 1 WHERE key = $1 RETURNING key, head)
             INSERT INTO {schema}.checkpoints SELECT key, head, $2, $3 FROM head"
        );
        let begun = Instant::now();
        let all = self.clients.iter().enumerate().map(|(nth, client)| {
            let (client, sql) = (client.clone(), sql.clone());
            let own: Vec<i64> =
                (nth..self.threads).step_by(self.clients.len()).map(|key| key as i64).collect();
            tokio::spawn(async move {
                let statement = client.prepare(&sql).await.unwrap();
                for _ in 0..each {
                    for key in &own {
                        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [
                            key,
                            &"{\"step\":1,\"next\":[\"b\"]}",
                            &"[{\"slot\":0,\"node\":\"a\",\"update\":\"a short update\"}]",
                        ];
                        client.execute(&statement, &params).await.unwrap();
                    }
                }
            })
        });
        join_all(all).await.into_iter().for_each(|done| done.unwrap());
        (self.threads * each) as f64 / begun.elapsed().as_secs_f64()
    }
}

#[derive(State, Clone, Debug, Default)]
struct Count {
    n: usize,
    until: usize,
}

#[derive(Route, Clone, Copy, Debug)]
enum Next {
    Again,
    Enough,
}

/// Creates a graph whose node adds 1 to a number, round a conditional edge.
fn counting(store: Arc<PostgresCheckpointer>) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("count");
    let add = graph.add_node("add", async |count: Count, _: Cx| Count::update().n(count.n + 1));
    graph.add_edge(START, add);
    let next = |count: &Count| if count.n < count.until { Next::Again } else { Next::Enough };
    graph.add_conditional_edges(add, next, |next| match next {
        Next::Again => add,
        Next::Enough => END,
    });
    graph.compile().unwrap().with_checkpointer(store)
}

/// Creates a text of 1,000 characters that does not repeat itself, as `reference.py` does.
fn text(nth: usize) -> String {
    let words = (0..1000).map(|word| format!("{} ", (nth * 7919 + word * 104_729) % 100_003));
    words.collect::<String>()[..1000].to_owned()
}

#[derive(State, Clone, Debug, Default)]
struct Chat {
    #[channel(append)]
    messages: Log<(String, String, String)>,
}

fn chat(store: Arc<PostgresCheckpointer>) -> CompiledGraph<Chat> {
    let mut graph = StateGraph::<Chat>::new("chat");
    let reply = graph.add_node("reply", async |chat: Chat, _: Cx| {
        Chat::update().messages([(
            format!("reply-{}", chat.messages.len()),
            "ai".to_owned(),
            text(chat.messages.len()),
        )])
    });
    graph.add_edge(START, reply);
    graph.add_edge(reply, END);
    graph.compile().unwrap().with_checkpointer(store)
}

/// Runs supersteps and a chat on both, and compares speed and size.
async fn langgraph(server: &Server) {
    let options = options(server);
    let store = Arc::new(PostgresCheckpointer::open(options.clone()).unwrap());
    let counting = counting(store.clone());
    let python =
        std::env::var("SUPERSTEP_LANGGRAPH").ok().map(|folder| Path::new(&folder).join("bin/python"));
    for (name, durability) in [("sync", Durability::Sync), ("async", Durability::Async)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for nth in 0..=ROUNDS {
            let thread = counting.thread(format!("{name}-{nth}")).step_limit(10 * SUPERSTEPS as u32);
            let begun = Instant::now();
            thread.durability(durability).run(Count::update().until(SUPERSTEPS)).await.unwrap();
            ours.push(SUPERSTEPS as f64 / begun.elapsed().as_secs_f64());
            if let Some(python) = &python {
                theirs.push(reference(server, python, name, SUPERSTEPS));
            }
        }
        let ours = median(ours.split_off(1));
        println!("a run of {SUPERSTEPS} supersteps, durability {name}: {ours:.0} supersteps/s");
        if python.is_some() {
            let theirs = median(theirs.split_off(1));
            println!("the same in LangGraph: {theirs:.0} supersteps/s: superstep {:.1}x", ours / theirs);
        }
    }
    let chat_store = options.schema(server.schema());
    let chat = chat(Arc::new(PostgresCheckpointer::open(chat_store.clone()).unwrap()));
    for turn in 0..TURNS {
        let said = (format!("said-{turn}"), "human".to_owned(), text(2 * turn));
        chat.thread("chat").run(Chat::update().messages([said])).await.unwrap();
    }
    let bytes = size(server, &chat_store.schema);
    println!("a chat of {TURNS} turns: {bytes:.0} bytes");
    if let Some(python) = &python {
        let before = size(server, "public");
        reference(server, python, "chat", TURNS);
        let their_bytes = size(server, "public") - before;
        println!(
            "the same chat in LangGraph: {their_bytes:.0} bytes: superstep 1/{:.1}",
            their_bytes / bytes
        );
    }
}

/// Returns the bytes of the rows of a schema, with indexes.
fn size(server: &Server, schema: &str) -> f64 {
    let sql = format!(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
         WHERE relkind = 'r' AND nspname = '{schema}'"
    );
    server.sql(&sql).parse().unwrap()
}

fn reference(server: &Server, python: &Path, work: &str, size: usize) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/reference.py");
    let done = Command::new(python)
        .arg(script)
        .arg(server.folder())
        .args([work, &size.to_string()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

/// Loads the newest state of a thread with 10,000 checkpoints, in a process that has not seen it.
async fn newest_state(server: &Server) {
    let options = options(server);
    let store = Arc::new(PostgresCheckpointer::open(options.clone()).unwrap());
    let count = 10_000;
    let graph = counting(store);
    let deferred = graph.thread("long").step_limit(2 * count).durability(Durability::Async);
    deferred.run(Count::update().until(count as usize)).await.unwrap();
    let mut loads = Vec::new();
    for nth in 0..51 {
        let fresh = counting(Arc::new(PostgresCheckpointer::open(options.clone()).unwrap()));
        // The connection is there, and its statements are prepared; the state is not remembered.
        fresh.thread("other").state().await.err();
        let begun = Instant::now();
        let state = fresh.thread("long").state().await.unwrap();
        let first = begun.elapsed();
        assert_eq!(state.values.n, count as usize);
        let begun = Instant::now();
        fresh.thread("long").state().await.unwrap();
        if nth > 0 {
            loads.push((first.as_secs_f64(), begun.elapsed().as_secs_f64()));
        }
    }
    let (first, again): (Vec<_>, Vec<_>) = loads.into_iter().unzip();
    println!(
        "newest state of {count} checkpoints: {:.2} ms, {:.2} ms for the first request of a connection",
        1e3 * median(again),
        1e3 * median(first)
    );
}

/// Measures from the request that stores a job to the begin of its first node, with an idle worker.
async fn queue(server: &Server) {
    let options = options(server);
    let (sender, mut begun) = mpsc::unbounded_channel();
    let mut graph = StateGraph::<Count>::new("count");
    let sender = Arc::new(Mutex::new(sender));
    let add = graph.add_node_with(
        "add",
        sender,
        async |sender: Arc<Mutex<mpsc::UnboundedSender<Instant>>>, _: Count, _: Cx| {
            let _ = sender.lock().unwrap().send(Instant::now());
            Count::update().n(1_usize)
        },
    );
    graph.add_edge(START, add);
    graph.add_edge(add, END);
    let store = PostgresCheckpointer::open(options.clone()).unwrap();
    let graph = graph.compile().unwrap().with_checkpointer(store);
    let jobs = Jobs::open(options).await.unwrap();
    let stop = Arc::new(Notify::new());
    let worker = tokio::spawn({
        let (worker, stop) = (Worker::new(&jobs).graph(graph.clone()), stop.clone());
        async move { worker.run_until(stop.notified()).await }
    });
    let (mut latencies, mut sends) = (Vec::new(), Vec::new());
    for nth in 0..220 {
        // The worker is idle again.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let sent = Instant::now();
        jobs.run(&graph, format!("job-{nth}"), Count::update()).send().await.unwrap();
        let stored = sent.elapsed();
        let first = begun.recv().await.unwrap() - sent;
        if nth >= 20 {
            latencies.push(1e3 * first.as_secs_f64());
            sends.push(1e3 * stored.as_secs_f64());
        }
    }
    stop.notify_one();
    worker.await.unwrap().unwrap();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!(
        "from a job to its first node: p50 {:.2} ms, p95 {:.2} ms; to store the job: {:.2} ms",
        at(0.5),
        at(0.95),
        median(sends)
    );
}
