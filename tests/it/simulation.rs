//! Graphs under the simulator: siblings end in any order, the process stops at any execution and any commit,
//! and the thread ends as without crashes.

#[cfg(feature = "agent")]
mod agent;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use rand::RngExt;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, END, Interrupt, Log, MemoryCheckpointer,
    MemoryStore, NodeError, NodeOptions, RetryPolicy, Route, RunOptions, START, State, StateGraph, ThreadId,
    checkpoint::{CheckpointError, Loaded},
    node::Persistence,
    store::{Namespace, Search},
};
use superstep_testing::{
    sim::{self, CrashPoint, Options, Report, Sim},
    wrapped::{Wrapped, Wrapper},
};

use crate::support::{Plain, say};

/// The state of this file's graphs.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Work {
    #[channel(append)]
    log: Log<String>,
    #[channel(append)]
    text: String,
    #[channel(sum)]
    done: i64,
    #[channel(max)]
    best: i64,
    #[channel(union)]
    ids: BTreeSet<String>,
    #[channel(ephemeral)]
    hint: Option<String>,
    round: i64,
}

fn input(word: &str) -> WorkUpdate {
    Work::update().log([word.to_owned()])
}

/// Returns the seeds of a test: `count` of them, or as many as `SUPERSTEP_SIM_SEEDS` says.
fn seeds(count: u64) -> Options {
    let count = std::env::var("SUPERSTEP_SIM_SEEDS").map_or(count, |text| text.parse().unwrap());
    Options::seeds(0..count)
}

/// Returns the seeds of a test that must reach every place.
fn many() -> Options {
    seeds(400)
}

/// Asserts crashes at every place, which one seed alone does not reach.
fn crashed_everywhere(report: &Report) {
    if report.seeds > 1 {
        assert_eq!(report.never_crashed_at(), Vec::<&CrashPoint>::new(), "{report}");
        assert!(report.crashes > report.seeds, "{report}");
        assert!(report.executions > report.seeds * report.plain_executions, "{report}");
    }
}

/// Says its name and the random values of its context.
async fn draw(state: Work, cx: Cx) -> WorkUpdate {
    let name = cx.node().to_string();
    let drawn = cx.rng().random_range(0..1_000);
    Work::update()
        .log([format!("{name} {} of {}", cx.step(), state.log.len())])
        .text(format!("{name} drew {drawn} at {}; ", cx.now_ms()))
        .best(drawn)
        .ids(BTreeSet::from([cx.id("work")]))
        .done(1)
}

/// `plan → worker × 4 → review` (one worker more in later turns), and `plan → aside → review`, which runs
/// once after the workers and once after aside.
fn fan_out(_: &Sim) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("fan_out");
    let plan = graph.add_node("plan", draw);
    let aside = graph.add_node("aside", draw);
    let worker = graph.add_worker("worker", async |item: u32, _: Work, cx: Cx| {
        Work::update().log([format!("worked on {item}")]).ids(BTreeSet::from([cx.id(item)])).done(10)
    });
    let review = graph.add_node("review", draw);
    graph.add_edge(START, plan);
    graph.add_edge(plan, aside);
    graph.add_fan_out(plan, |state: &Work| 0..4 + u32::from(state.log.len() > 2), worker);
    graph.add_edge(aside, review);
    graph.add_edge(worker, review);
    graph.add_edge(review, END);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy)]
enum Again {
    Again,
    Enough,
}

/// Builds `work` and `watch` in parallel, round after round; `work` fails its first two attempts in every
/// other round.
fn retrying_loop(_: &Sim) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("retrying_loop");
    let begin = graph.add_node("begin", async |state: Work, _| {
        Work::update().round(state.round + 1).hint(Some(format!("round {}", state.round + 1)))
    });
    let work = graph.add_node("work", async |state: Work, cx: Cx| {
        if state.round % 2 == 1 && cx.attempt() < 3 {
            return Err(NodeError::new("not yet"));
        }
        Ok(Work::update().log([format!("{:?} in attempt {}", state.hint, cx.attempt())]).done(1))
    });
    let retry = RetryPolicy::default().initial(Duration::from_millis(3));
    graph.configure(work, NodeOptions::new().retry(retry));
    let watch = graph.add_node("watch", draw);
    graph.add_edge(START, begin);
    graph.add_edge(begin, work);
    graph.add_edge(begin, watch);
    let enough = |state: &Work| if state.round < 3 { Again::Again } else { Again::Enough };
    graph.add_conditional_edges(work, enough, |route| match route {
        Again::Again => begin,
        Again::Enough => END,
    });
    graph.compile().unwrap()
}

