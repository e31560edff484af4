//! The values that can be stored, and those that are rejected because they could not be read back as equal.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{prelude::*, test_runner::RngSeed};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use superstep::{
    Answers, CompiledGraph, Cx, END, History, Log, MemoryStore, NodeError, NodeFailure, OnUnfinished,
    RunError, START, State, StateGraph, Status, Store, error::chain, node::Persistence, state::MAX_DEPTH,
    store::Namespace,
};

use crate::support::{Backend, failed, head, text};

#[derive(State, Clone, Debug, Default)]
struct Deep {
    value: Value,
    #[channel(append)]
    list: Log<Value>,
    #[channel(sum)]
    steps: i64,
}

/// Nests lists and objects.
fn nested(levels: usize, objects: bool) -> Value {
    (0..levels).fold(json!(1), |inner, _| if objects { json!({ "$at": inner }) } else { json!([inner]) })
}

/// The channels through which a value can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Input,
    Write,
    Then,
    Append,
    UpdateState,
    Item,
    Question,
    Answer,
    Once,
    Recorded,
    RecordedInside,
    ErrorData,
    Metadata,
    Inbox,
}

const WAYS: [Way; 14] = [
    Way::Input,
    Way::Write,
    Way::Then,
    Way::Append,
    Way::UpdateState,
    Way::Item,
    Way::Question,
    Way::Answer,
    Way::Once,
    Way::Recorded,
    Way::RecordedInside,
    Way::ErrorData,
    Way::Metadata,
    Way::Inbox,
];

/// Sends a value this way in its first node, and continues.
fn sends(way: Way, value: Value) -> CompiledGraph<Deep> {
    let mut inside = StateGraph::<Deep>::new("inside");
    let sent = value.clone();
    let learn = inside.add_node("learn", move |_: Deep, cx: Cx| {
        let sent = sent.clone();
        async move {
            cx.recorded("inside", async || sent).await;
            Deep::update().steps(1)
        }
    });
    inside.add_edge(START, learn);
    inside.add_edge(learn, END);
    let inside = inside.compile().unwrap().with_persistence(Persistence::Ephemeral);

    let mut graph = StateGraph::<Deep>::new("sends");
    let sent = value.clone();
    let a = graph.add_node("a", move |_: Deep, cx: Cx| {
        let (value, inside) = (sent.clone(), inside.clone());
        async move {
            let update = Deep::update().steps(1);
            Ok::<_, NodeError>(match way {
                Way::Write => update.value(value),
                Way::Then => superstep::state::Update::then(update.value(1), Deep::update().value(value)),
                Way::Append => update.list([value]),
                Way::Question => {
                    let _: Value = cx.interrupt("q", &value).await;
                    update
                }
                Way::Answer => update.value(cx.interrupt::<Value>("q", "?").await),
                Way::Once => {
                    cx.once("did", async |_| Ok::<_, NodeError>(value)).await?;
                    update
                }
                Way::Recorded => {
                    cx.recorded("did", async || value).await;
                    update
                }
                Way::RecordedInside => {
                    cx.call(&inside, Deep::update()).await?;
                    update
                }
                Way::ErrorData => return Err(NodeError::new("it broke").with_data(value).fatal()),
                _ => update,
            })
        }
    });
    let b = graph.add_node("b", async |_: Deep, _: Cx| Deep::update().steps(1));
    let worker = graph.add_worker("worker", async |_: Value, _: Deep, _: Cx| Deep::update().steps(1));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, END);
    if way == Way::ErrorData {
        let handles = graph.add_error_handler(a, "handles", async |failure: NodeFailure, _: Deep, _: Cx| {
            Deep::update().value(json!([failure.data.is_some()]))
        });
        graph.add_edge(handles, END);
    }
    graph.add_fan_out(b, move |_: &Deep| (way == Way::Item).then(|| value.clone()), worker);
    graph.add_edge(worker, END);
    graph.compile().unwrap()
}

/// Reads and resumes a thread in every possible way.
async fn read_all(way: Way, graph: &CompiledGraph<Deep>) {
    for checkpoint in graph.thread("t").history().checkpoints().await.unwrap() {
        graph.thread("t").at(checkpoint.id).state().await.unwrap();
    }
    let replayed = graph.thread("t").replay().run().await;
    assert!(way == Way::UpdateState || replayed.is_ok_and(|it| it.divergence.is_none()), "{way:?}");
    graph.thread("t").fork(None).await.unwrap();
    head(graph).await;
}

