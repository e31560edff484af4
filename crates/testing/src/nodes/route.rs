//! Tests of conditional edges and fan-outs.

use superstep_graph::{CompiledGraph, RunError, State};

use super::{NodeTestError, text::next_lines};

/// Returns the targets of a node that left `state` behind: one entry per task, a worker with its item; `__end__` if no task
/// follows. Calls the conditional edges and fan-outs of the node, not the node. The start of the graph is the node `__start__`.
///
/// A join is an entry with the sources that it waits for, and a deferred node is marked as deferred.
///
/// # Example
/// ```
/// use superstep_graph::{END, Route, START, State, StateGraph};
/// use superstep_testing::{route, route_table};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count {
///     n: u32,
/// }
///
/// #[derive(Route, Clone, Copy)]
/// enum Next {
///     Again,
///     Done,
/// }
///
/// let mut graph = StateGraph::<Count>::new("count");
/// let more = graph.add_node("more", async |count: Count, _| Count::update().n(count.n + 1));
/// graph.add_edge(START, more);
/// let next = |count: &Count| if count.n < 3 { Next::Again } else { Next::Done };
/// graph.add_conditional_edges(more, next, |next| match next {
///     Next::Again => more,
///     Next::Done => END,
/// });
/// let graph = graph.compile()?;
///
/// assert_eq!(route(&graph, "more", &Count { n: 3 })?, ["__end__"]);
/// let states = [("below", Count { n: 2 }), ("at the limit", Count { n: 3 })];
/// insta::assert_snapshot!(route_table(&graph, "more", states)?, @r"
/// below        → more
/// at the limit → __end__
/// ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NodeTestError::UnknownNode`], and [`NodeTestError::Run`] if an edge fails, or the node chooses its successors itself:
/// use [`node`](crate::node) for that.
pub fn route<S: State>(
    graph: &CompiledGraph<S>,
    node: &str,
    state: &S,
) -> Result<Vec<String>, NodeTestError> {
    if graph.topology().find(node).is_none() {
        return Err(NodeTestError::unknown_node(graph, node));
    }
    Ok(next_lines(&graph.successors(node, state)?))
}

/// Returns the targets of a node for each of these named states, as a table for a snapshot: see [`route`]. An edge that fails
/// for a state has its error in the table.
///
/// # Errors
/// [`NodeTestError::UnknownNode`].
pub fn route_table<S: State>(
    graph: &CompiledGraph<S>,
    node: &str,
    states: impl IntoIterator<Item = (impl Into<String>, S)>,
) -> Result<String, NodeTestError> {
    let mut rows = Vec::new();
    for (name, state) in states {
        let route = match route(graph, node, &state) {
            Ok(route) => route.join(", "),
            Err(NodeTestError::Run(error @ (RunError::Router { .. } | RunError::Route { .. }))) => {
                format!("error: {}", superstep_graph::error::chain(&error))
            }
            Err(error) => return Err(error),
        };
        rows.push((name.into(), route));
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    Ok(rows.into_iter().map(|(name, route)| format!("{name:width$} → {route}\n")).collect())
}
