//! Servers that are killed and stopped with runs under way.
//!
//! The server is this test program again, running [`the_server`] alone.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use reqwest::{Client, Method, Response};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use superstep_graph::{CompiledGraph, Cx, END, Log, Route, START, State, StateGraph};
use superstep_llm::http::client_builder;
use superstep_server::{Limits, Server, stop_signal};
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};
use tokio::net::TcpListener;

use crate::support::{Event, Reader, names};

/// The variables with the folder and the port of the server.
const FOLDER: &str = "SUPERSTEP_SERVER_FOLDER";
const PORT: &str = "SUPERSTEP_SERVER_PORT";

/// The variables with the size of the test.
const SEED: &str = "SUPERSTEP_KILLS_SEED";
const KILLS: &str = "SUPERSTEP_KILLS";
const CLIENTS: &str = "SUPERSTEP_KILLS_CLIENTS";

/// The rounds of a run: each has the nodes `a`, then `b` and `c` at the same time, then `d`.
const ROUNDS: i64 = 3;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Runs only in the other process.
#[tokio::test(flavor = "multi_thread")]
async fn the_server() {
    let (Some(folder), Some(port)) = (std::env::var_os(FOLDER), std::env::var(PORT).ok()) else { return };
    let folder = PathBuf::from(folder);
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
    let server = Server::new()
        .graph("work", work(&folder))
        .graph("stuck", stuck(&folder))
        .checkpointer(SqliteCheckpointer::open(folder.join("threads.db")).unwrap())
        .rows(SqliteStore::open(folder.join("rows.db")).unwrap())
        .limits(Limits { drain: Duration::from_secs(20), ..Limits::default() });
    server.serve_until(listener, stop_signal()).await.unwrap();
}

#[derive(State, Clone, Debug, Default)]
struct Work {
    id: String,
    round: i64,
    #[channel(append)]
    log: Log<String>,
}

