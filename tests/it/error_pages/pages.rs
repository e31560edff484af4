//! The tests of the error pages, and the surroundings of their fragments.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::File,
    io::{self, BufReader, Cursor},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
#[cfg(feature = "sealed")]
use superstep::sealed::{KeyRing, MasterKey, SealOptions, SealedCheckpointer, SystemRandom};
use superstep::{
    Answers, CheckpointId, Checkpointer, CompileError, CompiledGraph, Cx, END, FailureKind, JsonChannels,
    JsonState, JsonUpdate, Log, MemoryCheckpointer, MemoryStore, NodeError, NodeFailure, NodeOptions,
    NodeRef, OnExisting, OnUnfinished, ReduceError, Reducer, RetryPolicy, Route, START, State, StateGraph,
    Status, Store, StreamMode, Streaming, ThreadId, WorkerRef,
    checkpoint::{
        AppliedTask, Commit, Source,
        text::{self, ExportOptions, Redaction},
    },
    error::NoRoute,
    node::Persistence,
    prelude::Command,
    state::Stored,
    store::{Embed, EmbedError, Filter, Namespace, Operation, PutOptions, Search, StoreOptions},
    thread::AsNode,
    topology::{Control, Level, Lint, Problem},
};

use self::{
    Fields as Chat, Fields as Crawl, Fields as Notes, Fields as Order, Fields as Page, Fields as Reviews,
    Fields as Task, Fields as Ticket, Fields as Trip, FieldsUpdate as ChatUpdate,
    FieldsUpdate as OrderUpdate, FieldsUpdate as PageUpdate, FieldsUpdate as ReviewsUpdate,
    FieldsUpdate as TripUpdate, idle as call_model, idle as call_other_model, idle as call_tools,
    idle as publish_page, idle as search, idle as search_web, idle as write_report, idle_handler as give_up,
    idle_handler as note_failure, idle_handler as refund_customer, idle_handler as retry_later,
    idle_worker as fetch_page,
};

/// Expects that a fragment, which may use `?`, fails with the code of its page.
macro_rules! fails {
    ($($fragment:tt)*) => {
        let wrong = async {
            $($fragment)*
            Done::Ok(())
        };
        assert_fails(CODE, wrong.await);
    };
}

superstep_macros::error_pages! {
    #[test]:
        SS001 SS002 SS003 SS004 SS005 SS006 SS007 SS008 SS009 SS010 SS011 SS012 SS013 SS014 SS015 SS016 SS017
        SS018 SS020 SS021 SS022 SS023 SS024 SS025 SS161 SS178 SS180 SS305 SS306;
    #[tokio::test(start_paused = true)]:
        SS101 SS158 SS165 SS169 SS301;
    #[tokio::test]:
        SS102 SS103 SS104 SS105 SS106 SS107 SS108 SS109 SS110 SS111 SS112 SS113 SS114 SS115 SS116 SS117 SS118
        SS119 SS120 SS121 SS122 SS123 SS124 SS125 SS131 SS132 SS133 SS140 SS150 SS151 SS152 SS153 SS154 SS155
        SS156 SS157 SS160 SS166 SS167 SS168 SS176 SS177 SS186 SS190 SS191 SS192 SS194 SS195 SS196 SS197 SS198
        SS199 SS200 SS302 SS307 SS308 SS309 SS310 SS311 SS312 SS313 SS314;
    #[cfg(feature = "sqlite")]
    #[tokio::test]:
        SS126 SS185 SS193 SS304;
    #[cfg(feature = "json-schema")]
    #[tokio::test]:
        SS134;
    #[cfg(feature = "sqlite")]
    #[test]:
        SS303;
    #[cfg(all(feature = "postgres", unix))]
    #[tokio::test]:
        SS315;
    #[cfg(feature = "sealed")]
    #[tokio::test]:
        SS316 SS317 SS318;
    #[cfg(feature = "worker")]
    #[tokio::test]:
        SS401;
}

/// The result of a test whose fragments use `?`.
type Done = Result<(), Box<dyn Error>>;

