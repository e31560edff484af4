//! A: state, channels, reducers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superstep::{
    Cx, END, Event, Log, ReduceError, Reducer, RunError, RunOptions, START, State, StateGraph, StreamMode,
    state::{ById, HasId, Merge, Merges, UnknownId},
};

use crate::support::{
    Plain, PlainUpdate, entries, failed, h, head, json, logging_node, on_every_store, say, t, task, told,
};

/// A missing channel cannot be written in Rust at all; `crates/macros` has the compile-fail cases. The
/// remaining case is an update from JSON.
#[test]
fn an_update_with_an_unknown_channel_is_refused() {
    let error = serde_json::from_str::<PlainUpdate>(r#"{"x": 1, "zzz": 9}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `zzz`"), "{error}");
}

#[tokio::test]
async fn nodes_read_the_writes_of_earlier_nodes() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| Plain::update().x(1));
    let b = graph.add_node("b", async |state: Plain, _: Cx| Plain::update().x(state.x + 1));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, END);
    let graph = graph.compile().unwrap();
    let end = graph.run(Plain::update().x(0)).await.unwrap();
    assert_eq!(end.state, Plain { x: 2, log: Log::new() });
}

/// Builds two nodes that both write `x`.
fn rivals() -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| Plain::update().x(1));
    let b = graph.add_node("b", async |_: Plain, _: Cx| Plain::update().x(2));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.compile().unwrap()
}

on_every_store! {
    async fn parallel_writers_of_a_last_value_are_refused(backend: Backend) {
        let graph = backend.keep(rivals());
        let error = failed(graph.thread("t").run(say("in")).await);
        assert!(
            matches!(
                &error,
                RunError::Conflict { channel, step: 1, first, second }
                    if channel == "x" && first.as_str() == "a" && second.as_str() == "b"
            ),
            "{error}"
        );
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "a b"), ("input", -1, "__start__")]));
    }

    async fn after_a_conflict_the_thread_is_readable_and_goes_on_with_a_repaired_graph(backend: Backend) {
        let graph = backend.keep(rivals());
        let error = failed(graph.thread("t").run(say("in")).await);
        for graph in [graph, backend.keep(rivals())] {
            let head = head(&graph).await;
            assert_eq!((head.values.log_text().as_str(), head.values.x), ("in", 0));
            let tasks: Vec<_> = head.tasks.iter().map(task).collect();
            let refused = |node: &str| (node.to_owned(), json(&()), error.to_string());
            assert_eq!(tasks, [refused("a"), refused("b")]);
        }

        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", async |_: Plain, _: Cx| Plain::update().x(1));
        let b = logging_node(&mut graph, "b");
        graph.add_edge(START, a);
        graph.add_edge(START, b);
        let graph = backend.keep(graph.compile().unwrap());
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), end.state.x), ("in b", 1));
    }

    async fn all_writers_of_a_conflict_run_again(backend: Backend) {
        let all = |repaired: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            for name in ["a", "b", "c", "d"] {
                let node = graph.add_node(name, move |_: Plain, _: Cx| async move { match name {
                    "a" => Plain::update().x(1),
                    "d" => say(if repaired { "new" } else { "old" }),
                    _ if repaired => say(name),
                    _ => Plain::update().x(2),
                }});
                graph.add_edge(START, node);
            }
            backend.keep(graph.compile().unwrap())
        };
        failed(all(false).thread("t").run(Plain::update()).await);
        let end = all(true).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), end.state.x), ("b c old", 1));
    }
}

#[tokio::test]
async fn a_conflict_of_two_tasks_of_a_worker_names_the_worker() {
    let mut graph = StateGraph::<Plain>::new("g");
    let p = logging_node(&mut graph, "p");
    let w = graph.add_worker("w", async |item: i64, _: Plain, _: Cx| Plain::update().x(item));
    graph.add_edge(START, p);
    graph.add_fan_out(p, |_| [1_i64, 2], w);
    let error = failed(graph.compile().unwrap().run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS102: superstep 2: two tasks of node `w` wrote channel `x`, which takes one write per superstep; use a merging \
         reducer"
    );
}

