//! The texts of all errors that can be provoked, in one snapshot per kind.

use std::{collections::BTreeMap, error::Error, fmt::Write as _, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, NodeError, NodeOptions,
    ReduceError, Reducer, Route, RunError, RunOptions, START, State, StateGraph, ThreadId,
    checkpoint::{CheckpointError, Commit},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use crate::support::{Plain, failed, line, logging_node, say, text};

#[derive(Default)]
struct Book(String);

impl Book {
    fn add(&mut self, title: &str, error: &(dyn Error + 'static)) {
        write!(self.0, "## {title}\n{}\n\n", text(error)).unwrap();
    }
}

fn kept<S: State>(graph: CompiledGraph<S>) -> CompiledGraph<S> {
    graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()))
}

/// Builds a graph with one node.
fn one<S: State>(
    node: impl Fn(S) -> Result<S::Update, NodeError> + Clone + Send + Sync + 'static,
) -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("example");
    let a = graph.add_node_with("a", node, async |node, state: S, _: Cx| node(state));
    graph.add_edge(START, a);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy)]
enum Next {
    End,
}

/// Builds a graph with one node and a router behind it.
fn routed(router: fn(&Plain) -> Vec<Next>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("example");
    let a = logging_node(&mut graph, "a");
    graph.add_edge(START, a);
    graph.add_conditional_edges(a, router, |_| END);
    graph.compile().unwrap()
}

#[test]
fn problems_of_a_graph() {
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = logging_node(&mut other, "stranger");
    let mut graph = StateGraph::<Plain>::new("broken");
    let a = logging_node(&mut graph, "a");
    logging_node(&mut graph, "END");
    logging_node(&mut graph, "x|y");
    let worker = graph.add_worker("worker", async |_: i64, _: Plain, _: Cx| ());
    graph.add_edge(a, worker);
    graph.add_edge(a, stranger);
    graph.add_edge(END, a);
    graph.add_edge(a, START);
    let error = graph.compile().err().unwrap();
    let mut kinds: Vec<_> = error.problems.iter().map(|problem| problem.kind.to_string()).collect();

    let mut graph = StateGraph::<Plain>::new("lonely");
    let a = logging_node(&mut graph, "a");
    logging_node(&mut graph, "b");
    graph.add_edge(START, a);
    kinds.extend(graph.compile().unwrap().warnings().iter().map(|problem| problem.kind.to_string()));
    insta::assert_snapshot!("problems", kinds.join("\n"));
}

#[test]
fn a_compile_error_has_a_line_for_each_problem_with_its_place() {
    let mut graph = StateGraph::<Plain>::new("broken");
    let first = line!() + 1;
    logging_node(&mut graph, "a");
    graph.add_node("a", async |_: Plain, _: Cx| ());
    let error = graph.compile().err().unwrap();
    let (file, second, third) = (file!(), first + 1, first + 2);
    let support = error.problems[0].kind.to_string();
    assert_eq!(
        error.to_string(),
        format!(
            "graph `broken` cannot be compiled:\n  {file}:{second}: {support}\n  {file}:{third}: SS004: no edge leaves \
             START, so nothing would ever run; add an edge from START to the first node"
        )
    );
    assert!(support.starts_with("SS001: node `a` is declared twice, first at "), "{support}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_nodes() {
    let mut book = Book::default();
    let now = RunOptions::new;
    let no = || Plain::update();
    let run = one(|_: Plain| Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()));
    book.add("a node fails", &failed(run.configured(now()).run(no()).await));
    let run = one(|_: Plain| panic!("an index out of bounds"));
    book.add("a node panics", &failed(run.configured(now()).run(no()).await));

    let mut graph = StateGraph::<Plain>::new("example");
    let a = graph.add_node("a", async |_: Plain, _: Cx| std::future::pending::<()>().await);
    let retry = superstep::RetryPolicy::default();
    let timeout = Some(Duration::from_millis(50));
    graph.configure(a, NodeOptions::new().retry(retry).timeout(timeout));
    graph.add_edge(START, a);
    let run = graph.compile().unwrap();
    book.add("a node is too slow", &failed(run.configured(now()).run(no()).await));
    book.add("a router chooses nothing", &failed(routed(|_| vec![]).configured(now()).run(no()).await));
    let run = routed(|_| panic!("no way"));
    book.add("a router panics", &failed(run.configured(now()).run(no()).await));
    insta::assert_snapshot!("node_errors", book.0);
}

/// Rejects, or panics.
enum Moody {}

impl Reducer<i64> for Moody {
    type Write = i64;

    fn reduce(value: &mut i64, write: i64) -> Result<(), ReduceError> {
        assert!(write != 13, "bad luck");
        *value = value.checked_add(write).ok_or("the sum does not fit")?;
        Ok(())
    }
}

/// Has no JSON form after it has ended.
#[derive(Clone, Debug, Default)]
struct Flaky(bool);

impl Serialize for Flaky {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 { Err(S::Error::custom("out of order")) } else { serializer.serialize_unit() }
    }
}

impl<'de> Deserialize<'de> for Flaky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self(false))
    }
}

/// Breaks the value with every write, which can still be stored.
enum Break {}

impl Reducer<Flaky> for Break {
    type Write = ();

