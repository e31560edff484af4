//! A checkpointer in memory keeps typed values, and has the same threads as one that encodes them.

use std::{borrow::Cow, collections::BTreeSet, convert::Infallible, sync::Arc};

use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, END, Log, MemoryCheckpointer, NodeError,
    START, State, StateGraph, ThreadId,
    checkpoint::{Commit, Loaded, Source},
    clock::Clock,
};

/// A fixed clock.
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        1_000
    }
}

#[derive(State, Clone, Debug, Default)]
struct Work {
    #[channel(append)]
    log: Log<String>,
    #[channel(sum)]
    sum: i64,
    #[channel(union)]
    seen: BTreeSet<i64>,
    #[channel(ephemeral)]
    hint: Option<String>,
}

/// The same, with a channel that is never stored.
#[derive(State, Clone, Debug, Default)]
struct Handled {
    #[channel(append)]
    log: Log<String>,
    #[channel(untracked)]
    handle: Option<u8>,
}

/// `START → a → worker × 3 → b → END`, with a recorded effect.
fn work() -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("work");
    let a = graph.add_node("a", async |_: Work, cx: Cx| {
        let paid: String = cx.once("pay", async |_| Ok::<_, Infallible>("paid ".repeat(20))).await?;
        Ok::<_, NodeError>(Work::update().log([paid]).hint("h".to_owned()))
    });
    let worker =
        graph.add_worker("worker", async |item: i64, _: Work, _: Cx| Work::update().sum(item).seen([item]));
    let b =
        graph.add_node("b", async |state: Work, _: Cx| Work::update().log([format!("sum {}", state.sum)]));
    graph.add_edge(START, a);
    graph.add_fan_out(a, |_: &Work| [3, 1, 2], worker);
    graph.add_edge(worker, b);
    graph.add_edge(b, END);
    graph.compile().unwrap()
}

fn memory(keeps_values: bool) -> Arc<MemoryCheckpointer> {
    Arc::new(MemoryCheckpointer::new().keeping_values(keeps_values))
}

/// Returns all checkpoints of the thread `t`, oldest first.
async fn checkpoints(store: &MemoryCheckpointer) -> Vec<Loaded> {
    let mut checkpoints = Vec::new();
    for at in 1.. {
        let loaded = store.load(&ThreadId::from("t"), Some(CheckpointId(at))).await.unwrap();
        let Some(loaded) = loaded else { break };
        checkpoints.push(loaded);
    }
    checkpoints
}

/// Returns whether an update, or the snapshot, is JSON.
fn is_encoded(loaded: &Loaded) -> bool {
    let updates = loaded.commits.iter().flatten();
    let mut updates = updates.map(|update| matches!(update.json(), Ok(Cow::Borrowed(_))));
    updates.any(|is_json| is_json)
        || loaded.snapshot.as_ref().is_some_and(|it| matches!(it.channels(), Ok(Cow::Borrowed(_))))
}

/// Returns the checkpoints in the form that a database has.
fn as_stored(checkpoints: Vec<Loaded>) -> Vec<Loaded> {
    let stored = checkpoints.into_iter().map(|loaded| {
        let meta = loaded.clone().into_fingerprinted(&ThreadId::from("t")).unwrap();
        Loaded { meta, fingerprints: None, ..loaded }
    });
    stored.collect()
}

#[tokio::test]
async fn a_thread_of_typed_values_is_encoded_when_asked_and_then_equal_to_an_encoded_one() {
    for (every, durability) in [
        (None, Durability::Sync),
        (Some(1), Durability::Sync),
        (Some(2), Durability::Async),
        (None, Durability::Exit),
    ] {
        let stores = [true, false].map(memory);
        for store in &stores {
            let graph = work().with_checkpointer(store.clone());
            for turn in ["one", "two"] {
                let thread = graph.thread("t").durability(durability).clock(Still);
                let thread = match every {
                    Some(every) => thread.snapshot_every(every),
                    None => thread,
                };
                thread.run(Work::update().log([turn.to_owned()])).await.unwrap();
            }
        }
        let [typed, encoded] = [checkpoints(&stores[0]).await, checkpoints(&stores[1]).await];
        assert!(!typed.iter().any(is_encoded) && encoded.iter().all(|loaded| loaded.fingerprints.is_none()));
        let (typed, encoded) = (as_stored(typed), as_stored(encoded));
        assert_eq!(typed.len(), encoded.len());
        for (typed, encoded) in typed.into_iter().zip(encoded) {
            assert_eq!(typed, encoded, "{every:?} {durability:?}");
        }
        for store in stores {
            let graph = work().with_checkpointer(store);
            if durability != Durability::Exit {
                graph.thread("t").replay().run().await.unwrap().assert_same();
            }
        }
    }
}

#[tokio::test]
async fn channels_that_are_never_stored_are_not_in_typed_values_either() {
    let store = memory(true);
    let mut graph = StateGraph::<Handled>::new("handled");
    let a = graph.add_node("a", async |state: Handled, _: Cx| {
        Handled::update().log([format!("{:?}", state.handle)]).handle(state.handle.unwrap_or_default() + 1)
    });
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    let graph = graph.compile().unwrap().with_checkpointer(store.clone());
    for _ in 0..2 {
        let thread = graph.thread("t").snapshot_every(1);
        assert_eq!(thread.run(Handled::update().handle(7)).await.unwrap().state.handle, Some(8));
    }
    let state = graph.thread("t").state().await.unwrap().values;
    assert_eq!(state.handle, None);
    assert_eq!(state.log, ["Some(7)".to_owned(), "Some(7)".to_owned()]);
    for loaded in checkpoints(&store).await {
        assert!(!is_encoded(&loaded));
        assert!(loaded.commits.iter().flatten().all(|update| !update.touches("handle")));
    }
}

