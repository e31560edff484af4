//! Time limits of an attempt, of its inactivity and of a superstep.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use superstep::{
    CompiledGraph, Cx, END, Event, NodeError, NodeOptions, Retries, RetryPolicy, RunError, START, State,
    StateGraph, Status, StreamMode,
    error::{TimedOut, TimeoutKind},
};
use tokio::time::Instant;

use crate::support::{
    Calls, Plain, PlainUpdate, entries, failed, h, head, json, names, on_every_store, say, task,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Attempts with delays of exactly a second.
fn patient() -> Retries {
    let second = Duration::from_secs(1);
    RetryPolicy::default().initial(second).factor(1.0).jitter(Duration::ZERO).into()
}

/// Builds a graph with one node `a`.
fn one<Fut>(node: impl Fn(Cx) -> Fut + Send + Sync + 'static, options: NodeOptions) -> CompiledGraph<Plain>
where
    Fut: Future<Output = Result<PlainUpdate, NodeError>> + Send + 'static,
{
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_, cx| node(cx));
    graph.configure(a, options);
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    graph.compile().unwrap()
}

fn timed_out(error: &RunError) -> TimedOut {
    let RunError::Node { source, .. } = error else { panic!("{error}") };
    source.downcast_ref::<TimedOut>().unwrap_or_else(|| panic!("{source}")).clone()
}

#[tokio::test(start_paused = true)]
async fn two_attempts_are_too_slow_and_the_third_is_not() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let node = move |cx: Cx| {
        let told = told.clone();
        async move {
            told.lock().unwrap().push(cx.attempt());
            if cx.attempt() < 3 {
                cx.sleep(ms(500)).await;
            }
            Ok(say(&format!("attempt {}", cx.attempt())))
        }
    };
    let options = NodeOptions::new().timeout(ms(50)).retry(RetryPolicy::default());
    let end = one(node, options).run(Plain::update()).await.unwrap();
    assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "attempt 3"));
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_its_limit_and_the_duration_of_the_attempt() {
    let hangs = async |cx: Cx| {
        cx.sleep(ms(500)).await;
        Ok(Plain::update())
    };
    let run = NodeOptions::new().timeout(ms(50));
    let out = timed_out(&failed(one(hangs, run).run(Plain::update()).await));
    assert_eq!((out.kind, out.limit, out.elapsed), (TimeoutKind::Run, ms(50), ms(50)));
    assert_eq!(out.to_string(), "ran longer than its timeout of 50ms");

    // The shorter limit applies.
    let both = NodeOptions::new().timeout(ms(50)).idle_timeout(ms(40));
    let out = timed_out(&failed(one(hangs, both).run(Plain::update()).await));
    assert_eq!((out.kind, out.limit, out.elapsed), (TimeoutKind::Idle, ms(40), ms(40)));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_reset_the_idle_timeout() {
    let options = || NodeOptions::new().idle_timeout(ms(50));
    let signs: [fn(&Cx); 2] = [|cx| cx.heartbeat(), |cx| cx.emit("still", "here")];
    for sign in signs {
        let alive = move |cx: Cx| async move {
            for _ in 0..10 {
                cx.sleep(ms(30)).await;
                sign(&cx);
            }
            cx.sleep(ms(49)).await;
            Ok(say("alive"))
        };
        // Nobody listens, and yet an event is a sign.
        let end = one(alive, options()).run(Plain::update()).await.unwrap();
        assert_eq!(end.state.log_text(), "alive");

        let silent = move |cx: Cx| async move {
            cx.sleep(ms(30)).await;
            sign(&cx);
            cx.sleep(ms(51)).await;
            Ok(say("too late"))
        };
        let error = failed(one(silent, options()).run(Plain::update()).await);
        let out = timed_out(&error);
        assert_eq!((out.kind, out.limit, out.elapsed), (TimeoutKind::Idle, ms(50), ms(80)));
        let text = "was silent for longer than its idle timeout of 50ms, 80ms after it began";
        assert_eq!(out.to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_before_another_attempt_counts_for_no_timeout() {
    let begun = Instant::now();
    let node = async |cx: Cx| {
        if cx.attempt() < 3 { Err(NodeError::new("not yet")) } else { Ok(say("third")) }
    };
    let options = NodeOptions::new().timeout(ms(50)).idle_timeout(ms(50)).retry(patient());
    let graph = one(node, options);
    let mut stream = graph.stream(Plain::update(), [StreamMode::Tasks]);
    let mut starts = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::TaskStart { attempt, .. } = event {
            starts.push((attempt, begun.elapsed().as_secs()));
        }
    }
    assert_eq!(stream.outcome().await.unwrap().state.log_text(), "third");
    assert_eq!(starts, [(1, 0), (2, 1), (3, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_another_attempt_leaves_its_place_to_others() {
    let begun = Instant::now();
    let mut graph = StateGraph::<Plain>::new("g");
    let fails_once =
        graph.add_node(
            "a",
            async |_: Plain, cx: Cx| {
                if cx.attempt() == 1 { Err(NodeError::new("not yet")) } else { Ok(say("a")) }
            },
        );
    graph.configure(fails_once, NodeOptions::new().retry(patient()));
    graph.add_edge(START, fails_once);
    for name in ["b", "c"] {
        let slow = graph.add_node(name, async |_: Plain, cx: Cx| {
            cx.sleep(ms(500)).await;
            say(cx.node().as_str())
        });
        graph.add_edge(START, slow);
    }
    let end =
        graph.compile().unwrap().without_thread().max_concurrency(1).run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b c");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

/// `START → (h, ok)`; `h` hangs unless it is mended.
fn hanging(mended: bool, calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let h = graph.add_node_with("h", calls.clone(), move |calls: Calls, _, cx: Cx| async move {
        calls.add(&cx);
        if !mended {
            std::future::pending::<()>().await;
        }
        say("h")
    });
    let ok = graph.add_node_with("ok", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        say("ok")
    });
    graph.add_edge(START, h);
    graph.add_edge(START, ok);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_superstep_that_takes_too_long_ends_the_run_and_can_be_resumed(backend: Backend) {
        let calls = Calls::default();
        let begun = Instant::now();
        let graph = backend.keep(hanging(false, &calls));
        let error = failed(graph.thread("t").step_timeout(ms(100)).run(say("in")).await);
        assert_eq!(begun.elapsed(), ms(100));
        assert!(
            matches!(&error, RunError::StepTimeout { step: 1, limit, unfinished }
                if *limit == ms(100) && names(unfinished) == "h"),
            "{error}"
        );
        let found = head(&graph).await;
        assert_eq!((names(&found.next).as_str(), found.values.log_text().as_str()), ("h", "in ok"));
        let tasks: Vec<_> = found.tasks.iter().map(task).collect();
        let cancelled = ("h".to_owned(), json(&()), "cancelled".to_owned());
        assert_eq!(tasks, [cancelled, ("ok".to_owned(), json(&say("ok")), String::new())]);
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "h ok"), ("input", -1, "__start__")]));

        let graph = backend.keep(hanging(true, &calls));
        let end = graph.thread("t").step_timeout(ms(100)).resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in h ok"));
        assert_eq!(calls.all(), "h ok h");
    }
}

#[tokio::test(start_paused = true)]
async fn each_superstep_has_the_full_time_and_waits_between_attempts_count() {
    let mut graph = StateGraph::<Plain>::new("g");
    let mut last = START;
    for name in ["a", "b", "c"] {
        let node = graph.add_node(name, async |_: Plain, cx: Cx| {
            cx.sleep(ms(80)).await;
            say(cx.node().as_str())
        });
        graph.add_edge(last, node);
        last = node;
    }
    let end =
        graph.compile().unwrap().without_thread().step_timeout(ms(100)).run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b c");

    let fails = async |_: Cx| Err(NodeError::new("no"));
    let graph = one(fails, NodeOptions::new().retry(patient()));
    let error = failed(graph.without_thread().step_timeout(ms(100)).run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS165: superstep 1 took longer than the `step_timeout` of 100ms, `a` was still at work; resume the thread to run \
         it again, or raise the limit"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_another_attempt_is_dropped_with_the_run() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let seen = attempts.clone();
    let fails = move |cx: Cx| {
        seen.fetch_add(1, Ordering::SeqCst);
        let cancel = cx.cancel().clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(10)).await;
            cancel.cancel();
        });
        async { Err(NodeError::new("no")) }
    };
    let graph = one(fails, NodeOptions::new().retry(patient()));
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!((end.status, attempts.load(Ordering::SeqCst)), (Status::Cancelled, 1));
}

#[tokio::test(start_paused = true)]
async fn activity_in_a_called_graph_is_a_heartbeat() {
    let idle = |limit| NodeOptions::new().idle_timeout(ms(limit));
    let calling = |silence: Duration| {
        let mut called = StateGraph::<Plain>::new("called");
        let slow = called.add_node("slow", async |_: Plain, cx: Cx| {
            cx.sleep(ms(40)).await;
            say("slow")
        });
        let beats = called.add_node("beats", move |_: Plain, cx: Cx| async move {
            cx.sleep(ms(40)).await;
            cx.heartbeat();
            cx.sleep(silence).await;
            say("beats")
        });
        // Its own limit does not hide its activity from its caller.
        called.configure(beats, idle(500));
        called.add_edge(START, slow);
        called.add_edge(slow, beats);
        called.add_edge(beats, END);
        let called = called.compile().unwrap();
        let call = move |cx: Cx| {
            let called = called.clone();
            async move { Ok(say(&cx.call(&called, Plain::update()).await?.log_text())) }
        };
        one(call, idle(50))
    };
    let end = calling(ms(40)).run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "slow beats");
    let error = failed(calling(ms(60)).run(Plain::update()).await);
    let out = timed_out(&error);
    assert_eq!((out.kind, out.limit, out.elapsed), (TimeoutKind::Idle, ms(50), ms(130)));
}

