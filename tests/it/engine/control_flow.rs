//! Supersteps, edges and routes.

use superstep::{Cx, END, Log, RunConfig, START, State, StateGraph, Route};

#[derive(State, Clone, Debug, Default)]
struct Plain {
    #[channel(append)]
    log: Log<String>,
    x: i64,
}

#[derive(Route, Clone, Copy)]
enum Next { Again, Done }

#[tokio::test]
async fn a_loop_counts_up() {
    let mut graph = StateGraph::<Plain>::new("loop");
    let a = graph.add_node("a", async |state: Plain, _: Cx| Plain::update().x(state.x + 1).log(["a".to_owned()]));
    graph.add_edge(START, a);
    graph.add_conditional_edges(a, |s: &Plain| if s.x < 5 { Next::Again } else { Next::Done }, |r| match r { Next::Again => a, Next::Done => END });
    let graph = graph.compile().unwrap();
    let end = graph.invoke(Plain::update().x(0), RunConfig::default()).await.unwrap();
    assert_eq!(end.state.x, 5);
    assert_eq!(end.state.log.len(), 5);
}
