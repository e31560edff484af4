//! The fragments of SS119 to SS134.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};
use superstep::{
    Answers, Checkpointer, CompiledGraph, Cx, JsonChannels, JsonState, JsonUpdate, MemoryCheckpointer,
    NodeError, START, State, StateGraph, state::Stored,
};

use super::setup::{
    Done, Fields, Fields as Order, Fields as Page, Fields as Reviews, assert_fails, empty, fails,
    idle_handler, nodes, stored,
};

/// `START → pay`, which asks whether to pay.
fn paying() -> StateGraph<Order> {
    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Order, cx: Cx| {
        let ok: bool = cx.interrupt("approve", "refund 20 €?").await;
        Order::update().paid(ok)
    });
    graph.add_edge(START, pay);
    graph
}

#[tokio::test]
async fn ss119() -> Done {
    let mut graph = empty();
    let review = graph.add_worker("review", async |text: String, _: Reviews, cx: Cx| {
        let ok: bool = cx.interrupt("ok", &text).await;
        Reviews::update().accepted([ok])
    });
    let answers = Answers::new().answer("ok", true); // Of which text?
    let [split] = nodes(&mut graph, ["split"]);
    graph.add_edge(START, split);
    graph.add_fan_out(split, |_: &Reviews| ["one".to_owned(), "two".to_owned()], review);
    let graph = stored(graph);
    let outcome = graph.thread("t").run(Reviews::update()).await?;
    assert_fails("SS119", graph.thread("t").answers(answers).resume().await);

    let ids: Vec<_> = outcome.interrupts.iter().map(|interrupt| &interrupt.id).collect();
    let answers = Answers::new().answer(ids[0], true).answer(ids[1], false);
    assert_eq!(graph.thread("t").answers(answers).resume().await?.state.accepted, [true, false]);
    Ok(())
}

#[tokio::test]
async fn ss120() -> Done {
    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Order, cx: Cx| {
        let ok: bool = cx.interrupt("approve", "refund 20 €?").await;
        Order::update().paid(ok)
    });
    let answers = Answers::new().answer("approve", "maybe");
    graph.add_edge(START, pay);
    let graph = stored(graph);
    graph.thread("order-7").run(Order::update()).await?;
    assert_fails("SS120", graph.thread("order-7").answers(answers).resume().await);

    let answers = Answers::new().answer("approve", true);
    assert!(graph.thread("order-7").answers(answers).resume().await?.state.paid);
    Ok(())
}

#[tokio::test]
async fn ss121() -> Done {
    let order = Order::update();
    fails("SS121", async {
        let graph = paying();
        let graph = graph.compile()?;
        graph.run(order).await?;
        Ok(())
    })
    .await;

    let (graph, order) = (paying(), Order::update());
    let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    graph.thread("order-7").run(order).await?;
    Ok(())
}

#[tokio::test]
async fn ss122() -> Done {
    let (graph, next_order) = (stored(paying()), Order::update());
    graph.thread("order-7").run(Order::update()).await?;
    fails("SS122", async {
        graph.thread("order-7").answer("approve", true).run(next_order).await?;
        Ok(())
    })
    .await;

    let next_order = Order::update();
    graph.thread("order-7").answer("approve", true).resume().await?;
    graph.thread("order-7").run(next_order).await?;
    Ok(())
}

#[tokio::test]
async fn ss123() -> Done {
    let mut graph = empty();
    let [charge] = nodes(&mut graph, ["charge"]);
    graph.add_error_handler(charge, "refund", idle_handler);
    graph.add_edge(START, charge);
    let graph = stored(graph);
    let order = Order::update();
    fails("SS123", async {
        graph.thread("order-7").break_before(["refund"]).run(order).await?;
        Ok(())
    })
    .await;

    let order = Order::update();
    graph.thread("order-7").break_after(["refund"]).run(order).await?;
    Ok(())
}

#[tokio::test]
async fn ss124() -> Done {
    let mut graph = empty();
    let ask = graph.add_node("ask", async |_: Order, cx: Cx| {
        let items = ["pen", "ink"];
        let answers = join_all(items.iter().map(|item| cx.interrupt::<bool>("approve", item))).await;
        Order::update().accepted(answers)
    });
    graph.add_edge(START, ask);
    assert_fails("SS124", stored(graph).thread("t").run(Order::update()).await);

    let mut graph = empty();
    let ask = graph.add_node("ask", async |_: Order, cx: Cx| {
        let items = ["pen", "ink"];
        let ask = async |item| cx.interrupt::<bool>(&format!("approve.{item}"), item).await;
        let answers = join_all(items.iter().map(ask)).await;
        Order::update().accepted(answers)
    });
    graph.add_edge(START, ask);
    let graph = stored(graph);
    assert_eq!(graph.thread("t").run(Order::update()).await?.interrupts.len(), 2);
    let answers = Answers::new().answer("approve.pen", true).answer("approve.ink", false);
    assert_eq!(graph.thread("t").answers(answers).resume().await?.state.accepted, [true, false]);
    Ok(())
}

