//! Changes of a graph that a replay reports, at the right node.

use std::sync::Arc;

use serde_json::json;
use superstep::{
    Checkpointer, Command, CompiledGraph, Cx, END, Log, MemoryCheckpointer, NodeError, ReduceError, Reducer,
    START, State, StateGraph, replay::At,
};

use super::found;
use crate::support::{on_every_store, say};

/// A change of a graph, compared with the one that created the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Change {
    #[default]
    None,
    Writes,
    WritesMore,
    Fails,
    Panics,
    Asks,
    AsksOtherwise,
    Does,
    DoesOtherwise,
    Renames,
    Forgets,
    Route,
    Items,
    Edge,
    Inner,
    Call,
}

#[derive(State, Clone, Debug, Default)]
struct Work {
    #[channel(append)]
    log: Log<String>,
    n: i64,
}

#[derive(superstep::Route, Clone, Copy)]
enum Next {
    Left,
    Right,
}

fn log(word: &str) -> WorkUpdate {
    Work::update().log([word.to_owned()])
}

fn work(change: Change, store: Arc<dyn Checkpointer>) -> CompiledGraph<Work> {
    let mut inner = StateGraph::<Work>::new("inner");
    let deep = inner.add_node("deep", move |_: Work, _: Cx| async move {
        log(if change == Change::Inner { "deeper" } else { "deep" })
    });
    inner.add_edge(START, deep);
    let inner = inner.compile().unwrap();
    let mut graph = StateGraph::<Work>::new("work");
    let a = graph.add_node("a", move |_: Work, cx: Cx| async move {
        let amount = if change == Change::DoesOtherwise { 21 } else { 20 };
        cx.compared("pay", || json!({"amount": amount})).await;
        if change != Change::Forgets {
            let name = if change == Change::Renames { "charge" } else { "pay" };
            let _receipt = cx.recorded(name, async || "r-1".to_owned()).await;
        }
        if change == Change::Does {
            let _more = cx.recorded("more", async || 1).await;
        }
        if change == Change::Fails {
            return Err(NodeError::new("broken"));
        }
        let word = if change == Change::Writes { "A" } else { "a" };
        Ok(if change == Change::WritesMore { log(word).n(1) } else { log(word) })
    });
    let b = graph.add_node("b", move |_: Work, cx: Cx| async move {
        let question = if change == Change::AsksOtherwise { "really?" } else { "ok?" };
        let ok: bool = cx.interrupt("ok", question).await;
        if change == Change::Asks {
            let _also: bool = cx.interrupt("also", "and this?").await;
        }
        if change == Change::Panics {
            std::panic::resume_unwind(Box::new("no"));
        }
        log(&ok.to_string())
    });
    let c = graph.add_node_with("c", inner, move |inner: CompiledGraph<Work>, _: Work, cx: Cx| async move {
        let key = if change == Change::Call { "other" } else { "" };
        let end = cx.call(&inner, log("c")).key(key).await?;
        Ok::<_, NodeError>(log(end.log.last().map_or("", String::as_str)))
    });
    let worker = graph.add_worker("worker", async |item: String, _: Work, _: Cx| log(&item));
    let [left, right, both] =
        ["left", "right", "both"].map(|name| graph.add_node(name, async move |_: Work, _: Cx| log(name)));
    let d = graph.add_routing_node("d", move |_: Work, _: Cx| async move {
        let command = Command::update(log("d")).goto(Next::Left);
        if change == Change::Route { command } else { command.goto(Next::Right) }
    });
    graph.add_routes(d, |next| match next {
        Next::Left => left,
        Next::Right => right,
    });
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, c);
    graph.add_edge(c, d);
    graph.add_join([left, right], both);
    if change == Change::Edge {
        graph.add_edge(right, END);
        graph.add_edge(both, a);
    }
    graph.add_fan_out(
        both,
        move |_: &Work| if change == Change::Items { ["x", "z"] } else { ["x", "y"] }.map(str::to_owned),
        worker,
    );
    graph.compile().unwrap().with_checkpointer(store)
}

async fn recorded(store: Arc<dyn Checkpointer>) {
    let graph = work(Change::None, store);
    graph.thread("t").run(log("in")).await.unwrap();
    let answers = superstep::Answers::new().answer("ok", true);
    graph.thread("t").answers(answers).resume().await.unwrap();
    super::replayed(&graph).await.assert_same();
}

