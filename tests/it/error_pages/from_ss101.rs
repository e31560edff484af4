//! The fragments of SS101 to SS109.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep::{
    Cx, END, Log, MemoryCheckpointer, NodeError, NodeOptions, RetryPolicy, Route, START, State, StateGraph,
    WorkerRef, error::NoRoute, prelude::Command, thread::AsNode,
};

use super::setup::{
    Done, Fields, Fields as Chat, Fields as Page, FieldsUpdate as PageUpdate, assert_fails, empty, fails,
    idle_worker, nodes, single, stored,
};

/// `START → node`, where the node writes this update.
fn writes<S: State>(update: S::Update) -> StateGraph<S> {
    let mut graph = StateGraph::new("example");
    let node = graph.add_node_with("node", update, async |update: S::Update, _: S, _: Cx| update);
    graph.add_edge(START, node);
    graph
}

#[tokio::test(start_paused = true)]
async fn ss101() -> Done {
    static CALLS: AtomicU32 = AtomicU32::new(0);

    /// Every second download works.
    async fn download(_: &str) -> io::Result<String> {
        let works = CALLS.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        if works { Ok("page".into()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
    }

    async fn fetch(state: Page, _: Cx) -> Result<PageUpdate, NodeError> {
        let body = download(&state.url).await?;
        Ok(Page::update().body(body))
    }

    let graph = || {
        let mut graph = empty();
        let node = graph.add_node("fetch", fetch);
        graph.add_edge(START, node);
        (graph, node)
    };
    assert_fails("SS101", graph().0.compile()?.run(Page::update()).await);

    CALLS.store(0, Ordering::SeqCst);
    let (mut graph, fetch) = graph();
    graph.configure(fetch, NodeOptions::new().retry(RetryPolicy::default()));
    assert_eq!(graph.compile()?.run(Page::update()).await?.state.body, "page");
    Ok(())
}

#[tokio::test]
async fn ss102() -> Done {
    {
        let mut graph = StateGraph::<Chat>::new("chat");
        let [left, right] =
            ["left", "right"].map(|name| graph.add_node(name, async |_, _| Chat::update().answer("42")));

        #[derive(State, Clone, Debug, Default)]
        struct Chat {
            answer: Option<String>,
        }

        graph.add_edge(START, left); // writes `answer`
        graph.add_edge(START, right); // writes `answer`
        assert_fails("SS102", graph.compile()?.run(Chat::update()).await);
    }

    #[derive(State, Clone, Debug, Default)]
    struct Chat {
        #[channel(append)]
        answers: Log<String>,
    }

    let mut graph = StateGraph::<Chat>::new("chat");
    for name in ["left", "right"] {
        let node = graph.add_node(name, async |_, _| Chat::update().answers(["42"]));
        graph.add_edge(START, node);
    }
    assert_eq!(graph.compile()?.run(Chat::update()).await?.state.answers.len(), 2);
    Ok(())
}

#[tokio::test]
async fn ss103() -> Done {
    fails("SS103", async {
        let graph = writes::<Votes>(Votes::update().yes(1)).compile()?;

        #[derive(State, Clone, Debug, Default)]
        struct Votes {
            #[channel(sum)]
            yes: u8,
        }

        graph.run(Votes::update().yes(255)).await?; // A node adds 1, and 256 does not fit in a `u8`.
        Ok(())
    })
    .await;

    #[derive(State, Clone, Debug, Default)]
    struct Votes {
        #[channel(sum)]
        yes: u64,
    }

    let graph = writes::<Votes>(Votes::update().yes(1)).compile()?;
    assert_eq!(graph.run(Votes::update().yes(255)).await?.state.yes, 256);
    Ok(())
}

#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    Finish,
}

fn target(_: Next) -> superstep::NodeRef {
    END
}

#[tokio::test]
async fn ss104() -> Done {
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let router = |state: &Chat| {
        let mut routes: Vec<Next> = Vec::new();
        if state.wants_tools {
            routes.push(Next::Tools);
        }
        routes
    };
    graph.add_conditional_edges(agent, router, target);
    assert_fails("SS104", graph.compile()?.run(Chat::update()).await);

    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let router = |_: &Chat| {
        let mut routes: Vec<Next> = Vec::new();
        if routes.is_empty() {
            routes.push(Next::Finish); // mapped to END
        }
        routes
    };
    graph.add_conditional_edges(agent, router, target);
    graph.compile()?.run(Chat::update()).await?;

    for declared in [false, true] {
        let mut graph = empty();
        let fetch = graph.add_worker("fetch", idle_worker);
        let plan =
            graph.add_routing_node_with("plan", fetch, async |fetch: WorkerRef<String>, _: Fields, _: Cx| {
                Command::<Fields, NoRoute>::new().send(fetch, "page".to_owned())
            });
        graph.add_edge(START, plan);
        if declared {
            graph.add_sends(plan, fetch); // before `plan` returns Command::new().send(fetch, url)
            graph.compile()?.run(Chat::update()).await?;
        } else {
            assert_fails("SS104", graph.compile()?.run(Chat::update()).await);
        }
    }

    let mut graph = empty();
    let [answer] = nodes(&mut graph, ["answer"]);
    let review = graph
        .add_routing_node("review", async |_: Chat, _: Cx| Command::<Chat, Next>::new().goto(Next::Finish));
    graph.add_edge(START, review);
    graph.add_routes(review, move |next| match next {
        Next::Tools => answer,
        Next::Finish => END,
    });
    graph.add_edge(answer, END);
    let thread = stored(graph).thread("t");
    thread.run(Chat::update()).await?;
    assert_fails("SS104", thread.update_as("review", Chat::update().note("reviewed by hand")).await);
    thread.update_as(AsNode::End, Chat::update().note("reviewed by hand")).await?;
    thread.resume_with(Command::new().goto("answer")).await?; // instead of `update_as("review", ..)`
    Ok(())
}

#[tokio::test]
async fn ss105() -> Done {
    let mut graph = empty();
    let [agent, tools] = nodes(&mut graph, ["agent", "tools"]);
    graph.add_edge(START, agent);
    graph.add_edge(agent, tools);
    graph.add_edge(tools, agent); // and no exit
    assert_fails("SS105", graph.compile()?.run(Chat::update()).await);

    let mut graph = empty();
    let turn = graph.add_node("turn", async |chat: Chat, _: Cx| Chat::update().turns(chat.turns + 1));
    let next = |chat: &Chat| if chat.turns < 1_100 { Next::Tools } else { Next::Finish };
    graph.add_edge(START, turn);
    graph.add_conditional_edges(turn, next, |next| match next {
        Next::Tools => turn,
        Next::Finish => END,
    });
    let graph = graph.compile()?;
    let input = Chat::update();
    assert_fails("SS105", graph.run(input.clone()).await);
    graph.thread("crawl").step_limit(5_000).run(input).await?;
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Square {
    file: u8,
    rank: u8,
}

type Piece = String;

#[tokio::test]
async fn ss106() -> Done {
    {
        #[derive(State, Clone, Debug, Default)]
        struct Board {
            #[channel(union)]
            pieces: BTreeMap<Square, Piece>, // `Square` is a struct, and cannot be a key of a JSON object
            score: Option<f64>,  // `Some(NaN)` is `null`, which is read as `None`
            next: Option<Value>, // so is `Some(Value::Null)`
        }

        let king = [(Square::default(), Piece::from("king"))];
        for update in
            [Board::update().pieces(king), Board::update().score(f64::NAN), Board::update().next(Value::Null)]
        {
            assert_fails("SS106", stored(writes::<Board>(update)).thread("t").run(Board::update()).await);
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    enum Next {
        #[default]
        Unknown,
        Nothing,
        Move(Value),
    }

    #[derive(State, Clone, Debug, Default)]
    struct Board {
        #[channel(union)]
        pieces: BTreeMap<String, Piece>, // "e4"
        score: Option<f64>, // `None` where there is none
        next: Next,         // enum Next { Unknown, Nothing, Move(Value) }
    }

    let king = [("e4".to_owned(), Piece::from("king"))];
    for next in [Next::Nothing, Next::Move(Value::Null)] {
        let update = Board::update().pieces(king.clone()).score(None).next(next);
        stored(writes::<Board>(update)).thread("t").run(Board::update()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn ss107() -> Done {
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let graph = graph.compile()?;
    let input = Chat::update();
    fails("SS107", async {
        graph.without_thread().step_limit(0).run(input).await?;
        Ok(())
    })
    .await;

    let input = Chat::update();
    graph.run(input).await?; // 1,000 supersteps
    Ok(())
}

#[tokio::test]
async fn ss108() -> Done {
    fails("SS108", async {
        let (mut graph, store, input) = (empty(), MemoryCheckpointer::new(), Chat::update());
        let [agent] = nodes(&mut graph, ["agent"]);
        graph.add_edge(START, agent);
        let graph = graph.compile()?.with_checkpointer(store);
        graph.run(input).await?;
        Ok(())
    })
    .await;

    let (graph, input) = (single("agent"), Chat::update());
    graph.thread("support-17").run(input).await?;
    Ok(())
}

#[tokio::test]
async fn ss109() -> Done {
    let agent = || {
        let mut graph = empty();
        let [agent] = nodes(&mut graph, ["agent"]);
        graph.add_edge(START, agent);
        graph
    };
    fails("SS109", async {
        let graph = agent();
        let graph = graph.compile()?;
        graph.thread("support-17").resume().await?;
        Ok(())
    })
    .await;

    let graph = agent();
    let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    graph.thread("support-17").run(Chat::update()).await?;
    graph.thread("support-17").resume().await?;
    Ok(())
}