/// Builds branches of different lengths, all of which add to the same text and log, and meet in `last`.
fn appends(_: &Sim) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("appends");
    let last = graph.add_node("last", draw);
    for branch in [&["c"][..], &["a1", "a2"], &["b1", "b2", "b3"], &["d1", "d2"]] {
        let mut from = START;
        for name in branch {
            let node = graph.add_node(name, draw);
            graph.add_edge(from, node);
            from = node;
        }
        graph.add_edge(from, last);
    }
    graph.add_edge(last, END);
    graph.compile().unwrap()
}

/// Builds `START → (a → aa → aaa, b, c → cc)`; `meet` waits for `aaa`, `b` and `cc`, and `tidy` for all
/// nodes.
fn joins(_: &Sim) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("joins");
    let nodes = ["a", "aa", "aaa", "b", "c", "cc", "meet", "tidy"];
    let [a, aa, aaa, b, c, cc, meet, tidy] = nodes.map(|name| graph.add_node(name, draw));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_edge(START, c);
    graph.add_edge(a, aa);
    graph.add_edge(aa, aaa);
    graph.add_edge(c, cc);
    graph.add_join([aaa, b, cc], meet);
    graph.add_edge(b, tidy);
    graph.configure(tidy, NodeOptions::new().deferred());
    graph.add_edge(tidy, END);
    graph.add_edge(meet, END);
    graph.compile().unwrap()
}

/// Builds three nodes that ask at the same time, one of them twice and one after a side effect, in parallel
/// to one that does not.
fn asking(_: &Sim) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("asking");
    let ask = async |state: Work, cx: Cx| {
        let name = cx.node().to_string();
        let first: i64 = cx.interrupt("first", format!("{name} after {}", state.log.len())).await;
        let second: i64 = match name.as_str() {
            "twice" => cx.interrupt("second", first).await,
            _ => 0,
        };
        Work::update().log([format!("{name} heard {first} and {second}")]).done(first + second)
    };
    let [once, again, twice] = ["once", "again", "twice"].map(|name| graph.add_node(name, ask));
    let beside = graph.add_node("beside", draw);
    let sum = graph.add_node("sum", ask);
    for node in [once, again, twice, beside] {
        graph.add_edge(START, node);
        graph.add_edge(node, sum);
    }
    graph.add_edge(sum, END);
    graph.compile().unwrap()
}

