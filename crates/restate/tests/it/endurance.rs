//! Many runs, long runs and long nodes, over workers that end and versions that change.
//!
//! The tests are short; recipes of the `justfile` set their variables to the long forms. Each prints its figures.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, Log, NodeError, NodeOptions, NodeRef, RetryPolicy, Route, RunOptions, START,
    State, StateGraph,
};
use tokio::{sync::Notify, time::Instant};

use crate::{node::shared, proof::number, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Count {
    #[channel(append)]
    log: Log<String>,
    n: u64,
    most: u64,
    /// The time of a step.
    ms: u64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// The times at which the steps of the threads began.
type Steps = Arc<Mutex<BTreeMap<String, Vec<Instant>>>>;

fn begins(steps: &Steps, cx: &Cx) {
    let thread = cx.thread().map_or_else(String::new, |thread| thread.to_string());
    let mut steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
    steps.entry(thread).or_default().push(Instant::now());
}

fn steps_of(steps: &Steps) -> BTreeMap<String, Vec<Instant>> {
    steps.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Counts with a node of this name. The log has the version of each step, unless it is empty.
fn counting(
    node: &'static str,
    version: &'static str,
    steps: &Steps,
    last: impl FnOnce(&mut StateGraph<Count>) -> Option<NodeRef>,
) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("counts");
    let count = graph.add_node_with(
        node,
        (steps.clone(), version),
        async |(steps, version): (Steps, &'static str), count: Count, cx: Cx| {
            begins(&steps, &cx);
            tokio::time::sleep(Duration::from_millis(count.ms)).await;
            let update = Count::update().n(count.n + 1);
            if version.is_empty() { update } else { update.log([version]) }
        },
    );
    graph.add_edge(START, count);
    let last = last(&mut graph);
    let next = |count: &Count| if count.n < count.most { Next::Again } else { Next::Done };
    if let Some(last) = last {
        graph.add_conditional_edges(count, next, move |next| match next {
            Next::Again => count,
            Next::Done => last,
        });
        graph.add_edge(last, END);
    } else {
        graph.add_conditional_edges(count, next, move |next| match next {
            Next::Again => count,
            Next::Done => END,
        });
    }
    graph.compile().unwrap()
}

fn no_last(_: &mut StateGraph<Count>) -> Option<NodeRef> {
    None
}

/// Waits until the steps of each of these threads have begun this number of times.
async fn reached(steps: &Steps, threads: usize, times: usize) {
    while steps_of(steps).values().filter(|begun| begun.len() >= times).count() < threads {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_in_flight_continue_with_new_code_and_then_with_new_nodes() {
    let Some(node) = shared() else { return };
    let (steps, runs) = (Steps::default(), number("SUPERSTEP_UPGRADED", 10) as usize);
    let close = |graph: &mut StateGraph<Count>| {
        Some(graph.add_node("close", async |_: Count, _: Cx| Count::update().log(["closed"])))
    };
    let one = Service::start(node, |endpoint| endpoint.graph(counting("count", "one", &steps, no_last)));
    let restate = one.restate.clone();
    let all = (0..runs).map(|nth| {
        let thread = restate.thread("counts", format!("u-{nth}"));
        tokio::spawn(async move { thread.run(Count::update().most(9).ms(50)).await })
    });
    let all: Vec<_> = all.collect();
    reached(&steps, runs, 2).await;
    let two = one.crash_before(|endpoint| endpoint.graph(counting("count", "two", &steps, no_last)))();
    reached(&steps, runs, 5).await;
    let three = two.crash_before(|endpoint| endpoint.graph(counting("count", "three", &steps, close)))();
    let mut versions = BTreeMap::new();
    for ended in join_all(all).await {
        let ended = ended.unwrap().unwrap();
        let log: Vec<String> = serde_json::from_value(ended.values["log"].clone()).unwrap();
        assert_eq!((&*ended.status, &ended.values["n"]), ("completed", &json!(9)), "{log:?}");
        assert_eq!((log.len(), &*log[9]), (10, "closed"), "{log:?}");
        let order = ["one", "two", "three"].map(|version| log.iter().filter(|step| *step == version).count());
        let sorted: Vec<_> = ["one", "two", "three"]
            .into_iter()
            .zip(order)
            .flat_map(|(version, times)| vec![version; times])
            .collect();
        assert_eq!(log[..9], sorted, "no version returns");
        *versions.entry(order.map(|times| times > 0)).or_insert(0) += 1;
    }
    println!("{runs} runs over two upgrades; with steps of the versions [one, two, three]: {versions:?}");
    assert!(versions.keys().all(|[one, _, three]| *one && *three), "{versions:?}");
    drop(three);
}

#[tokio::test]
async fn a_run_whose_pending_node_is_gone_ends_with_the_reason() {
    let Some(node) = shared() else { return };
    let steps = Steps::default();
    let one = Service::start(node, |endpoint| endpoint.graph(counting("count", "one", &steps, no_last)));
    let thread = one.restate.thread("counts", "gone");
    let run = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Count::update().most(1000).ms(30)).await }
    });
    reached(&steps, 1, 3).await;
    let other = one.crash_before(|endpoint| endpoint.graph(counting("other", "two", &steps, no_last)))();
    let error = run.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("SS114") && error.contains("count"), "{error}");
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runs_of_all_stopped_workers_continue_on_another_one() {
    let Some(node) = shared() else { return };
    let (steps, runs) = (Steps::default(), number("SUPERSTEP_STOPPED", 16) as usize);
    let graph = || counting("count", "", &steps, no_last);
    let first = Service::start(node, |endpoint| endpoint.graph(graph()));
    let second = first.again(|endpoint| endpoint.graph(graph()));
    let restate = first.restate.clone();
    let all = (0..runs).map(|nth| {
        let thread = restate.thread("counts", format!("s-{nth}"));
        tokio::spawn(async move { thread.run(Count::update().most(40).ms(50)).await })
    });
    let all: Vec<_> = all.collect();
    reached(&steps, runs, 5).await;
    let third = first.again(|endpoint| endpoint.graph(graph()));
    let stopped = Instant::now();
    let stops = [first, second].map(|service| tokio::task::spawn_blocking(|| service.stop()));
    for ended in join_all(all).await {
        let ended = ended.unwrap().unwrap();
        assert_eq!((&*ended.status, &ended.values["n"]), ("completed", &json!(40)));
    }
    for stop in stops {
        stop.await.unwrap();
    }
    let gap = |times: &Vec<Instant>| {
        let pairs = times.windows(2).filter(|pair| pair[1] > stopped);
        pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    };
    let steps = steps_of(&steps);
    let longest = steps.values().map(gap).max().unwrap();
    let repeated = steps.values().map(|times| times.len() - 40).sum::<usize>();
    println!(
        "{runs} runs of two stopped workers: the longest pause of a run {longest:?}, of a step 50 ms; {repeated} steps repeated"
    );
    assert_eq!(repeated, 0, "each step that was at work ended, and was stored");
    drop(third);
}

