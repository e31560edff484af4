//! Shared helpers of the tests: states, nodes, and one function to inspect each boundary.

use std::{
    future::Future,
    io::Cursor,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use superstep::{
    Checkpointer, CompiledGraph, Cx, END, Event, Interrupt, Log, MemoryCheckpointer, NodeRef, RunError,
    RunOptions, START, State, StateGraph, StreamMode,
    checkpoint::{
        CheckpointMeta,
        text::{self, ExportOptions},
    },
    thread::{StateSnapshot, TaskSnapshot},
};
use tokio::sync::Notify;

/// The state of most scenarios.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub(crate) struct Plain {
    #[channel(append)]
    pub(crate) log: Log<String>,
    pub(crate) x: i64,
}

impl Plain {
    /// Returns the log as text.
    pub(crate) fn log_text(&self) -> String {
        self.log.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Creates an update that adds a word to the log.
pub(crate) fn say(word: &str) -> PlainUpdate {
    Plain::update().log([word.to_owned()])
}

/// Adds a node that appends its name to the log.
pub(crate) fn logging_node(graph: &mut StateGraph<Plain>, name: &'static str) -> NodeRef {
    graph.add_node(name, move |_, _| async move { say(name) })
}

/// `START → a → b → … → END`, where every node appends its name to the log.
pub(crate) fn line(names: &[&'static str]) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::new("line");
    let mut last = START;
    for name in names {
        let node = logging_node(&mut graph, name);
        graph.add_edge(last, node);
        last = node;
    }
    graph.add_edge(last, END);
    graph.compile().unwrap()
}

/// Returns the ids of questions without the hash of the content.
pub(crate) fn id_prefixes(asked: &[Interrupt]) -> Vec<&str> {
    asked.iter().map(|asked| asked.id.rsplit_once('~').expect("an id has a hash").0).collect()
}

/// Returns the id of the question at a place.
pub(crate) fn id_at(asked: &[Interrupt], place: &str) -> String {
    let at = id_prefixes(asked).into_iter().position(|other| other == place);
    asked[at.unwrap_or_else(|| panic!("{place}: {:?}", id_prefixes(asked)))].id.clone()
}

/// The nodes that ran, in the order of their starts.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    pub(crate) fn add(&self, cx: &Cx) {
        self.0.lock().unwrap().push(cx.node().to_string());
    }

    /// Returns the number of runs of a node.
    pub(crate) fn named(&self, node: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|call| *call == node).count()
    }

    pub(crate) fn all(&self) -> String {
        self.0.lock().unwrap().join(" ")
    }
}

/// The storage of a scenario's threads.
pub(crate) enum Backend {
    Memory(Arc<MemoryCheckpointer>),
    /// A store in memory that a process leaves to the next one as text.
    Text(Mutex<Arc<MemoryCheckpointer>>),
    #[cfg(feature = "sqlite")]
    Sqlite(tempfile::TempDir),
    #[cfg(all(feature = "postgres", unix))]
    Postgres(crate::postgres::Schema),
    #[cfg(all(feature = "restate", unix))]
    Restate(crate::restate::Namespace),
}

impl Backend {
    /// A store with typed values, as in release builds. Most other tests in memory encode them, as a database does.
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(MemoryCheckpointer::new().keeping_values(true)))
    }

    /// A store whose threads are exported and imported when it is opened again, unless an earlier graph still has it.
    pub(crate) fn text() -> Self {
        Self::Text(Mutex::default())
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// `None` where PostgreSQL is not installed.
    #[cfg(all(feature = "postgres", unix))]
    pub(crate) fn postgres() -> Option<Self> {
        crate::postgres::Schema::new().map(Self::Postgres)
    }

    /// `None` where the Restate server is not installed. Without `SUPERSTEP_RESTATE_SCENARIOS` also for most scenarios.
    #[cfg(all(feature = "restate", unix))]
    pub(crate) fn restate() -> Option<Self> {
        crate::restate::Namespace::new().map(Self::Restate)
    }

    /// Opens the store as in a new process: a database is opened again.
    pub(crate) fn open(&self) -> Arc<dyn Checkpointer> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Text(store) => {
                let mut store = store.lock().unwrap();
                if Arc::strong_count(&store) == 1 {
                    let moved = moved(&**store).now_or_never().expect("a store in memory does not wait");
                    *store = Arc::new(moved);
                }
                store.clone()
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(folder) => {
                let path = folder.path().join("threads.db");
                Arc::new(superstep::sqlite::SqliteCheckpointer::open(path).unwrap())
            }
            #[cfg(all(feature = "postgres", unix))]
            Self::Postgres(schema) => schema.open(),
            #[cfg(all(feature = "restate", unix))]
            Self::Restate(namespace) => namespace.open(),
        }
    }

    /// Returns whether a run finds the state that the one before it left in memory. On Restate it does not: the next run may be that of
    /// another process, so that each one reads its thread.
    pub(crate) fn remembers_heads(&self) -> bool {
        #[cfg(all(feature = "restate", unix))]
        if let Self::Restate(_) = self {
            return false;
        }
        true
    }

    /// Sets this store, as in a new process.
    pub(crate) fn keep<S: State>(&self, graph: CompiledGraph<S>) -> CompiledGraph<S> {
        graph.with_checkpointer(self.open())
    }
}

