//! The fragments of SS001 to SS009.

use superstep::{
    CompileError, Cx, END, Route, START, StateGraph, WorkerRef, error::NoRoute, prelude::Command,
};

use super::setup::{
    Fields, Fields as Chat, Fields as Crawl, assert_accepted, assert_problem, assert_refused, empty,
    idle as call_model, idle as call_other_model, idle as call_tools, idle as search_web,
    idle as write_report, nodes,
};

#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    Finish,
}

fn wants_tools(chat: &Chat) -> Next {
    if chat.wants_tools { Next::Tools } else { Next::Finish }
}

#[test]
fn ss001() {
    let mut graph = empty();
    graph.add_node("agent", call_model);
    graph.add_node("agent", call_other_model);
    assert_refused("SS001", graph);

    let mut graph = empty();
    graph.add_node("agent", call_model);
    graph.add_node("second_opinion", call_other_model);
    assert_accepted("SS001", graph);
}

#[test]
fn ss002() {
    let mut graph = empty();
    graph.add_node("END", write_report);
    assert_refused("SS002", graph);

    let mut graph = empty();
    let report = graph.add_node("report", write_report);
    graph.add_edge(report, END);
    assert_accepted("SS002", graph);
}

#[test]
fn ss003() {
    let mut graph = empty();
    graph.add_node("search: web", search_web);
    assert_refused("SS003", graph);

    let mut graph = empty();
    graph.add_node("search web", search_web);
    assert_accepted("SS003", graph);
}

#[test]
fn ss004() {
    let wrong = || {
        let mut graph = StateGraph::<Chat>::new("chat");
        let agent = graph.add_node("agent", call_model);
        graph.add_edge(agent, END);
        graph.compile()?;
        Ok::<_, CompileError>(())
    };
    assert_problem("SS004", wrong());

    let mut graph = empty();
    let agent = graph.add_node("agent", call_model);
    graph.add_edge(START, agent);
    assert_accepted("SS004", graph);
}

#[test]
fn ss005() {
    let (mut first, mut second) = (empty(), empty());
    let agent = first.add_node("agent", call_model);
    second.add_edge(START, agent);
    assert_refused("SS005", second);

    let mut second = empty();
    let agent = second.add_node("agent", call_model);
    second.add_edge(START, agent);
    assert_accepted("SS005", second);
}

#[test]
fn ss006() {
    let mut graph = empty();
    let [cleanup] = nodes(&mut graph, ["cleanup"]);
    graph.add_edge(END, cleanup);
    assert_refused("SS006", graph);

    let mut graph = empty();
    let [answer, cleanup] = nodes(&mut graph, ["answer", "cleanup"]);
    graph.add_edge(answer, cleanup);
    graph.add_edge(cleanup, END);
    assert_accepted("SS006", graph);
}

#[test]
fn ss007() {
    let mut graph = empty();
    let [tools] = nodes(&mut graph, ["tools"]);
    graph.add_edge(tools, START);
    assert_refused("SS007", graph);

    let mut graph = empty();
    let [agent, tools] = nodes(&mut graph, ["agent", "tools"]);
    graph.add_edge(START, agent);
    graph.add_edge(tools, agent);
    assert_accepted("SS007", graph);
}

#[test]
fn ss008() {
    let mut graph = empty();
    let agent = graph.add_node("agent", call_model);
    let tools = graph.add_node("tools", call_tools);
    graph.add_edge(START, agent);
    graph.add_edge(tools, agent);
    assert_refused("SS008", graph);

    let mut graph = empty();
    let [agent, tools] = nodes(&mut graph, ["agent", "tools"]);
    graph.add_edge(START, agent);
    graph.add_edge(tools, agent);
    graph.add_conditional_edges(agent, wants_tools, |next| match next {
        Next::Tools => tools,
        Next::Finish => END,
    });
    assert_accepted("SS008", graph);
}

#[test]
fn ss009() {
    type Url = String;
    async fn download(_: Url, _: Crawl) {}

    let mut graph = empty();
    let [plan] = nodes(&mut graph, ["plan"]);
    let fetch = graph.add_worker("fetch", async |url: Url, state: Crawl, _: Cx| download(url, state).await);
    graph.add_edge(plan, fetch);
    assert_refused("SS009", graph);

    let mut graph = empty();
    let [plan] = nodes(&mut graph, ["plan"]);
    let fetch = graph.add_worker("fetch", async |url: Url, state: Crawl, _: Cx| download(url, state).await);
    graph.add_fan_out(plan, |state: &Crawl| state.urls.clone(), fetch);
    assert_accepted("SS009", graph);

    let mut graph = empty();
    let fetch = graph.add_worker("fetch", async |url: Url, state: Crawl, _: Cx| download(url, state).await);
    let plan = graph.add_routing_node_with("plan", fetch, async |fetch: WorkerRef<Url>, _: Fields, _: Cx| {
        Command::<Fields, NoRoute>::new().send(fetch, Url::new())
    });
    graph.add_sends(plan, fetch); // `plan` returns Command::new().send(fetch, url)
    assert_accepted("SS009", graph);
}