/// A fan-out over numbers of milliseconds, each of which is slept. A multiple of 10 has a limit that suffices.
fn sleepers(items: &'static [u64]) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let sleep = graph.add_worker("sleep", async |millis: u64, _: Plain, cx: Cx| {
        cx.sleep(ms(millis)).await;
        say(&millis.to_string())
    });
    graph.configure(sleep, NodeOptions::new().timeout(ms(50)));
    graph.item_timeout(sleep, |millis: &u64| match millis {
        7 => panic!("no limit"),
        millis if millis % 10 == 0 => Some(ms(millis + 1)),
        _ => None,
    });
    graph.add_fan_out(START, move |_: &Plain| items.iter().copied(), sleep);
    graph.compile().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_item_has_its_own_time_limit_and_the_others_have_that_of_the_node() {
    let end = sleepers(&[100, 49, 200]).run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "100 49 200");
    let out = timed_out(&failed(sleepers(&[100, 51]).run(Plain::update()).await));
    assert_eq!((out.kind, out.limit), (TimeoutKind::Run, ms(50)));
    let error = failed(sleepers(&[10, 7]).run(Plain::update()).await);
    assert_eq!(
        crate::support::text(&error),
        "SS101: superstep 1: node `sleep` failed after 1 attempt\n  cause: panicked: no limit"
    );
}
