//! Subgraphs with persistent threads: their memory belongs to their caller's checkpoint.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, NodeError, NodeFailure, OnUnfinished,
    RunError, RunOptions, START, State, StateGraph, ThreadId,
    checkpoint::{CheckpointError, Commit, Prune, Retention},
    node::Persistence,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};
use tokio::sync::Notify;

use crate::support::{Plain, failed, on_every_store, say, t};

/// Builds a graph that retains its inputs, with an inner graph `deep` that does the same.
fn keeping(asks: bool) -> CompiledGraph<Plain> {
    let last = |state: &Plain| say(state.log.last().unwrap());
    let mut deep = StateGraph::<Plain>::new("deep");
    let keep = deep.add_node("keep", async |_: Plain, _: Cx| {});
    deep.add_edge(START, keep);
    let deep = deep.compile().unwrap().with_persistence(Persistence::PerNode);
    let mut mem = StateGraph::<Plain>::new("mem");
    let kept = |deep: &Plain| say(&format!("<{}>", deep.log_text().replace(' ', ",")));
    let deep = mem.add_subgraph_with("deep", &deep, last, kept);
    let ask = mem.add_node("ask", move |_: Plain, cx: Cx| async move {
        if asks {
            let _: bool = cx.interrupt("q", ()).await;
        }
    });
    mem.add_edge(START, deep);
    mem.add_edge(deep, ask);
    mem.compile().unwrap().with_persistence(Persistence::PerNode)
}

/// `START → mem`, which says all of its memory; in parallel a node that fails until it is repaired.
fn caller(asks: bool, repaired: &Arc<AtomicBool>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("caller");
    let said = |mem: &Plain| say(&format!("[{}]", mem.log_text().replace(' ', "_")));
    let mem =
        graph.add_subgraph_with("mem", &keeping(asks), |state: &Plain| say(state.log.last().unwrap()), said);
    let other = graph.add_node_with("other", repaired.clone(), async |repaired, _: Plain, _: Cx| {
        if repaired.load(Ordering::Relaxed) { Ok(()) } else { Err(NodeError::new("it is broken").fatal()) }
    });
    graph.add_edge(START, mem);
    graph.add_edge(START, other);
    graph.compile().unwrap()
}

fn works() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

/// Passes a word; returns the memory after it, and the checkpoint.
async fn tell(
    graph: &CompiledGraph<Plain>,
    word: &str,
    config: RunOptions,
) -> (String, Option<CheckpointId>) {
    let end = graph.configured(config).run(say(word)).await.unwrap();
    (end.state.log.last().unwrap().clone(), end.checkpoint)
}

/// A store as an older program wrote it, without references to subgraphs.
struct Older(Arc<dyn Checkpointer>);

impl Wrapper for Older {
    fn store(&self) -> &dyn Checkpointer {
        &*self.0
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        mut next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        Arc::make_mut(&mut next.metadata).retain(|name, _| !["$memories", "$bound"].contains(&name.as_str()));
        self.0.commit(thread, expected, next)
    }
}

/// A store in which an older program prunes, which does not store the positions that a branch loses.
struct OlderPrune(Arc<dyn Checkpointer>);

impl Wrapper for OlderPrune {
    fn store(&self) -> &dyn Checkpointer {
        &*self.0
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.0.prune(thread, head, Prune { metadata: Default::default(), ..prune })
    }
}

/// Adds a graph with a memory, which fails at the word `bad` after a superstep, and never ends at `slow`.
fn failing(is_slow: &Arc<Notify>) -> CompiledGraph<Plain> {
    let mut mem = StateGraph::<Plain>::new("mem");
    let keep = mem.add_node("keep", async |_: Plain, _: Cx| {});
    let check =
        mem.add_node_with("check", is_slow.clone(), async |is_slow, state: Plain, _: Cx| {
            match state.log.last().unwrap().as_str() {
                "bad" => Err(NodeError::new("it is bad").fatal()),
                "slow" => {
                    is_slow.notify_one();
                    pending().await
                }
                _ => Ok(()),
            }
        });
    mem.add_edge(START, keep);
    mem.add_edge(keep, check);
    mem.compile().unwrap().with_persistence(Persistence::PerNode)
}

/// The nodes of [`handled`] that fail.
#[derive(Clone)]
struct Switches {
    handler: Arc<AtomicBool>,
    other: Arc<AtomicBool>,
    is_handled: Arc<Notify>,
}