/// Sends the value and returns its error, if any.
async fn send(way: Way, value: &Value, backend: &Backend) -> Result<(), RunError> {
    // A snapshot in each superstep, so that values are read from there as well.
    let graph = || backend.keep(sends(way, value.clone()));
    let input = match way {
        Way::Input => Deep::update().value(value.clone()),
        _ => Deep::update().value(json!("before")),
    };
    let mut thread = graph().thread("t").snapshot_every(1).on_unfinished(OnUnfinished::Discard);
    if way == Way::Metadata {
        thread = thread.metadata("note", value.clone());
    }
    let ended = thread.run(input).await?;
    if ended.status == Status::Interrupted {
        let answer = if way == Way::Answer { value.clone() } else { Value::Null };
        head(&graph()).await;
        let answers = Answers::new().answer("q", answer);
        graph()
            .thread("t")
            .snapshot_every(1)
            .on_unfinished(OnUnfinished::Discard)
            .answers(answers)
            .resume()
            .await?;
    }
    match way {
        Way::UpdateState => {
            graph().thread("t").update_as("a", Deep::update().value(value.clone())).await?;
        }
        Way::Inbox => {
            graph().thread("t").post(value).await?;
        }
        _ => {}
    }
    Ok(())
}

fn check(way: Way, levels: usize, objects: bool, backend: &Backend) {
    let value = nested(levels, objects);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let sent = send(way, &value, backend).await;
        let graph = || backend.keep(sends(way, value.clone()));
        // A write to a list is a list, and of the entries after a write two levels belong to the driver. A
        // value that looks packed is packed once more.
        let levels = levels
            + [(Way::Append, 1), (Way::Then, 2)].iter().find(|(it, _)| *it == way).map_or(0, |it| it.1);
        match sent {
            Ok(()) => {
                assert!(levels <= MAX_DEPTH || way == Way::ErrorData, "{way:?} {levels}");
                read_all(way, &graph()).await;
                if way == Way::Inbox {
                    let found = backend.open().history(&"t".into(), History::default()).await;
                    assert!(found.is_ok());
                }
            }
            Err(error) => {
                let text = text(&error);
                let learned = [Way::Once, Way::Recorded, Way::RecordedInside, Way::Answer, Way::ErrorData];
                let learned = objects && learned.contains(&way);
                assert!(levels > MAX_DEPTH || (learned && levels > 50), "{way:?} {levels}: {text}");
                let why =
                    ["nested deeper than 100 levels", "nested deeper than 110 levels", "nested too deep"];
                assert!(why.iter().any(|why| text.contains(why)), "{text}");
                let names = [
                    "`value`",
                    "`list`",
                    "node `a`",
                    "node `b`",
                    "node `handles`",
                    "`q`",
                    "`did`",
                    "`note`",
                    "the inbox",
                ];
                assert!(names.iter().any(|name| text.contains(name)), "{text}");
                // The thread is unchanged, and can be resumed.
                if backend.open().load(&"t".into(), None).await.unwrap().is_some() {
                    head(&graph()).await;
                    backend
                        .keep(sends(if learned { way } else { Way::Write }, json!(1)))
                        .thread("t")
                        .on_unfinished(OnUnfinished::Discard)
                        .run(Deep::update())
                        .await
                        .unwrap();
                }
            }
        }
    });
}

fn backend(sqlite: bool) -> Backend {
    #[cfg(feature = "sqlite")]
    if sqlite {
        return Backend::sqlite();
    }
    let _ = sqlite;
    Backend::memory()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    #[test]
    fn a_nested_value_is_rejected_or_readable_on_every_path(
        way in 0..WAYS.len(), levels in prop_oneof![0..200_usize, 95..104_usize], objects in any::<bool>(),
        sqlite in any::<bool>()
    ) {
        check(WAYS[way], levels, objects, &backend(sqlite));
    }
}

#[test]
fn the_deepest_value_passes_every_path_and_a_deeper_one_none() {
    for way in WAYS {
        for levels in [97, MAX_DEPTH, MAX_DEPTH + 1, 125, 127, 130] {
            check(way, levels, false, &Backend::memory());
        }
    }
}

#[tokio::test]
async fn an_item_of_a_store_that_is_nested_too_deep_is_refused() {
    let (store, notes) = (MemoryStore::new(), Namespace::new(["notes"]).unwrap());
    store.put(&notes, "k", nested(MAX_DEPTH, true)).await.unwrap();
    let error = store.put(&notes, "k", nested(MAX_DEPTH + 1, true)).await.unwrap_err();
    assert_eq!(
        chain(&error),
        "SS309: the value of item `k` in `notes` cannot be stored; give it another form: it is nested deeper than 100 \
         levels, the limit of stored values"
    );
    assert_eq!(store.get(&notes, "k").await.unwrap().unwrap().value, nested(MAX_DEPTH, true));
}