    fn reduce(value: &mut Flaky, (): ()) -> Result<(), ReduceError> {
        value.0 = true;
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Odd {
    #[channel(with = Moody)]
    sum: i64,
    #[channel(with = Moody)]
    more: i64,
    #[channel(union)]
    map: BTreeMap<(i64, i64), i64>,
    #[channel(with = Break)]
    flaky: Flaky,
}

#[tokio::test]
async fn refused_writes() {
    let mut book = Book::default();
    let update = Odd::update;
    let run = one(move |_: Odd| Ok(update().sum(i64::MAX)));
    let overflow = run.run(update().sum(1)).await;
    book.add("a reducer refuses", &failed(overflow));
    let run = one(move |_: Odd| Ok(update().sum(13)));
    book.add("a reducer panics", &failed(run.run(update()).await));
    let run = one(move |_: Odd| Ok(update().sum(13).more(1)));
    book.add("one of several reducers panics", &failed(run.run(update()).await));

    let mut graph = StateGraph::<Plain>::new("example");
    for name in ["left", "right"] {
        let node = graph.add_node(name, async |_: Plain, _: Cx| Plain::update().x(1));
        graph.add_edge(START, node);
    }
    let run = graph.compile().unwrap();
    book.add("two nodes write one channel", &failed(run.run(Plain::update()).await));

    let run = kept(one(move |_: Odd| Ok(update().map([((4, 2), 1)]))));
    book.add("an update has no JSON form", &failed(run.thread("t").run(update()).await));

    let mut graph = StateGraph::<Odd>::new("example");
    let a = graph.add_node("a", async |_: Odd, _: Cx| Odd::update().flaky(()));
    graph.add_edge(START, a);
    graph.add_edge(a, a);
    let run = kept(graph.compile().unwrap());
    book.add("a snapshot has no JSON form", &failed(run.thread("t").run(update()).await));
    insta::assert_snapshot!("refused_writes", book.0);
}

/// [`Plain`] in another program's version.
#[derive(State, Clone, Debug, Default)]
struct Changed {
    log: i64,
}

#[tokio::test]
async fn misunderstandings() {
    let mut book = Book::default();
    let no = || Plain::update();
    let alone = line(&["a"]);
    let graph = kept(line(&["a", "b"]));
    book.add("a step limit of 0", &failed(graph.thread("t").step_limit(0).run(no()).await));
    book.add("no thread", &failed(graph.run(no()).await));
    book.add("no checkpointer", &failed(alone.thread("t").resume().await));
    book.add("a thread that never ran", &failed(graph.thread("t").resume().await));
    book.add("the step limit", &failed(graph.thread("t").step_limit(1).run(no()).await));
    book.add("unfinished work", &failed(graph.thread("t").run(no()).await));
    book.add("an unknown checkpoint", &failed(graph.thread("t").at(CheckpointId(99)).resume().await));
    book.add("an unknown node", &failed(graph.thread("t").update_as("z", no()).await));
    insta::assert_snapshot!("misunderstandings", book.0);
}

#[tokio::test]
async fn stored_threads_that_do_not_fit() {
    let mut book = Book::default();
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let graph = line(&["a", "b"]).with_checkpointer(store.clone());
    failed(graph.thread("t").step_limit(1).run(say("in")).await);
    let without_b = line(&["a"]).with_checkpointer(store.clone());
    book.add("a node is gone", &failed(without_b.thread("t").resume().await));
    let changed = one(|_: Changed| Ok(Changed::update())).with_checkpointer(store.clone());
    book.add("another graph's", &failed(changed.thread("t").resume().await));
    changed.thread("t").adopt().await.unwrap();
    book.add("an update does not fit", &failed(changed.thread("t").resume().await));
    let first = changed.thread("t").at(CheckpointId(1)).state().await;
    book.add("a record does not fit", &failed(first));
    graph.thread("t").adopt().await.unwrap();

    let lease = store.lease(&"t".into()).await.unwrap();
    book.add("a busy thread", &failed(graph.thread("t").resume().await));
    drop(lease);
    let store: Arc<dyn Checkpointer> = Arc::new(Wrapped(Overtaken(store)));
    let graph = line(&["a", "b"]).with_checkpointer(store);
    book.add("a thread that someone else changes", &failed(graph.thread("t").resume().await));
    insta::assert_snapshot!("stored_threads", book.0);
}

/// A store with a competing writer without a lease, which is always faster.
struct Overtaken(Arc<dyn Checkpointer>);

impl Wrapper for Overtaken {
    fn store(&self) -> &dyn Checkpointer {
        &*self.0
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let (thread, faster) = (thread.clone(), next.clone());
        Box::pin(async move {
            self.0.commit(&thread, expected, faster).await?;
            self.0.commit(&thread, expected, next).await
        })
    }
}

#[test]
fn an_error_of_a_node_shows_its_cause_and_nothing_else() {
    let error = NodeError::new("no luck").fatal();
    assert_eq!(error.to_string(), "no luck");
    assert!(error.is_fatal());
    let error: RunError = CheckpointError::Storage { what: "the disk is full".into(), source: None }.into();
    assert_eq!(superstep::error::chain(&error), "SS303: the disk is full");
}

/// A `main` that returns an error shows its `Debug` form.
#[tokio::test]
async fn an_error_that_ends_main_shows_its_code_its_help_and_its_causes() {
    let mut broken = StateGraph::<Plain>::new("g");
    let a = broken.add_node("a", async |_: Plain, _: Cx| Err::<(), _>(std::io::Error::other("disk full")));
    broken.add_edge(START, a);
    let graph = broken.compile().unwrap();
    let error = graph.run(Plain::update()).await.unwrap_err();
    assert_eq!(format!("{error:?}"), "SS101: superstep 1: node `a` failed after 1 attempt: disk full");
    let error = graph.thread("t").resume().await.unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().contains("with_checkpointer"), "{error}");
    let error = StateGraph::<Plain>::new("g").compile().map(|_| ()).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
}
