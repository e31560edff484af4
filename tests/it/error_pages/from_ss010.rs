//! The fragments of SS010 to SS018.

use superstep::{
    CompileError, Cx, END, FailureKind, NodeFailure, NodeOptions, Route, START, State, node::Persistence,
};

use super::setup::{
    Done, Fields as Chat, Fields as Notes, Fields as Order, Fields as Page, Fields as Ticket,
    assert_accepted, assert_problem, assert_refused, empty, idle as search, idle_handler as give_up,
    idle_handler as note_failure, idle_handler as refund_customer, idle_handler as retry_later,
    idle_worker as fetch_page, nodes,
};

#[test]
fn ss010() {
    let mut graph = empty();
    let [fetch, report] = nodes(&mut graph, ["fetch", "report"]);
    graph.add_join([fetch], report);
    assert_refused("SS010", graph);

    let mut graph = empty();
    let [fetch, check, report] = nodes(&mut graph, ["fetch", "check", "report"]);
    graph.add_join([fetch, check], report);
    graph.add_edge(report, END);
    assert_accepted("SS010", graph);
}

#[derive(Route, Clone, Copy)]
enum Next {
    Call,
    Write,
}

async fn choose(ticket: Ticket, _: Cx) -> Next {
    if ticket.urgent { Next::Call } else { Next::Write }
}

#[test]
fn ss011() {
    let wrong = || {
        let mut graph = empty();
        let triage = graph.add_routing_node("triage", choose); // returns `Next::Call` or `Next::Write`
        graph.add_edge(START, triage);
        graph.compile()?;
        Ok::<_, CompileError>(())
    };
    assert_problem("SS011", wrong());

    let mut graph = empty();
    let [call, write] = nodes(&mut graph, ["call", "write"]);
    let triage = graph.add_routing_node("triage", choose);
    graph.add_edge(START, triage);
    graph.add_routes(triage, |next| match next {
        Next::Call => call,
        Next::Write => write,
    });
    assert_accepted("SS011", graph);
}

#[test]
fn ss012() {
    let mut graph = empty();
    let [call, write] = nodes(&mut graph, ["call", "write"]);
    let triage = graph.add_routing_node("triage", choose);
    graph.add_routes(triage, |_| call);
    graph.add_routes(triage, |next| match next {
        Next::Call => call,
        Next::Write => write,
    });
    assert_refused("SS012", graph);

    let mut graph = empty();
    let [call, write, archive] = nodes(&mut graph, ["call", "write", "archive"]);
    let triage = graph.add_routing_node("triage", choose);
    graph.add_routes(triage, |next| match next {
        Next::Call => call,
        Next::Write => write,
    });
    graph.add_edge(triage, archive); // always, beside the route
    assert_accepted("SS012", graph);
}

#[test]
fn ss013() {
    let mut graph = empty();
    let [start, fetch] = nodes(&mut graph, ["start", "fetch"]);
    let fallback = graph.add_error_handler(fetch, "fallback", note_failure);
    graph.add_edge(start, fallback);
    assert_refused("SS013", graph);

    let mut graph = empty();
    let [fetch, publish] = nodes(&mut graph, ["fetch", "publish"]);
    let fallback = graph.add_error_handler(fetch, "fallback", note_failure);
    graph.add_edge(fetch, publish);
    graph.add_edge(fallback, publish);
    assert_accepted("SS013", graph);
}

#[test]
fn ss014() {
    #[derive(Route, Clone, Copy)]
    enum Next {
        RetryLater,
        GiveUp,
    }

    let mut graph = empty();
    let [fetch] = nodes(&mut graph, ["fetch"]);
    graph.add_error_handler(fetch, "retry_later", retry_later);
    graph.add_error_handler(fetch, "give_up", give_up);
    assert_refused("SS014", graph);

    let mut graph = empty();
    let [fetch, retry_later, give_up] = nodes(&mut graph, ["fetch", "retry_later", "give_up"]);
    let failed =
        graph.add_routing_error_handler(fetch, "failed", async |failure: NodeFailure, _: Page, _: Cx| {
            if failure.kind == FailureKind::Timeout { Next::RetryLater } else { Next::GiveUp }
        });
    graph.add_routes(failed, |next| match next {
        Next::RetryLater => retry_later,
        Next::GiveUp => give_up,
    });
    assert_accepted("SS014", graph);
}

#[test]
fn ss015() -> Done {
    let inner = || {
        let mut notes = empty();
        let [note] = nodes(&mut notes, ["note"]);
        notes.add_edge(START, note);
        notes
    };
    let (mut graph, notes) = (empty(), inner());
    let notes = notes.compile()?.with_persistence(Persistence::PerNode);
    graph.add_subgraph("notes", &notes);
    assert_refused("SS015", graph);

    let (mut graph, notes) = (empty(), inner());
    let notes = notes.compile()?.with_persistence(Persistence::PerNode);
    graph.add_subgraph_with(
        "notes",
        &notes,
        |chat: &Chat| Notes::update().message(chat.log.last().cloned()),
        |notes: &Notes| Chat::update().summary(notes.summary.clone()),
    );
    assert_accepted("SS015", graph);
    Ok(())
}

#[test]
fn ss016() {
    let mut graph = empty();
    let fetch = graph.add_worker("fetch", fetch_page);
    graph.configure(fetch, NodeOptions::new().deferred());
    assert_refused("SS016", graph);

    let mut graph = empty();
    let [summarize] = nodes(&mut graph, ["summarize"]);
    graph.configure(summarize, NodeOptions::new().deferred());
    assert_accepted("SS016", graph);
}

#[test]
fn ss017() {
    async fn pay_back(_: Order, _: bool) {}

    let mut graph = empty();
    let [charge] = nodes(&mut graph, ["charge"]);
    let refund = graph.add_error_handler(charge, "refund", refund_customer);
    graph.stop_before(refund);
    assert_refused("SS017", graph);

    let mut graph = empty();
    let [charge] = nodes(&mut graph, ["charge"]);
    let refund =
        graph.add_error_handler(charge, "refund", async |failure: NodeFailure, order: Order, cx: Cx| {
            let agreed: bool = cx.interrupt("refund", failure.message).await;
            pay_back(order, agreed).await
        });
    assert_accepted("SS017", graph);
}

#[test]
fn ss018() {
    let mut graph = empty();
    graph.add_node("search/web", search);
    assert_refused("SS018", graph);

    let mut graph = empty();
    graph.add_node("search_web", search);
    assert_accepted("SS018", graph);
}