/// A type that contains itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

#[derive(State, Clone, Debug, Default)]
struct Chained {
    chain: Chain,
}

#[tokio::test]
async fn a_type_that_contains_itself_ends_no_process() {
    // No level of JSON at all: each `Some` is directly inside another one.
    let chain = (0..5_000).fold(Chain::default(), |inner, _| Chain(Some(Box::new(inner))));
    let mut graph = StateGraph::<Chained>::new("g");
    let a = graph.add_node("a", move |_: Chained, _: Cx| {
        let chain = chain.clone();
        async move { Chained::update().chain(chain) }
    });
    graph.add_edge(START, a);
    let graph = Backend::memory().keep(graph.compile().unwrap());
    let error = failed(graph.thread("t").run(Chained::update()).await);
    assert_eq!(
        text(&error),
        "SS106: superstep 1: the write of node `a` to `chain` cannot be stored as JSON and read back \
         unchanged\n  cause: it is nested deeper than 100 levels, the limit of stored values"
    );
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Skips {
    kept: i64,
    #[serde(skip)]
    lost: i64,
}

/// A key that ignores upper case.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Word(String);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_lowercase())
    }
}

/// Distinguishes `null` from a missing value, so that nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Careful {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    note: Option<Option<i64>>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// In a position that the derive does not check, or it would reject them.
type Twice = Option<Option<i64>>;
type Unit = Option<()>;

#[derive(State, Clone, Debug, Default)]
struct Lossy {
    twice: Twice,
    unit: Unit,
    json: Option<Value>,
    float: Option<f64>,
    list: Vec<BTreeMap<String, Option<f64>>>,
    skips: Skips,
    words: BTreeMap<Word, i64>,
    careful: Careful,
    #[channel(append)]
    log: Log<Option<f32>>,
}

fn writes(update: LossyUpdate) -> CompiledGraph<Lossy> {
    let mut graph = StateGraph::<Lossy>::new("g");
    let a = graph.add_node("a", move |_: Lossy, _: Cx| {
        let update = update.clone();
        async move { update }
    });
    graph.add_edge(START, a);
    graph.compile().unwrap()
}

#[tokio::test]
async fn values_that_change_in_storage_are_rejected_with_channel_and_place() {
    let inner = BTreeMap::from([("a".to_owned(), Some(1.5)), ("b".to_owned(), Some(f64::NAN))]);
    let words = ["Tea", "tea"].map(|word| (Word(word.to_owned()), 1));
    let other =
        "it is read back as another value: part of it is not stored, or two parts of it are one in JSON";
    let some = |what: &str| format!("`Some({what})` is `null` in JSON and would be read back as `None`");
    let number = |float: &str| format!("{float} is not a number in JSON and would be read back as `null`");
    let update = Lossy::update;
    let cases = [
        (update().twice(Some(None::<i64>)), "twice", some("None")),
        (update().unit(Some(())), "unit", some("null")),
        (update().json(Some(Value::Null)), "json", some("null")),
        (update().float(Some(f64::NAN)), "float", number("NaN")),
        (update().float(Some(f64::NEG_INFINITY)), "float", number("-inf")),
        (update().list(vec![BTreeMap::new(), inner]), "list", format!("at `/1/b`: {}", number("NaN"))),
        (update().log([Some(1.0), Some(f32::INFINITY)]), "log", format!("at `/1`: {}", number("inf"))),
        (update().skips(Skips { kept: 1, lost: 2 }), "skips", other.to_owned()),
        (update().words(BTreeMap::from(words)), "words", other.to_owned()),
        (
            superstep::state::Update::then(update().unit(None::<()>), update().unit(Some(()))),
            "unit",
            some("null"),
        ),
    ];
    for (update, channel, why) in cases {
        let graph = Backend::memory().keep(writes(update.clone()));
        let error = failed(graph.thread("t").run(Lossy::update()).await);
        let expected = |step: i64, node: &str| {
            format!(
                "SS106: superstep {step}: the write of node `{node}` to `{channel}` cannot be stored as JSON \
                 and read back unchanged\n  cause: {why}"
            )
        };
        assert_eq!(text(&error), expected(1, "a"));
        // An input and an external update are rejected alike.
        let graph = Backend::memory().keep(writes(Lossy::update()));
        let refused = failed(graph.thread("t").run(update.clone()).await);
        assert_eq!(text(&refused), expected(0, "__start__"));
        graph.thread("t").run(Lossy::update()).await.unwrap();
        let refused = failed(graph.thread("t").update_as("a", update).await);
        assert!(text(&refused).ends_with(&format!("cause: {why}")), "{}", text(&refused));
        // None of it was stored.
        assert_eq!(head(&graph).await.values.log.len(), 0);
    }
}

