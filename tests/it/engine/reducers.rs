//! Properties of every built-in reducer: stored values equal live ones, and only the order of folds matters.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use proptest::{prelude::*, test_runner::RngSeed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{
    Cx, END, JsonChannels, JsonState, JsonUpdate, Log, MemoryCheckpointer, Route, START, State, StateGraph,
    state::Barrier,
    state::{ById, HasId, Merge, Merges, Update as _, reduce},
};

use crate::support::json as shown;

#[derive(Route, Clone, Copy, Debug, PartialEq)]
enum Party {
    Left,
    Middle,
    Right,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Item {
    id: String,
    n: i64,
}

impl HasId for Item {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

fn pair(old: String, new: String) -> String {
    format!("({old} {new})")
}

/// A channel of every kind that is stored.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Every {
    value: Option<i64>,
    #[channel(ephemeral)]
    spark: Option<i64>,
    #[channel(append)]
    log: Log<i64>,
    #[channel(append)]
    text: String,
    #[channel(topic)]
    topic: Vec<i64>,
    #[channel(merge_by_id)]
    items: ById<Item>,
    #[channel(sum)]
    sum: i64,
    #[channel(max)]
    max: Option<i64>,
    #[channel(union)]
    set: BTreeSet<i64>,
    #[channel(union)]
    map: BTreeMap<String, i64>,
    #[channel(barrier)]
    barrier: Barrier<Party>,
    #[channel(fold_with = pair)]
    pairs: Option<String>,
}

/// Returns the same channels without types. A function cannot be described, so `pairs` exists only to be
/// ignored.
fn described() -> JsonState {
    let channels: JsonChannels = serde_json::from_value(json!({
        "value": {},
        "spark": { "reducer": "ephemeral" },
        "log": { "reducer": "append" },
        "text": { "reducer": "append", "default": "" },
        "topic": { "reducer": "topic" },
        "items": { "reducer": "merge_by_id" },
        "sum": { "reducer": "sum" },
        "max": { "reducer": "max" },
        "set": { "reducer": "union", "default": [] },
        "map": { "reducer": "union" },
        "barrier": { "reducer": "barrier", "names": ["Left", "Middle", "Right"] },
        "pairs": {},
    }))
    .unwrap();
    JsonState::new(&channels).unwrap()
}

fn write() -> impl Strategy<Value = EveryUpdate> {
    let n = || -9..10_i64;
    let word = || "[a-c]{1,2}";
    let party = prop_oneof![Just(Party::Left), Just(Party::Middle), Just(Party::Right)];
    let merge = prop_oneof![
        4 => ("[a-c]?", n()).prop_map(|(id, n)| Merge::Put(Item { id, n })),
        1 => Just(Merge::remove_all()),
    ];
    let update = Every::update;
    prop_oneof![
        prop::option::of(n()).prop_map(move |n| update().value(n)),
        n().prop_map(move |n| update().spark(n)),
        prop::collection::vec(n(), 0..3).prop_map(move |all| update().log(all)),
        word().prop_map(move |text| update().text(text)),
        prop::collection::vec(n(), 0..3).prop_map(move |all| update().topic(all)),
        prop::collection::vec(merge, 0..3).prop_map(move |all| update().items(Merges(all))),
        n().prop_map(move |n| update().sum(n)),
        n().prop_map(move |n| update().max(n)),
        prop::collection::btree_set(n(), 0..3).prop_map(move |all| update().set(all)),
        prop::collection::btree_map(word(), n(), 0..3).prop_map(move |all| update().map(all)),
        party.prop_map(move |party| update().barrier(party)),
        word().prop_map(move |text| update().pairs(text)),
        Just(update().clear_log().clear_items().clear_barrier().clear_pairs()),
        (n(), n()).prop_map(move |(log, max)| update().set_log([log]).set_max(max).set_sum(log)),
    ]
}

/// Generates the writes of one task.
fn task() -> impl Strategy<Value = EveryUpdate> {
    prop::collection::vec(write(), 0..4)
        .prop_map(|all| all.into_iter().fold(Every::update(), |update, later| update.then(later)))
}

/// Returns the state after supersteps with these tasks.
fn after<S: State>(state: S, supersteps: &[Vec<S::Update>]) -> S {
    supersteps.iter().fold(state, |state, tasks| reduce(&state, tasks.clone()).unwrap())
}

fn supersteps() -> impl Strategy<Value = Vec<Vec<EveryUpdate>>> {
    prop::collection::vec(prop::collection::vec(task(), 1..4), 0..6)
}

fn encoded(state: &Every) -> Vec<Vec<u8>> {
    (0..state.channels().len()).map(|channel| state.encode(channel).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    #[test]
    fn composed_updates_fold_as_one_after_the_other(tasks in prop::collection::vec(task(), 0..5)) {
        let one = tasks.iter().cloned().fold(Every::update(), |update, later| update.then(later));
        let begin = reduce(&Every::default(), [Every::update().log([1, 2]).sum(3).pairs("x")]).unwrap();
        prop_assert_eq!(reduce(&begin, [one]).unwrap(), reduce(&begin, tasks).unwrap());
    }

    #[test]
    fn it_does_not_matter_which_task_of_a_superstep_writes(tasks in prop::collection::vec(task(), 0..6), cut in 0..6_usize) {
        let (left, right) = tasks.split_at(cut.min(tasks.len()));
        let compose = |part: &[EveryUpdate]| {
            part.iter().cloned().fold(Every::update(), |update, later| update.then(later))
        };
        let two = reduce(&Every::default(), [compose(left), compose(right)]).unwrap();
        prop_assert_eq!(two, reduce(&Every::default(), tasks).unwrap());
    }

    #[test]
    fn stored_updates_and_values_are_the_live_ones(supersteps in supersteps()) {
        let live = after(Every::default(), &supersteps);
        let stored: Vec<Vec<EveryUpdate>> = supersteps
            .iter()
            .map(|tasks| tasks.iter().map(|task| serde_json::from_value(shown(task)).unwrap()).collect())
            .collect();
        prop_assert_eq!(&after(Every::default(), &stored), &live);
        let mut loaded = Every::default();
        for (channel, json) in encoded(&live).iter().enumerate() {
            loaded.decode(channel, json).unwrap();
        }
        prop_assert_eq!(loaded, live);
    }

    #[test]
    fn a_thread_is_loaded_as_the_run_left_it(updates in prop::collection::vec(task(), 1..8), every in 1..5_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut graph = StateGraph::<Every>::new("g");
            let updates = Arc::new(updates);
            let mut last = START;
            for step in 0..updates.len() {
                let updates = updates.clone();
                let node = graph.add_node(&format!("n{step}"), move |_: Every, _: Cx| {
                    let update = updates[step].clone();
                    async move { update }
                });
                graph.add_edge(last, node);
                last = node;
            }
            graph.add_edge(last, END);
            let graph = graph.compile().unwrap().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
            let end = graph.thread("t").snapshot_every(every).run(Every::update()).await.unwrap();
            assert_eq!(graph.thread("t").state().await.unwrap().values, end.state);
        });
    }

