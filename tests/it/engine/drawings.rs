//! Drawings of a graph.

use superstep::{Cx, END, Route, START, StateGraph};

use crate::support::{Plain, sayer};

#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    Finalize,
}

/// A loop with a way out, a fan-out, and names that drawing languages need to be told.
fn react() -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("react");
    let agent = sayer(&mut graph, "agent");
    let tools = sayer(&mut graph, r#"tools "a" & <b>"#);
    let finalize = sayer(&mut graph, "finalize");
    let worker = graph.add_worker("worker", async |_: i64, _: Plain, _: Cx| ());
    graph.add_edge(START, agent);
    graph.add_conditional_edges(
        agent,
        |_: &Plain| Next::Finalize,
        |next| match next {
            Next::Tools => tools,
            Next::Finalize => finalize,
        },
    );
    graph.add_edge(tools, agent);
    graph.add_fan_out(tools, |_: &Plain| [1, 2], worker);
    graph.add_edge(worker, finalize);
    graph.add_edge(finalize, END);
    graph.compile().unwrap()
}

#[test]
fn a_graph_draws_itself_as_mermaid() {
    insta::assert_snapshot!("mermaid", react().topology().mermaid());
}

#[test]
fn a_graph_draws_itself_as_dot() {
    insta::assert_snapshot!("dot", react().topology().dot());
}

#[test]
fn a_graph_draws_itself_as_text() {
    insta::assert_snapshot!("text", react().topology().text());
}