/// A function that performs an external effect in a node.
type Once = fn(Sim, Cx, &'static str) -> BoxFuture<'static, Result<String, NodeError>>;

/// Performs a slow external effect, and says its name.
fn once(sim: Sim, cx: Cx, name: &'static str) -> BoxFuture<'static, Result<String, NodeError>> {
    Box::pin(async move {
        let effect = |key: String| async move {
            sim.effect(&key);
            Ok::<_, NodeError>(format!("{name} as {}", key.rsplit('/').nth(1).unwrap_or_default()))
        };
        let done = cx.once(name, effect).await?;
        Ok(done)
    })
}

/// `START → (pays, fails, beside) → last`. `pays` performs two effects at the same time, asks, and performs a
/// third; `fails` performs one and then fails twice.
fn effects(sim: &Sim, once: Once) -> CompiledGraph<Work> {
    let mut graph = StateGraph::<Work>::new("effects");
    let pays = graph.add_node_with("pays", sim.clone(), move |sim: Sim, _: Work, cx: Cx| async move {
        let (left, right) = futures::try_join!(
            once(sim.clone(), cx.clone(), "left"),
            once(sim.clone(), cx.clone(), "right")
        )?;
        let agreed: i64 = cx.interrupt("agreed", &left).await;
        let third = once(sim.clone(), cx.clone(), "third").await?;
        Ok::<_, NodeError>(Work::update().log([left, right, third]).done(agreed))
    });
    let fails = graph.add_node_with("fails", sim.clone(), move |sim: Sim, _: Work, cx: Cx| async move {
        let done = once(sim.clone(), cx.clone(), "fails").await?;
        if cx.attempt() < 3 { Err(NodeError::new("not yet")) } else { Ok(Work::update().log([done])) }
    });
    let retry = RetryPolicy::default().initial(Duration::from_millis(3));
    graph.configure(fails, NodeOptions::new().retry(retry));
    let beside = graph.add_node("beside", draw);
    let last = graph.add_node_with("last", sim.clone(), move |sim: Sim, _: Work, cx: Cx| async move {
        Ok::<_, NodeError>(Work::update().log([once(sim, cx, "last").await?]))
    });
    for node in [pays, fails, beside] {
        graph.add_edge(START, node);
        graph.add_edge(node, last);
    }
    graph.add_edge(last, END);
    graph.compile().unwrap()
}

fn agree(_: &Interrupt) -> Option<serde_json::Value> {
    Some(7.into())
}

#[test]
fn effects_of_once_are_never_repeated_after_any_crash() {
    let options = Options { answer: agree, ..many() };
    crashed_everywhere(&sim::check(options, |sim| effects(sim, once), [input("one")]));
}

#[test]
fn an_effect_that_is_done_again_is_found_out() {
    // One time more than `once` would, each time.
    let twice: Once = |sim, cx, name| {
        Box::pin(async move {
            let key = format!("{}/{name}", cx.key());
            let done = once(sim.clone(), cx, name).await;
            sim.effect(&key);
            done
        })
    };
    let options = Options { answer: agree, ..Options::seeds(0..20) };
    let report = sim::explore(options, |sim| effects(sim, once), [input("one")]);
    assert!(report.failures.is_empty(), "{report}");
    let found = std::panic::catch_unwind(|| {
        let options = Options { answer: agree, ..Options::seeds(0..1) };
        sim::explore(options, |sim| effects(sim, twice), [input("one")])
    });
    let panic = *found.unwrap_err().downcast::<String>().unwrap();
    assert!(panic.contains("was done again, although its result is stored"), "{panic}");
}

/// `begin → sub → worker × 2`: a subgraph of the same state which loops, draws random values, and contains
/// another one that asks; and workers that call a graph with persistence per node, per task, or without.
fn nested(_: &Sim) -> CompiledGraph<Work> {
    let asks = || {
        let mut graph = StateGraph::<Work>::new("asks");
        let first = graph.add_node("first", draw);
        let ask = graph.add_node("ask", async |state: Work, cx: Cx| {
            let answer: i64 = cx.interrupt("how many", state.log.len()).await;
            Work::update().log([format!("{answer} by {}", cx.id("answer"))]).done(answer)
        });
        graph.add_edge(START, first);
        graph.add_edge(first, ask);
        graph.compile().unwrap()
    };
    let mut sub = StateGraph::<Work>::new("sub");
    let (left, right) = (sub.add_node("left", draw), sub.add_node("right", draw));
    let inner = sub.add_subgraph("inner", &asks());
    sub.add_edge(START, left);
    sub.add_edge(START, right);
    sub.add_edge(left, inner);
    sub.add_edge(inner, END);
    let kept = asks();
    let anew = asks().with_persistence(Persistence::Ephemeral);
    let mut graph = StateGraph::<Work>::new("nested");
    let begin = graph.add_node("begin", draw);
    let sub = graph.add_subgraph("sub", &sub.compile().unwrap());
    let worker = graph.add_worker("worker", move |item: i64, _: Work, cx: Cx| {
        let (kept, anew) = (kept.clone(), anew.clone());
        async move {
            let graph = if item == 0 { &kept } else { &anew };
            let ended = cx.call(graph, input("called")).key("k").await?;
            Ok::<_, NodeError>(
                Work::update().log(ended.log.iter().cloned().collect::<Vec<_>>()).done(ended.done),
            )
        }
    });
    let own = graph.add_subgraph_with(
        "own",
        &asks().with_persistence(Persistence::PerNode),
        |state: &Work| Work::update().round(state.done),
        |own: &Work| Work::update().text(format!("{} of {}; ", own.done, own.log.len())),
    );
    graph.add_edge(START, begin);
    graph.add_edge(begin, sub);
    graph.add_fan_out(sub, |_: &Work| [0, 1], worker);
    graph.add_edge(sub, own);
    graph.add_edge(own, END);
    graph.compile().unwrap()
}

#[test]
fn nested_subgraphs_end_alike_after_any_crash() {
    let answer = |asked: &Interrupt| Some(asked.id.len().into());
    // It has several times as many places as the others.
    let options = Options { answer, ..seeds(1_400) };
    crashed_everywhere(&sim::check(options, nested, [input("one"), input("two")]));
}

#[test]
fn joins_and_deferred_nodes_end_alike_in_any_order_and_after_any_crash() {
    crashed_everywhere(&sim::check(many(), joins, [input("go")]));
}

#[test]
fn questions_end_alike_answered_in_any_order_and_after_any_crash() {
    let answer = |asked: &Interrupt| {
        let said = asked.question.as_str().map_or(0, str::len) + asked.node.as_str().len();
        Some((said + asked.key.len()).into())
    };
    crashed_everywhere(&sim::check(Options { answer, ..many() }, asking, [input("go")]));
}

#[test]
fn breakpoints_do_not_change_the_end() {
    let config = RunOptions::new().break_before(["*"]).break_after(["b1"]);
    let options = Options { run: config, ..seeds(50) };
    assert!(sim::check(options, appends, [input("go")]).crashes > 0);
}

#[test]
fn a_run_that_stores_as_it_goes_or_at_its_end_ends_alike_after_any_crash() {
    let answer = |asked: &Interrupt| Some(asked.key.len().into());
    for durability in [Durability::Async, Durability::Exit] {
        let config = RunOptions::new().durability(durability);
        let options = || Options { run: config.clone(), answer, ..seeds(60) };
        let reports = [
            sim::check(options(), fan_out, [input("one"), input("two")]),
            sim::check(options(), retrying_loop, [input("go")]),
            sim::check(options(), joins, [input("go")]),
            sim::check(options(), asking, [input("go")]),
        ];
        assert!(reports.iter().all(|report| report.crashes > report.seeds / 2), "{reports:?}");
        let config = config.clone().break_before(["*"]);
        sim::check(Options { run: config, ..options() }, appends, [input("go")]);
    }
}

#[test]
#[should_panic(expected = "no answer to `again:1.0:first~d5215bcdb0e236c1`; use `Options::answer`")]
fn a_question_without_an_answer_is_found_out() {
    sim::explore(Options::seeds(0..1), asking, [input("go")]);
}

#[test]
fn a_fan_out_ends_alike_in_any_order_and_after_any_crash() {
    crashed_everywhere(&sim::check(many(), fan_out, [input("go")]));
}

#[test]
fn a_loop_with_retries_ends_alike_in_any_order_and_after_any_crash() {
    crashed_everywhere(&sim::check(many(), retrying_loop, [input("go")]));
}

#[test]
fn appends_of_siblings_have_one_order_for_any_completion_order() {
    crashed_everywhere(&sim::check(many(), appends, [input("go")]));
}

#[test]
fn a_limit_of_tasks_at_a_time_does_not_change_the_end() {
    let config = RunOptions::new().max_concurrency(2);
    sim::check(Options { run: config, ..seeds(100) }, fan_out, [input("go")]);
}

#[test]
#[cfg(feature = "sqlite")]
fn a_database_that_is_opened_again_after_each_crash_ends_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads.db");
    let store = Arc::new(move || {
        let store = superstep::sqlite::SqliteCheckpointer::open(&path).unwrap();
        Arc::new(store) as Arc<dyn Checkpointer>
    });
    let report =
        sim::check(Options { store, ..Options::seeds(0..24) }, fan_out, [input("one"), input("two")]);
    assert!(report.seeds < 24 || report.crashes > 24, "{report}");
}

#[test]
fn a_process_stops_before_and_after_requests_to_the_store_of_its_nodes() {
    let store = Arc::new(MemoryStore::new());
    let notes = |sim: &Sim| {
        let mut graph = StateGraph::<Work>::new("notes");
        let namespace = Namespace::new(["notes".to_owned(), format!("{:?}", sim.seed())]).unwrap();
        let note = graph.add_node_with("note", namespace, async |namespace: Namespace, _: Work, cx: Cx| {
            let notes = cx.shared_store()?;
            cx.store()?.put(&namespace, &cx.id("note"), cx.step().into()).await?;
            let known = notes.search(Search::within(&namespace)).await?.len();
            Ok::<_, NodeError>(Work::update().log([format!("{known} of {}", cx.step())]))
        });
        graph.add_edge(START, note);
        graph.add_edge(note, END);
        graph.compile().unwrap().with_store(store.clone())
    };
    let report = sim::check(seeds(100), notes, [input("one"), input("two")]);
    crashed_everywhere(&report);
    for place in ["before store", "after store"] {
        let at = CrashPoint::Node(format!("`note`, {place}"));
        // A node has two requests in each of its attempts.
        assert!(report.places[&at].passed >= 4 * report.seeds, "{report:?}");
    }
}

#[test]
fn a_seed_is_the_same_life_every_time() {
    let life = || sim::explore(Options::seeds(0..40), fan_out, [input("go")]);
    let once = life();
    assert!(once.crashes > 0, "{once}");
    assert_eq!(once, life());
}

/// Folds in the order in which siblings end: they write to a list of their own, which `tell` copies.
fn folds_as_they_come(_: &Sim) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("folds_as_they_come");
    let list = Arc::new(Mutex::new(Vec::new()));
    let tell = graph.add_node_with("tell", list.clone(), async |list: Arc<Mutex<Vec<_>>>, _, _| {
        Plain::update().log(std::mem::take(&mut *list.lock().unwrap()))
    });
    for name in ["a", "b", "c"] {
        let node = graph.add_node_with(name, list.clone(), async |list: Arc<Mutex<Vec<_>>>, _, cx: Cx| {
            list.lock().unwrap().push(cx.node().to_string());
        });
        graph.add_edge(START, node);
        graph.add_edge(node, tell);
    }
    graph.compile().unwrap()
}

