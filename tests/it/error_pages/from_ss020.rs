//! The fragments of SS020 to SS025.

use superstep::{
    END, NodeOptions, NodeRef, Route, START, StateGraph,
    topology::{Level, Lint},
};

use super::setup::{Fields, assert_accepted, assert_refused, empty, nodes};

#[test]
fn ss020() {
    let made = || {
        let mut graph = empty();
        let [search, plan, check, answer] = nodes(&mut graph, ["search", "plan", "check", "answer"]);
        (graph, search, plan, check, answer)
    };
    let wrong = || {
        let (mut graph, search, plan, check, answer) = made();
        graph.add_edge(START, search);
        graph.add_edge(START, plan);
        graph.add_edge(plan, check);
        graph.add_edge(search, answer);
        graph.add_edge(check, answer); // A superstep later than `search`.
        graph
    };
    assert_refused("SS020", wrong());

    let (mut graph, search, plan, check, answer) = made();
    graph.add_edge(START, search);
    graph.add_edge(START, plan);
    graph.add_edge(plan, check);
    graph.add_join([search, check], answer);
    assert_accepted("SS020", graph);

    let mut graph = wrong();
    graph.lint(Lint::RunsTwice, Level::Allow);
    assert_accepted("SS020", graph);
}

#[test]
fn ss021() {
    #[derive(Route, Clone, Copy)]
    enum Next {
        Search,
        Compute,
    }

    fn choose(state: &Fields) -> Next {
        if state.wants_tools { Next::Search } else { Next::Compute }
    }

    let mut graph = empty();
    let [ask, search, compute, answer] = nodes(&mut graph, ["ask", "search", "compute", "answer"]);
    graph.add_edge(START, ask);
    graph.add_conditional_edges(ask, choose, |next| match next {
        Next::Search => search,
        Next::Compute => compute,
    });
    graph.add_join([search, compute], answer);
    assert_refused("SS021", graph);

    let mut graph = empty();
    let [ask, search, compute, answer] = nodes(&mut graph, ["ask", "search", "compute", "answer"]);
    graph.add_edge(START, ask);
    graph.add_conditional_edges(ask, choose, |next| match next {
        Next::Search => search,
        Next::Compute => compute,
    });
    graph.add_edge(search, answer);
    graph.add_edge(compute, answer);
    assert_accepted("SS021", graph);
}

#[test]
fn ss022() {
    #[derive(Route, Clone, Copy)]
    enum Next {
        Tools,
        Finish,
    }

    fn wants_tools(state: &Fields) -> Next {
        if state.wants_tools { Next::Tools } else { Next::Finish }
    }

    let wrong = || {
        let mut graph = empty();
        let [agent, tools] = nodes(&mut graph, ["agent", "tools"]);
        graph.add_edge(START, agent);
        graph.add_edge(agent, tools);
        graph.add_edge(tools, agent);
        graph
    };
    assert_refused("SS022", wrong());

    let mut graph = empty();
    let [agent, tools] = nodes(&mut graph, ["agent", "tools"]);
    graph.add_edge(START, agent);
    graph.add_edge(tools, agent);
    graph.add_conditional_edges(agent, wants_tools, |next| match next {
        Next::Tools => tools,
        Next::Finish => END,
    });
    assert_accepted("SS022", graph);

    let mut graph = wrong();
    graph.lint(Lint::Cycle, Level::Allow);
    assert_accepted("SS022", graph);
}

/// Creates a graph with two nodes.
fn writers() -> (StateGraph<Fields>, NodeRef, NodeRef) {
    let mut graph = empty();
    let [search, compute] = nodes(&mut graph, ["search", "compute"]);
    (graph, search, compute)
}

#[test]
fn ss023() {
    let (mut graph, search, compute) = writers();
    graph.add_edge(START, search);
    graph.add_edge(START, compute);
    graph.writes(search, ["answer"]);
    graph.writes(compute, ["answer"]);
    assert_refused("SS023", graph);

    let (mut graph, search, compute) = writers();
    graph.writes(search, ["answer"]);
    graph.writes(compute, ["answer"]);
    graph.add_edge(START, search);
    graph.add_edge(search, compute);
    assert_accepted("SS023", graph);
}

#[test]
fn ss024() {
    let (mut graph, search, _) = writers();
    graph.writes(search, ["anwser"]);
    assert_refused("SS024", graph);

    let (mut graph, search, _) = writers();
    graph.writes(search, ["answer"]);
    assert_accepted("SS024", graph);
}

#[test]
fn ss025() {
    let mut graph = empty();
    let [check, review] = nodes(&mut graph, ["check", "review"]);
    graph.add_edge(START, check);
    graph.add_edge(check, review);
    graph.configure(review, NodeOptions::new().was("check")); // `check` is another node now.
    assert_refused("SS025", graph);

    let mut graph = empty();
    let [screen, review] = nodes(&mut graph, ["screen", "review"]);
    graph.add_edge(START, screen);
    graph.add_edge(screen, review);
    graph.configure(review, NodeOptions::new().was("check"));
    assert_accepted("SS025", graph);
}