    #[test]
    fn a_described_state_folds_as_a_struct_does(supersteps in supersteps()) {
        let typed = after(Every::default(), &supersteps);
        let untyped: Vec<Vec<JsonUpdate>> = supersteps
            .iter()
            .map(|tasks| tasks.iter().map(|task| serde_json::from_value(shown(task)).unwrap()).collect())
            .collect();
        let untyped = after(described(), &untyped);
        for (channel, json) in typed.channels().iter().zip(encoded(&typed)) {
            let mut typed: Value = serde_json::from_slice(&json).unwrap();
            let mut untyped = untyped.get(&channel.name).unwrap_or_default();
            match &*channel.name {
                "pairs" => continue,
                // A set has its own order, a list has the order of the writes.
                "set" => for set in [&mut typed, &mut untyped] {
                    set.as_array_mut().unwrap().sort_by_key(Value::as_i64);
                },
                _ => {}
            }
            prop_assert_eq!(untyped, typed, "channel `{}`", channel.name);
        }
    }
}

#[derive(State, Clone, Debug, Default)]
struct Weight {
    #[channel(sum)]
    kilos: f64,
}

#[test]
fn a_sum_that_is_not_a_number_is_rejected() {
    let write = |kilos: f64| Weight::update().kilos(kilos);
    let heavy = reduce(&Weight::default(), [write(f64::MAX)]).unwrap();
    let error = reduce(&heavy, [write(f64::MAX)]).unwrap_err();
    assert_eq!(error.to_string(), "channel `kilos` refused a write");
    assert_eq!(error.source.to_string(), format!("{0} + {0} does not fit f64", f64::MAX));
    assert_eq!(reduce(&heavy, [write(-f64::MAX)]).unwrap().kilos, 0.0);
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Hashed {
    #[channel(union)]
    tags: HashSet<String>,
    #[channel(union)]
    counts: HashMap<String, i64>,
}

#[tokio::test]
async fn hash_sets_and_maps_are_united_and_read_back() {
    let mut graph = StateGraph::<Hashed>::new("hashed");
    for (at, name) in ["left", "right"].into_iter().enumerate() {
        let node = graph.add_node(name, move |_: Hashed, _: Cx| async move {
            let counts = [("both".to_owned(), at as i64), (name.to_owned(), 7)];
            let tags = ["both".to_owned(), name.to_owned()];
            Hashed::update().tags(HashSet::from(tags)).counts(HashMap::from(counts))
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
    }
    let graph = graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new());
    let input = Hashed::update().tags(HashSet::from(["input".to_owned()]));
    let end = graph.thread("t").run(input).await.unwrap().state;

    assert_eq!(end.tags, HashSet::from(["both", "input", "left", "right"].map(str::to_owned)));
    // Writes are folded in the order of the nodes' names, so the later one wins.
    let counts = [("both", 1), ("left", 7), ("right", 7)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(end.counts, HashMap::from(counts));
    assert_eq!(graph.thread("t").state().await.unwrap().values, end);
}

#[derive(State, Clone, Debug, Default)]
struct Told {
    #[channel(any_value)]
    by: String,
    once: i64,
}

/// Builds a graph whose parallel nodes `a` and `b` return what `update` makes of their names.
fn two_writers<S: State>(update: fn(&str) -> S::Update, initial: S) -> superstep::CompiledGraph<S>
where
    S::Update: superstep::node::NodeOutput<S>,
{
    let mut graph = StateGraph::with_initial("two", initial);
    for name in ["b", "a"] {
        let node = graph.add_node(name, move |_: S, cx: Cx| async move { update(cx.node().as_str()) });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
    }
    graph.compile().unwrap()
}

#[tokio::test]
async fn of_several_writes_of_any_value_the_last_task_in_fold_order_counts() {
    let graph = two_writers::<Told>(|name| Told::update().by(name), Told::default());
    assert_eq!(graph.run(Told::update().by("input")).await.unwrap().state.by, "b");
    let graph = two_writers::<Told>(|name| Told::update().by(name).once(1), Told::default());
    let error = graph.run(Told::update()).await.unwrap_err();
    let error = superstep::error::chain(&error);
    assert!(error.contains("`once`") && !error.contains("`by`"), "{error}");

    let channels: JsonChannels = serde_json::from_value(json!({"by": {"reducer": "any_value"}})).unwrap();
    let graph = two_writers::<JsonState>(
        |name| JsonUpdate::new().write("by", name),
        JsonState::new(&channels).unwrap(),
    );
    assert_eq!(graph.run(JsonUpdate::new()).await.unwrap().state.get("by"), Some(json!("b")));
}