impl Switches {
    fn new(way: &str) -> Self {
        let [handler, other] =
            ["in the next run", "before a failure"].map(|broken| Arc::new((way == broken).into()));
        Self { handler, other, is_handled: Arc::default() }
    }

    fn repair(&self) {
        self.handler.store(false, Ordering::Relaxed);
        self.other.store(false, Ordering::Relaxed);
    }
}

fn broken(switch: &AtomicBool) -> Result<(), NodeError> {
    if switch.load(Ordering::Relaxed) { Err(NodeError::new("it is broken").fatal()) } else { Ok(()) }
}

/// `START → (n, other)`; `n` calls a graph with a memory and has an error handler.
fn handled(switches: &Switches) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("handled");
    let mem = failing(&Arc::default());
    let n = graph.add_node_with("n", mem, async |mem, state: Plain, cx: Cx| {
        let mem = cx.call(&mem, say(state.log.last().unwrap())).await?;
        Ok::<_, NodeError>(say(&format!("[{}]", mem.log_text().replace(' ', "_"))))
    });
    let other = graph.add_node_with("other", switches.clone(), async |switches, state: Plain, _: Cx| {
        if state.log.last().unwrap() == "bad" && switches.other.load(Ordering::Relaxed) {
            switches.is_handled.notified().await;
            broken(&switches.other)?;
        }
        Ok::<_, NodeError>(())
    });
    graph.add_error_handler_with(
        n,
        "h",
        switches.clone(),
        async |switches, _: NodeFailure, _: Plain, _: Cx| {
            broken(&switches.handler)?;
            switches.is_handled.notify_one();
            Ok::<_, NodeError>(say("handled"))
        },
    );
    graph.add_edge(START, n);
    graph.add_edge(START, other);
    graph.compile().unwrap()
}

/// `START → (n, other)`; `n` does not wait for the end of a slow call.
fn leaving(repaired: &Arc<AtomicBool>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("leaving");
    let is_slow = Arc::new(Notify::new());
    let mem = failing(&is_slow);
    let n = graph.add_node_with(
        "n",
        (mem, is_slow),
        async |(mem, is_slow): (CompiledGraph<Plain>, Arc<Notify>), state: Plain, cx: Cx| {
            tokio::select! {
                mem = cx.call(&mem, say(state.log.last().unwrap())) => {
                    Ok::<_, NodeError>(say(&format!("[{}]", mem?.log_text().replace(' ', "_"))))
                }
                () = is_slow.notified() => Ok(say("gone")),
            }
        },
    );
    let other = graph.add_node_with("other", repaired.clone(), async |repaired, _: Plain, _: Cx| {
        if repaired.load(Ordering::Relaxed) { Ok(()) } else { Err(NodeError::new("it is broken").fatal()) }
    });
    graph.add_edge(START, n);
    graph.add_edge(START, other);
    graph.compile().unwrap()
}

