//! A changed state, and the threads of older programs.

#[cfg(feature = "sqlite")]
mod fixtures;

use std::sync::Arc;

use serde_json::{Value, json};
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Log, MemoryCheckpointer, OnUnfinished, RunError, START,
    State, StateGraph,
    checkpoint::{AppliedTask, Commit, Retention, Source, TaskRecord},
    replay::At,
    state::{ChannelValue, Stored, Update as _},
    thread::StateSnapshot,
    topology::Control,
};

use crate::support::{failed, text};

/// A store with the thread `t`, left by another program.
struct Left(Arc<dyn Checkpointer>, Option<CheckpointId>);

impl Left {
    fn new() -> Self {
        Self(Arc::new(MemoryCheckpointer::new()), None)
    }

    /// Stores one superstep with a task for each update, and a snapshot after it, if given.
    async fn superstep(mut self, updates: &[&str], snapshot: Option<Value>) -> Self {
        let applied = (0..).zip(updates).map(|(slot, update)| AppliedTask {
            slot,
            recorded: false,
            node: "a".into(),
            update: (*update).into(),
        });
        let snapshot = snapshot.map(|channels| {
            let channels = channels.as_object().unwrap().iter();
            channels
                .map(|(channel, json)| ChannelValue {
                    channel: channel.clone(),
                    json: json.to_string().into(),
                })
                .collect::<Vec<_>>()
                .into()
        });
        let step = self.1.map_or(0, |id| i64::try_from(id.0).unwrap());
        let next = Commit {
            parent: self.1,
            source: Source::Loop,
            control: Control::new(step, Vec::new()),
            created_ms: 0,
            metadata: Default::default(),
            applied: applied.collect(),
            snapshot,
            records: Vec::new(),
            fingerprints: None,
        };
        self.1 = Some(self.0.commit(&"t".into(), self.1, next).await.unwrap());
        self
    }

    /// Stores an accepted input only.
    async fn input(mut self, update: &str) -> Self {
        let record = TaskRecord::Finished { update: update.into(), targets: Vec::new(), failure: None };
        let next = Commit {
            parent: self.1,
            source: Source::Input,
            control: Control::new(-1, vec!["__start__".into()]),
            created_ms: 0,
            metadata: Default::default(),
            applied: Vec::new(),
            snapshot: None,
            fingerprints: None,
            records: vec![(0, record)],
        };
        self.1 = Some(self.0.commit(&"t".into(), self.1, next).await.unwrap());
        self
    }

    /// Builds the graph of the current program: one node without writes.
    fn graph<S: State>(&self) -> CompiledGraph<S> {
        idle::<S>().with_checkpointer(self.0.clone())
    }

    async fn read<S: State>(&self) -> Result<StateSnapshot<S>, RunError> {
        self.graph::<S>().thread("t").state().await
    }

    /// Returns the updates of the current head.
    async fn last_update(&self) -> String {
        let loaded = self.0.load(&"t".into(), None).await.unwrap().unwrap();
        loaded.commits.last().unwrap().iter().map(|update| update.to_string()).collect()
    }
}

fn idle<S: State>() -> CompiledGraph<S> {
    let mut graph = StateGraph::<S>::new("g");
    let a = graph.add_node("a", async |_: S, _: Cx| ());
    graph.add_edge(START, a);
    graph.compile().unwrap()
}

async fn refused<S: State>(left: Left) -> String {
    text(&failed(left.read::<S>().await))
}

