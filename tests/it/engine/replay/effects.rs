//! The effects and recorded inputs of nodes, by name and by time.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex},
};

use rand::RngExt;
use superstep::{CompiledGraph, Cx, NodeError, START, StateGraph};
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
    assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in a 2");
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 2);
}

#[tokio::test]
async fn an_unrecorded_effect_adopts_the_stored_update() {
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
        let config = t().clock(Ticks::default()).seed(3).step_limit(9);
        let config = config.recording(false);
        graph.configured(config.clone()).run(say("in")).await.unwrap();
        graph.thread("t").post("hello").await.unwrap();
        graph.configured(config).run(say("again")).await.unwrap();
        let replayed = replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (2, None), "{asks}");
    }
}

#[tokio::test]
async fn several_effects_under_one_name_are_distinguished() {
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
    assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in x11y22z33");
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 3);
}

#[tokio::test]
async fn a_failed_once_returns_the_same_error_again() {
    let outside = Outside::default();
    let does = outside.clone();
    let graph = one(move |_, cx| {
        let outside = does.clone();
        async move {
            let done = cx.once("pay", async |_| {
                outside.done();
                let cause = io::Error::other(io::Error::other("no money").to_string());
                Err::<(), _>(NodeError::new(Declined { cause }).with_data(7).fatal())
            });
            let error = done.await.unwrap_err();
            let cause = error.cause().source().map(ToString::to_string);
            Ok(say(&format!("{} {cause:?} {:?} {}", error.cause(), error.data(), error.is_fatal())))
        }
    });
    let said = graph.thread("t").run(say("in")).await.unwrap().state.log_text();
    assert_eq!(said, r#"in the card is declined Some("no money") Some(Number(7)) true"#);
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 1);
}

/// An error with a cause.
#[derive(Debug)]
struct Declined {
    cause: io::Error,
}

impl std::fmt::Display for Declined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the card is declined")
    }
}

impl Error for Declined {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

#[tokio::test]
async fn a_call_that_outlives_its_superstep_does_not_disturb_those_of_the_next() {
    let mut inner = StateGraph::<Plain>::new("inner");
    let work = inner.add_node("work", async |_: Plain, _: Cx| {
        yield_now().await;
        say("inner")
    });
    inner.add_edge(START, work);
    let inner = inner.compile().unwrap();
    let (go, told) = (Arc::new(Notify::new()), Arc::new(Mutex::new(String::new())));
    let mut graph = StateGraph::<Plain>::new("late");
    let with = (inner.clone(), go.clone(), told.clone());
    type Late = (CompiledGraph<Plain>, Arc<Notify>, Arc<Mutex<String>>);
    let a = graph.add_node_with("a", with, async |with: Late, _: Plain, cx: Cx| {
        let (inner, go, told) = with;
        tokio::spawn(async move {
            go.notified().await;
            let called = cx.call(&inner, say("late")).key("k").await;
            *told.lock().unwrap() = called.err().unwrap().to_string();
        });
        say("a")
    });
    let b = graph.add_node_with(
        "b",
        (inner, go),
        async |with: (CompiledGraph<Plain>, Arc<Notify>), _, cx: Cx| {
            let (inner, go) = with;
            let _: Plain = cx.call(&inner, say("one")).key("k").await?;
            go.notify_one();
            for _ in 0..8 {
                yield_now().await;
            }
            let again = cx.call(&inner, say("two")).key("k").await.err().map(|error| error.to_string());
            assert!(again.is_some_and(|error| error.contains("SS151")), "the calls of before are known");
            Ok::<_, NodeError>(say("b"))
        },
    );
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    let graph = kept(&graph.compile().unwrap());
    assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in a b");
    let told = told.lock().unwrap().clone();
    assert!(told.starts_with("SS158: node `a` calls under the key \"k\", but its task is over"), "{told}");
}