#[test]
fn a_graph_that_depends_on_completion_order_is_detected() {
    let report = sim::explore(Options::seeds(0..100), folds_as_they_come, [say("in")]);
    let without_crash: Vec<_> = report.failures.iter().filter(|it| it.crashes.is_empty()).collect();
    assert!(without_crash.len() > 10, "{report}");
    assert!(without_crash[0].what.starts_with("channel `log` is "), "{report}");
    assert!(report.to_string().contains("run one alone with SUPERSTEP_SIM_SEED="), "{report}");
}

#[test]
fn a_graph_that_remembers_outside_its_state_is_found_out() {
    let begun = Arc::new(AtomicU64::new(0));
    let counts = |_: &Sim| {
        let mut graph = StateGraph::<Plain>::new("remembers");
        let node = graph.add_node_with("node", begun.clone(), async |begun: Arc<AtomicU64>, _, _| {
            let nth = begun.fetch_add(1, Ordering::SeqCst);
            Plain::update().x(i64::try_from(nth).unwrap())
        });
        graph.add_edge(START, node);
        graph.compile().unwrap()
    };
    let report = sim::explore(Options::seeds(0..8), counts, [say("in")]);
    assert_eq!(report.failures.len(), 8, "{report}");
    assert_eq!(report.failures[0].what, "channel `x` is 1, in the plain run 0");
}