on_every_store! {
    async fn each_change_is_reported_where_it_was_made(backend: Backend) {
    let channel = |name: &str| At::Channel(name.to_owned());
    let effect = |name: &str| At::Effect(name.to_owned());
    let changes = [
        (Change::Writes, "a", channel("log"), json!("a"), json!("A")),
        (Change::WritesMore, "a", channel("n"), json!(null), json!(1)),
        (Change::Fails, "a", At::Failure, json!("an update"), json!("broken")),
        (Change::Panics, "b", At::Failure, json!("an update"), json!("panicked: no")),
        (Change::Asks, "b", At::Question("also".into()), json!(null), json!("and this?")),
        (Change::AsksOtherwise, "b", At::Question("ok".into()), json!(null), json!("really?")),
        (Change::Does, "a", effect("more"), json!(null), json!("something that it had not done")),
        (Change::DoesOtherwise, "a", effect("pay"), json!(20), json!(21)),
        (
            Change::Renames,
            "a",
            effect("charge"),
            json!("the effect `pay`"),
            json!("the effect `charge`, which was not recorded"),
        ),
        (Change::Route, "d", At::Route, json!(["left", "right"]), json!(["left"])),
        (Change::Items, "both", At::Route, json!("y"), json!("z")),
        (Change::Edge, "both", At::Route, json!(["worker", "worker"]), json!(["a", "worker", "worker"])),
        (Change::Inner, "deep", channel("log"), json!("deep"), json!("deeper")),
        (Change::Call, "c", At::Call("other".into()), json!(null), json!("a graph that it had not called")),
    ];
            recorded(backend.open()).await;
        for (change, node, at, expected, got) in changes.clone() {
            let found = found(&work(change, backend.open())).await;
            let place = (found.node.as_str(), &found.at);
            assert_eq!(place, (node, &at), "{change:?}: {found}");
            assert_eq!((&found.expected, &found.got), (&expected, &got), "{change:?}: {found}");
        }
    }
}

#[tokio::test]
async fn an_omission_without_a_trace_in_the_state_is_not_a_difference() {
    let store = Arc::new(MemoryCheckpointer::new());
    recorded(store.clone()).await;
    super::replayed(&work(Change::Forgets, store)).await.assert_same();
}

/// Retains only the last write.
enum Latest {}

impl Reducer<Log<String>> for Latest {
    type Write = Vec<String>;

    fn reduce(value: &mut Log<String>, write: Vec<String>) -> Result<(), ReduceError> {
        *value = write.into_iter().collect();
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Changed {
    #[channel(with = Latest)]
    log: Log<String>,
    x: i64,
}

/// A state with an additional channel, before the other.
#[derive(State, Clone, Debug, Default)]
struct More {
    gone: i64,
    #[channel(append)]
    log: Log<String>,
}

on_every_store! {
    async fn another_reducer_is_seen_although_every_node_writes_the_same(backend: Backend) {
        let store = backend.open();
        crate::support::line(&["a", "b"])
            .with_checkpointer(store.clone())
            .thread("t")
            .run(say("in"))
            .await
            .unwrap();
        let mut graph = StateGraph::<Changed>::new("line");
        let [a, b] = ["a", "b"].map(|name| {
            graph.add_node(name, async move |_: Changed, _: Cx| Changed::update().log([name.to_owned()]))
        });
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        graph.add_edge(b, END);
        let found = found(&graph.compile().unwrap().with_checkpointer(store)).await;
        assert_eq!(found.kind, superstep::replay::DivergenceKind::Reducer);
        assert_eq!((found.node.as_str(), found.at, found.step), ("a", At::State("log".into()), 1));
        assert_eq!((found.expected, found.got), (json!(["in", "a"]), json!(["a"])));
    }

    async fn another_reducer_is_seen_beside_a_channel_that_was_removed(backend: Backend) {
        let store = backend.open();
        let mut graph = StateGraph::<More>::new("line");
        let a = graph.add_node("a", async |_: More, _: Cx| More::update().gone(1).log(["a".to_owned()]));
        graph.add_edge(START, a);
        let graph = graph.compile().unwrap().with_checkpointer(store.clone());
        graph.thread("t").run(More::update().log(["in".to_owned()])).await.unwrap();
        let mut graph = StateGraph::<Changed>::new("line");
        let a = graph.add_node("a", async |_: Changed, _: Cx| Changed::update().log(["a".to_owned()]));
        graph.add_edge(START, a);
        let found = found(&graph.compile().unwrap().with_checkpointer(store)).await;
        assert_eq!((found.node.as_str(), found.at), ("a", At::State("log".into())));
    }
}

/// A change of the graph of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    None,
    Answer,
    Lines,
    Route,
    Sends,
    SendMore,
    Name,
    Plan,
    Effect,
    Question,
    Fails,
    Call,
}

#[derive(superstep::Route, Clone, Copy)]
enum Way {
    Pay,
    Refuse,
}

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    log: Log<String>,
    letter: String,
    approved: bool,
}

