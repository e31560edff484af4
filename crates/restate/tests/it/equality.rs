//! Threads that are equal, byte for byte, on Restate and on SQLite.

use std::{io::Cursor, sync::Arc, time::Duration};

use superstep_graph::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, Log, NodeError, NodeFailure, NodeOptions,
    RetryPolicy, Route, RunOptions, START, State, StateGraph, ThreadId,
    checkpoint::{Retention, text},
    clock::Clock,
};
use superstep_sqlite::SqliteCheckpointer;

use crate::{node::shared, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Words {
    #[channel(append)]
    log: Log<String>,
    count: u32,
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

/// Nodes with effects, a question, and a graph within the graph.
fn words() -> CompiledGraph<Words> {
    let mut inner = StateGraph::<Words>::new("inner");
    let deep = inner.add_node("deep", async |words: Words, _: Cx| Words::update().count(words.count + 10));
    inner.add_edge(START, deep);
    inner.add_edge(deep, END);
    let mut graph = StateGraph::<Words>::new("words");
    // One after the other: whether the result of a sibling is stored before the last one ends is a matter of time.
    let mut last = START;
    for name in ["left", "right"] {
        let side = graph.add_node(name, async |words: Words, cx: Cx| -> Result<WordsUpdate, NodeError> {
            let paid: String =
                cx.once("pay", async |_: String| Ok::<_, NodeError>(format!("paid {}", words.count))).await?;
            Ok(Words::update().log([format!("{} {paid}", cx.node())]))
        });
        graph.add_edge(last, side);
        last = side;
    }
    let ask = graph.add_node("ask", async |_: Words, cx: Cx| {
        let answer: String = cx.interrupt("name", "who?").await;
        Words::update().log([answer])
    });
    graph.add_edge(last, ask);
    let nested = graph.add_subgraph("nested", &inner.compile().unwrap());
    graph.add_edge(ask, nested);
    graph.add_edge(nested, END);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// Supersteps of which some have snapshots.
fn counting() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("counting");
    let count = graph.add_node("count", async |words: Words, _: Cx| {
        Words::update().count(words.count + 1).log([format!("{}", words.count)])
    });
    graph.add_edge(START, count);
    let next = |words: &Words| if words.count < 20 { Next::Again } else { Next::Done };
    graph.add_conditional_edges(count, next, move |next| match next {
        Next::Again => count,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

/// Items that are sent to a worker, and a node after all of them.
fn sending() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("sending");
    let plan = graph.add_node("plan", async |_: Words, _: Cx| {});
    let work = graph.add_worker("work", async |item: u32, _: Words, cx: Cx| -> Result<_, NodeError> {
        let made: u32 = cx.once("make", async |_: String| Ok::<_, NodeError>(item * 2)).await?;
        Ok(Words::update().log([format!("made {made}")]))
    });
    let sum =
        graph.add_node("sum", async |words: Words, _: Cx| Words::update().count(words.log.len() as u32));
    graph.add_edge(START, plan);
    graph.add_fan_out(plan, |words: &Words| [3, 1, words.count], work);
    graph.add_edge(work, sum);
    graph.add_edge(sum, END);
    graph.compile().unwrap()
}

/// A node whose failure is handled after its last attempt, and then one that fails until it is repaired.
fn failing(is_repaired: bool) -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("failing");
    let fetch =
        graph.add_node("fetch", async |_: Words, _: Cx| Err::<WordsUpdate, _>(NodeError::new("no host")));
    let retry = RetryPolicy::attempts(2).initial(Duration::from_millis(1));
    graph.configure(fetch, NodeOptions::new().retry(retry));
    let fallback =
        graph.add_error_handler(fetch, "fallback", async |failure: NodeFailure, _: Words, _: Cx| {
            Words::update().log([failure.message])
        });
    let last = graph.add_node("last", move |_: Words, _: Cx| async move {
        if is_repaired { Ok(Words::update().log(["last"])) } else { Err(NodeError::new("is broken")) }
    });
    graph.add_edge(START, fetch);
    graph.add_edge(fetch, last);
    graph.add_edge(fallback, last);
    graph.add_edge(last, END);
    graph.compile().unwrap()
}

/// A graph in its first form, or repaired.
type Make = fn(bool) -> CompiledGraph<Words>;

const GRAPHS: [(&str, Make); 4] =
    [("words", |_| words()), ("counting", |_| counting()), ("sending", |_| sending()), ("failing", failing)];

/// Does everything that a thread can, and returns its text after each part.
async fn texts(store: Arc<dyn Checkpointer>, thread: &str, make: Make) -> Vec<String> {
    let options = || RunOptions::new().thread(thread).clock(Still).seed(7).max_concurrency(1);
    let mut texts = Vec::new();
    // A nonce, which is drawn, makes the ids of a thread differ from those of an earlier one of its name.
    let mut add = async || texts.push(without_nonce(&exported(&*store, thread).await));
    let graph = make(false).with_checkpointer(store.clone());
    let first = graph.configured(options()).input_id("in-1").run(Words::update().count(1)).await;
    assert_eq!(first.is_err(), thread == "failing");
    add().await;
    let graph = make(true).with_checkpointer(store.clone());
    let answered = first.iter().flat_map(|end| &end.interrupts);
    let answered = answered.fold(options(), |options, waiting| options.answer(&waiting.id, "Ada"));
    graph.configured(answered).resume().await.unwrap();
    add().await;
    let thread_of = graph.configured(options());
    thread_of.update(Words::update().log(["edited"])).await.unwrap();
    thread_of.fork(CheckpointId(2)).await.unwrap();
    graph.configured(options()).resume().await.unwrap();
    add().await;
    graph.thread(thread).prune(Retention::Last(2)).await.unwrap();
    add().await;
    texts
}

fn without_nonce(text: &str) -> String {
    let (mark, rest) = text.split_once('\n').unwrap();
    let mut mark: serde_json::Value = serde_json::from_str(mark).unwrap();
    mark["mark"].as_object_mut().unwrap().remove("nonce");
    format!("{mark}\n{rest}")
}

async fn exported(store: &dyn Checkpointer, thread: &str) -> String {
    text::export(store, &thread.into(), &Default::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_have_the_texts_that_they_have_on_sqlite() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(words()));
    let folder = tempfile::tempdir().unwrap();
    let sqlite: Arc<dyn Checkpointer> =
        Arc::new(SqliteCheckpointer::open(folder.path().join("t.db")).unwrap());
    let restate = service.restate.checkpointer().unwrap();
    for (thread, make) in GRAPHS {
        let (one, other) =
            (texts(sqlite.clone(), thread, make).await, texts(restate.clone(), thread, make).await);
        assert_eq!(one.len(), 4);
        assert_eq!(one, other);
        // Each reads the text of the other.
        for (from, to) in [(&sqlite, &restate), (&restate, &sqlite)] {
            let text = exported(&**from, thread).await;
            to.delete(&ThreadId::from(thread)).await.unwrap();
            text::import(&**to, &mut Cursor::new(text.as_bytes())).await.unwrap();
            assert_eq!(exported(&**to, thread).await, text);
        }
    }
}
