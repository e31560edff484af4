//! The load that a server takes: runs of a graph without work, the time to the first event, and the memory of waiting streams.
//!
//! `just server-load` runs it, beside the development server of LangGraph. Without arguments it starts a server of its own; with an
//! address and the id of a process it measures the server there, whose graphs have the same names.

#![expect(clippy::print_stdout, reason = "a measurement shows its figures")]
#![expect(clippy::unwrap_used, reason = "a measurement that fails ends")]

use std::{
    env, fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use superstep_graph::{CompiledGraph, Cx, END, START, State, StateGraph};
use superstep_server::Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The variable with the port of the server, in its own process.
const PORT: &str = "SUPERSTEP_LOAD_PORT";

/// The connections that begin runs at the same time.
const CONNECTIONS: usize = 16;

/// The time for which runs are counted.
const SECONDS: u64 = 5;

/// The runs whose first events are timed.
const TIMED: usize = 300;

/// The streams that wait.
const STREAMS: usize = 1_000;

#[derive(State, Clone, Debug, Default)]
struct Nothing {
    n: i64,
}

/// A graph with one node.
fn graph(name: &str, seconds: u64) -> CompiledGraph<Nothing> {
    let mut graph = StateGraph::<Nothing>::new(name);
    let node = graph.add_node("node", move |state: Nothing, _: Cx| async move {
        if seconds > 0 {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        Nothing::update().n(state.n + 1)
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[tokio::main]
async fn main() {
    if let Ok(port) = env::var(PORT) {
        let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        let server = Server::new().graph("nothing", graph("nothing", 0)).graph("waits", graph("waits", 600));
        return server.serve(listener).await.unwrap();
    }
    let given: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [address, process] = &*given {
        return measure(address, process).await;
    }
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut server = Command::new(env::current_exe().unwrap());
    let mut server = server.env(PORT, address.port().to_string()).stdin(Stdio::null()).spawn().unwrap();
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    measure(&address.to_string(), &server.id().to_string()).await;
    server.kill().unwrap();
    server.wait().unwrap();
}

async fn measure(address: &str, process: &str) {
    runs_per_second(address, 1).await;
    println!("runs a second: {:.0}", runs_per_second(address, SECONDS).await);
    let mut times = first_events(address).await;
    times.sort_unstable();
    let of = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1_000.0;
    println!("first event: {:.2} ms in the middle, {:.2} ms for 95 %", of(50), of(95));
    let before = resident_kb(process);
    let (run, _begun) = waiting_run(address).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = Connection::open(address).await;
        stream.send("GET", &format!("{run}/stream"), "").await;
        stream.until(b"\r\n\r\n").await;
        streams.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let joined = resident_kb(process).saturating_sub(before) as f64 / STREAMS as f64;
    println!("memory of a waiting stream: {joined:.1} KB");
}

async fn runs_per_second(address: &str, seconds: u64) -> f64 {
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let counting = (0..CONNECTIONS).map(|_| {
        let address = address.to_owned();
        tokio::spawn(async move {
            let (mut connection, mut count) = (Connection::open(&address).await, 0u32);
            while Instant::now() < until {
                connection.send("POST", "/runs/wait", r#"{"assistant_id":"nothing","input":{"n":1}}"#).await;
                let answer = connection.answer().await;
                assert!(answer.contains(r#""n":2"#), "{answer}");
                count += 1;
            }
            count
        })
    });
    let mut count = 0;
    for counting in counting.collect::<Vec<_>>() {
        count += counting.await.unwrap();
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

async fn first_events(address: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..TIMED {
        let mut connection = Connection::open(address).await;
        let begun = Instant::now();
        connection.send("POST", "/runs/stream", r#"{"assistant_id":"nothing","input":{"n":1}}"#).await;
        connection.until(b"event: ").await;
        times.push(begun.elapsed());
    }
    times
}

/// Begins a run that waits, and returns its place.
async fn waiting_run(address: &str) -> (String, Connection) {
    let mut connection = Connection::open(address).await;
    let body = r#"{"assistant_id":"waits","input":{"n":1},"on_completion":"keep"}"#;
    connection.send("POST", "/runs", body).await;
    let head = connection.until(b"\r\n\r\n").await.to_lowercase();
    let place =
        head.split("content-location: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    (place, connection)
}

/// Returns the memory of a process.
fn resident_kb(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A connection, with no more work than it takes, so that the server is what is measured.
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.read.clear();
        self.stream.write_all(request.as_bytes()).await.unwrap();
    }

    /// Reads until these bytes, and returns all that was read.
    async fn until(&mut self, end: &[u8]) -> String {
        while !self.read.windows(end.len()).any(|bytes| bytes == end) {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the connection ended");
        }
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Reads an answer, which comes in chunks.
    async fn answer(&mut self) -> String {
        self.until(b"\r\n0\r\n\r\n").await
    }
}
