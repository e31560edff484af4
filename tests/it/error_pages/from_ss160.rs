//! The fragments of SS160 to SS169.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use superstep::{Cx, NodeError, NodeOptions, START, State, Status, StreamMode, Streaming};
use tokio::runtime::Builder;

use super::setup::{
    Done, Fields as Chat, Fields as Order, FieldsUpdate as OrderUpdate, assert_fails, empty, fails, nodes,
    single, stored,
};

#[tokio::test]
async fn ss160() -> Done {
    let (graph, input) = (single("agent"), Chat::update());
    let streaming = Streaming::from(StreamMode::Updates).output_keys(["anwser"]);
    let run = graph.thread("support-17").stream(input, streaming);
    assert_fails("SS160", run.outcome().await);

    let input = Chat::update();
    let streaming = Streaming::from(StreamMode::Updates).output_keys(["answer"]);
    let run = graph.thread("support-17").stream(input, streaming);
    run.outcome().await?;
    Ok(())
}

#[test]
fn ss161() -> Done {
    let other_runtime = Builder::new_current_thread().enable_all().build()?;
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    // The first run waits here until its runtime is shut down.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let tools = graph.add_node("tools", async |_: Chat, _: Cx| {
        if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
    });
    graph.add_edge(START, agent);
    graph.add_edge(agent, tools);
    let graph = stored(graph);
    let input = Chat::update();
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut run = graph.thread("support-17").stream(input, [StreamMode::Updates]);
        runtime.block_on(run.next());
        runtime.shutdown_background();
        let outcome = other_runtime.block_on(run.outcome());
        assert_fails("SS161", outcome);
    }

    let outcome = other_runtime.block_on(graph.thread("support-17").resume());
    outcome?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ss165() -> Done {
    let graph = || {
        let mut graph = empty();
        let model = graph.add_node("model", async |_: Chat, cx: Cx| cx.sleep(Duration::from_secs(60)).await);
        graph.add_edge(START, model);
        (graph, model)
    };
    fails("SS165", async {
        let (graph, input) = (stored(graph().0), Chat::update());
        graph.thread("crawl").step_timeout(Duration::from_secs(1)).run(input).await?; // with a node that waits a minute for its model
        Ok(())
    })
    .await;

    let (mut graph, model) = graph();
    let options = NodeOptions::new().timeout(Duration::from_secs(30));
    graph.configure(model, options);
    assert_fails("SS101", stored(graph).thread("crawl").run(Chat::update()).await);
    Ok(())
}

#[tokio::test]
async fn ss166() -> Done {
    #[derive(Serialize)]
    struct User {
        name: String,
    }

    let mut graph = empty();
    let agent = graph.add_node("agent", async |_: Chat, cx: Cx| {
        #[derive(Serialize, Deserialize)]
        struct User {
            name: String,
        }

        let user: User = cx.context()?; // and the run was begun without a context, or with {"nmae": "Ada"}
        Ok::<_, NodeError>(Chat::update().note(user.name))
    });
    graph.add_edge(START, agent);
    let graph = stored(graph);
    assert_fails("SS166", graph.thread("t").run(Chat::update()).await);
    graph.thread("t").delete().await?;
    let misspelt = graph.thread("t").context(json!({ "nmae": "Ada" }));
    assert_fails("SS166", misspelt.run(Chat::update()).await);

    graph.thread("t").delete().await?;
    let input = Chat::update();
    graph.thread("t").context(User { name: "Ada".into() }).run(input).await?;

    let input = Chat::update();
    graph.thread("t").context(json!({ "name": "Ada" })).run(input).await?;
    assert_eq!(graph.thread("t").state().await?.values.note, "Ada");
    Ok(())
}

#[tokio::test]
async fn ss167() -> Done {
    type Receipt = String;

    async fn charge(key: &str) -> Result<Receipt, NodeError> {
        Ok(format!("paid: {key}"))
    }

    let mut graph = empty();
    let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
        match order.amount {
            0 => {
                let receipt: u64 = cx.once("charge", async |_| Ok::<_, NodeError>(7)).await?;
            }
            1 => {
                // The thread stands in this node, and an older program stored a number here.
                let receipt: Receipt = cx.once("charge", async |key: String| charge(&key).await).await?;
            }
            _ => {
                let receipt: Receipt = cx.once("charge v2", async |key: String| charge(&key).await).await?;
            }
        }
        cx.interrupt::<()>("next program", order.amount).await;
        Ok::<_, NodeError>(())
    });
    graph.add_edge(START, pay);
    let graph = stored(graph);
    graph.thread("t").run(Order::update()).await?;
    graph.thread("t").update(Order::update().amount(1)).await?;
    assert_fails("SS167", graph.thread("t").resume().await);
    graph.thread("t").update(Order::update().amount(2)).await?;
    assert_eq!(graph.thread("t").resume().await?.status, Status::Interrupted);
    Ok(())
}

#[tokio::test]
async fn ss168() -> Done {
    let mut graph = empty();
    let convert = graph.add_node("convert", async |_: Order, cx: Cx| {
        let rate: f64 = cx.once("rate", async |_| Ok::<_, NodeError>(f64::NAN)).await?; // NaN becomes `null`
        Ok::<_, NodeError>(())
    });
    graph.add_edge(START, convert);
    assert_fails("SS168", graph.compile()?.run(Order::update()).await);

    let mut graph = empty();
    let convert = graph.add_node("convert", async |_: Order, cx: Cx| {
        let rate: Option<f64> = cx.once("rate", async |_| Ok::<_, NodeError>(None)).await?;
        Ok::<_, NodeError>(())
    });
    graph.add_edge(START, convert);
    graph.compile()?.run(Order::update()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ss169() -> Done {
    const MINUTE: Duration = Duration::from_secs(60);
    static REPORTED: Mutex<Vec<NodeError>> = Mutex::new(Vec::new());

    fn report(error: NodeError) {
        REPORTED.lock().unwrap().push(error);
    }

    async fn mail(_: &str) -> Result<(), NodeError> {
        Ok(())
    }

    {
        async fn order(_: Order, cx: Cx) -> OrderUpdate {
            let later = cx.clone();
            cx.spawn(async move {
                later.sleep(MINUTE).await;
                if let Err(error) = later.once("mail", async |key: String| mail(&key).await).await {
                    report(error);
                }
            });
            Order::update()
        }

        let mut graph = empty();
        let node = graph.add_node("order", order);
        graph.add_edge(START, node);
        stored(graph).thread("t").run(Order::update()).await?;
        let error = REPORTED.lock().unwrap().pop().expect("the effect is refused");
        assert_fails("SS169", Err::<(), _>(error.cause().to_string()));
    }

    async fn order(_: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
        cx.once("mail", async |key: String| mail(&key).await).await?;
        Ok(Order::update())
    }

    let mut graph = empty();
    let node = graph.add_node("order", order);
    graph.add_edge(START, node);
    stored(graph).thread("t").run(Order::update()).await?;
    Ok(())
}
