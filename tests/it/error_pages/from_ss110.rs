//! The fragments of SS110 to SS118.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{
    Answers, CheckpointId, Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, NodeError, OnUnfinished,
    ReduceError, Reducer, Route, START, State, StateGraph, state::Stored,
};

use super::setup::{
    Done, Fields, Fields as Chat, Fields as Page, assert_fails, empty, fails, idle as publish_page, nodes,
    single, stored,
};

#[tokio::test]
async fn ss110() -> Done {
    let graph = single("agent");
    fails("SS110", async {
        graph.thread("new").resume().await?;
        Ok(())
    })
    .await;

    graph.thread("new").run(Chat::update()).await?;
    Ok(())
}

#[tokio::test]
async fn ss111() -> Done {
    let graph = single("agent");
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS111", async {
        graph.thread("support-17").at(CheckpointId(99)).state().await?;
        Ok(())
    })
    .await;

    let history = graph.thread("support-17").history().states().await?;
    graph.thread("support-17").at(history[0].checkpoint.as_ref().unwrap().id).state().await?;
    Ok(())
}

#[tokio::test]
async fn ss112() -> Done {
    let mut graph = empty();
    let agent = graph.add_node("agent", async |chat: Chat, _: Cx| {
        if chat.blocked { Err(NodeError::new("the model does not answer")) } else { Ok(()) }
    });
    graph.add_edge(START, agent);
    let graph = stored(graph);
    let (question, next_question) = (Chat::update().blocked(true), Chat::update().blocked(false));
    fails("SS112", async {
        let failed = graph.thread("support-17").run(question).await;
        graph.thread("support-17").run(next_question).await?;
        Ok(())
    })
    .await;

    let next_question = Chat::update().blocked(false);
    graph.thread("support-17").on_unfinished(OnUnfinished::Discard).run(next_question).await?;
    Ok(())
}

#[tokio::test]
async fn ss113() -> Done {
    let (graph, update) = (single("agent"), Chat::update());
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS113", async {
        graph.thread("support-17").update_as("agnet", update).await?;
        Ok(())
    })
    .await;

    let update = Chat::update();
    graph.thread("support-17").update_as("agent", update).await?;
    Ok(())
}

#[tokio::test]
async fn ss114() -> Done {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let mut graph = empty();
    let [review] = nodes(&mut graph, ["review"]);
    graph.add_edge(START, review);
    let before = graph.compile()?.with_checkpointer(store.clone());
    before.thread("page-3").break_before(["review"]).run(Page::update()).await?;
    fails("SS114", async {
        let (mut graph, store) = (empty(), store.clone());
        // The thread stopped before "review", which the graph no longer has.
        let publish = graph.add_node("publish", publish_page);
        graph.add_edge(START, publish);
        let graph = graph.compile()?.with_checkpointer(store);
        graph.thread("page-3").resume().await?;
        Ok(())
    })
    .await;

    let mut graph = empty();
    let publish = graph.add_node("publish", publish_page);
    graph.add_edge(START, publish);
    let graph = graph.compile()?.with_checkpointer(store);
    graph.thread("page-3").update_as("publish", Page::update()).await?;
    graph.thread("page-3").resume().await?;
    Ok(())
}

/// Runs a graph once whose state has only the channel `turns`, of the type `i64`.
async fn ss115_thread(store: Arc<dyn Checkpointer>) -> Done {
    let mut graph = StateGraph::<Fields>::new("chat");
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    graph.compile()?.with_checkpointer(store).thread("t").run(Fields::update().turns(3)).await?;
    Ok(())
}