/// Moves all threads to another store as text, which that store then gives again.
pub(crate) async fn moved(store: &dyn Checkpointer) -> MemoryCheckpointer {
    let (next, options) = (MemoryCheckpointer::new(), ExportOptions::default());
    for thread in store.names().await.unwrap() {
        let text = text::export(store, &thread, &options).await.unwrap();
        text::import(&next, &mut Cursor::new(&text)).await.unwrap();
        assert_eq!(text::export(&next, &thread, &options).await.unwrap(), text);
    }
    next
}

/// Makes each scenario a test in memory, a test in memory with threads that are moved as text, and a test in each database.
macro_rules! on_every_store {
    ($($(#[$attribute:meta])* async fn $name:ident($backend:ident: Backend) $body:block)*) => {$(
        $(#[$attribute])*
        async fn $name($backend: crate::support::Backend) $body

        mod $name {
            #[tokio::test(start_paused = true)]
            async fn in_memory() {
                super::$name(crate::support::Backend::memory()).await;
            }

            #[tokio::test(start_paused = true)]
            async fn in_text() {
                super::$name(crate::support::Backend::text()).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(start_paused = true)]
            async fn in_sqlite() {
                super::$name(crate::support::Backend::sqlite()).await;
            }

            #[cfg(all(feature = "postgres", unix))]
            #[tokio::test(start_paused = true)]
            async fn in_postgres() {
                if let Some(backend) = crate::support::Backend::postgres() {
                    super::$name(backend).await;
                }
            }

            #[cfg(all(feature = "restate", unix))]
            #[tokio::test(start_paused = true)]
            async fn in_restate() {
                if let Some(backend) = crate::support::Backend::restate() {
                    let store = backend.open();
                    super::$name(backend).await;
                    crate::support::moved(&*store).await;
                }
            }
        }
    )*};
}
pub(crate) use on_every_store;

/// Returns a run on the thread of most scenarios.
pub(crate) fn t() -> RunOptions {
    RunOptions::new().thread("t")
}

/// Returns the head of the thread.
pub(crate) async fn head<S: State>(graph: &CompiledGraph<S>) -> StateSnapshot<S> {
    graph.thread("t").state().await.unwrap()
}

/// A checkpoint as `(source, step, next)`.
pub(crate) type Entry = (&'static str, i64, String);

pub(crate) fn entry(meta: &CheckpointMeta) -> Entry {
    (meta.source.as_str(), meta.control.step, names(&meta.control.next))
}

/// Returns the thread's history, newest first.
pub(crate) async fn h<S: State>(graph: &CompiledGraph<S>) -> Vec<Entry> {
    let history = graph.thread("t").history().states().await.unwrap();
    history.iter().map(|snapshot| entry(snapshot.checkpoint.as_ref().unwrap())).collect()
}

/// The expected value of [`h`].
pub(crate) fn entries(expected: &[(&'static str, i64, &str)]) -> Vec<Entry> {
    expected.iter().map(|(source, step, next)| (*source, *step, (*next).to_owned())).collect()
}

/// Joins names with spaces.
pub(crate) fn names(nodes: &[superstep::node::NodeName]) -> String {
    nodes.iter().map(superstep::node::NodeName::as_str).collect::<Vec<_>>().join(" ")
}

/// Formats a task as `(node, result or null, error or "")`.
pub(crate) fn task<S: State>(task: &TaskSnapshot<S>) -> (String, Value, String) {
    let result = task.result.as_ref().map_or(Value::Null, json);
    (task.node.to_string(), result, task.error.clone().unwrap_or_default())
}

pub(crate) fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

/// Returns the code blocks of a page in a language, in order.
pub(crate) fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}");
    let blocks = page.split(&begin).skip(1).map(|rest| rest.split_once('\n').expect("a block has lines").1);
    blocks.map(|rest| rest.split("```").next().expect("a split has a part")).collect()
}

/// Formats an error with its causes, one per line.
pub(crate) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut lines = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        lines.push_str("\n  cause: ");
        lines.push_str(&error.to_string());
        cause = error.source();
    }
    lines
}

pub(crate) fn failed<T>(result: Result<T, RunError>) -> RunError {
    result.err().expect("the run fails")
}

/// Returns the events of a run, one per line, and its end.
pub(crate) async fn told(
    graph: &CompiledGraph<Plain>,
    input: PlainUpdate,
    config: RunOptions,
    modes: &[StreamMode],
) -> Vec<String> {
    let mut stream = graph.configured(config).stream(input, modes);
    let mut lines = Vec::new();
    while let Some(event) = stream.next().await {
        lines.push(line_of(&event));
    }
    if let Err(error) = stream.outcome().await {
        lines.push(error.to_string());
    }
    lines
}

pub(crate) fn line_of(event: &Event<Plain>) -> String {
    match event {
        Event::Values { step, state, .. } => format!("values {step}: [{}]", state.log_text()),
        Event::Update { step, node, update, cached } => {
            let cached = if *cached { " (cached)" } else { "" };
            format!("update {step} {node}{cached}: {}", json(update))
        }
        Event::Custom { node, name, data } => format!("custom {node} {name}: {data}"),
        Event::TaskStart { step, node, attempt } => format!("start {step} {node} #{attempt}"),
        Event::TaskEnd { step, node, attempt, error } => {
            let error = error.as_ref().map(|error| format!(": {error}"));
            format!("end {step} {node} #{attempt}{}", error.unwrap_or_default())
        }
        Event::Checkpoint(meta) => {
            let (source, step, next) = entry(meta);
            format!("checkpoint {source} {step} -> [{next}]")
        }
        Event::Message { step, node, attempt, id, kind, data, .. } => {
            format!("message {step} {node} #{attempt} {id} {kind:?}: {data}")
        }
        Event::Debug { step, kind, .. } => format!("debug {step} {kind:?}"),
        Event::Lagged { skipped } => format!("lagged {skipped}"),
        Event::Discarded { nodes } => format!("discarded [{}]", names(nodes)),
        other => panic!("an event that no test knows: {other:?}"),
    }
}

/// Notifies a test that a node is running. The node never ends by itself.
#[derive(Clone, Default)]
pub(crate) struct Stuck(Arc<Notify>);

impl Stuck {
    /// Runs the body of the node.
    pub(crate) async fn here(&self) {
        self.0.notify_one();
        std::future::pending().await
    }

    /// Drives `run` until the node is running, and drops it there, like a crash.
    pub(crate) async fn crash<T>(&self, run: impl Future<Output = T>) {
        tokio::select! {
            _ = run => panic!("the run ends before its node is stuck"),
            () = self.0.notified() => {}
        }
    }

    /// Waits until the earlier data is stored, then drops the run: another thread may write it.
    pub(crate) async fn crash_once<T>(&self, run: impl Future<Output = T>, stored: impl AsyncFn() -> bool) {
        let waits = async {
            self.reached().await;
            while !stored().await {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = run => panic!("the run ends before its node is stuck"),
            () = waits => {}
        }
    }

    /// Waits until the node is running.
    pub(crate) async fn reached(&self) {
        self.0.notified().await;
    }
}

/// Returns a loopback port for a server that cannot choose one itself. The system never assigns it to a
/// listener on any port or to a connection, so that no other program gets it before the server starts, or
/// while it restarts.
pub(crate) fn reserved_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Ports for general use begin at 32768.
    const FIRST: u32 = 10_000;
    const MANY: u32 = 22_000;
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 101;
        let port = u16::try_from(FIRST + next % MANY).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