#[test]
fn a_store_that_loses_finished_tasks_is_detected() {
    let store: Arc<dyn Checkpointer> = Arc::new(Wrapped(Forgetful(MemoryCheckpointer::new())));
    let options = Options { store: Arc::new(move || store.clone()), ..Options::seeds(0..100) };
    let report = sim::explore(options, fan_out, [input("go")]);
    assert!(!report.failures.is_empty());
    for failure in &report.failures {
        assert!(!failure.crashes.is_empty(), "{report}");
        assert!(failure.what.contains("tasks not stored as finished"), "{report}");
    }
}

/// A node of every function of `Cx` that an observer sees.
fn calls_everything(_: &Sim) -> CompiledGraph<Work> {
    let mut inner = StateGraph::<Work>::new("inner");
    let only = inner.add_node("only", async |_: Work, cx: Cx| Work::update().text(cx.id("inner")));
    inner.add_edge(START, only);
    let inner = inner.compile().unwrap();
    let mut graph = StateGraph::<Work>::new("calls_everything");
    let calls = graph.add_node_with("calls", inner, async |inner: CompiledGraph<Work>, _: Work, cx: Cx| {
        cx.emit("begun", 1);
        let drawn = cx.rng().random_range(0..9);
        let once: i64 = cx.once("charge", async |_| Ok::<_, NodeError>(drawn)).await?;
        let weather = cx.recorded("weather", async || "rain".to_owned()).await;
        cx.noted("cold", weather == "rain");
        cx.compared("plan", || "pay").await;
        cx.sleep(Duration::from_millis(3)).await;
        cx.durable().await;
        cx.inbox(0).await?;
        let answer: i64 = cx.interrupt("sure", &weather).await;
        let called = cx.call(&inner, input("called")).key("k").await?;
        cx.emit_message("m", "said");
        Ok::<_, NodeError>(Work::update().text(called.text.clone()).done(once + answer + cx.now_ms() % 2))
    });
    graph.add_edge(START, calls);
    graph.compile().unwrap()
}

