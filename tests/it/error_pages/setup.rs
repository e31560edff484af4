//! The surroundings of the fragments on the error pages.

use std::error::Error;

use serde::{Deserialize, Serialize};
use superstep::{
    CompileError, CompiledGraph, Cx, Log, MemoryCheckpointer, NodeFailure, NodeRef, START, State, StateGraph,
    topology::Problem,
};

/// The result of a test whose fragments use `?`.
pub(super) type Done = Result<(), Box<dyn Error>>;

/// The state of all fragments, with every channel that one of them names: one type is compiled faster than twenty.
#[derive(State, Clone, Debug, Default)]
pub(super) struct Fields {
    #[channel(append)]
    pub(super) accepted: Log<bool>,
    pub(super) amount: i64,
    pub(super) answer: Option<String>,
    pub(super) blocked: bool,
    pub(super) body: String,
    pub(super) found: String,
    #[channel(append)]
    pub(super) hits: Log<String>,
    #[channel(append)]
    pub(super) log: Log<String>,
    pub(super) message: Option<String>,
    #[channel(append)]
    pub(super) messages: Log<Message>,
    pub(super) note: String,
    pub(super) paid: bool,
    pub(super) summary: Option<String>,
    pub(super) text: String,
    pub(super) turns: i64,
    pub(super) url: String,
    pub(super) urgent: bool,
    pub(super) urls: Vec<String>,
    pub(super) wants_tools: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) wants_tools: bool,
}

/// A node that writes nothing; the fragments import it under their names.
pub(super) async fn idle(_: Fields, _: Cx) {}

/// A worker that writes nothing.
pub(super) async fn idle_worker(_: String, _: Fields, _: Cx) {}

/// An error handler that writes nothing.
pub(super) async fn idle_handler(_: NodeFailure, _: Fields, _: Cx) {}

/// Creates a graph without nodes.
pub(super) fn empty() -> StateGraph<Fields> {
    StateGraph::new("example")
}

/// Adds nodes that write nothing.
pub(super) fn nodes<const N: usize>(graph: &mut StateGraph<Fields>, names: [&str; N]) -> [NodeRef; N] {
    names.map(|name| graph.add_node(name, idle))
}

/// Compiles a graph with a checkpointer in memory.
pub(super) fn stored<S: State>(graph: StateGraph<S>) -> CompiledGraph<S> {
    graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new())
}

/// Compiles `START → name` with a checkpointer in memory.
pub(super) fn single(name: &str) -> CompiledGraph<Fields> {
    let mut graph = empty();
    let [node] = nodes(&mut graph, [name]);
    graph.add_edge(START, node);
    stored(graph)
}

/// Returns the code at the beginning of an error message.
fn code(message: &str) -> Option<&str> {
    let (code, _) = message.split_once(": ")?;
    (code.len() == 5 && code.starts_with("SS")).then_some(code)
}

/// Asserts that a fragment fails with this code: that of the innermost error with a code, which a node may have returned.
#[track_caller]
pub(super) fn assert_fails<T, E: Into<Box<dyn Error>>>(expected: &str, result: Result<T, E>) {
    let error = result.map(drop).map_err(Into::into).expect_err("the fragment of the page fails");
    let mut found = None;
    let mut cause: Option<&dyn Error> = Some(&*error);
    while let Some(error) = cause {
        found = code(&error.to_string()).map(str::to_owned).or(found);
        cause = error.source();
    }
    assert_eq!(found.as_deref(), Some(expected), "{}", superstep::error::chain(&*error));
}

/// Runs a fragment that uses `?`, and fails with this code.
pub(super) async fn fails(expected: &str, fragment: impl Future<Output = Done>) {
    assert_fails(expected, fragment.await);
}

/// Returns the codes of problems without those of the edges that the fragments of other pages omit.
fn codes(page: &str, problems: &[Problem]) -> Vec<String> {
    let texts = problems.iter().map(|problem| problem.kind.to_string());
    let codes = texts.filter_map(|text| code(&text).map(str::to_owned));
    codes.filter(|code| code == page || !["SS004", "SS008"].contains(&code.as_str())).collect()
}

/// Asserts that a compilation ended with the problem of a page and no other.
#[track_caller]
pub(super) fn assert_problem<T>(page: &str, result: Result<T, CompileError>) {
    let error = result.map(drop).expect_err("the graph of the page is refused");
    assert_eq!(codes(page, &error.problems), [page], "{error}");
}

/// Compiles a graph, which has the problem of a page, perhaps as a warning, and no other.
#[track_caller]
pub(super) fn assert_refused<S: State>(page: &str, graph: StateGraph<S>) {
    match graph.compile() {
        Ok(graph) => assert_eq!(codes(page, graph.warnings()), [page]),
        refused => assert_problem(page, refused),
    }
}

/// Compiles a graph, which has no problem beside omitted edges.
#[track_caller]
pub(super) fn assert_accepted<S: State>(page: &str, graph: StateGraph<S>) {
    match graph.compile() {
        Ok(graph) => assert_eq!(codes(page, graph.warnings()), [""; 0]),
        Err(error) => assert_eq!(codes(page, &error.problems), [""; 0], "{error}"),
    }
}