/// The state of all fragments, with every channel that one of them names: one type is compiled faster than twenty.
#[derive(State, Clone, Debug, Default)]
struct Fields {
    #[channel(append)]
    accepted: Log<bool>,
    amount: i64,
    answer: Option<String>,
    blocked: bool,
    body: String,
    found: String,
    #[channel(append)]
    hits: Log<String>,
    #[channel(append)]
    log: Log<String>,
    message: Option<String>,
    #[channel(append)]
    messages: Log<Message>,
    note: String,
    paid: bool,
    summary: Option<String>,
    text: String,
    turns: i64,
    url: String,
    urgent: bool,
    urls: Vec<String>,
    wants_tools: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Message {
    wants_tools: bool,
}

/// A node that writes nothing; the fragments import it under their names.
async fn idle(_: Fields, _: Cx) {}

/// A worker that writes nothing.
async fn idle_worker(_: String, _: Fields, _: Cx) {}

/// An error handler that writes nothing.
async fn idle_handler(_: NodeFailure, _: Fields, _: Cx) {}

/// Creates a graph without nodes.
fn empty() -> StateGraph<Fields> {
    StateGraph::new("example")
}

/// Adds nodes that write nothing.
fn nodes<const N: usize>(graph: &mut StateGraph<Fields>, names: [&str; N]) -> [NodeRef; N] {
    names.map(|name| graph.add_node(name, idle))
}

/// Creates a graph with nodes that write nothing.
fn graph_of<const N: usize>(names: [&str; N]) -> (StateGraph<Fields>, [NodeRef; N]) {
    let mut graph = empty();
    let nodes = nodes(&mut graph, names);
    (graph, nodes)
}

/// Creates `START → name`.
fn line(name: &str) -> StateGraph<Fields> {
    let (mut graph, [node]) = graph_of([name]);
    graph.add_edge(START, node);
    graph
}

/// Compiles a graph with a checkpointer in memory.
fn stored<S: State>(graph: StateGraph<S>) -> CompiledGraph<S> {
    graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new())
}

/// Compiles `START → name` with a checkpointer in memory.
fn single(name: &str) -> CompiledGraph<Fields> {
    stored(line(name))
}

/// Returns the code at the beginning of an error message.
fn code(message: &str) -> Option<&str> {
    let (code, _) = message.split_once(": ")?;
    (code.len() == 5 && code.starts_with("SS")).then_some(code)
}

/// Asserts that a fragment fails with this code: that of the innermost error with a code, which a node may have returned.
#[track_caller]
fn assert_fails<T, E: Into<Box<dyn Error>>>(expected: &str, result: Result<T, E>) {
    let error = result.map(drop).map_err(Into::into).expect_err("the fragment of the page fails");
    let mut found = None;
    let mut cause: Option<&dyn Error> = Some(&*error);
    while let Some(error) = cause {
        found = code(&error.to_string()).map(str::to_owned).or(found);
        cause = error.source();
    }
    assert_eq!(found.as_deref(), Some(expected), "{}", superstep::error::chain(&*error));
}

/// Returns the codes of problems without those of the edges that the fragments of other pages omit.
fn codes(page: &str, problems: &[Problem]) -> Vec<String> {
    let texts = problems.iter().map(|problem| problem.kind.to_string());
    let codes = texts.filter_map(|text| code(&text).map(str::to_owned));
    codes.filter(|code| code == page || !["SS004", "SS008"].contains(&code.as_str())).collect()
}

/// Asserts that a compilation ended with the problem of a page and no other.
#[track_caller]
fn assert_problem<T>(page: &str, result: Result<T, CompileError>) {
    let error = result.map(drop).expect_err("the graph of the page is refused");
    assert_eq!(codes(page, &error.problems), [page], "{error}");
}

/// Compiles a graph, which has the problem of a page, perhaps as a warning, and no other.
#[track_caller]
fn assert_refused<S: State>(page: &str, graph: StateGraph<S>) {
    match graph.compile() {
        Ok(graph) => assert_eq!(codes(page, graph.warnings()), [page]),
        refused => assert_problem(page, refused),
    }
}

/// Compiles a graph, which has no problem beside omitted edges.
#[track_caller]
fn assert_accepted<S: State>(page: &str, graph: StateGraph<S>) {
    match graph.compile() {
        Ok(graph) => assert_eq!(codes(page, graph.warnings()), [""; 0]),
        Err(error) => assert_eq!(codes(page, &error.problems), [""; 0], "{error}"),
    }
}