/// A graph of one node, which runs as long as the input says.
fn slow(began: &Arc<AtomicUsize>) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("slow");
    let wait =
        graph.add_node_with("wait", began.clone(), async |began: Arc<AtomicUsize>, count: Count, _| {
            began.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(count.ms)).await;
            Count::update().n(1)
        });
    graph.add_edge(START, wait);
    graph.add_edge(wait, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_long_node_is_one_attempt() {
    let Some(node) = shared() else { return };
    let began = Arc::<AtomicUsize>::default();
    let service = Service::start(node, |endpoint| endpoint.graph(slow(&began)));
    let seconds = number("SUPERSTEP_LONG_NODE", 2);
    let thread = service.restate.thread("slow", "long");
    let begun = Instant::now();
    let end = thread.run(Count::update().ms(seconds * 1000)).await.unwrap();
    println!(
        "a node of {seconds} s: {:.2} s, {} attempts",
        begun.elapsed().as_secs_f64(),
        began.load(Ordering::SeqCst)
    );
    assert_eq!((&end.values["n"], began.load(Ordering::SeqCst)), (&json!(1), 1));
    // Another one is cancelled in its middle.
    let thread = service.restate.thread("slow", "cancelled");
    let run = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Count::update().ms(600_000)).await }
    });
    while began.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    assert!(thread.cancel().await.unwrap());
    assert_eq!(run.await.unwrap().unwrap().status, "cancelled");
    println!("a node of 10 minutes was cancelled in {:?}", begun.elapsed());
    let stored = thread.stored(&slow(&began)).unwrap();
    assert_eq!(stored.state().await.unwrap().next.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_run_is_replayed_after_a_crash() {
    let Some(node) = shared() else { return };
    let (steps, most) = (Steps::default(), number("SUPERSTEP_STEPS", 200));
    let (began, goes) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let graph = || {
        counting("count", "", &steps, |graph| {
            let both = (began.clone(), goes.clone());
            Some(graph.add_node_with(
                "last",
                both,
                async |(began, goes): (Arc<Notify>, Arc<Notify>), _: Count, _| {
                    began.notify_one();
                    goes.notified().await;
                    Count::update().log(["last"])
                },
            ))
        })
    };
    let limit = RunOptions::new().step_limit(most as u32 + 10);
    let service = Service::start(node, |endpoint| endpoint.graph(graph()).options(limit.clone()));
    let thread = service.restate.thread("counts", "long");
    let begun = Instant::now();
    let run = tokio::spawn(async move { thread.run(Count::update().most(most)).await });
    began.notified().await;
    let took = begun.elapsed();
    let again = service.crash_before(|endpoint| endpoint.graph(graph()).options(limit));
    let begun = Instant::now();
    let service = again();
    began.notified().await;
    println!(
        "{most} supersteps in {took:?}; their replay, with the start of the worker, took {:?}",
        begun.elapsed()
    );
    goes.notify_one();
    let end = run.await.unwrap().unwrap();
    assert_eq!((&end.values["n"], &end.values["log"]), (&json!(most), &json!(["last"])));
    assert_eq!(steps_of(&steps)["long"].len() as u64, most, "no finished node runs again");
    drop(service);
}

#[tokio::test]
async fn a_node_that_always_fails_ends_its_run_after_its_own_attempts() {
    let Some(node) = shared() else { return };
    let ran = Arc::<AtomicUsize>::default();
    let mut graph = StateGraph::<Count>::new("poison");
    let fail = graph.add_node_with("fail", ran.clone(), async |ran: Arc<AtomicUsize>, _: Count, _| {
        ran.fetch_add(1, Ordering::SeqCst);
        Err::<CountUpdate, _>(NodeError::new("it is poison"))
    });
    graph.configure(
        fail,
        NodeOptions::new().retry(RetryPolicy::attempts(3).initial(Duration::from_millis(10))),
    );
    graph.add_edge(START, fail);
    graph.add_edge(fail, END);
    let graph = graph.compile().unwrap();
    let service = Service::start(node, |endpoint| endpoint.graph(graph));
    let error = service.restate.thread("poison", "p").run(Count::update()).await.unwrap_err();
    assert!(error.to_string().contains("it is poison"), "{error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_one_thread_are_one_after_the_other() {
    let Some(node) = shared() else { return };
    let steps = Steps::default();
    let mut graph = StateGraph::<Count>::new("queue");
    let mut last = START;
    for (name, word) in [("open", "opened"), ("close", "closed")] {
        let added = graph.add_node_with(
            name,
            (steps.clone(), word),
            async |(steps, word): (Steps, &'static str), count: Count, cx: Cx| {
                begins(&steps, &cx);
                tokio::time::sleep(Duration::from_millis(30)).await;
                Count::update().log([word]).n(count.n + 1)
            },
        );
        graph.add_edge(last, added);
        last = added;
    }
    graph.add_edge(last, END);
    let graph = graph.compile().unwrap();
    let service = Service::start(node, |endpoint| endpoint.graph(graph));
    let runs = (0..3).map(|_| {
        let thread = service.restate.thread("queue", "q");
        tokio::spawn(async move { thread.run(Count::update()).await.unwrap() })
    });
    let runs: Vec<_> = runs.collect();
    let ends: Vec<Value> =
        join_all(runs).await.into_iter().map(|end| json!(end.unwrap().values["log"])).collect();
    let longest = ends.iter().max_by_key(|log| log.as_array().map(Vec::len)).unwrap();
    assert_eq!(longest, &json!(["opened", "closed", "opened", "closed", "opened", "closed"]));
}
