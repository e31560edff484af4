//! Threads that are equal, byte for byte, on Restate and on SQLite.

use std::{io::Cursor, sync::Arc};

use superstep_graph::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, Log, NodeError, RunOptions, START, State, StateGraph,
    ThreadId,
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

/// Does everything that a thread can, and returns its text after each part.
async fn texts(store: Arc<dyn Checkpointer>) -> Vec<String> {
    let graph = words().with_checkpointer(store.clone());
    let options = || RunOptions::new().thread("t").clock(Still).seed(7);
    let mut texts = Vec::new();
    // A nonce, which is drawn, makes the ids of a thread differ from those of an earlier one of its name.
    let mut add = async || texts.push(without_nonce(&exported(&*store).await));
    let waiting = graph.configured(options()).input_id("in-1").run(Words::update().count(1)).await.unwrap();
    add().await;
    let id = waiting.interrupts[0].id.clone();
    graph.configured(options().answer(id, "Ada")).resume().await.unwrap();
    add().await;
    let thread = graph.configured(options());
    thread.update(Words::update().log(["edited"])).await.unwrap();
    thread.fork(CheckpointId(2)).await.unwrap();
    graph.configured(options()).resume().await.unwrap();
    add().await;
    graph.thread("t").prune(Retention::Last(2)).await.unwrap();
    add().await;
    texts
}

fn without_nonce(text: &str) -> String {
    let (mark, rest) = text.split_once('\n').unwrap();
    let mut mark: serde_json::Value = serde_json::from_str(mark).unwrap();
    mark["mark"].as_object_mut().unwrap().remove("nonce");
    format!("{mark}\n{rest}")
}

async fn exported(store: &dyn Checkpointer) -> String {
    text::export(store, &"t".into(), &Default::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_has_the_text_that_it_has_on_sqlite() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(words()));
    let folder = tempfile::tempdir().unwrap();
    let sqlite: Arc<dyn Checkpointer> =
        Arc::new(SqliteCheckpointer::open(folder.path().join("t.db")).unwrap());
    let restate = service.restate.checkpointer().unwrap();
    let (one, other) = (texts(sqlite.clone()).await, texts(restate.clone()).await);
    assert_eq!(one.len(), 4);
    assert_eq!(one, other);
    // Each reads the text of the other.
    for (from, to) in [(&sqlite, &restate), (&restate, &sqlite)] {
        let text = exported(&**from).await;
        to.delete(&ThreadId::from("t")).await.unwrap();
        text::import(&**to, &mut Cursor::new(text.as_bytes())).await.unwrap();
        assert_eq!(exported(&**to).await, text);
    }
}