/// The routes of an agent.
#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    Finish,
}

fn target(_: Next) -> NodeRef {
    END
}

fn wants_tools(chat: &Chat) -> Next {
    if chat.wants_tools { Next::Tools } else { Next::Finish }
}

/// The routes of a triage.
#[derive(Route, Clone, Copy)]
enum Triage {
    Call,
    Write,
}

async fn choose(ticket: Ticket, _: Cx) -> Triage {
    if ticket.urgent { Triage::Call } else { Triage::Write }
}

/// The route of a guarded graph.
#[derive(Route, Clone, Copy)]
enum Handover {
    Human,
}

async fn guard(_: Chat, cx: Cx) -> ChatUpdate {
    cx.leave(Command::<Chat, Handover>::update(Chat::update().blocked(true)).goto(Handover::Human)).await
}

/// `START → guard`, which leaves the graph.
fn guarded_graph() -> StateGraph<Chat> {
    let mut guarded = empty();
    let node = guarded.add_node("guard", guard);
    guarded.add_edge(START, node);
    guarded
}

/// Creates a graph with two nodes.
fn writers() -> (StateGraph<Fields>, NodeRef, NodeRef) {
    let mut graph = empty();
    let [search, compute] = nodes(&mut graph, ["search", "compute"]);
    (graph, search, compute)
}

/// `START → node`, where the node writes this update.
fn writes<S: State>(update: S::Update) -> StateGraph<S> {
    let mut graph = StateGraph::new("example");
    let node = graph.add_node_with("node", update, async |update: S::Update, _: S, _: Cx| update);
    graph.add_edge(START, node);
    graph
}

/// `START → pay`, which asks whether to pay.
fn paying() -> StateGraph<Order> {
    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Order, cx: Cx| {
        let ok: bool = cx.interrupt("approve", "refund 20 €?").await;
        Order::update().paid(ok)
    });
    graph.add_edge(START, pay);
    graph
}

/// Builds the graph of one of several programs.
fn program<S: State>(store: &Arc<dyn Checkpointer>) -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("chat");
    let agent = graph.add_node("agent", async |_: S, _: Cx| ());
    graph.add_edge(START, agent);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

/// Runs a graph over a `JsonState` with an input.
async fn json_run(state: JsonState, update: JsonUpdate) -> Done {
    let mut graph = StateGraph::with_initial("json", state);
    let node = graph.add_node("node", async |_: JsonState, _: Cx| Ok::<_, NodeError>(JsonUpdate::new()));
    graph.add_edge(START, node);
    graph.compile()?.run(update).await?;
    Ok(())
}

/// Runs a node that calls a graph.
async fn calling<N, F>(node: N) -> Done
where
    N: Fn(CompiledGraph<Fields>, Cx) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), NodeError>> + Send + 'static,
{
    let search = line("search").compile()?;
    let mut graph = empty();
    let call = graph.add_node("call", move |_: Fields, cx: Cx| node(search.clone(), cx));
    graph.add_edge(START, call);
    stored(graph).thread("t").run(Fields::update()).await?;
    Ok(())
}

/// Returns the checkpoint before the last superstep of a thread.
async fn before_the_end(graph: &CompiledGraph<Fields>) -> CheckpointId {
    graph.thread("t").history().checkpoints().await.unwrap()[1].id
}

/// Returns a checkpoint with one update.
fn commit(update: &str) -> Commit {
    let applied = AppliedTask { slot: 0, recorded: false, node: "agent".into(), update: update.into() };
    Commit {
        parent: None,
        source: Source::Loop,
        control: Control::new(0, Vec::new()),
        created_ms: 0,
        metadata: Arc::default(),
        applied: vec![applied],
        snapshot: None,
        records: Vec::new(),
        fingerprints: None,
    }
}

/// Returns a store with the thread `support-17`.
async fn support_17() -> Result<Arc<MemoryCheckpointer>, Box<dyn Error>> {
    let store = Arc::new(MemoryCheckpointer::new());
    let graph = line("agent").compile()?.with_checkpointer(store.clone());
    graph.thread("support-17").run(Chat::update()).await?;
    Ok(store)
}

#[cfg(feature = "sealed")]
fn key() -> MasterKey {
    MasterKey::generate(&SystemRandom).unwrap()
}