/// Builds the graph of a newer program.
fn ss115_graph<S: State>(store: Arc<dyn Checkpointer>) -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("chat");
    let agent = graph.add_node("agent", async |_: S, _: Cx| ());
    graph.add_edge(START, agent);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn ss115() -> Done {
    fn texts_of_turns(turns: Value, _: u32, _: Stored) -> Result<Value, String> {
        Ok(json!([turns.to_string()]))
    }

    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    ss115_thread(store.clone()).await?;
    {
        #[derive(State, Clone, Debug, Default)]
        struct Chat {
            turns: Vec<String>, // was `turns: i64` when the thread was stored
        }

        assert_fails("SS115", ss115_graph::<Chat>(store.clone()).thread("t").state().await);
    }

    #[derive(State, Clone, Debug, Default)]
    struct Chat {
        #[channel(version = 2, migrate = texts_of_turns)]
        turns: Vec<String>,
    }

    assert_eq!(ss115_graph::<Chat>(store).thread("t").state().await?.values.turns, ["3"]);
    Ok(())
}

#[tokio::test]
async fn ss116() -> Done {
    #[derive(Route, Clone, Copy)]
    enum Next {
        Tools,
        Finish,
    }

    fn target(_: Next) -> superstep::NodeRef {
        END
    }

    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let router = |state: &Chat| {
        let last = state.messages.last().unwrap(); // no message yet
        if last.wants_tools { Next::Tools } else { Next::Finish }
    };
    graph.add_conditional_edges(agent, router, target);
    assert_fails("SS116", graph.compile()?.run(Chat::update()).await);

    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let router = |state: &Chat| {
        let wants_tools = state.messages.last().is_some_and(|last| last.wants_tools);
        if wants_tools { Next::Tools } else { Next::Finish }
    };
    graph.add_conditional_edges(agent, router, target);
    graph.compile()?.run(Chat::update()).await?;
    Ok(())
}

/// Places a piece with every input, often enough that the state is stored in full at least once.
async fn ss117_run<S: State>(write: impl Fn() -> S::Update) -> Done {
    let mut graph = StateGraph::<S>::new("board");
    let node = graph.add_node("node", async |_: S, _: Cx| ());
    graph.add_edge(START, node);
    let graph = stored(graph);
    for _ in 0..100 {
        graph.thread("t").run(write()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn ss117() -> Done {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    struct Square(u8, u8);

    type Piece = String;

    /// Places one piece.
    enum Place {}

    impl<K: Ord> Reducer<BTreeMap<K, Piece>> for Place {
        type Write = (K, Piece);

        fn reduce(pieces: &mut BTreeMap<K, Piece>, (square, piece): (K, Piece)) -> Result<(), ReduceError> {
            pieces.insert(square, piece);
            Ok(())
        }
    }

    {
        #[derive(State, Clone, Debug, Default)]
        struct Board {
            #[channel(with = Place)] // writes one piece at a time
            pieces: BTreeMap<Square, Piece>, // `Square` is a struct
        }

        let write = || Board::update().pieces((Square(4, 5), Piece::from("king")));
        assert_fails("SS117", ss117_run::<Board>(write).await);
    }

    #[derive(State, Clone, Debug, Default)]
    struct Board {
        #[channel(with = Place)]
        pieces: BTreeMap<String, Piece>, // "e4"
    }

    ss117_run::<Board>(|| Board::update().pieces(("e4".to_owned(), Piece::from("king")))).await
}

#[tokio::test]
async fn ss118() -> Done {
    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Fields, cx: Cx| {
        let ok: bool = cx.interrupt("approve", "refund 20 €?").await;
        Fields::update().paid(ok)
    });
    graph.add_edge(START, pay);
    let graph = stored(graph);
    graph.thread("order-7").run(Fields::update()).await?;
    fails("SS118", async {
        let answers = Answers::new().answer("aprove", true);
        graph.thread("order-7").answers(answers).resume().await?;
        Ok(())
    })
    .await;

    for task in graph.thread("order-7").state().await?.tasks {
        println!("{:?}", task.interrupts);
    }
    let answers = Answers::new().answer("approve", true);
    assert!(graph.thread("order-7").answers(answers).resume().await?.state.paid);
    Ok(())
}