#[test]
fn a_process_stops_at_every_call_of_a_node() {
    let report = sim::check(Options { answer: agree, ..many() }, calls_everything, [input("go")]);
    crashed_everywhere(&report);
    let places: Vec<String> = report.places.keys().map(ToString::to_string).collect();
    let inside = |place: &String| place.strip_prefix("in node ").map(str::to_owned);
    insta::assert_snapshot!(places.iter().filter_map(inside).collect::<Vec<_>>().join("\n"), @r#"
    `calls/only`, begin
    `calls/only`, end
    `calls`, after call `k`
    `calls`, after once `charge`
    `calls`, after recorded `weather`
    `calls`, after sleep
    `calls`, after the answer `sure`
    `calls`, before call `k`
    `calls`, before once `charge`
    `calls`, before recorded `weather`
    `calls`, before sleep
    `calls`, before the question `sure`
    `calls`, begin
    `calls`, compared `plan`
    `calls`, durable
    `calls`, emit
    `calls`, end
    `calls`, inbox
    `calls`, message
    `calls`, noted `cold`
    `calls`, now_ms
    `calls`, rng
    "#);
    let errors = places.iter().filter(|place| place.contains("with an error of the"));
    assert!(errors.clone().any(|place| place.ends_with("which was written")), "{places:?}");
    assert!(errors.clone().any(|place| place.ends_with("which was not written")), "{places:?}");
}

#[test]
#[should_panic(expected = "a run waits for something that never happens")]
fn a_run_that_hangs_is_found_out() {
    let hangs = |_: &Sim| {
        let mut graph = StateGraph::<Plain>::new("hangs");
        let node = graph.add_node("node", async |_, _| std::future::pending::<()>().await);
        graph.add_edge(START, node);
        graph.compile().unwrap()
    };
    sim::explore(Options::seeds(0..1), hangs, [say("in")]);
}

/// Loses the records of tasks of incomplete supersteps.
struct Forgetful(MemoryCheckpointer);

impl Wrapper for Forgetful {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let loaded = self.0.load(thread, at);
        Box::pin(async {
            let mut loaded = loaded.await?;
            if let Some(loaded) = &mut loaded
                && loaded.meta.control.step > 0
            {
                loaded.tasks.clear();
            }
            Ok(loaded)
        })
    }
}