fn orders(edit: Edit, store: Arc<dyn Checkpointer>) -> CompiledGraph<Order> {
    let mut inner = StateGraph::<Order>::new("inner");
    let deep = inner.add_node("deep", async |_: Order, _: Cx| Order::update().log(["deep".to_owned()]));
    inner.add_edge(START, deep);
    let inner = inner.compile().unwrap();
    let mut graph = StateGraph::<Order>::new("orders");
    let plan =
        graph.add_node_with("plan", inner, move |inner: CompiledGraph<Order>, _: Order, cx: Cx| async move {
            let cents = if edit == Edit::Plan { 21 } else { 20 };
            cx.compared("charge", || json!({"cents": cents})).await;
            let _receipt: String = cx.recorded("charge", async || "r-1".to_owned()).await;
            if edit == Edit::Effect {
                let _mail: String = cx.recorded("mail", async || "sent".to_owned()).await;
            }
            let question = if edit == Edit::Question { "Really?" } else { "Approve?" };
            let approved: bool = cx.interrupt("approve", question).await;
            if edit == Edit::Call {
                cx.call(&inner, Order::update()).await?;
            }
            if edit == Edit::Fails {
                return Err(NodeError::new("broken"));
            }
            let word = if edit == Edit::Answer { "ordered" } else { "planned" };
            let second = if edit == Edit::Lines { "we thank you" } else { "thank you" };
            let update = Order::update().log([word.to_owned()]).approved(approved);
            Ok(update.letter(format!("Dear customer,\n{second}\nfor your order.\n")))
        });
    let name = if edit == Edit::Name { "settle" } else { "pay" };
    let [pay, refuse] =
        [name, "refuse"].map(|name| graph.add_node(name, async |_: Order, _: Cx| Order::update()));
    let worker = graph.add_worker("pack", async |item: String, _: Order, _: Cx| Order::update().log([item]));
    graph.add_edge(START, plan);
    let way =
        move |order: &Order| if order.approved == (edit != Edit::Route) { Way::Pay } else { Way::Refuse };
    graph.add_conditional_edges(plan, way, move |way| match way {
        Way::Pay => pay,
        Way::Refuse => refuse,
    });
    let items = move |_: &Order| match edit {
        Edit::Sends => vec!["cup".to_owned(), "tea".to_owned()],
        Edit::SendMore => vec!["tea".to_owned(), "cup".to_owned(), "pot".to_owned()],
        _ => vec!["tea".to_owned(), "cup".to_owned()],
    };
    graph.add_fan_out(pay, items, worker);
    graph.add_edge(refuse, END);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn each_deliberate_change_has_its_kind_and_its_words() {
    use superstep::replay::DivergenceKind as Kind;

    let store = Arc::new(MemoryCheckpointer::new());
    let graph = orders(Edit::None, store.clone());
    graph.thread("t").run(Order::update()).await.unwrap();
    let answers = superstep::Answers::new().answer("approve", json!(true));
    graph.thread("t").answers(answers).resume().await.unwrap();
    graph.thread("t").replay().run().await.unwrap().assert_same();
    let cases = [
        (
            Edit::Answer,
            "plan",
            At::Channel("log".into()),
            Kind::Update,
            "\"planned\"\n  got      \"ordered\"",
        ),
        (
            Edit::Lines,
            "plan",
            At::Channel("letter".into()),
            Kind::Update,
            "(update)\n  text\n      Dear customer,\n    - thank you\n    + we thank you\n      for your order.",
        ),
        (Edit::Route, "plan", At::Route, Kind::Route, "\"pay\"\n  got      \"refuse\""),
        (Edit::Sends, "pay", At::Route, Kind::Order, "[\"tea\",\"cup\"]\n  got      [\"cup\",\"tea\"]"),
        (Edit::SendMore, "pay", At::Route, Kind::Route, "pot"),
        (Edit::Name, "plan", At::Route, Kind::Route, "\"pay\"\n  got      \"settle\""),
        (
            Edit::Plan,
            "plan",
            At::Effect("charge".into()),
            Kind::Effect,
            "at /cents\n  expected 20\n  got      21",
        ),
        (Edit::Effect, "plan", At::Effect("mail".into()), Kind::Effect, "nothing"),
        (Edit::Question, "plan", At::Question("approve".into()), Kind::Question, "Really?"),
        (Edit::Fails, "plan", At::Failure, Kind::Failure, "broken"),
        (Edit::Call, "plan", At::Call(String::new()), Kind::Call, "a graph that it had not called"),
    ];
    for (edit, node, at, kind, words) in cases {
        let found = found(&orders(edit, store.clone())).await;
        let text = found.to_string();
        assert_eq!((found.node.as_str(), &found.at, found.kind), (node, &at, kind), "{edit:?}: {text}");
        assert!(text.contains(words), "{edit:?}: {text}");
    }
}