#[tokio::test]
async fn values_that_survive_storage_are_stored() {
    let backend = Backend::memory();
    let update = Lossy::update()
        .twice(Some(Some(1_i64)))
        .unit(None::<()>)
        .json(Some(json!({ "inside": null })))
        .float(Some(1.5))
        .skips(Skips { kept: 1, lost: 0 })
        .careful(Careful { note: Some(None) });
    let end = backend.keep(writes(update)).thread("t").run(Lossy::update()).await.unwrap();
    let read = head(&backend.keep(writes(Lossy::update()))).await.values;
    assert_eq!(format!("{:?}", end.state), format!("{read:?}"));
    assert_eq!(read.careful.note, Some(None));
}

/// Values that are stored in other ways than by a write.
#[tokio::test]
async fn items_questions_and_results_are_refused_alike() {
    let graph = |way: &'static str| {
        let mut graph = StateGraph::<Lossy>::new("g");
        let a = graph.add_node("a", move |_: Lossy, cx: Cx| async move {
            match way {
                "question" => cx.interrupt("q", json_of(Some(f64::NAN))).await,
                "once" => drop(cx.once("did", async |_| Ok::<_, NodeError>(Some(None::<i64>))).await?),
                "recorded" => drop(cx.recorded("did", async || Some(())).await),
                _ => {}
            }
            Ok::<_, NodeError>(())
        });
        let worker = graph.add_worker("worker", async |_: Vec<Option<Option<i64>>>, _: Lossy, _: Cx| ());
        graph.add_edge(START, a);
        graph.add_fan_out(a, move |_: &Lossy| (way == "item").then(|| vec![None, Some(None)]), worker);
        Backend::memory().keep(graph.compile().unwrap())
    };
    let lossy = "`Some(None)` is `null` in JSON and would be read back as `None`";
    let cases = [
        (
            "item",
            format!("SS116: superstep 1: a conditional edge of node `a` failed\n  cause: at `/1`: {lossy}"),
        ),
        (
            "question",
            "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: SS192: the question `q` cannot \
             be stored as JSON and read back unchanged; give it another form\n  cause: at `/amount`: NaN is \
             not a number in JSON and would be read back as `null`"
                .to_owned(),
        ),
        (
            "once",
            format!(
                "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: SS168: the result of `did` \
                 cannot be stored as JSON and read back, so `once` cannot store it\n  cause: {lossy}"
            ),
        ),
        (
            "recorded",
            "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: SS192: the outcome of `did` \
             cannot be stored as JSON and read back unchanged; give it another form\n  cause: `Some(null)` \
             is `null` in JSON and would be read back as `None`"
                .to_owned(),
        ),
    ];
    for (way, expected) in cases {
        let error = failed(graph(way).thread("t").run(Lossy::update()).await);
        assert_eq!(text(&error), expected, "{way}");
    }
}

/// Creates an amount in the form of a question.
fn json_of(amount: Option<f64>) -> BTreeMap<&'static str, Option<f64>> {
    BTreeMap::from([("amount", amount)])
}

/// Nested calls without persistence: their recorded inputs are stored side by side.
#[tokio::test]
async fn recorded_inputs_of_deep_calls_can_be_read() {
    fn graph(levels: usize) -> CompiledGraph<Deep> {
        let mut graph = StateGraph::<Deep>::new("g");
        let below = (levels > 0).then(|| Arc::new(graph_none(levels - 1)));
        let a = graph.add_node("a", move |_: Deep, cx: Cx| {
            let below = below.clone();
            async move {
                if let Some(below) = below {
                    return Ok(
                        Deep::update().steps(cx.call(&below, Deep::update()).key("c").await?.steps + 1)
                    );
                }
                let learned: i64 = cx.recorded("n", async || 7).await;
                Ok::<_, NodeError>(Deep::update().steps(learned))
            }
        });
        graph.add_edge(START, a);
        graph.add_edge(a, END);
        graph.compile().unwrap()
    }
    let backend = Backend::memory();
    let deep = backend.keep(graph(12));
    let end = deep.thread("t").run(Deep::update()).await.unwrap();
    assert_eq!(end.state.steps, 19);
    let replayed = deep.thread("t").replay().run().await.unwrap();
    assert_eq!((replayed.divergence, replayed.taken), (None, 0));
    assert_eq!(head(&deep).await.values.steps, 19);

    fn graph_none(levels: usize) -> CompiledGraph<Deep> {
        graph(levels).with_persistence(Persistence::Ephemeral)
    }
}