#[tokio::test(start_paused = true)]
async fn writes_fold_in_name_order_and_updates_are_emitted_in_completion_order() {
    let mut graph = StateGraph::<Plain>::new("g");
    let b = logging_node(&mut graph, "b");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        cx.sleep(std::time::Duration::from_millis(100)).await;
        say("a")
    });
    graph.add_edge(START, b);
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let modes = [StreamMode::Updates, StreamMode::Values];
    assert_eq!(
        told(&graph, Plain::update(), RunOptions::new(), &modes).await,
        ["values 0: []", r#"update 1 b: {"log":["b"]}"#, r#"update 1 a: {"log":["a"]}"#, "values 1: [a b]",]
    );
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Zeros {
    #[channel(append)]
    l: Log<String>,
    #[channel(sum)]
    n: i64,
    #[channel(append)]
    t: String,
    #[channel(union)]
    d: BTreeMap<String, i64>,
    plain: Option<i64>,
}

#[tokio::test]
async fn unwritten_channels_have_their_default_in_the_first_node() {
    let mut graph = StateGraph::<Zeros>::new("g");
    let a = graph.add_node("a", async |state: Zeros, cx: Cx| {
        cx.emit("saw", format!("{state:?}"));
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let mut stream = graph.stream(Zeros::update().n(2), [StreamMode::Custom]);
    let seen = Zeros { n: 2, ..Zeros::default() };
    let event = futures::StreamExt::next(&mut stream).await;
    assert!(matches!(&event, Some(Event::Custom { data, .. }) if *data == format!("{seen:?}")), "{event:?}");
    assert_eq!(stream.outcome().await.unwrap().state, seen);
}

#[derive(State, Clone, Debug, Default)]
struct Spark {
    #[channel(ephemeral)]
    e: Option<String>,
    #[channel(append)]
    seen: Log<String>,
}

fn sparks() -> superstep::CompiledGraph<Spark> {
    let mut graph = StateGraph::<Spark>::new("g");
    let see = async |state: Spark, cx: Cx| Spark::update().seen([format!("{} {:?}", cx.node(), state.e)]);
    let a = graph.add_node("a", async |_: Spark, _: Cx| Spark::update().e("hot".to_owned()));
    let b = graph.add_node("b", see);
    let c = graph.add_node("c", see);
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, c);
    graph.compile().unwrap()
}

const SEEN: [&str; 2] = [r#"b Some("hot")"#, "c None"];

#[tokio::test]
async fn only_the_next_superstep_sees_an_ephemeral_value() {
    let end = sparks().run(Spark::update()).await.unwrap();
    assert_eq!(end.state.seen, SEEN.map(str::to_owned));
}

on_every_store! {
    async fn an_ephemeral_value_outlives_the_process_but_not_its_superstep(backend: Backend) {
        failed(backend.keep(sparks()).thread("t").step_limit(1).run(Spark::update()).await);
        failed(backend.keep(sparks()).thread("t").step_limit(1).resume().await);
        let end = backend.keep(sparks()).thread("t").resume().await.unwrap();
        assert_eq!(end.state.seen, SEEN.map(str::to_owned));
    }

    async fn a_fork_sees_the_ephemeral_value_also_after_a_crash(backend: Backend) {
        let graph = backend.keep(sparks());
        failed(graph.thread("t").step_limit(1).run(Spark::update()).await);
        let fork = head(&graph).await.checkpoint.unwrap().id;
        graph.thread("t").resume().await.unwrap();
        // The fork is stored, and nothing of it runs: its input is the next process'.
        let cancelled = t().at(fork);
        cancelled.get_cancel().cancel();
        graph.configured(cancelled).resume().await.unwrap();
        assert_eq!(head(&graph).await.values.e.as_deref(), Some("hot"));
        let end = backend.keep(sparks()).thread("t").resume().await.unwrap();
        assert_eq!(end.state.seen, SEEN.map(str::to_owned));
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Message {
    id: String,
    text: String,
}

impl HasId for Message {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

fn message(id: &str, text: &str) -> Message {
    Message { id: id.into(), text: text.into() }
}

#[derive(State, Clone, Debug, Default)]
struct Talk {
    #[channel(merge_by_id)]
    messages: ById<Message>,
}

/// Returns the messages as `id=text` after each write in turn.
fn talk<const N: usize>(writes: [Merges<Message>; N]) -> Result<String, superstep::state::FoldError> {
    let mut state = Talk::default();
    for write in writes {
        state = superstep::state::reduce(&state, [Talk::update().messages(write)])?;
    }
    let shown = state.messages.iter().map(|message| format!("{}={}", message.id, message.text));
    Ok(shown.collect::<Vec<_>>().join(" "))
}

#[test]
fn messages_are_appended_replaced_and_removed_by_id() {
    let two = || [message("1", "x"), message("2", "y")].into();
    assert_eq!(talk([two(), [message("3", "z")].into()]).unwrap(), "1=x 2=y 3=z");
    assert_eq!(talk([two(), [message("1", "new")].into()]).unwrap(), "1=new 2=y");
    assert_eq!(talk([two(), [Merge::remove("1")].into()]).unwrap(), "2=y");
    let remove_all = [Merge::Put(message("9", "x")), Merge::remove_all(), Merge::Put(message("3", "new"))];
    assert_eq!(talk([two(), remove_all.into()]).unwrap(), "3=new");
    let again = [Merge::remove("1"), Merge::Put(message("1", "again"))];
    assert_eq!(talk([two(), again.into()]).unwrap(), "2=y 1=again");
}

#[test]
fn a_message_without_an_id_gets_a_new_one() {
    let all = talk([[message("", "x"), message("", "y")].into(), [message("", "z")].into()]).unwrap();
    assert_eq!(all, "auto-0=x auto-1=y auto-2=z");
}

#[test]
fn removing_an_unknown_message_is_an_error() {
    let error = talk([[Merge::remove("7")].into()]).unwrap_err();
    assert_eq!(error.channel, "messages");
    assert_eq!(error.source.downcast_ref(), Some(&UnknownId("7".to_owned())));
}

/// An item without a JSON equivalent: numbers as keys, and more than 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Odd {
    id: String,
    by_number: BTreeMap<u32, u128>,
}

impl HasId for Odd {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

#[derive(State, Clone, Debug, Default)]
struct Odds {
    #[channel(merge_by_id)]
    items: ById<Odd>,
}

on_every_store! {
    async fn whatever_an_item_is_made_of_can_be_loaded_again(backend: Backend) {
        let mut graph = StateGraph::<Odds>::new("g");
        let put = graph.add_node("put", async |_: Odds, _: Cx| {
            Odds::update().items([Odd { id: "$remove".into(), by_number: [(7, u128::MAX)].into() }])
        });
        graph.add_edge(START, put);
        let graph = backend.keep(graph.compile().unwrap());
        let end = graph.thread("t").run(Odds::update()).await.unwrap();
        assert_eq!(head(&graph).await.values.items, end.state.items);
    }
}

/// Adds the quotient of 100 and the write.
enum Share {}

impl Reducer<i64> for Share {
    type Write = i64;

    fn reduce(value: &mut i64, write: i64) -> Result<(), ReduceError> {
        *value += 100_i64.checked_div(write).ok_or("division by zero")?;
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Shares {
    #[channel(with = Share)]
    sum: i64,
}

/// Builds `a` and `b` in parallel, each writing its number.
fn shares(a: i64, b: i64) -> superstep::CompiledGraph<Shares> {
    let mut graph = StateGraph::<Shares>::new("g");
    for (name, number) in [("a", a), ("b", b)] {
        let node = graph.add_node(name, move |_, _| async move { Shares::update().sum(number) });
        graph.add_edge(START, node);
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_refusing_reducer_fails_the_run_and_spares_the_thread(backend: Backend) {
        let graph = backend.keep(shares(10, 0));
        let error = failed(graph.thread("t").run(Shares::update().sum(1)).await);
        assert!(
            matches!(&error, RunError::Fold { node, step: 1, source } if node.as_str() == "b" && source.channel == "sum"),
            "{error}"
        );
        let head = head(&graph).await;
        let error = "SS103: superstep 1: the write of node `b` cannot be applied: channel `sum` refused a \
                     write: division by zero";
        assert_eq!(
            head.tasks.iter().map(task).collect::<Vec<_>>(),
            [
                ("a".to_owned(), json(&Shares::update().sum(10)), String::new()),
                ("b".to_owned(), json(&()), error.to_owned()),
            ]
        );
        // The finished task counts already, the rejected one does not.
        assert_eq!(head.values.sum, 110);

        let end = backend.keep(shares(1, 5)).thread("t").resume().await.unwrap();
        assert_eq!(end.state.sum, 130, "a is not run again, b is");
    }

    async fn an_input_that_a_reducer_refuses_leaves_no_trace(backend: Backend) {
        let graph = backend.keep(shares(10, 10));
        let error = failed(graph.thread("t").run(Shares::update().sum(0)).await);
        assert!(matches!(&error, RunError::Fold { step: 0, .. }), "{error}");
        assert_eq!(h(&graph).await, []);
        assert_eq!(graph.thread("t").run(Shares::update().sum(1)).await.unwrap().state.sum, 120);
    }

    async fn a_second_run_begins_with_the_state_of_the_first(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", async |state: Plain, _: Cx| say(&format!("x={}", state.x)));
        graph.add_edge(START, a);
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").run(Plain::update().x(7)).await.unwrap();
        let end = graph.thread("t").run(Plain::update().log([""; 0])).await.unwrap();
        assert_eq!((end.state.log_text().as_str(), end.state.x), ("x=7 x=7", 7));
    }
}

/// Setters accept convenient types: literals without a suffix, `&str` for text, iterators of convertible
/// items.
#[test]
fn setters_take_literals_text_and_anything_to_iterate_over() {
    #[derive(State, Clone, Debug, Default)]
    struct Form {
        pages: usize,
        #[channel(sum)]
        share: f32,
        title: String,
        subtitle: Option<String>,
        year: Option<u16>,
        #[channel(append)]
        log: Log<String>,
        #[channel(append)]
        text: String,
        #[channel(append)]
        sizes: Vec<u64>,
        #[channel(union)]
        tags: std::collections::BTreeSet<String>,
    }
    let update = Form::update().pages(30).share(0.5).title("a").subtitle("b").year(1999).log(["x", "y"]);
    let update = update.text("t").sizes([1, 2]).tags(["t", "t"]);
    let (mut form, again) = (Form::default(), Form::update().log(["x"].iter().map(|x| x.repeat(2))));
    for update in [update, again, Form::update().subtitle(None).year(Some(2000)).set_sizes((0..3).chain([7]))]
    {
        form = superstep::state::reduce(&form, [update]).unwrap();
    }
    assert_eq!((form.pages, form.share, form.title.as_str(), form.text.as_str()), (30, 0.5, "a", "t"));
    assert_eq!((form.subtitle, form.year), (None, Some(2000)));
    assert_eq!(form.log.iter().collect::<Vec<_>>(), ["x", "y", "xx"]);
    assert_eq!((form.sizes, form.tags.len()), (vec![0, 1, 2, 7], 1));
}