/// A later version of [`Work`].
#[derive(State, Clone, Debug, Default)]
struct Later {
    #[channel(append, was = "log")]
    lines: Log<String>,
    #[channel(sum)]
    sum: i64,
    added: Option<String>,
}

#[tokio::test]
async fn another_version_of_the_state_reads_the_json_of_typed_values() {
    let store = memory(true);
    let graph = work().with_checkpointer(store.clone());
    graph.thread("t").snapshot_every(3).run(Work::update().log(["in".to_owned()])).await.unwrap();
    let mut later = StateGraph::<Later>::new("work");
    let a = later.add_node("a", async |_: Later, _: Cx| Later::update().lines(["later".to_owned()]));
    later.add_edge(START, a);
    later.add_edge(a, END);
    let later = later.compile().unwrap().with_checkpointer(store);
    let head = later.thread("t").state().await.unwrap();
    assert_eq!(
        (head.values.lines.len(), head.values.sum, head.unknown),
        (3, 6, vec!["hint".to_owned(), "seen".to_owned()])
    );
    let end = later.thread("t").run(Later::update().added("x".to_owned())).await.unwrap().state;
    assert_eq!((end.lines.len(), end.sum, end.added.as_deref()), (4, 6, Some("x")));
    // The first program continues; it has its channel `seen` again, and what was written to `lines` is unknown to it.
    let end = graph.thread("t").run(Work::update()).await.unwrap().state;
    assert_eq!((end.log.len(), end.sum, end.seen.len()), (5, 12, 3));
}

#[tokio::test]
async fn values_that_have_no_json_are_refused_or_retained_and_never_changed() {
    #[derive(State, Clone, Debug, Default)]
    struct Float {
        value: f64,
    }
    for keeps_values in [true, false] {
        let mut graph = StateGraph::<Float>::new("float");
        let a = graph.add_node("a", async |_: Float, _: Cx| Float::update().value(f64::NAN));
        graph.add_edge(START, a);
        graph.add_edge(a, END);
        let graph = graph.compile().unwrap().with_checkpointer(memory(keeps_values));
        let ran = graph.thread("t").run(Float::update()).await;
        if keeps_values && !cfg!(debug_assertions) {
            assert!(graph.thread("t").state().await.unwrap().values.value.is_nan());
            let replayed = graph.thread("t").replay().run().await.unwrap();
            let got = replayed.divergence.expect("the recorded update cannot be compared").got.to_string();
            assert!(got.contains("`value`") && got.contains("NaN"), "{got}");
            continue;
        }
        let error = ran.unwrap_err();
        let error = superstep::error::chain(&error);
        assert!(error.contains("`a`") && error.contains("value") && error.contains("NaN"), "{error}");
    }
}

#[tokio::test]
async fn a_typed_thread_is_pruned_copied_and_continued_like_any_other() {
    let store = memory(true);
    let graph = work().with_checkpointer(store.clone());
    graph.thread("t").run(Work::update().log(["one".to_owned()])).await.unwrap();
    let before = graph.thread("t").state().await.unwrap().values;
    graph.thread("t").copy_to("copy").await.unwrap();
    graph.thread("t").prune(superstep::checkpoint::Retention::Last(2)).await.unwrap();
    graph.thread("t").update(Work::update().log(["by hand".to_owned()])).await.unwrap();
    let source = checkpoints(&store).await.is_empty();
    assert!(source, "the first checkpoint was pruned");
    let end = graph.thread("t").run(Work::update().log(["two".to_owned()])).await.unwrap().state;
    assert_eq!((end.log.len(), end.sum), (before.log.len() + 4, 12));
    let copy = graph.thread("copy").state().await.unwrap().values;
    assert_eq!((&copy.log, copy.sum), (&before.log, before.sum));
    graph.thread("copy").replay().run().await.unwrap().assert_same();
}

/// A commit of one's own needs no typed values.
#[tokio::test]
async fn json_is_stored_beside_typed_values() {
    let store = memory(true);
    let graph = work().with_checkpointer(store.clone());
    graph.thread("t").run(Work::update().log(["one".to_owned()])).await.unwrap();
    let head = store.load(&ThreadId::from("t"), None).await.unwrap().unwrap();
    let by_hand = superstep::checkpoint::AppliedTask {
        slot: 0,
        recorded: false,
        node: "b".into(),
        update: r#"{"log":["json"]}"#.into(),
    };
    let commit = Commit {
        parent: Some(head.head),
        source: Source::Update,
        control: head.meta.control.clone(),
        created_ms: 1,
        metadata: head.meta.metadata.clone().into(),
        applied: vec![by_hand],
        snapshot: None,
        records: Vec::new(),
        fingerprints: None,
    };
    store.commit(&ThreadId::from("t"), Some(head.head), commit).await.unwrap();
    let state = graph.thread("t").state().await.unwrap().values;
    assert_eq!((state.log.last().map(String::as_str), state.sum), (Some("json"), 6));
}
