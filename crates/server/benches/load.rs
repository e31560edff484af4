//! The load that a server takes: runs of a graph without work, the time to the first event, and the memory of waiting streams.
//!
//! `just server-load` runs it, beside the development server of LangGraph. Without arguments it starts a server of its own; with an
//! address and the id of a process it measures the server there, whose graphs have the same names.

#![expect(clippy::print_stdout, reason = "a measurement shows its figures")]
#![expect(clippy::unwrap_used, reason = "a measurement that fails ends")]

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use superstep_graph::{CompiledGraph, Cx, END, Route, START, State, StateGraph};
use superstep_server::Server;
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

/// The variables with the port and the folder of the server, in its own process; without a name everything is in memory.
const PORT: &str = "SUPERSTEP_LOAD_PORT";
const FOLDER: &str = "SUPERSTEP_LOAD_FOLDER";

/// The connections that begin runs at the same time.
const CONNECTIONS: usize = 16;

/// The time for which runs are counted.
const SECONDS: u64 = 5;

/// The runs whose first events are timed, and the seconds for which they are, if they are fewer then.
const TIMED: usize = 300;
const TIMED_SECONDS: u64 = 60;

/// The checkpoints of the long thread, the threads that are searched, and the requests for a part of them.
const MANY: usize = 10_000;
const PARTS: usize = 300;

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

/// A graph whose node runs again and again.
fn many() -> CompiledGraph<Nothing> {
    let mut graph = StateGraph::<Nothing>::new("many");
    let node = graph.add_node("node", async |state: Nothing, _: Cx| Nothing::update().n(state.n + 1));
    graph.add_edge(START, node);
    let next = |state: &Nothing| if state.n < MANY as i64 { Next::Again } else { Next::Done };
    graph.add_conditional_edges(node, next, move |next| match next {
        Next::Again => node,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

#[derive(Clone, Copy, Route)]
enum Next {
    Again,
    Done,
}

#[tokio::main]
async fn main() {
    if let Ok(port) = env::var(PORT) {
        let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        let folder = env::var(FOLDER).unwrap();
        let server = Server::new()
            .graph("nothing", graph("nothing", 0))
            .graph("waits", graph("waits", 600))
            .graph("many", many());
        let server = match &*folder {
            "" => server,
            folder => server
                .checkpointer(SqliteCheckpointer::open(Path::new(folder).join("threads.db")).unwrap())
                .rows(SqliteStore::open(Path::new(folder).join("rows.db")).unwrap()),
        };
        return server.serve(listener).await.unwrap();
    }
    let given: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [address, process] = &*given {
        return measure(address, process).await;
    }
    println!("in memory:");
    let server = Process::start("").await;
    measure(&server.address, &server.child.id().to_string()).await;
    measure_many(&server.address).await;
    drop(server);
    println!("in SQLite:");
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path().to_str().unwrap()).await;
    measure(&server.address, &server.child.id().to_string()).await;
    measure_many(&server.address).await;
}

/// A server in a process of its own, so that its memory can be measured.
struct Process {
    address: String,
    child: Child,
}

impl Process {
    async fn start(folder: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(PORT, address.port().to_string()).env(FOLDER, folder).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { address: address.to_string(), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn measure(address: &str, process: &str) {
    runs_per_second(address, 1).await;
    println!("runs a second: {:.0}", runs_per_second(address, SECONDS).await);
    show("first event", first_events(address).await);
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

/// Measures parts of a long history, and searches among many threads.
async fn measure_many(address: &str) {
    let mut connection = Connection::open(address).await;
    let body = format!(
        r#"{{"assistant_id":"many","input":{{"n":0}},"on_completion":"keep","config":{{"recursion_limit":{}}}}}"#,
        MANY + 10
    );
    connection.send("POST", "/runs/wait", &body).await;
    let head = connection.until(b"\r\n\r\n").await.to_lowercase();
    let run = head.split("content-location: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let begun = Instant::now();
    connection.answer().await;
    println!("{MANY} checkpoints are made in {:.1} s", begun.elapsed().as_secs_f64());
    let thread = run.rsplit_once("/runs/").unwrap().0;
    let mut times = Vec::new();
    for part in 0..PARTS {
        let begun = Instant::now();
        let before = MANY - part * (MANY - 100) / PARTS;
        connection.send("GET", &format!("{thread}/history?limit=10&before={before}"), "").await;
        connection.sized().await;
        times.push(begun.elapsed());
    }
    show(&format!("10 of {MANY} checkpoints"), times);
    let mut times = Vec::new();
    for _ in 0..PARTS {
        let begun = Instant::now();
        connection.send("GET", &format!("{thread}/state"), "").await;
        connection.sized().await;
        times.push(begun.elapsed());
    }
    show(&format!("the state after {MANY} checkpoints"), times);
    for _ in 0..MANY {
        connection.send("POST", "/threads", r#"{"metadata":{"by":"load"}}"#).await;
        connection.sized().await;
    }
    let mut times = Vec::new();
    for _ in 0..PARTS {
        let begun = Instant::now();
        connection.send("POST", "/threads/search", r#"{"status":"idle","limit":10,"offset":500}"#).await;
        connection.sized().await;
        times.push(begun.elapsed());
    }
    show(&format!("10 of {MANY} threads of a status"), times);
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let of = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1_000.0;
    println!("{what}: {:.2} ms in the middle, {:.2} ms for 95 %", of(50), of(95));
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
    let (mut times, until) = (Vec::new(), Instant::now() + Duration::from_secs(TIMED_SECONDS));
    while times.len() < TIMED && Instant::now() < until {
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

    /// Reads an answer whose size is in its head.
    async fn sized(&mut self) {
        let head = self.until(b"\r\n\r\n").await;
        let (head, _) = head.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let size = head.to_lowercase();
        let size = size.split("content-length: ").nth(1).unwrap().split_whitespace().next().unwrap();
        let whole = head.len() + 4 + size.parse::<usize>().unwrap();
        while self.read.len() < whole {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the connection ended");
        }
    }

    /// Reads an answer, which comes in chunks.
    async fn answer(&mut self) -> String {
        self.until(b"\r\n0\r\n\r\n").await
    }
}
