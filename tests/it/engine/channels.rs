//! A: the kinds of channels besides last values.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use superstep::{
    CheckpointId, CompiledGraph, Cx, Log, Route, RunError, START, State, StateGraph, Status, state::Barrier,
    state::reduce,
};

use crate::support::{Stuck, entries, failed, h, head, json, on_every_store};

/// Has no zero.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Called(String);

impl From<&str> for Called {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

fn call(old: Called, new: Called) -> Called {
    Called(format!("f({},{})", old.0, new.0))
}

#[derive(State, Clone, Debug, Default)]
struct Folded {
    #[channel(fold_with = call)]
    x: Option<Called>,
}

fn writes_one_then_two() -> CompiledGraph<Folded> {
    let mut graph = StateGraph::<Folded>::new("g");
    let one = graph.add_node("one", async |_: Folded, _: Cx| Folded::update().x("1"));
    let two = graph.add_node("two", async |_: Folded, _: Cx| Folded::update().x("2"));
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.compile().unwrap()
}

on_every_store! {
    async fn without_a_zero_the_first_write_is_stored_as_it_is(backend: Backend) {
        let graph = backend.keep(writes_one_then_two());
        let end = graph.thread("t").run(Folded::update()).await.unwrap();
        assert_eq!(end.state.x, Some("f(1,2)".into()));
        assert_eq!(head(&graph).await.values.x, Some("f(1,2)".into()));

        let end = graph.thread("five").run(Folded::update().x("5")).await.unwrap();
        assert_eq!(end.state.x, Some("f(f(5,1),2)".into()));
        let cleared = reduce(&end.state, [Folded::update().set_x("6")]).unwrap();
        assert_eq!(cleared.x, Some("6".into()));
    }
}

#[derive(State, Clone, Debug, Default)]
struct Topics {
    #[channel(topic)]
    t: Log<i64>,
    #[channel(append)]
    u: Log<i64>,
    #[channel(append)]
    seen: Log<String>,
}

fn topics() -> CompiledGraph<Topics> {
    let see = |state: &Topics, cx: &Cx| {
        Topics::update().seen([format!("{} {} {}", cx.node(), json(&state.t), json(&state.u))])
    };
    let mut graph = StateGraph::<Topics>::new("g");
    let a = graph.add_node("a", async |_: Topics, _: Cx| Topics::update().t([1]).u([1, 2]));
    let b =
        graph.add_node("b", move |state: Topics, cx: Cx| async move { see(&state, &cx).t([5, 6]).u([3]) });
    let c = graph.add_node("c", move |state: Topics, cx: Cx| async move { see(&state, &cx) });
    let d = graph.add_node("d", move |state: Topics, cx: Cx| async move { see(&state, &cx) });
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, c);
    graph.add_edge(c, d);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_topic_has_what_the_last_superstep_wrote(backend: Backend) {
        let seen = ["b [1] [1,2]", "c [5,6] [1,2,3]", "d [] [1,2,3]"].map(str::to_owned);
        let end = backend.keep(topics()).thread("t").run(Topics::update()).await.unwrap();
        assert_eq!(end.state.seen, seen);

        failed(backend.keep(topics()).thread("stops").step_limit(1).run(Topics::update()).await);
        for _ in 0..2 {
            failed(backend.keep(topics()).thread("stops").step_limit(1).resume().await);
        }
        let end = backend.keep(topics()).thread("stops").step_limit(1).resume().await.unwrap();
        assert_eq!(end.state.seen, seen, "also in another process after each superstep");
    }
}

#[test]
fn a_topic_has_the_items_of_all_tasks_in_their_order() {
    let next = reduce(&Topics::default(), [Topics::update().t([1]), Topics::update().t([2, 3])]).unwrap();
    assert_eq!(next.t, [1, 2, 3]);
}

#[derive(Route, Clone, Copy, Debug, PartialEq)]
enum Party {
    Left,
    Right,
}

#[derive(State, Clone, Debug, Default)]
struct Meeting {
    #[channel(barrier)]
    here: Barrier<Party>,
    #[channel(append)]
    seen: Log<String>,
}

#[derive(Route, Clone, Copy, Debug)]
enum Then {
    Go,
    Wait,
}

