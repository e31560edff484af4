//! The fragments of SS176 to SS186.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::json;
use superstep::{
    Checkpointer, CompiledGraph, Cx, JsonChannels, JsonState, MemoryCheckpointer, NodeError, NodeRef, START,
    State, StateGraph,
};

use super::setup::{
    Done, Fields as Chat, Fields as Task, FieldsUpdate as ChatUpdate, assert_fails, empty, fails, nodes,
};

#[tokio::test]
async fn ss176() -> Done {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let [support, billing] = ["support", "billing"].map(|name| {
        let mut graph = StateGraph::<Chat>::new(name);
        let [agent] = nodes(&mut graph, ["agent"]);
        graph.add_edge(START, agent);
        graph.compile().unwrap().with_checkpointer(store.clone())
    });
    let question = Chat::update();
    fails("SS176", async {
        support.thread("order-17").run(question).await?;
        billing.thread("order-17").state().await?; // `billing` is another graph.
        Ok(())
    })
    .await;

    billing.thread("order-17").adopt().await?;
    billing.thread("order-17").state().await?;
    Ok(())
}

/// Compiles `START → node`, whose node calls this graph.
fn recursive(
    this: &OnceLock<CompiledGraph<Task>>,
    mut graph: StateGraph<Task>,
    node: NodeRef,
) -> CompiledGraph<Task> {
    graph.add_edge(START, node);
    this.get_or_init(|| graph.compile().unwrap()).clone()
}

#[tokio::test]
async fn ss177() -> Done {
    let (mut graph, own) = (empty(), Arc::default());
    let this = Arc::clone(&own);
    let node = graph.add_node_with("solve", this, async |this: Arc<OnceLock<_>>, state: Task, cx: Cx| {
        let graph: &CompiledGraph<Task> = this.get().expect("it is set");
        let part = cx.call(graph, Task::update().text(state.text)).await?; // The same task again, forever.
        Ok::<_, NodeError>(Task::update().text(part.text))
    });
    let graph = recursive(&own, graph, node);
    assert_fails("SS177", graph.run(Task::update().text("sort")).await);

    let (mut graph, own) = (empty(), Arc::default());
    let node =
        graph.add_node_with("sort", Arc::clone(&own), async |this: Arc<OnceLock<_>>, state: Task, cx: Cx| {
            if state.amount > 0 {
                let graph: &CompiledGraph<Task> = this.get().unwrap();
                cx.call(graph, Task::update().amount(state.amount - 1)).await?;
            }
            Ok::<_, NodeError>(())
        });
    let graph = recursive(&own, graph, node);
    let input = Task::update().amount(1_010);
    assert_fails("SS177", graph.run(input.clone()).await);
    graph.thread("sort").depth_limit(10_000).run(input).await?;
    Ok(())
}

#[test]
fn ss178() -> Done {
    let graph = || {
        let mut graph = empty();
        let [agent] = nodes(&mut graph, ["agent"]);
        graph.add_edge(START, agent);
        graph.compile()
    };
    let (limit, graph, question) = (Duration::from_secs(9), graph()?, Chat::update());
    let wrong = || -> Done {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(graph.without_thread().step_timeout(limit).run(question))?;
        Ok(())
    };
    assert_fails("SS178", wrong());

    let question = Chat::update();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(graph.without_thread().step_timeout(limit).run(question))?;
    Ok(())
}

#[test]
fn ss180() -> Done {
    let wrong = || -> Done {
        let channels: JsonChannels = serde_json::from_value(json!({
            "turns": { "reducer": "sum", "default": "none" },
            "review": { "reducer": "barrier" },
        }))?;
        let state = JsonState::new(&channels)?; // two problems
        Ok(())
    };
    assert_fails("SS180", wrong());

    let channels: JsonChannels = serde_json::from_value(json!({
        "turns": { "reducer": "sum" },
        "review": { "reducer": "barrier", "names": ["legal", "security"] },
    }))?;
    let state = JsonState::new(&channels)?;
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn ss185() -> Done {
    use superstep::sqlite::SqliteStore;

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memory.db");
    let remembering = || {
        let mut graph = empty();
        let node = graph.add_node("remember", async |_: Chat, cx: Cx| {
            cx.store()?;
            Ok::<_, NodeError>(())
        });
        graph.add_edge(START, node);
        (graph, MemoryCheckpointer::new(), Chat::update())
    };
    fails("SS185", async {
        let (graph, threads, input) = remembering();
        let graph = graph.compile()?.with_checkpointer(threads);
        graph.thread("support-17").run(input).await?;
        Ok(())
    })
    .await;

    let (graph, threads, input) = remembering();
    let store = Arc::new(SqliteStore::open(path)?);
    let graph = graph.compile()?.with_checkpointer(threads).with_store(store);
    graph.thread("support-17").run(input).await?;
    Ok(())
}

#[tokio::test]
async fn ss186() -> Done {
    async fn search_and_guess(_: Chat, _: Cx) -> ChatUpdate {
        Chat::update().hits(["page 7"]).answer("42")
    }

    let mut graph = empty();
    let search = graph.add_node("search", search_and_guess); // writes `hits` and `answer`
    graph.writes(search, ["hits"]);
    graph.add_edge(START, search);
    assert_fails("SS186", graph.compile()?.run(Chat::update()).await);

    let mut graph = empty();
    let search = graph.add_node("search", search_and_guess);
    graph.writes(search, ["hits", "answer"]);
    graph.add_edge(START, search);
    graph.compile()?.run(Chat::update()).await?;
    Ok(())
}