/// Doubles the value, and reports its arguments.
fn told(json: Value, from: u32, stored: Stored) -> Result<Value, String> {
    let text = json.as_str().ok_or_else(|| format!("`{json}` is not a text"))?;
    assert!(text != "boo", "it is afraid");
    Ok(json!(format!("[{text} {from} {stored:?}]")))
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Told {
    #[channel(append, was = "said", version = 3, migrate = told)]
    heard: String,
    x: i64,
}

#[tokio::test]
async fn values_and_writes_are_migrated_from_the_version_that_stored_them() {
    let left = Left::new()
        .superstep(&[], Some(json!({"x": 1, "said": "value"})))
        .await
        .superstep(&[r#"{"said":"one"}"#, r#"{"$v":{"said":2},"said":"two"}"#], None)
        .await
        .superstep(
            &[r#"{"$v":{"heard":3},"heard":"three","x":2}"#, r#"{"heard":"four","$v":{"heard":3}}"#],
            None,
        )
        .await;
    let state = left.read::<Told>().await.unwrap().values;
    assert_eq!(state.heard, "[value 1 Value][one 1 Write][two 2 Write]threefour");
    assert_eq!(state.x, 2);
    let newest = Left::new().superstep(&[], Some(json!({"$v": {"heard": 2}, "heard": "value"}))).await;
    assert_eq!(newest.read::<Told>().await.unwrap().values.heard, "[value 2 Value]");
}

#[tokio::test]
async fn a_version_is_stored_where_a_channel_is_written_that_has_one() {
    let left = Left::new().superstep(&[], None).await;
    let graph = left.graph::<Told>();
    graph.thread("t").update_as("a", Told::update().x(1)).await.unwrap();
    assert_eq!(left.last_update().await, r#"{"x":1}"#);
    graph.thread("t").update_as("a", Told::update().x(2).heard("a")).await.unwrap();
    assert_eq!(left.last_update().await, r#"{"$v":{"heard":3},"heard":"a","x":2}"#);
    graph.thread("t").update_as("a", Told::update().clear_heard()).await.unwrap();
    assert_eq!(left.last_update().await, r#"{"$v":{"heard":3},"clear":["heard"]}"#);
    graph.thread("t").update_as("a", Told::update().heard("b")).await.unwrap();
    assert_eq!(left.read::<Told>().await.unwrap().values, Told { heard: "b".to_owned(), x: 2 });
}

#[tokio::test]
async fn data_of_a_newer_program_is_rejected() {
    let expected = "SS131: thread `t`, checkpoint 1: channel `heard` is stored in version 4, and this \
                    program knows versions up to 3; use the newer program, or resume from an older \
                    checkpoint";
    let newer = r#"{"$v":{"heard":4},"heard":"a"}"#;
    assert_eq!(refused::<Told>(Left::new().superstep(&[newer], None).await).await, expected);
    let snapshot = json!({"heard": "a", "$v": {"heard": 4}});
    assert_eq!(refused::<Told>(Left::new().superstep(&[], Some(snapshot)).await).await, expected);
    assert_eq!(refused::<Told>(Left::new().input(newer).await).await, expected);
}

#[tokio::test]
async fn a_failing_or_panicking_migration_names_its_input() {
    let migrate = "channel `heard` cannot be migrated from version 1 to 3";
    let expected = format!(
        "SS115: thread `t`, checkpoint 1: the stored data of an update of node `a` does not fit the state: {migrate}: \
         `7` is not a text\n  cause: {migrate}\n  cause: `7` is not a text"
    );
    assert_eq!(refused::<Told>(Left::new().superstep(&[r#"{"heard":7}"#], None).await).await, expected);
    let expected = format!(
        "SS115: thread `t`, checkpoint 1: the stored data of channel `said` does not fit the state: {migrate}: panicked: it is afraid\n  \
         cause: {migrate}\n  cause: panicked: it is afraid"
    );
    let snapshot = json!({"said": "boo"});
    assert_eq!(refused::<Told>(Left::new().superstep(&[], Some(snapshot)).await).await, expected);
}

#[tokio::test]
async fn entries_that_only_a_newer_superstep_knows_are_refused() {
    let expected = "the entry `$z` is not of this version of superstep; use a newer one";
    for left in [
        Left::new().superstep(&[r#"{"$z":1}"#], None).await,
        Left::new().superstep(&[], Some(json!({"$z": 1}))).await,
        Left::new().superstep(&[], Some(json!({"$kept": {"updates": [{"$z": 1}]}}))).await,
    ] {
        let error = refused::<Told>(left).await;
        assert!(error.starts_with("SS115") && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_write_that_does_not_fit_is_refused_also_beside_a_channel_that_is_unknown() {
    let error = refused::<Told>(Left::new().superstep(&[r#"{"gone":1,"x":"one"}"#], None).await).await;
    assert!(error.contains("cause: invalid type: string \"one\", expected i64"), "{error}");
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Before {
    #[channel(append)]
    log: Log<i64>,
    #[channel(append)]
    gone: Log<i64>,
    #[channel(ephemeral)]
    spark: Option<i64>,
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct After {
    #[channel(append)]
    log: Log<i64>,
}

/// Runs a graph of `After` until the log has this number of entries.
async fn work(left: &Left, entries: usize) {
    let mut graph = StateGraph::<After>::new("g");
    let a = graph.add_node("a", async |_: After, _: Cx| After::update().log([0]));
    graph.add_edge(START, a);
    graph.add_edge(a, a);
    let graph = graph.compile().unwrap().with_checkpointer(left.0.clone());
    let now = graph.thread("t").state().await.unwrap();
    let step_limit = u32::try_from(entries - now.values.log.len()).unwrap();
    let limit = if now.next.is_empty() {
        failed(graph.thread("t").step_limit(step_limit).run(After::update()).await)
    } else {
        failed(graph.thread("t").step_limit(step_limit).resume().await)
    };
    assert!(matches!(limit, RunError::StepLimit { .. }), "{limit}");
}

#[tokio::test]
async fn writes_to_a_removed_channel_are_retained_in_order_across_snapshots() {
    let left = Left::new()
        .superstep(&[r#"{"gone":[1],"log":[1]}"#], None)
        .await
        .superstep(&[r#"{"gone":[2]}"#, r#"{"gone":[3],"spark":1,"clear":["gone","log"]}"#], None)
        .await
        .superstep(&[r#"{"gone":[4],"spark":2}"#], None)
        .await;
    let before = left.read::<Before>().await.unwrap();
    assert_eq!((before.values.gone.iter().sum::<i64>(), before.values.spark), (7, Some(2)));
    // Two snapshots: the second one retains the unknown data of the first.
    for entries in [60, 200] {
        work(&left, entries).await;
        let after = left.read::<After>().await.unwrap();
        assert_eq!((after.values.log.len(), after.unknown.join(" ").as_str()), (entries, "gone spark"));
        let loaded = left.0.load(&"t".into(), None).await.unwrap().unwrap();
        let kept = loaded.snapshot.unwrap().channels().unwrap().into_owned().pop().unwrap();
        assert_eq!(
            (kept.channel.as_str(), kept.json.as_str()),
            (
                "$kept",
                r#"{"updates":[{"gone":[1]},{"gone":[2]},{"clear":["gone"],"gone":[3],"spark":1},{"gone":[4],"spark":2}]}"#
            )
        );
        let before = left.read::<Before>().await.unwrap();
        assert_eq!(before.values.gone, [3, 4]);
        assert_eq!((before.values.log.len(), before.values.spark), (entries, None));
        assert!(before.unknown.is_empty(), "{:?}", before.unknown);
    }
}

#[tokio::test]
async fn values_of_a_removed_channel_are_retained_with_their_versions() {
    let snapshot = json!({"$v": {"gone": 7}, "gone": {"any": ["thing"]}, "log": [1], "spark": 5});
    let left = Left::new().superstep(&[], Some(snapshot)).await;
    work(&left, 60).await;
    let loaded = left.0.load(&"t".into(), None).await.unwrap().unwrap();
    let kept = loaded.snapshot.unwrap().channels().unwrap().into_owned().pop().unwrap();
    assert_eq!(kept.json.as_str(), r#"{"values":{"$v":{"gone":7},"gone":{"any":["thing"]},"spark":5}}"#);
    let error = refused::<Before>(left).await;
    assert!(error.contains("channel `gone` is stored in version 7"), "{error}");
}

#[tokio::test]
async fn task_writes_to_a_removed_channel_are_retained_once_they_are_folded() {
    let input = r#"{"gone":[1],"log":[1]}"#;
    let folded = Left::new().input(input).await;
    assert_eq!(folded.read::<After>().await.unwrap().unknown, ["gone"]);
    work(&folded, 60).await;
    assert_eq!(folded.read::<Before>().await.unwrap().values.gone, [1]);

    // A discarded input is not folded.
    let discarded = Left::new().input(input).await;
    discarded
        .graph::<After>()
        .thread("t")
        .on_unfinished(OnUnfinished::Discard)
        .run(After::update())
        .await
        .unwrap();
    work(&discarded, 60).await;
    assert!(discarded.read::<After>().await.unwrap().unknown.is_empty());
    assert!(discarded.read::<Before>().await.unwrap().values.gone.is_empty());

    // A fork includes the input, also in a snapshot of its run.
    for snapshot_every in [None, Some(1)] {
        let forked = Left::new().input(input).await;
        let thread = forked.graph::<After>().thread("t").at(CheckpointId(1));
        thread.snapshot_every(snapshot_every).resume().await.unwrap();
        work(&forked, 60).await;
        assert_eq!(forked.read::<Before>().await.unwrap().values.gone, [1]);
    }
}

#[tokio::test]
async fn an_ephemeral_write_of_a_removed_channel_has_expired_where_a_snapshot_retains_it() {
    let left = Left::new().superstep(&[r#"{"gone":[4],"spark":2}"#], None).await;
    left.graph::<After>().thread("t").snapshot_every(1).run(After::update()).await.unwrap();
    let before = left.read::<Before>().await.unwrap().values;
    assert_eq!((before.gone, before.spark), ([4].into_iter().collect(), None));
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Renamed {
    #[channel(append, was = "log", was = "protocol")]
    entries: Log<i64>,
    #[channel(append, was = "gone")]
    back: Log<i64>,
}

#[tokio::test]
async fn a_renamed_channel_has_one_value_under_all_its_names() {
    let left = Left::new()
        .superstep(&[], Some(json!({"log": [1]})))
        .await
        .superstep(&[r#"{"protocol":[2],"gone":[1]}"#, r#"{"entries":[3]}"#], None)
        .await
        .superstep(&[r#"{"back":[2],"clear":["gone"]}"#], None)
        .await;
    let read = left.read::<Renamed>().await.unwrap();
    assert_eq!(read.values, Renamed { entries: [1, 2, 3].into(), back: [2].into() });
    assert!(read.unknown.is_empty(), "{:?}", read.unknown);

    let both = Left::new().superstep(&[], Some(json!({"log": [1], "entries": [2]}))).await;
    let read = both.read::<Renamed>().await.unwrap();
    assert_eq!((read.values.entries.iter().sum::<i64>(), read.unknown), (2, vec!["log".to_owned()]));

    let twice = Left::new().superstep(&[r#"{"log":[1],"entries":[2]}"#], None).await;
    let error = refused::<Renamed>(twice).await;
    assert!(error.starts_with("SS115"), "{error}");
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Tenants {
    #[channel(append)]
    log: Log<i64>,
    #[channel(required)]
    tenant: String,
}

#[tokio::test]
async fn a_thread_without_a_required_channel_is_refused_until_someone_writes_it() {
    let old = async || Left::new().input(r#"{"log":[1]}"#).await;
    let expected = "SS132: channel `tenant` is required, and nothing wrote it on thread `t` up to checkpoint 1; write it \
                    with the input, or with `Thread::update`";
    assert_eq!(refused::<Tenants>(old().await).await, expected);
    let left = old().await;
    let graph = left.graph::<Tenants>();
    assert_eq!(failed(graph.thread("t").resume().await).to_string(), expected);
    let log = || Tenants::update().log([2]);
    assert_eq!(failed(graph.thread("t").update_as("a", log()).await).to_string(), expected);
    assert_eq!(
        failed(graph.thread("t").on_unfinished(OnUnfinished::Discard).run(log()).await).to_string(),
        expected
    );

    graph.thread("t").update_as("a", Tenants::update().tenant("x")).await.unwrap();
    assert_eq!(left.read::<Tenants>().await.unwrap().values.tenant, "x");
    let left = old().await;
    let end = left
        .graph::<Tenants>()
        .thread("t")
        .on_unfinished(OnUnfinished::Discard)
        .run(log().tenant("y"))
        .await
        .unwrap();
    assert_eq!(end.state.tenant, "y");
}

#[tokio::test]
async fn a_thread_begins_with_its_required_channels() {
    let expected = "SS132: channel `tenant` is required, and the first input does not write it; write it with the input, \
                    or with `Thread::update`";
    let left = Left::new();
    let graph = left.graph::<Tenants>();
    let log = || Tenants::update().log([2]);
    assert_eq!(failed(graph.thread("t").run(log()).await).to_string(), expected);
    assert_eq!(failed(graph.thread("t").update_as("a", log()).await).to_string(), expected);
    let alone = idle::<Tenants>();
    assert_eq!(failed(alone.run(log()).await).to_string(), expected);
    assert!(graph.thread("t").history().checkpoints().await.unwrap().is_empty(), "it did not begin");

    graph.thread("t").run(log().tenant("x")).await.unwrap();
    assert_eq!(
        graph.thread("t").run(log()).await.unwrap().state.tenant,
        "x",
        "later inputs need not write it"
    );
    assert_eq!(left.read::<Tenants>().await.unwrap().values.log, [2, 2]);
}

#[tokio::test]
async fn chained_updates_are_read_like_the_first() {
    let left = Left::new().superstep(&[], None).await;
    let graph = left.graph::<Told>();
    let update = Told::update().heard("a").then(Told::update().heard("b").x(1));
    graph.thread("t").update_as("a", update).await.unwrap();
    assert_eq!(left.last_update().await, r#"{"$v":{"heard":3},"heard":"a","$then":[{"heard":"b","x":1}]}"#);
    assert_eq!(left.read::<Told>().await.unwrap().values, Told { heard: "ab".to_owned(), x: 1 });
    let left =
        Left::new().superstep(&[r#"{"x":2,"$v":{"said":2},"$then":[{"said":"c"}],"said":"d"}"#], None).await;
    let left = left.superstep(&[r#"{"$then":[{"said":"e"},{"x":3,"said":"f"}]}"#], None).await;
    let state = left.read::<Told>().await.unwrap().values;
    assert_eq!((state.heard.as_str(), state.x), ("[d 2 Write][c 2 Write][e 1 Write][f 1 Write]", 3));
}

/// A state without the other one's channels.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Deaf {
    x: i64,
}

#[tokio::test]
async fn unknown_data_of_chained_updates_is_retained() {
    let update = r#"{"$v":{"heard":3},"heard":"a","x":1,"$then":[{"x":2},{"heard":"b","x":3},{"clear":["heard"],"heard":"c"}]}"#;
    let left = Left::new().superstep(&[update], None).await;
    let read = left.read::<Deaf>().await.unwrap();
    assert_eq!((read.values.x, read.unknown), (3, vec!["heard".to_owned()]));
    let kept = r#"[{"$v":{"heard":3},"heard":"a","$then":[{"$v":{"heard":3},"heard":"b"},{"$v":{"heard":3},"heard":"d"}]}]"#;
    let kept: Value = serde_json::from_str(kept).unwrap();
    let left = Left::new().superstep(&[], Some(json!({"x": 1, "$kept": {"updates": kept}}))).await;
    assert_eq!(left.read::<Told>().await.unwrap().values.heard, "abd");
    let hostile = format!("{}{}{}", r#"{"$then":["#.repeat(50_000), "{}", "]}".repeat(50_000));
    let refused = refused::<Deaf>(Left::new().superstep(&[&hostile], None).await).await;
    assert!(refused.contains("the entry `$then` is not of this version of superstep"), "{refused}");
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Late {
    x: i64,
    #[channel(required)]
    late: String,
}

/// A prune does not need the value, and does not replace it by the default.
#[tokio::test]
async fn a_thread_without_a_required_channel_is_pruned_and_still_requires_it() {
    let left = Left::new().superstep(&[r#"{"x":1}"#], None).await.superstep(&[r#"{"x":2}"#], None).await;
    let graph = left.graph::<Late>();
    let missing = failed(left.read::<Late>().await).to_string();
    assert_eq!(graph.thread("t").prune(Retention::Last(1)).await.unwrap(), 1);
    assert_eq!(failed(left.read::<Late>().await).to_string(), missing);
    assert!(missing.starts_with("SS132: channel `late` is required"), "{missing}");
    let end = graph.thread("t").run(Late::update().late("now")).await.unwrap();
    assert_eq!(end.state, Late { x: 2, late: "now".to_owned() });
    graph.thread("t").prune(Retention::Last(1)).await.unwrap();
    assert_eq!(left.read::<Late>().await.unwrap().values, end.state);
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Minutes {
    worked: i64,
    #[channel(append)]
    log: Log<String>,
}

/// The seconds that were stored as minutes.
fn seconds(json: Value, _: u32, _: Stored) -> Result<Value, String> {
    Ok(json!(json.as_i64().ok_or("not a number")? * 60))
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Seconds {
    #[channel(version = 2, migrate = seconds)]
    worked: i64,
    #[channel(append)]
    log: Log<String>,
}

#[tokio::test]
async fn a_thread_from_before_a_version_is_replayed() {
    let store = Arc::new(MemoryCheckpointer::new().keeping_values(false));
    let mut older = StateGraph::<Minutes>::new("g");
    let a = older.add_node("a", async |_: Minutes, _: Cx| Minutes::update().worked(2).log(["a"]));
    // Two updates that write one channel are stored one behind the other.
    let b = older.add_node("b", async |_: Minutes, _: Cx| {
        Minutes::update().log(["b"]).then(Minutes::update().log(["c"]).worked(3))
    });
    older.add_edge(START, a);
    older.add_edge(a, b);
    let older = older.compile().unwrap().with_checkpointer(store.clone());
    older.thread("t").run(Minutes::update().worked(1)).await.unwrap();
    let replayed = async |worked: i64, word: &'static str| {
        let mut graph = StateGraph::<Seconds>::new("g");
        let a = graph.add_node("a", move |_: Seconds, _: Cx| async move {
            Seconds::update().worked(worked).log([word])
        });
        let b = graph.add_node("b", async |_: Seconds, _: Cx| {
            Seconds::update().log(["b"]).then(Seconds::update().log(["c"]).worked(180))
        });
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        let graph = graph.compile().unwrap().with_checkpointer(store.clone());
        graph.thread("t").replay().run().await.unwrap()
    };
    replayed(120, "a").await.assert_same();
    // The writes are compared.
    for (worked, word, channel) in [(121, "a", "worked"), (120, "b", "log")] {
        let found = replayed(worked, word).await.divergence.unwrap();
        assert_eq!(found.at, At::Channel(channel.to_owned()));
    }
}
