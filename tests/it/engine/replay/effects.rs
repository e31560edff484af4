//! What nodes do and learn, by name and by time.

use std::sync::Arc;

use rand::RngExt;
use superstep::{Cx, RunConfig, START, StateGraph};
use tokio::{sync::Notify, task::yield_now};

use super::{Outside, Ticks, kept, one, replayed};
use crate::support::{Plain, say, t};

#[tokio::test]
async fn work_that_outlives_its_superstep_neither_is_done_again_nor_spoils_the_next() {
    let (go, outside) = (Arc::new(Notify::new()), Outside::default());
    let mut graph = StateGraph::<Plain>::new("late");
    let with = (go, outside.clone());
    let a = graph.add_node_with("a", with.clone(), async |with: (Arc<Notify>, Outside), _: Plain, cx: Cx| {
        let (go, outside) = with;
        tokio::spawn(async move {
            go.notified().await;
            cx.recorded("late", async || outside.done()).await;
        });
        say("a")
    });
    let b = graph.add_node_with("b", with, async |with: (Arc<Notify>, Outside), _: Plain, cx: Cx| {
        let (go, outside) = with;
        go.notify_one();
        for _ in 0..8 {
            yield_now().await;
        }
        say(&cx.recorded("b", async || outside.done()).await.to_string())
    });
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    let graph = kept(&graph.compile().unwrap());
    assert_eq!(graph.invoke(say("in"), t()).await.unwrap().state.said(), "in a 2");
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 2);
}

#[tokio::test]
async fn whatever_is_asked_that_was_not_recorded_the_stored_update_is_taken() {
    for asks in ["time", "chance", "limit", "inbox", "noted"] {
        let graph = one(move |_, cx| async move {
            Ok(say(&match asks {
                "time" => cx.now_ms().to_string(),
                "chance" => cx.rng().random::<u64>().to_string(),
                "limit" => cx.remaining_steps().to_string(),
                "inbox" => cx.inbox(0).await?.len().to_string(),
                _ => cx.noted("seen", 7).to_string(),
            }))
        });
        let config = RunConfig { clock: Arc::new(Ticks::default()), seed: 3, step_limit: 9, ..t() };
        let config = RunConfig { recording: false, ..config };
        graph.invoke(say("in"), config.clone()).await.unwrap();
        graph.post("hello", t()).await.unwrap();
        graph.invoke(say("again"), config).await.unwrap();
        let replayed = replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (2, None), "{asks}");
    }
}

#[tokio::test]
async fn several_effects_under_one_name_are_told_apart() {
    let outside = Outside::default();
    let does = outside.clone();
    let graph = one(move |_, cx| {
        let outside = does.clone();
        async move {
            let mut said = String::new();
            for page in ["x", "y", "z"] {
                cx.compared("get", || page).await;
                let nth = cx.recorded("get", async || outside.done()).await;
                said += &format!("{page}{nth}{}", cx.noted("seen", outside.times()));
            }
            Ok(say(&said))
        }
    });
    assert_eq!(graph.invoke(say("in"), t()).await.unwrap().state.said(), "in x11y22z33");
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 3);
}