#[tokio::test]
async fn ss125() -> Done {
    let mut graph = empty();
    let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
        let ok: bool = cx.interrupt("ok", json!({ "pay": order.amount })).await;
        Order::update().paid(ok)
    });
    graph.add_edge(START, pay);
    let graph = stored(graph);
    fails("SS125", async {
        let order = graph.thread("order-7");
        let outcome = order.run(Order::update().amount(1)).await?; // asks {"pay": 1}
        order.update(Order::update().amount(1_000_000)).await?;
        order.answer(&outcome.interrupts[0].id, true).resume().await?; // would pay 1,000,000
        Ok(())
    })
    .await;

    let order = graph.thread("order-7");
    let outcome = order.resume().await?; // asks {"pay": 1000000}
    order.answer(&outcome.interrupts[0].id, false).resume().await?;
    assert!(graph.thread("order-7").state().await?.next.is_empty());
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn ss126() -> Done {
    use superstep::{node::CachePolicy, sqlite::SqliteStore};

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("cache.db");
    let fetching = || {
        let mut graph = empty();
        let [fetch] = nodes(&mut graph, ["fetch"]);
        graph.add_edge(START, fetch);
        (graph, fetch, MemoryCheckpointer::new(), Page::update())
    };
    fails("SS126", async {
        let (mut graph, fetch, threads, input) = fetching();
        graph.cache(fetch, CachePolicy::new(|page: &Page| page.url.clone()).stored());
        let graph = graph.compile()?.with_checkpointer(threads);
        graph.thread("t").run(input).await?;
        Ok(())
    })
    .await;

    let (mut graph, fetch, threads, input) = fetching();
    graph.cache(fetch, CachePolicy::new(|page: &Page| page.url.clone()).stored());
    let store = Arc::new(SqliteStore::open(path)?);
    let graph = graph.compile()?.with_checkpointer(threads).with_store(store);
    graph.thread("t").run(input).await?;
    Ok(())
}

/// Builds the graph of one of several programs.
fn program<S: State>(store: &Arc<dyn Checkpointer>) -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("chat");
    let agent = graph.add_node("agent", async |_: S, _: Cx| ());
    graph.add_edge(START, agent);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

#[tokio::test]
async fn ss131() -> Done {
    fn turns_from_anything(turns: Value, _: u32, _: Stored) -> Result<Value, String> {
        let number = turns.as_i64().or_else(|| turns.as_str()?.parse().ok());
        number.map(Value::from).ok_or_else(|| format!("{turns} is not a number of turns"))
    }

    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    {
        #[derive(State, Clone, Debug, Default)]
        struct Chat {
            #[channel(version = 2, migrate = turns_from_anything)]
            turns: String,
        }

        program::<Chat>(&store).thread("t").run(Chat::update().turns("3")).await?;
    }
    {
        #[derive(State, Clone, Debug, Default)]
        struct Chat {
            turns: i64, // the program that stored the thread has `version = 2` here
        }

        assert_fails("SS131", program::<Chat>(&store).thread("t").state().await);
    }

    #[derive(State, Clone, Debug, Default)]
    struct Chat {
        #[channel(version = 3, migrate = turns_from_anything)]
        turns: i64,
    }

    assert_eq!(program::<Chat>(&store).thread("t").state().await?.values.turns, 3);
    Ok(())
}

#[tokio::test]
async fn ss132() -> Done {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    fails("SS132", async {
        let graph = program::<Chat>(&store);

        #[derive(State, Clone, Debug, Default)]
        struct Chat {
            #[channel(required)]
            tenant: String,
        }

        graph.thread("support-17").run(Chat::update()).await?;
        Ok(())
    })
    .await;

    #[derive(State, Clone, Debug, Default)]
    struct Chat {
        #[channel(required)]
        tenant: String,
    }

    let graph = program::<Chat>(&store);
    graph.thread("support-17").run(Chat::update().tenant("acme")).await?;

    // The thread of an older program.
    program::<Fields>(&store).thread("support-3").run(Fields::update()).await?;
    assert_fails("SS132", graph.thread("support-3").state().await);
    graph.thread("support-3").update_as("agent", Chat::update().tenant("acme")).await?;
    assert_eq!(graph.thread("support-3").state().await?.values.tenant, "acme");
    Ok(())
}

/// Runs a graph over a `JsonState` with an input.
async fn json_run(state: JsonState, update: JsonUpdate) -> Done {
    let mut graph = StateGraph::with_initial("json", state);
    let node = graph.add_node("node", async |_: JsonState, _: Cx| Ok::<_, NodeError>(JsonUpdate::new()));
    graph.add_edge(START, node);
    graph.compile()?.run(update).await?;
    Ok(())
}

#[tokio::test]
async fn ss133() -> Done {
    let channels: JsonChannels = serde_json::from_value(json!({ "turns": { "reducer": "sum" } }))?;
    let state = JsonState::new(&channels)?;
    let update = JsonUpdate::new().write("turn", 1); // `turns`
    assert_fails("SS133", json_run(state.clone(), update).await);

    let update = JsonUpdate::new().write("turns", 1);
    json_run(state, update).await
}

#[cfg(feature = "json-schema")]
#[tokio::test]
async fn ss134() -> Done {
    let channels: JsonChannels = serde_json::from_value(json!({
        "log": { "reducer": "append", "schema": { "type": "array", "items": { "type": "string" } } },
    }))?;
    let update = JsonUpdate::new().write("log", json!(["one", 2]));
    let state = JsonState::new(&channels)?;
    assert_fails("SS134", json_run(state.clone(), update).await);

    let update = JsonUpdate::new().write("log", json!(["one", "2"]));
    json_run(state, update).await
}
