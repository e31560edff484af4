//! Retries and timeouts.

use std::{io, time::Duration};

use superstep::{
    Cx, Fatal, NodeError, NodeOptions, Retries, RetryPolicy, RunError, START, State, StateGraph,
    error::TimedOut,
};
use tokio::time::Instant;

use crate::support::{Plain, failed, on_every_store, say};

/// Returns the number of attempts of a node that fails twice with an error, with the default policy.
async fn attempts(error: fn() -> NodeError) -> u32 {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_, cx: Cx| async move {
        if cx.attempt() < 3 { Err(error()) } else { Ok(Plain::update().x(i64::from(cx.attempt()))) }
    });
    graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_edge(START, a);
    match graph.compile().unwrap().run(Plain::update()).await {
        Ok(end) => u32::try_from(end.state.x).unwrap(),
        Err(RunError::Node { attempts, .. }) => attempts,
        Err(error) => panic!("{error}"),
    }
}

/// The types differ from the table's, which is about Python; timeouts of the system are transient here.
#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried_and_logic_errors_are_not() {
    assert_eq!(attempts(|| "x".parse::<i64>().unwrap_err().into()).await, 1);
    assert_eq!(attempts(|| serde_json::from_str::<i64>("x").unwrap_err().into()).await, 1);
    assert_eq!(attempts(|| std::fmt::Error.into()).await, 1);
    assert_eq!(attempts(|| io::Error::from(io::ErrorKind::NotFound).into()).await, 1);
    assert_eq!(attempts(|| io::Error::from(io::ErrorKind::PermissionDenied).into()).await, 1);
    assert_eq!(attempts(|| io::Error::from(io::ErrorKind::ConnectionReset).into()).await, 3);
    assert_eq!(attempts(|| io::Error::from(io::ErrorKind::TimedOut).into()).await, 3);
    assert_eq!(attempts(|| NodeError::new("some failure")).await, 3);
    assert_eq!(attempts(|| NodeError::new("some failure").fatal()).await, 1);
    assert_eq!(
        attempts(|| {
            let reset = io::Error::from(io::ErrorKind::ConnectionReset);
            Err::<(), _>(reset).fatal().unwrap_err()
        })
        .await,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn options_of_all_nodes_apply_to_those_without_their_own() {
    let attempts = |own: Option<NodeOptions>, first: bool| async move {
        let mut graph = StateGraph::<Plain>::new("g");
        let all = || NodeOptions::new().retry(RetryPolicy::default());
        if first {
            graph.configure_all(all());
        }
        let a = graph.add_node("a", async |_: Plain, _: Cx| Err::<(), _>(NodeError::new("no")));
        graph.add_edge(START, a);
        if let Some(own) = own {
            graph.configure(a, own);
        }
        if !first {
            graph.configure_all(all());
        }
        match failed(graph.compile().unwrap().run(Plain::update()).await) {
            RunError::Node { attempts, .. } => attempts,
            error => panic!("{error}"),
        }
    };
    for first in [true, false] {
        assert_eq!(attempts(None, first).await, 3);
        assert_eq!(attempts(Some(NodeOptions::default()), first).await, 1);
    }
}

#[tokio::test]
async fn without_a_policy_nothing_is_retried() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| Err::<(), _>(NodeError::new("no")));
    graph.add_edge(START, a);
    let error = failed(graph.compile().unwrap().run(Plain::update()).await);
    assert!(matches!(&error, RunError::Node { attempts: 1, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn attempts_wait_as_the_policy_and_the_seed_say() {
    let waits = async |seed| {
        let begun = Instant::now();
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", move |_, _| async move {
            Err::<(), _>(NodeError::new(format!("{}", begun.elapsed().as_millis())))
        });
        graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
        graph.add_edge(START, a);
        let error = failed(graph.compile().unwrap().without_thread().seed(seed).run(Plain::update()).await);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        cause.parse::<u64>().unwrap()
    };
    let first = waits(1).await;
    // 0.5 s and 1 s, each with up to 1 s of jitter.
    assert!((1_500..=3_500).contains(&first), "{first}");
    assert_eq!(waits(1).await, first);
    assert_ne!(waits(2).await, first);
}

/// Builds a node that needs 500 ms in its first two attempts, with a limit of 50 ms.
fn slow(retry: Retries) -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        if cx.attempt() < 3 {
            cx.sleep(Duration::from_millis(500)).await;
        }
        say(&format!("attempt {}", cx.attempt()))
    });
    let timeout = Some(Duration::from_millis(50));
    graph.configure(a, NodeOptions::new().retry(retry).timeout(timeout));
    graph.add_edge(START, a);
    graph.compile().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_too_slow_fails_at_its_time_out() {
    let begun = Instant::now();
    let error = failed(slow(Retries::default()).run(Plain::update()).await);
    assert_eq!(begun.elapsed().as_millis(), 50);
    assert!(
        matches!(&error, RunError::Node { node, attempts: 1, source, .. }
            if node.as_str() == "a" && source.downcast_ref::<TimedOut>().is_some_and(|out| out.limit.as_millis() == 50)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_time_out_is_retried_and_each_attempt_has_the_full_time() {
    let end = slow(RetryPolicy::default().into()).run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "attempt 3");
}

#[tokio::test]
async fn a_node_classifies_its_own_failures() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| Err::<(), _>("x".parse::<i64>().unwrap_err()));
    let retry = Retries::on(is_number, at_once(3));
    graph.configure(a, NodeOptions::new().retry(retry));
    graph.add_edge(START, a);
    let error = failed(graph.compile().unwrap().run(Plain::update()).await);
    assert!(matches!(&error, RunError::Node { attempts: 3, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn randomness_differs_by_thread_and_is_reproducible_on_each() {
    let run = async |thread| {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", async |_: Plain, cx: Cx| match cx.attempt() {
            1 => Err(NodeError::new("some failure")),
            _ => Ok(say(&rand::RngExt::random::<u64>(&mut cx.rng()).to_string())),
        });
        graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
        graph.add_edge(START, a);
        let began = Instant::now();
        let end = graph.compile().unwrap().thread(thread).run(Plain::update()).await.unwrap();
        (began.elapsed(), end.state.log_text())
    };
    let (ada, bob) = (run("ada").await, run("bob").await);
    assert_eq!(run("ada").await, ada);
    assert_ne!(ada.0, bob.0);
    assert_ne!(ada.1, bob.1);
}

fn is_number(error: &NodeError) -> bool {
    error.cause().is::<std::num::ParseIntError>()
}

fn at_once(max_attempts: u32) -> RetryPolicy {
    let none = Duration::ZERO;
    RetryPolicy::attempts(max_attempts).initial(none).jitter(none)
}

/// Returns the number of attempts of a node that fails with each of the errors in turn.
async fn attempts_of<const N: usize>(errors: [fn() -> NodeError; N], retry: Retries) -> u32 {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_: Plain, cx: Cx| async move {
        Err::<(), _>(errors[(cx.attempt() as usize - 1) % N]())
    });
    graph.configure(a, NodeOptions::new().retry(retry));
    graph.add_edge(START, a);
    match failed(graph.compile().unwrap().run(Plain::update()).await) {
        RunError::Node { attempts, .. } => attempts,
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn of_several_rules_the_first_that_fits_counts() {
    let number: fn() -> _ = || NodeError::from("x".parse::<i64>().unwrap_err());
    let other: fn() -> _ = || NodeError::new("some failure");
    let rules = || Retries::on(is_number, at_once(2)).or(at_once(4)).or(Retries::on(|_| true, at_once(9)));
    assert_eq!(attempts_of([number], rules()).await, 2);
    assert_eq!(attempts_of([other], rules()).await, 4);
    assert_eq!(attempts_of([|| std::fmt::Error.into()], rules()).await, 9);
    assert_eq!(attempts_of([|| NodeError::new("some failure").fatal()], rules()).await, 1);
    // Attempts are those of the task: a rule that allows two has none left after three others.
    assert_eq!(attempts_of([other, other, other, number], rules()).await, 4);
    assert_eq!(attempts_of([other, number], rules()).await, 2);
}

on_every_store! {
    async fn a_task_beside_a_failure_has_no_more_attempts_than_it_had(backend: Backend) {
        for way in ["failure", "step timeout"] {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node("a", async |_: Plain, cx: Cx| {
                Err::<(), _>(NodeError::new(format!("attempt {}", cx.attempt())))
            });
            let b = graph.add_node("b", async |_: Plain, cx: Cx| {
                cx.sleep(Duration::from_secs(1)).await;
                Err::<(), _>(NodeError::new("b"))
            });
            let rests = RetryPolicy::attempts(3).initial(Duration::from_secs(10));
            graph.configure(a, NodeOptions::new().retry(rests));
            graph.add_edge(START, a);
            graph.add_edge(START, b);
            let graph = backend.keep(graph.compile().unwrap());
            let step_timeout = (way == "step timeout").then_some(Duration::from_millis(500));
            failed(graph.thread(way).step_timeout(step_timeout).run(Plain::update()).await);
            for failures in 1..3 {
                let seen = graph.thread(way).state().await.unwrap();
                assert_eq!(seen.tasks[0].error, Some(format!("attempt {failures}")), "{way}");
                let error = failed(graph.thread(way).step_timeout(step_timeout).resume().await);
                let last = matches!(&error, RunError::Node { node, attempts: 3, .. } if node.as_str() == "a");
                assert_eq!(last, failures == 2, "{way}: {error}");
            }
        }
    }

    async fn the_key_of_a_task_is_the_same_after_a_crash_and_another_on_every_branch(backend: Backend) {
        let keys = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let make = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let keys = keys.clone();
            let a = graph.add_node("a", move |_: Plain, cx: Cx| {
                keys.lock().unwrap().push(cx.key());
                async move { cx.interrupt::<bool>("q", ()).await; }
            });
            graph.add_edge(START, a);
            graph.compile().unwrap()
        };
        let taken = || std::mem::take(&mut *keys.lock().unwrap());
        backend.keep(make()).thread("t").run(Plain::update()).await.unwrap();
        backend.keep(make()).thread("t").resume().await.unwrap();
        let [first, again] = &taken()[..] else { panic!("it ran twice") };
        assert_eq!(first, again);

        let graph = backend.keep(make());
        let head = graph.thread("t").history().checkpoints().await.unwrap()[0].id;
        for _ in 0..2 {
            graph.thread("t").at(head).resume().await.unwrap();
        }
        graph.thread("u").run(Plain::update()).await.unwrap();
        let mut all = taken();
        all.push(first.clone());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