on_every_store! {
    async fn the_memory_of_a_thread_that_an_older_program_wrote_is_found(backend: Backend) {
        let store = backend.open();
        let older = caller(false, &works()).with_checkpointer(Arc::new(Wrapped(Older(store.clone()))));
        let (_, a) = tell(&older, "a", t()).await;
        assert_eq!(tell(&older, "b", t()).await.0, "[a_<a>_b_<a,b>]");
        let graph = caller(false, &works()).with_checkpointer(store);
        assert_eq!(tell(&graph, "c", t()).await.0, "[a_<a>_b_<a,b>_c_<a,b,c>]");
        assert_eq!(tell(&graph, "d", t().at(a)).await.0, "[a_<a>_d_<a,d>]");
        assert_eq!(tell(&graph, "e", t()).await.0, "[a_<a>_d_<a,d>_e_<a,d,e>]");
    }

    async fn the_memory_of_a_subgraph_follows_the_branches_of_its_caller(backend: Backend) {
        for (nth, durability) in [Durability::Sync, Durability::Async, Durability::Exit].into_iter().enumerate() {
            let graph = backend.keep(caller(false, &works()));
            let on = || RunOptions::new().thread(nth.to_string()).durability(durability);
            let thread = ThreadId::from(nth.to_string());
            let at = |checkpoint| on().at(checkpoint);
            let (kept, a) = tell(&graph, "a", on()).await;
            assert_eq!(kept, "[a_<a>]");
            let (kept, b) = tell(&graph, "b", on()).await;
            assert_eq!(kept, "[a_<a>_b_<a,b>]");
            assert_eq!(tell(&graph, "c", at(a)).await.0, "[a_<a>_c_<a,c>]", "{durability:?}");
            assert_eq!(tell(&graph, "d", on()).await.0, "[a_<a>_c_<a,c>_d_<a,c,d>]");
            assert_eq!(tell(&graph, "e", at(b)).await.0, "[a_<a>_b_<a,b>_e_<a,b,e>]");
            // The first input, again: nothing had been kept.
            let again = graph.thread(nth.to_string()).durability(durability).at(CheckpointId(1)).resume().await.unwrap();
            assert_eq!(again.state.log.last().unwrap(), "[a_<a>]");
            assert_eq!(tell(&graph, "f", on()).await.0, "[a_<a>_f_<a,f>]");
            if durability == Durability::Sync {
                let replayed = graph.thread(thread.clone()).replay().run().await.unwrap();
                assert!(replayed.is_same(), "{replayed}");
            }

            let copy = format!("copy of {nth}");
            graph.thread(&thread).copy_to(copy.as_str()).await.unwrap();
            let copied = |checkpoint| RunOptions::new().thread(copy.as_str()).at(checkpoint);
            assert_eq!(tell(&graph, "g", copied(a)).await.0, "[a_<a>_g_<a,g>]");
            assert_eq!(tell(&graph, "h", copied(b)).await.0, "[a_<a>_b_<a,b>_h_<a,b,h>]");
            graph.thread(&thread).prune(Retention::Only([a.unwrap()].into())).await.unwrap();
            assert_eq!(tell(&graph, "i", on()).await.0, "[a_<a>_f_<a,f>_i_<a,f,i>]");
            assert_eq!(tell(&graph, "j", at(a)).await.0, "[a_<a>_j_<a,j>]");
        }
    }

    async fn the_memory_is_seen_and_changed_as_the_head_of_the_caller_finds_it(backend: Backend) {
        let graph = backend.keep(caller(false, &works()));
        let at = |checkpoint| t().at(checkpoint);
        let (_, a) = tell(&graph, "a", t()).await;
        let (_, b) = tell(&graph, "b", t()).await;
        let seen = async |path: &[&str]| {
            let state = graph.thread("t").subgraph::<Plain>(path.iter().copied()).state().await;
            state.map(|state| state.values.log_text())
        };
        assert_eq!(seen(&["mem"]).await.unwrap(), "a <a> b <a,b>");
        graph.thread("t").fork(a).await.unwrap();
        assert_eq!((seen(&["mem"]).await.unwrap(), seen(&["mem", "deep"]).await.unwrap()), ("a <a>".into(), "a".into()));
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("EDIT")).await.unwrap();
        graph.thread("t").update_as("other", say("U")).await.unwrap();
        assert_eq!(seen(&["mem"]).await.unwrap(), "a <a> EDIT");
        assert_eq!(tell(&graph, "c", t()).await.0, "[a_<a>_EDIT_c_<a,c>]");
        assert_eq!(tell(&graph, "d", at(b)).await.0, "[a_<a>_b_<a,b>_d_<a,b,d>]");
        graph.thread("t").fork(CheckpointId(1)).await.unwrap();
        let error = failed(seen(&["mem"]).await);
        assert!(matches!(error, RunError::NoSubgraph { .. }), "{error}");
    }

    async fn a_change_of_the_memory_is_on_the_branch_on_which_it_was_made(backend: Backend) {
        let graph = backend.keep(caller(false, &works()));
        let at = |checkpoint| t().at(checkpoint);
        let seen = async || graph.thread("t").subgraph::<Plain>(["mem"]).state().await.unwrap().values.log_text();
        let (_, a) = tell(&graph, "a", t()).await;
        // Another branch has the memory of the same checkpoint, and is changed before and after it goes on.
        graph.thread("t").fork(a).await.unwrap();
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("X")).await.unwrap();
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("Y")).await.unwrap();
        graph.thread("t").update_as("other", say("u")).await.unwrap();
        assert_eq!(seen().await, "a <a> X Y");
        let (kept, b) = tell(&graph, "b", t()).await;
        assert_eq!(kept, "[a_<a>_X_Y_b_<a,b>]");
        // What was there before it has nothing of it.
        graph.thread("t").fork(a).await.unwrap();
        assert_eq!(seen().await, "a <a>");
        assert_eq!(tell(&graph, "c", t()).await.0, "[a_<a>_c_<a,c>]");
        assert_eq!(tell(&graph, "d", at(a)).await.0, "[a_<a>_d_<a,d>]");
        assert_eq!(tell(&graph, "e", at(b)).await.0, "[a_<a>_X_Y_b_<a,b>_e_<a,b,e>]");
        // Nor has a third branch with a change of its own, of which the others have nothing.
        graph.thread("t").fork(a).await.unwrap();
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("Z")).await.unwrap();
        assert_eq!(seen().await, "a <a> Z");
        let fork = graph.thread("t").state().await.unwrap().checkpoint.unwrap().id;
        graph.thread("t").prune(Retention::Only([a.unwrap(), fork].into())).await.unwrap();
        assert_eq!(tell(&graph, "f", t()).await.0, "[a_<a>_Z_f_<a,f>]");
        assert_eq!(tell(&graph, "g", at(a)).await.0, "[a_<a>_g_<a,g>]");
    }

    async fn a_task_that_ends_before_its_superstep_has_updated_the_memory(backend: Backend) {
        for way in ["resume", "update", "fork"] {
            let repaired = works();
            let graph = || backend.keep(caller(false, &repaired));
            let on = || RunOptions::new().thread(way);
            tell(&graph(), "a", on()).await;
            repaired.store(false, Ordering::Relaxed);
            failed(graph().thread(way).max_concurrency(1).run(say("b")).await);
            repaired.store(true, Ordering::Relaxed);
            match way {
                "update" => drop(graph().thread(way).update_as("other", Plain::update()).await.unwrap()),
                "fork" => drop(graph().thread(way).fork(None).await.unwrap()),
                _ => {}
            }
            let end = graph().thread(way).resume().await.unwrap();
            assert_eq!(end.state.log.last().unwrap(), "[a_<a>_b_<a,b>]", "{way}");
            assert_eq!(tell(&graph(), "c", on()).await.0, "[a_<a>_b_<a,b>_c_<a,b,c>]", "{way}");
        }
    }

    async fn a_task_that_was_discarded_leaves_nothing_in_the_memory(backend: Backend) {
        let graph = |asks| backend.keep(caller(asks, &works()));
        tell(&graph(false), "a", t()).await;
        let asked = graph(true).thread("t").run(say("b")).await.unwrap();
        assert_eq!(asked.interrupts.len(), 1);
        let discard = t().on_unfinished(OnUnfinished::Discard);
        assert_eq!(tell(&graph(false), "c", discard).await.0, "[a_<a>_c_<a,c>]");
    }
    async fn a_finished_task_that_was_discarded_leaves_nothing_in_the_memory(backend: Backend) {
        let repaired = works();
        let graph = backend.keep(caller(false, &repaired));
        tell(&graph, "a", t()).await;
        repaired.store(false, Ordering::Relaxed);
        failed(graph.thread("t").max_concurrency(1).run(say("b")).await);
        repaired.store(true, Ordering::Relaxed);
        let discard = t().on_unfinished(OnUnfinished::Discard);
        assert_eq!(tell(&graph, "c", discard).await.0, "[a_<a>_c_<a,c>]");
    }

    async fn a_prune_changes_no_memory(backend: Backend) {
        let graph = backend.keep(caller(false, &works()));
        let (thread, memory) = (graph.thread("t"), || graph.thread("t").subgraph::<Plain>(["mem"]));
        let seen = async || memory().state().await.unwrap().values.log_text();
        let step = async || thread.update_as("other", Plain::update()).await.unwrap();
        let (_, a) = tell(&graph, "a", t()).await;
        step().await;
        memory().update(say("X")).await.unwrap();
        assert_eq!(seen().await, "a <a> X");
        // On a branch without this change.
        thread.fork(a).await.unwrap();
        step().await;
        step().await;
        assert_eq!(seen().await, "a <a>");
        for last in [2, 1] {
            thread.prune(Retention::Last(last)).await.unwrap();
            assert_eq!(seen().await, "a <a>", "the last {last}");
        }
        // With changes of its own, which are pruned with the checkpoints at which they were made.
        for (word, last) in [("Y", 2), ("Z", 1)] {
            memory().update(say(word)).await.unwrap();
            step().await;
            step().await;
            thread.prune(Retention::Last(last)).await.unwrap();
        }
        assert_eq!(seen().await, "a <a> Y Z");
        assert_eq!(tell(&graph, "b", t()).await.0, "[a_<a>_Y_Z_b_<a,b>]");
    }

    async fn a_change_of_a_memory_outlives_the_prune_of_an_older_program(backend: Backend) {
        let store = backend.open();
        let older = caller(false, &works()).with_checkpointer(Arc::new(Wrapped(OlderPrune(store.clone()))));
        let graph = caller(false, &works()).with_checkpointer(store);
        tell(&graph, "a", t()).await;
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("X")).await.unwrap();
        graph.thread("t").update_as("other", Plain::update()).await.unwrap();
        older.thread("t").prune(Retention::Last(1)).await.unwrap();
        let seen = async || graph.thread("t").subgraph::<Plain>(["mem"]).state().await.unwrap().values.log_text();
        assert_eq!(seen().await, "a <a> X");
        graph.thread("t").update_as("other", Plain::update()).await.unwrap();
        graph.thread("t").prune(Retention::Last(1)).await.unwrap();
        assert_eq!(seen().await, "a <a> X");
    }

    /// A restart before or after the handler makes no difference.
    async fn a_failed_node_leaves_nothing_in_a_memory_if_its_handler_finishes(backend: Backend) {
        for way in ["at once", "in the next run", "before a failure"] {
            let switches = Switches::new(way);
            let graph = || backend.keep(handled(&switches));
            graph().thread(way).run(say("a")).await.unwrap();
            let ended = graph().thread(way).run(say("bad")).await;
            switches.repair();
            let end = if way == "at once" { ended } else { drop(failed(ended)); graph().thread(way).resume().await };
            assert_eq!(end.unwrap().state.log_text(), "a [a] bad handled", "{way}");
            let end = graph().thread(way).run(say("c")).await.unwrap();
            assert_eq!(end.state.log.last().unwrap(), "[a_c]", "{way}");
        }
    }

    /// The same applies to a call for whose end its node did not wait.
    async fn an_abandoned_call_leaves_its_stored_supersteps_in_a_memory(backend: Backend) {
        for way in ["in one run", "with a resume"] {
            let repaired = works();
            let graph = || backend.keep(leaving(&repaired));
            graph().thread(way).run(say("a")).await.unwrap();
            repaired.store(way == "in one run", Ordering::Relaxed);
            let ended = graph().thread(way).max_concurrency(1).run(say("slow")).await;
            if way == "with a resume" {
                failed(ended);
                repaired.store(true, Ordering::Relaxed);
                graph().thread(way).resume().await.unwrap();
            } else {
                ended.unwrap();
            }
            let end = graph().thread(way).run(say("c")).await.unwrap();
            assert_eq!(end.state.log_text(), "a [a] slow gone c [a_slow_c]", "{way}");
        }
    }

    async fn a_replay_runs_a_call_whose_memory_was_changed_later(backend: Backend) {
        let graph = backend.keep(caller(false, &works()));
        tell(&graph, "a", t()).await;
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("X")).await.unwrap();
        graph.thread("t").replay().run().await.unwrap().assert_same();
        tell(&graph, "b", t()).await;
        graph.thread("t").subgraph::<Plain>(["mem"]).update(say("Y")).await.unwrap();
        graph.thread("t").replay().run().await.unwrap().assert_same();
        let changed = backend.keep(caller(true, &works()));
        let replayed = changed.thread("t").replay().run().await.unwrap();
        assert!(replayed.divergence.is_some_and(|found| found.to_string().contains("`ask` in `mem`")));
    }

    async fn a_replay_takes_a_call_as_stored_that_was_updated_before_its_task_finished(backend: Backend) {
        let mut inner = StateGraph::<Plain>::new("inner");
        let work = inner.add_node("work", async |_: Plain, _: Cx| say("work"));
        inner.add_edge(START, work);
        let inner = inner.compile().unwrap();
        let fails = Arc::new(AtomicBool::new(true));
        let mut graph = StateGraph::<Plain>::new("outer");
        let output = {
            let fails = fails.clone();
            move |made: &Plain| {
                assert!(!fails.load(Ordering::Relaxed), "the first attempt fails after the call");
                say(&made.log_text())
            }
        };
        let sub = graph.add_subgraph_with("sub", &inner, |_: &Plain| say("in"), output);
        graph.add_edge(START, sub);
        let graph = backend.keep(graph.compile().unwrap());
        failed(graph.thread("t").run(say("go")).await);
        fails.store(false, Ordering::Relaxed);
        graph.thread("t").subgraph::<Plain>(["sub"]).update(say("X")).await.unwrap();
        let end = graph.thread("t").resume().await.unwrap();
        assert!(end.state.log_text().contains('X'), "{}", end.state.log_text());
        let replayed = graph.thread("t").replay().run().await.unwrap();
        assert_eq!((replayed.divergence.map(|found| found.to_string()), replayed.taken), (None, 1));
    }
}