/// Nodes that append their effects to a file, and say what they do.
fn work(folder: &Path) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("work");
    let effects = folder.join("effects");
    let nodes = ["a", "b", "c", "d"].map(|name| {
        let effects = effects.clone();
        graph.add_node(name, move |work: Work, cx: Cx| {
            let effects = effects.clone();
            async move {
                let place = format!("{name}{}", work.round);
                let mut file = OpenOptions::new().create(true).append(true).open(effects).unwrap();
                // One write, so that lines of two nodes are not mixed.
                file.write_all(format!("{} {place}\n", work.id).as_bytes()).unwrap();
                cx.emit("at", json!(place));
                // The pieces of two attempts differ, as those of a model do.
                let attempt = std::process::id();
                for piece in ["x", "y", "z"] {
                    let piece = json!({ "role": "assistant", "content": format!("{attempt}{piece} ") });
                    cx.emit_message(&format!("{}-{place}", work.id), piece);
                    tokio::time::sleep(Duration::from_millis(if name == "c" { 6 } else { 2 })).await;
                }
                let update = Work::update().log([place]);
                if name == "d" { update.round(work.round + 1) } else { update }
            }
        })
    });
    let [a, b, c, d] = nodes;
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(a, c);
    graph.add_join([b, c], d);
    let next = |work: &Work| if work.round < ROUNDS { Next::Again } else { Next::Done };
    graph.add_conditional_edges(d, next, move |next| match next {
        Next::Again => a,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

/// A node that cannot be interrupted, and does not end.
fn stuck(folder: &Path) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("stuck");
    let effects = folder.join("effects");
    let node = graph.add_node("node", move |work: Work, _: Cx| {
        let effects = effects.clone();
        async move {
            let mut file = OpenOptions::new().create(true).append(true).open(effects).unwrap();
            file.write_all(format!("{}\n", work.id).as_bytes()).unwrap();
            tokio::task::block_in_place(|| Barrier::new(2).wait());
            Work::update()
        }
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[derive(Clone, Copy, Route)]
enum Next {
    Again,
    Done,
}

/// Returns the tasks of a run in order, of which `b` and `c` may be exchanged.
fn tasks() -> Vec<String> {
    (0..ROUNDS).flat_map(|round| ["a", "b", "c", "d"].map(|node| format!("{node}{round}"))).collect()
}

/// The process of the server.
struct Process {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Process {
    fn start(folder: &Path, port: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kills::the_server", "--nocapture"]);
        command.env(FOLDER, folder).env(PORT, port.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { folder: folder.to_owned(), port, child }
    }

    /// Waits until it serves.
    async fn ready(&self) {
        let caller = Caller::of(self.port);
        while caller.try_send(Method::GET, "/ok", None, None).await.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the process, and starts it again. Returns whether it ended by itself, without an error.
    async fn restart(&mut self) -> bool {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                *self = Self::start(&self.folder.clone(), self.port);
                return status.success();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of a server that may be away.
#[derive(Clone)]
struct Caller {
    url: String,
    client: Client,
}

/// A run that the server accepted, by its place.
struct Accepted {
    place: String,
    id: String,
}

impl Caller {
    fn of(port: u16) -> Self {
        let client = client_builder().unwrap().no_proxy().build().unwrap();
        Self { url: format!("http://127.0.0.1:{port}"), client }
    }

    /// Sends a request once. `None` if there is no answer, or the server stops.
    async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        after: Option<&str>,
    ) -> Option<Response> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.ok().filter(|response| response.status() != 503);
        if let Some(response) = &response {
            assert!(response.status().is_success(), "{path}: {}", response.status());
        }
        response
    }

    /// Gets JSON, as often as it takes.
    async fn get(&self, path: &str) -> Value {
        loop {
            if let Some(response) = self.try_send(Method::GET, path, None, None).await
                && let Ok(json) = response.json().await
            {
                return json;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Begins a run on a new thread. The answer is that of the request, if the client received its head.
    async fn begin(&self, id: &str, kind: &str, durability: &str) -> (Accepted, Option<Response>) {
        let new = json!({ "thread_id": id, "if_exists": "do_nothing" });
        while self.try_send(Method::POST, "/threads", Some(&new), None).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let body = json!({
            "assistant_id": "work", "input": { "id": id }, "durability": durability, "stream_resumable": kind == "/stream",
            "stream_mode": ["values", "updates", "custom", "messages-tuple"],
        });
        let path = format!("/threads/{id}/runs");
        loop {
            if let Some(response) =
                self.try_send(Method::POST, &format!("{path}{kind}"), Some(&body), None).await
            {
                let place = response.headers()["content-location"].to_str().unwrap().to_owned();
                return (Accepted { place, id: id.to_owned() }, Some(response));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            // The server may have accepted it before it was killed.
            if let Some(run) = self.get(&path).await.get(0) {
                let place = format!("{path}/{}", run["run_id"].as_str().unwrap());
                return (Accepted { place, id: id.to_owned() }, None);
            }
        }
    }

    /// Waits for the result of a run.
    async fn join(&self, run: &Accepted) -> Value {
        self.get(&format!("{}/join", run.place)).await
    }

    /// Reads all events of a resumable run, and reconnects.
    async fn events(&self, run: &Accepted, begun: Option<Response>) -> Vec<Event> {
        let (mut events, mut next, mut is_over) = (Vec::<Event>::new(), begun, false);
        loop {
            if let Some(response) = next.take() {
                let mut reader = Reader::new(response);
                loop {
                    match reader.read().await {
                        Some(Ok(event)) => events.push(event),
                        None if is_over => return events,
                        // The end of a stream is the end of the run only if its row says so.
                        Some(Err(_)) | None => break,
                    }
                }
            }
            is_over = self.get(&run.place).await["status"] == "success";
            let after = events.last().and_then(|event| event.id.clone()).unwrap_or_else(|| "-1".to_owned());
            next = self.try_send(Method::GET, &format!("{}/stream", run.place), None, Some(&after)).await;
        }
    }
}

/// Checks that a client saw every event of a run once.
fn check_events(id: &str, events: &[Event]) {
    let ids: Vec<u64> = events
        .iter()
        .map(|event| event.id.as_ref().unwrap().rsplit_once('-').unwrap().1.parse().unwrap())
        .collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{id}: {ids:?}");
    let of = |name: &str| {
        events.iter().filter(|event| event.name == name).map(|event| &event.data).collect::<Vec<_>>()
    };
    assert!(of("error").is_empty(), "{id}: {events:?}");
    let mut custom: Vec<_> = of("custom").into_iter().map(|at| at.as_str().unwrap().to_owned()).collect();
    custom.sort_by_key(|at| (at[1..].to_owned(), at.clone()));
    assert_eq!(custom, tasks(), "{id}: {:?}", names(events));
    let mut updates: Vec<_> = of("updates")
        .into_iter()
        .map(|update| {
            update.as_object().unwrap().values().next().unwrap()["log"][0].as_str().unwrap().to_owned()
        })
        .collect();
    updates.sort_by_key(|at| (at[1..].to_owned(), at.clone()));
    assert_eq!(updates, tasks(), "{id}");
    // The input, and three supersteps a round.
    let lengths: Vec<_> =
        of("values").into_iter().map(|values| values["log"].as_array().unwrap().len()).collect();
    let expected: Vec<usize> =
        (0..ROUNDS as usize).flat_map(|round| [1, 3, 4].map(|done| round * 4 + done)).collect();
    assert_eq!(lengths, [vec![0], expected].concat(), "{id}");
    // The pieces of an attempt that was interrupted are void, and those of the next one are whole.
    let mut messages: BTreeMap<String, String> = BTreeMap::new();
    for part in of("messages") {
        let message = &part[0];
        let text = messages.entry(message["id"].as_str().unwrap().to_owned()).or_default();
        match message["type"].as_str().unwrap() {
            "remove" => text.clear(),
            _ => text.push_str(message["content"].as_str().unwrap()),
        }
    }
    assert_eq!(messages.len(), tasks().len(), "{id}: {messages:?}");
    for (message, text) in messages {
        let pieces: Vec<_> = text.split_whitespace().collect();
        let process = pieces[0].trim_end_matches('x');
        assert_eq!(pieces, ["x", "y", "z"].map(|piece| format!("{process}{piece}")), "{id}, {message}");
    }
}

/// Checks that no task ran after one of a later superstep. With durability `sync` that one began when the task had finished.
fn check_effects(folder: &Path) {
    let effects = std::fs::read_to_string(folder.join("effects")).unwrap();
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    for line in effects.lines() {
        let (run, task) = line.split_once(' ').unwrap();
        let at = tasks().iter().position(|known| known == task).unwrap();
        // `b` and `c` are of one superstep.
        let superstep = at - usize::from(at % 4 == 2);
        let newest = newest.entry(run).or_default();
        assert!(superstep >= *newest || run.contains("async"), "{run}: {task} ran again");
        *newest = superstep.max(*newest);
    }
}

async fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    free.local_addr().unwrap().port()
}

/// Keeps runs under way while something happens to the server, and checks all that it accepted.
async fn runs_survive<F: Future<Output = Process>>(
    clients: u64,
    folder: &Path,
    happens: impl FnOnce(Process) -> F,
) -> usize {
    let port = free_port().await;
    let process = Process::start(folder, port);
    let caller = Caller::of(port);
    let is_over = Arc::new(AtomicBool::new(false));
    let working = (0..clients).map(|nth| {
        let (caller, is_over) = (caller.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut count = 0;
            loop {
                let durability = if nth % 8 == 4 { "async" } else { "sync" };
                let id = format!("{nth}-{count}-{durability}");
                match nth % 4 {
                    0 => {
                        let (run, begun) = caller.begin(&id, "/stream", durability).await;
                        check_events(&id, &caller.events(&run, begun).await);
                        check_result(&caller, &run).await;
                    }
                    1 => {
                        let (run, waiting) = caller.begin(&id, "/wait", durability).await;
                        drop(waiting);
                        check_result(&caller, &run).await;
                    }
                    2 => check_result(&caller, &caller.begin(&id, "", durability).await.0).await,
                    _ => {
                        let (run, _) = caller.begin(&id, "", durability).await;
                        while ["pending", "running"]
                            .contains(&caller.get(&run.place).await["status"].as_str().unwrap())
                        {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        check_result(&caller, &run).await;
                    }
                }
                count += 1;
                if is_over.load(Ordering::Relaxed) {
                    return count;
                }
            }
        })
    });
    let working: Vec<_> = working.collect();
    let process = happens(process).await;
    is_over.store(true, Ordering::Relaxed);
    let mut count = 0;
    for working in working {
        count += working.await.unwrap();
    }
    drop(process);
    count
}

async fn check_result(caller: &Caller, run: &Accepted) {
    let result = caller.join(run).await;
    assert_eq!(result["log"].as_array().map(Vec::len), Some(tasks().len()), "{}: {result}", run.id);
    assert_eq!(caller.get(&run.place).await["status"], "success");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_runs_end_once_although_the_server_is_killed() {
    let (seed, kills, clients) = (number(SEED, 7), number(KILLS, 4), number(CLIENTS, 12));
    let folder = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let killed = async |mut process: Process| {
        for nth in 0..kills {
            // Every fourth one may be killed while it takes up its runs.
            if nth % 4 != 3 {
                process.ready().await;
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..900))).await;
            process.signal(Signal::KILL);
            process.restart().await;
        }
        process
    };
    let count = runs_survive(clients, folder.path(), killed).await;
    check_effects(folder.path());
    let mut out = std::io::stderr();
    writeln!(out, "{count} runs of {clients} clients over {kills} kills, seed {seed}").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = async |mut process: Process| {
        for _ in 0..2 {
            process.ready().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            process.signal(Signal::TERM);
            assert!(process.restart().await, "the server did not end by itself");
        }
        process
    };
    runs_survive(8, folder.path(), stopped).await;
    let effects = std::fs::read_to_string(folder.path().join("effects")).unwrap();
    let mut lines: Vec<_> = effects.lines().collect();
    lines.sort_unstable();
    assert!(lines.is_sorted_by(|a, b| a < b), "a task ran twice: {lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_cancelled_does_not_continue_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path(), free_port().await);
    process.ready().await;
    let caller = Caller::of(process.port);
    let begin = async |thread: &str, more: Value| {
        let new = json!({ "thread_id": thread, "if_exists": "do_nothing" });
        caller.try_send(Method::POST, "/threads", Some(&new), None).await.unwrap();
        let mut body = json!({ "assistant_id": "stuck", "input": { "id": thread }, "durability": "sync" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/threads/{thread}/runs");
        let run = caller.try_send(Method::POST, &path, Some(&body), None).await.unwrap();
        format!("{path}/{}", run.json::<Value>().await.unwrap()["run_id"].as_str().unwrap())
    };
    let effects = || {
        let effects = std::fs::read_to_string(folder.path().join("effects")).unwrap_or_default();
        let mut lines: Vec<String> = effects.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let cancelled = begin("cancelled", json!({ "stream_resumable": true })).await;
    let rolled_back = begin("rolled-back", json!({})).await;
    let replaced = begin("replaced", json!({})).await;
    while effects().len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (run, action) in [(&cancelled, "interrupt"), (&rolled_back, "rollback")] {
        let path = format!("{run}/cancel?action={action}");
        let response = caller.try_send(Method::POST, &path, Some(&json!({})), None).await.unwrap();
        assert_eq!(response.status(), 202);
        assert_eq!(caller.get(run).await["status"], "running");
    }
    let next = begin("replaced", json!({ "multitask_strategy": "interrupt", "after_seconds": 600 })).await;
    process.signal(Signal::KILL);
    process.restart().await;
    process.ready().await;

    for (run, reason) in [
        (&cancelled, "interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel"),
        (&replaced, "another run of the thread replaced it (multitask_strategy)"),
    ] {
        caller.get(&format!("{run}/join")).await;
        let ended = caller.get(run).await;
        assert_eq!((&ended["status"], &ended["cancel_reason"]), (&json!("interrupted"), &json!(reason)));
    }
    assert_eq!(caller.get(&next).await["status"], "pending");
    let read = async || caller.client.get(format!("{}{rolled_back}", caller.url)).send().await.unwrap();
    while read().await.status() != 404 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Their threads are as a cancellation leaves them, and no node ran again.
    let next_nodes =
        async |thread: &str| caller.get(&format!("/threads/{thread}/state")).await["next"].clone();
    assert_eq!(next_nodes("cancelled").await, json!(["node"]));
    assert_eq!(next_nodes("rolled-back").await, json!([]));
    assert_eq!(effects(), ["cancelled", "replaced", "rolled-back"]);
    let streamed = caller.try_send(Method::GET, &format!("{cancelled}/stream"), None, Some("-1")).await;
    let events = crate::support::events(streamed.unwrap()).await;
    assert!(names(&events).contains(&"values"), "{events:?}");
}