/// `left` and `right` arrive in different supersteps; `watch` runs until both are there, then `go` clears it.
fn meeting() -> CompiledGraph<Meeting> {
    let mut graph = StateGraph::<Meeting>::new("g");
    let left = graph.add_node("left", async |_: Meeting, _: Cx| Meeting::update().here(Party::Left));
    let between = graph.add_node("between", async |_: Meeting, _: Cx| ());
    let right = graph.add_node("right", async |_: Meeting, _: Cx| Meeting::update().here([Party::Right]));
    let watch = graph.add_node("watch", async |state: Meeting, _: Cx| {
        Meeting::update().seen([format!("{:?} {}", state.here, state.here.is_ready())])
    });
    let go = graph.add_node("go", async |_: Meeting, _: Cx| Meeting::update().set_here(Party::Right));
    graph.add_edge(START, left);
    graph.add_edge(START, between);
    graph.add_edge(between, right);
    graph.add_edge(START, watch);
    graph.add_conditional_edges(
        watch,
        |state: &Meeting| if state.here.is_ready() { Then::Go } else { Then::Wait },
        |route| match route {
            Then::Go => go,
            Then::Wait => watch,
        },
    );
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_barrier_is_ready_once_all_have_arrived_and_until_it_is_cleared(backend: Backend) {
        let graph = backend.keep(meeting());
        let end = graph.thread("t").run(Meeting::update()).await.unwrap();
        let seen = [r"{} false", r#"{"Left"} false"#, r#"{"Left", "Right"} true"#].map(str::to_owned);
        assert_eq!(end.state.seen, seen);
        let stored = head(&graph).await.values.here;
        assert!(stored.has(Party::Right) && !stored.is_ready());
        assert_eq!(stored.missing().collect::<Vec<_>>(), [Party::Left]);
    }
}

#[test]
fn a_barrier_knows_only_its_parties() {
    let error = serde_json::from_str::<MeetingUpdate>(r#"{"here":["Right","Nobody"]}"#).unwrap_err();
    assert!(error.to_string().starts_with("the barrier has no name `Nobody`"), "{error}");
}

/// Neither `Serialize` nor `Debug`.
#[derive(Clone, Default)]
struct Handle(Option<Arc<AtomicUsize>>);

#[derive(State, Clone, Default)]
struct Tracked {
    #[channel(untracked)]
    r: Handle,
    #[channel(append)]
    seen: Log<String>,
    #[channel(append)]
    items: Log<i64>,
}

impl Tracked {
    fn see(&self, cx: &Cx) -> TrackedUpdate {
        let sees = match &self.r.0 {
            Some(count) => (count.fetch_add(1, Ordering::Relaxed) + 1).to_string(),
            None => "nothing".to_owned(),
        };
        Tracked::update().seen([format!("{} sees {sees}", cx.node())])
    }
}

/// `a` writes a handle, `b` and a worker for each of two items read it.
fn tracked() -> StateGraph<Tracked> {
    let mut graph = StateGraph::<Tracked>::new("g");
    let a = graph.add_node("a", async |_: Tracked, _: Cx| {
        Tracked::update().r(Handle(Some(Arc::default()))).items([7, 8])
    });
    let b = graph.add_node("b", async |state: Tracked, cx: Cx| state.see(&cx));
    let work = graph.add_worker("work", async |_: i64, state: Tracked, cx: Cx| state.see(&cx));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_fan_out(b, |state: &Tracked| state.items.iter().copied().collect::<Vec<_>>(), work);
    graph
}

fn seen(state: &Tracked) -> Vec<&str> {
    let mut seen: Vec<_> = state.seen.iter().map(String::as_str).collect();
    seen.sort_unstable();
    seen
}

on_every_store! {
    async fn an_untracked_value_is_seen_by_its_run_and_never_stored(backend: Backend) {
        let graph = backend.keep(tracked().compile().unwrap());
        let end = graph.thread("t").snapshot_every(1).run(Tracked::update()).await.unwrap();
        assert_eq!(seen(&end.state), ["b sees 1", "work sees 2", "work sees 3"]);
        assert_eq!(end.state.r.0.map(|count| count.load(Ordering::Relaxed)), Some(3));
        assert!(head(&graph).await.values.r.0.is_none());
        let store = backend.open();
        for at in 1..=5 {
            let loaded = store.load(&"t".into(), Some(CheckpointId(at))).await.unwrap().unwrap();
            if let Some(snapshot) = &loaded.snapshot {
                assert!(snapshot.channels().unwrap().iter().all(|channel| channel.channel != "r"));
            }
            for update in loaded.commits.into_iter().flatten() {
                assert!(!update.touches("r"), "{update}");
            }
        }
    }

    async fn an_untracked_value_is_gone_after_a_resume(backend: Backend) {
        let graph = backend.keep(tracked().compile().unwrap());
        let end = graph.thread("t").break_before(["b"]).run(Tracked::update()).await.unwrap();
        assert_eq!(end.status, Status::Interrupted);
        assert!(end.state.r.0.is_some(), "the first run's own result has it");
        assert!(head(&graph).await.values.r.0.is_none());
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!(seen(&end.state), ["b sees nothing", "work sees nothing", "work sees nothing"]);
    }

    async fn a_task_that_finished_before_a_crash_has_lost_its_untracked_write(backend: Backend) {
        let stuck = Stuck::default();
        let graph = |stuck: Option<Stuck>| {
            let mut graph = StateGraph::<Tracked>::new("g");
            let a = graph.add_node("a", async |_: Tracked, _: Cx| {
                Tracked::update().r(Handle(Some(Arc::default()))).seen(["a".to_owned()])
            });
            let b = graph.add_node("b", move |_, cx: Cx| {
                let stuck = stuck.clone();
                async move {
                    // Gives the sibling time to be finished and recorded.
                    cx.sleep(std::time::Duration::from_millis(1)).await;
                    if let Some(stuck) = stuck {
                        stuck.here().await;
                    }
                }
            });
            let j = graph.add_node("j", async |state: Tracked, cx: Cx| state.see(&cx));
            graph.add_edge(START, a);
            graph.add_edge(START, b);
            graph.add_join([a, b], j);
            graph.compile().unwrap()
        };
        let crashing = backend.keep(graph(Some(stuck.clone())));
        stuck.crash(crashing.thread("t").run(Tracked::update())).await;
        drop(crashing);
        let end = backend.keep(graph(None)).thread("t").resume().await.unwrap();
        assert_eq!(end.state.seen, ["a", "j sees nothing"].map(str::to_owned), "and `a` does not run again");
    }

    async fn an_input_brings_handles_along(backend: Backend) {
        let graph = backend.keep(tracked().compile().unwrap());
        let count = Arc::new(AtomicUsize::new(40));
        let mut graph_of_one = StateGraph::<Tracked>::new("one");
        let b = graph_of_one.add_node("b", async |state: Tracked, cx: Cx| state.see(&cx));
        graph_of_one.add_edge(START, b);
        let one = backend.keep(graph_of_one.compile().unwrap());
        let input = || Tracked::update().r(Handle(Some(count.clone())));
        let end = one.thread("one").run(input()).await.unwrap();
        assert_eq!(seen(&end.state), ["b sees 41"]);
        drop(graph);
    }
}

#[derive(State, Clone, Debug, Default)]
struct Overwritten {
    #[channel(append)]
    log: Log<String>,
    #[channel(sum)]
    n: i64,
}

fn overwriting(both: bool) -> CompiledGraph<Overwritten> {
    let mut graph = StateGraph::<Overwritten>::new("g");
    let a = graph
        .add_node("a", async |_: Overwritten, _: Cx| Overwritten::update().set_log(["a".to_owned()]).n(2));
    let b = graph.add_node("b", move |_, _| async move {
        let update = Overwritten::update().n(3);
        if both { update.set_log(["b".to_owned()]) } else { update }
    });
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.compile().unwrap()
}

on_every_store! {
    async fn one_task_overwrites_a_reduced_channel(backend: Backend) {
        let graph = backend.keep(overwriting(false));
        let input = Overwritten::update().log(["x".to_owned(), "y".to_owned()]).n(1);
        let end = graph.thread("t").run(input).await.unwrap();
        assert_eq!((&end.state.log, end.state.n), (&["a".to_owned()].into(), 6));
        let stored = head(&graph).await.values;
        assert_eq!((&stored.log, stored.n), (&end.state.log, 6));
    }

    async fn two_overwrites_in_one_superstep_are_a_conflict(backend: Backend) {
        let graph = backend.keep(overwriting(true));
        let error = failed(graph.thread("t").run(Overwritten::update()).await);
        assert!(matches!(&error, RunError::Conflict { channel, step: 1, .. } if channel == "log"), "{error}");
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "a b"), ("input", -1, "__start__")]));
    }

    async fn full_values_are_stored_every_so_many_updates(backend: Backend) {
        let mut graph = StateGraph::<Overwritten>::new("g");
        let step = graph.add_node("step", async |_: Overwritten, _: Cx| {
            Overwritten::update().log(["step".to_owned()])
        });
        graph.add_edge(START, step);
        let again = |state: &Overwritten| if state.log.len() < 8 { Then::Wait } else { Then::Go };
        graph.add_conditional_edges(step, again, |route| match route {
            Then::Wait => step,
            Then::Go => superstep::END,
        });
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").snapshot_every(3).run(Overwritten::update().log(["in".to_owned()])).await.unwrap();

        let history = graph.thread("t").history().states().await.unwrap();
        let lengths: Vec<_> = history.iter().map(|snapshot| snapshot.values.log.len()).collect();
        assert_eq!(lengths, [8, 7, 6, 5, 4, 3, 2, 1, 0]);

        let store = backend.open();
        let mut full = Vec::new();
        for meta in history.into_iter().rev().filter_map(|snapshot| snapshot.checkpoint) {
            let loaded = store.load(&"t".into(), Some(meta.id)).await.unwrap().unwrap();
            if loaded.snapshot.is_some() && loaded.commits.is_empty() {
                full.push(meta.control.step);
            }
        }
        assert_eq!(full, [2, 5], "what is between them has updates only");
    }
}

/// Two plain edges to `j` from different depths run it twice; `compile` warns of that.
#[tokio::test]
async fn a_node_runs_again_for_each_superstep_in_which_it_is_reached() {
    use crate::support::{Plain, logging_node};
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b, a2, j] = ["a", "b", "a2", "j"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_edge(a, a2);
    graph.add_edge(a2, j);
    graph.add_edge(b, j);
    let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b a2 j j");

    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b, j] = ["a", "b", "j"].map(|name| logging_node(&mut graph, name));
    for from in [a, b] {
        graph.add_edge(START, from);
        graph.add_edge(from, j);
    }
    let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b j");
}
