//! States that contain the channels of other states.

use serde_json::{Value, json};
use superstep::{
    Cx, END, Input, Log, MemoryCheckpointer, NodeRef, ReduceError, RunOptions, START, State, StateGraph,
    StreamMode, Streaming, View,
    state::{Append, Flattens, Stored, Update as _, reduce},
};

/// The state of another crate: a channel of every kind with attributes.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Talk {
    #[channel(append, was = "lines")]
    log: Log<String>,
    #[channel(sum, version = 2, migrate = hours)]
    worked: i64,
    #[channel(ephemeral)]
    hint: Option<String>,
    #[channel(untracked)]
    handle: Option<u8>,
    #[channel(fold_with = longest)]
    best: Option<String>,
    answer: Option<String>,
}

/// Converts minutes to hours.
fn hours(minutes: Value, _: u32, _: Stored) -> Result<Value, String> {
    minutes.as_i64().map(|minutes| json!(minutes / 60)).ok_or_else(|| "no number".to_owned())
}

fn longest(one: String, other: String) -> String {
    if other.len() > one.len() { other } else { one }
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Bill {
    #[channel(sum)]
    cents: i64,
    #[channel(required)]
    payer: String,
}

/// Two flattened states, and own channels before, between and after them.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Support {
    topic: String,
    #[channel(flatten)]
    talk: Talk,
    #[channel(append)]
    notes: Log<String>,
    #[channel(flatten)]
    bill: Bill,
    open: bool,
}

/// A state in a state in a state.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Desk {
    #[channel(sum)]
    seen: i64,
    #[channel(flatten)]
    support: Support,
}

impl Flattens<Talk> for Desk {
    fn part(&self) -> &Talk {
        &self.support.talk
    }

    fn lift(update: TalkUpdate) -> DeskUpdate {
        Desk::update().support(Support::update().talk(update))
    }
}

const NAMES: [&str; 11] =
    ["topic", "log", "worked", "hint", "handle", "best", "answer", "notes", "cents", "payer", "open"];

fn say(text: &str) -> SupportUpdate {
    Support::update().talk(Talk::update().log([text.to_owned()]))
}

fn json(update: &SupportUpdate) -> String {
    serde_json::to_string(update).unwrap()
}

fn names<S: State>(state: &S, set: superstep::state::ChannelSet) -> Vec<String> {
    set.iter().map(|position| state.channels()[position].name.to_string()).collect()
}

fn full() -> SupportUpdate {
    Support::update()
        .topic("tea")
        .talk(Talk::update().log(["a".to_owned()]).worked(1).hint("psst".to_owned()).best("b".to_owned()))
        .notes(["n".to_owned()])
        .bill(Bill::update().cents(5).payer("me"))
        .open(true)
}

#[test]
fn the_channels_of_a_flattened_state_stand_where_its_field_does() {
    let channels = |state: &dyn Fn() -> Vec<superstep::state::Channel>| {
        state().iter().map(|channel| channel.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(channels(&|| Support::default().channels().to_vec()), NAMES);
    let desk = channels(&|| Desk::default().channels().to_vec());
    assert_eq!((desk[0].as_str(), &desk[1..]), ("seen", &NAMES.map(str::to_owned)[..]));
    let worked = Desk::default().channels()[3].clone();
    assert_eq!(
        (worked.version, worked.migrate.unwrap()(json!(120), 1, Stored::Write).unwrap()),
        (2, json!(2))
    );
    let flags = |of: fn(&superstep::state::Channel) -> bool| {
        let support = Support::default();
        let found = support.channels().iter().filter(|channel| of(channel));
        found.map(|channel| channel.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(flags(|channel| channel.untracked), ["handle"]);
    assert_eq!(flags(|channel| channel.ephemeral), ["hint"]);
    assert_eq!(flags(|channel| channel.required), ["payer"]);
}

#[test]
fn an_update_writes_the_channels_under_their_own_names() {
    let stored = r#"{"topic":"tea","notes":["n"],"open":true,"log":["a"],"worked":1,"hint":"psst","best":"b","cents":5,"payer":"me"}"#;
    assert_eq!(json(&full()), stored);
    let read: SupportUpdate = serde_json::from_str(stored).unwrap();
    assert_eq!(json(&read), stored);
    let folded = reduce(&Support::default(), [read]).unwrap();
    assert_eq!(folded, reduce(&Support::default(), [full()]).unwrap());
    assert_eq!((folded.talk.log.len(), folded.bill.cents, folded.topic.as_str()), (1, 5, "tea"));
    let renamed: SupportUpdate =
        serde_json::from_str(r#"{"lines":["b"],"clear":["lines","topic"]}"#).unwrap();
    assert_eq!(json(&renamed), r#"{"log":["b"],"clear":["topic","log"]}"#);
    let unknown = serde_json::from_str::<SupportUpdate>(r#"{"lgo":["b"]}"#).unwrap_err().to_string();
    assert!(
        unknown.starts_with("unknown field `lgo`, expected one of `topic`, `notes`, `open`, `log`"),
        "{unknown}"
    );
    let twice = serde_json::from_str::<SupportUpdate>(r#"{"lines":["b"],"log":[]}"#).unwrap_err().to_string();
    assert!(twice.starts_with("duplicate field `log`"), "{twice}");
}

#[test]
fn writes_clears_and_exclusive_channels_have_positions() {
    let state = Support::default();
    assert_eq!(
        names(&state, state.written(&full())),
        ["topic", "log", "worked", "hint", "best", "notes", "cents", "payer", "open"]
    );
    assert_eq!(names(&state, state.exclusive(&full())), ["topic", "hint", "payer", "open"]);
    let cleared = Support::update().talk(Talk::update().clear_log().set_worked(3)).clear_notes();
    assert_eq!(names(&state, state.exclusive(&cleared)), ["log", "worked", "notes"]);
    let desk = Desk::update().seen(1).support(cleared);
    assert_eq!(names(&Desk::default(), Desk::default().written(&desk)), ["seen", "log", "worked", "notes"]);
    let mut kept = full();
    state.restrict(&mut kept, [1, 8, 10].into_iter().collect());
    assert_eq!(json(&kept), r#"{"open":true,"log":["a"],"cents":5}"#);
}

#[test]
fn cleared_overwritten_ephemeral_and_retained_channels_behave_inside_as_outside() {
    let state = reduce(&Support::default(), [full(), say("b")]).unwrap();
    assert_eq!((state.talk.log.len(), state.talk.hint.as_deref()), (2, Some("psst")));
    let next =
        reduce(&state, [Support::update().talk(Talk::update().set_log(["c".to_owned()]).clear_best())])
            .unwrap();
    assert_eq!((next.talk.log, next.talk.best, next.talk.hint), (["c".to_owned()].into(), None, None));
    let mut kept = state.clone();
    kept.retain([0, 2].into_iter().collect());
    assert_eq!(
        (kept.topic.as_str(), kept.talk.worked, kept.talk.log.len(), kept.bill.cents),
        ("tea", 1, 0, 0)
    );
}

#[test]
fn every_channel_is_encoded_and_decoded_by_its_position() {
    let state = reduce(&Desk::default(), [Desk::update().seen(1).support(full())]).unwrap();
    let mut copy = Desk::default();
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    for (position, channel) in stored {
        let json = state.encode(position).unwrap();
        copy.decode(position, &json).unwrap_or_else(|error| panic!("{}: {error}", channel.name));
    }
    assert_eq!(copy, state);
    let absent = "the state `Desk` has 12 channels, and none that is stored at position 12";
    assert_eq!(state.encode(12).unwrap_err().to_string(), absent);
    let untracked = state.channels().iter().position(|channel| channel.untracked).unwrap();
    let untracked = state.encode(untracked).unwrap_err().to_string();
    assert_eq!(untracked, "the state `Talk` has 6 channels, and none that is stored at position 3");
}

#[test]
fn updates_follow_each_other_inside_as_outside() {
    let inner = Talk::update().log(["a".to_owned()]).then(Talk::update().log(["b".to_owned()]));
    let both =
        Support::update().talk(inner).notes(["n".to_owned()]).talk(Talk::update().log(["c".to_owned()]));
    let all = both
        .then(say("d"))
        .then(Support::update().talk(Talk::update().clear_log()).topic("t"))
        .then(say("e"));
    let stored = json!({
        "log": ["a"], "notes": ["n"],
        "$then": [{"log": ["b"]}, {"log": ["c"]}, {"log": ["d"]}, {"clear": ["log"], "topic": "t"}, {"log": ["e"]}],
    });
    assert_eq!(serde_json::to_value(&all).unwrap(), stored);
    let read: SupportUpdate = serde_json::from_value(stored).unwrap();
    let (here, there) =
        (reduce(&Support::default(), [all]).unwrap(), reduce(&Support::default(), [read]).unwrap());
    assert_eq!(here, there);
    assert_eq!((here.talk.log, here.topic.as_str()), (["e".to_owned()].into(), "t"));
}

#[test]
fn a_refused_write_names_the_channel_inside() {
    let refused = Support::update().talk(Talk::update().worked(i64::MAX).then(Talk::update().worked(1)));
    assert_eq!(reduce(&Support::default(), [refused]).unwrap_err().channel, "worked");
}

#[test]
fn debug_names_the_fields_and_hides_untracked_ones() {
    let update = Support::update().talk(Talk::update().handle(7).clear_log());
    let shown = format!("{update:?}");
    assert!(shown.contains("talk: TalkUpdate {") && shown.contains(r#"clear: ["log"]"#), "{shown}");
    assert!(shown.contains("(untracked)") && !shown.contains('7'), "{shown}");
}

#[test]
fn parts_and_lifted_updates_reach_through_two_states() {
    let update = <Desk as Flattens<Talk>>::lift(Talk::update().log(["a".to_owned()]));
    let desk = reduce(&Desk::default(), [update]).unwrap();
    assert_eq!(Flattens::<Talk>::part(&desk).log, ["a".to_owned()]);
    assert_eq!(Flattens::<Talk>::into_part(desk.clone()), desk.support.talk);
    assert_eq!(Flattens::<Support>::into_part(desk.clone()), desk.support);
}

/// A custom reducer, in a flattened state that has a default of its own.
enum Most {}

impl superstep::Reducer<Vec<i64>> for Most {
    type Write = i64;

    fn reduce(value: &mut Vec<i64>, write: i64) -> Result<(), ReduceError> {
        value.push(write);
        Ok(())
    }
}

#[derive(State, Clone, Debug, PartialEq)]
struct Given {
    #[channel(with = Most)]
    numbers: Vec<i64>,
    #[channel(with = Append)]
    r#type: String,
}

impl Default for Given {
    fn default() -> Self {
        Self { numbers: vec![1], r#type: "x".to_owned() }
    }
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Around {
    #[channel(flatten)]
    r#gen: Given,
}

#[test]
fn raw_names_and_reducers_of_ones_own_work_inside() {
    let update = Around::update().r#gen(Given::update().numbers(2).r#type("y"));
    assert_eq!(serde_json::to_string(&update).unwrap(), r#"{"numbers":2,"type":"y"}"#);
    let state = reduce(&Around::default(), [update]).unwrap();
    assert_eq!((state.r#gen.numbers, state.r#gen.r#type.as_str()), (vec![1, 2], "xy"));
}

#[derive(View, Debug, PartialEq)]
#[view(of = Talk)]
struct Said {
    log: Log<String>,
}

#[derive(View, Debug, PartialEq)]
#[view(of = Support)]
struct Seen {
    topic: String,
    #[view(flatten)]
    talk: Said,
    bill: Bill,
}

#[derive(Input)]
#[input(of = Talk)]
struct Ask {
    log: Vec<String>,
}

#[derive(Input)]
#[input(of = Support)]
struct Open {
    topic: &'static str,
    #[input(flatten)]
    talk: Ask,
    #[input(flatten)]
    bill: BillUpdate,
}

fn graph<S: State>(
    name: &str,
    node: impl FnOnce(&mut StateGraph<S>) -> NodeRef,
) -> superstep::CompiledGraph<S> {
    let mut graph = StateGraph::new(name);
    let node = node(&mut graph);
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

fn support() -> superstep::CompiledGraph<Support> {
    graph("support", |graph| {
        let node = graph.add_node("reply", async |state: Support, _: Cx| {
            let text = format!("{} about {}", state.talk.log.len(), state.topic);
            Support::update()
                .talk(Talk::update().log([text]).worked(2).handle(1))
                .bill(Bill::update().cents(1))
        });
        graph.writes(node, ["log", "worked", "handle", "cents"]);
        node
    })
}

#[tokio::test]
async fn inputs_views_streams_and_declared_writes_know_the_channels() {
    let open = Open { topic: "tea", talk: Ask { log: vec!["hi".into()] }, bill: Bill::update().payer("me") };
    let end = support().run(open).await.unwrap().view::<Seen>();
    let log = ["hi".to_owned(), "1 about tea".to_owned()].into();
    let bill = Bill { cents: 1, payer: "me".to_owned() };
    assert_eq!(end.state, Seen { topic: "tea".to_owned(), talk: Said { log }, bill });

    use futures::StreamExt;
    let streaming = Streaming::from([StreamMode::Values]).output_keys(["log"]);
    let input = full().topic("tea");
    let mut stream = support().stream(input, streaming);
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        seen.push(serde_json::to_value(&event).unwrap());
    }
    let last = seen.last().unwrap().to_string();
    assert!(last.contains("1 about tea") && !last.contains("payer"), "{last}");
}

#[tokio::test]
async fn a_required_channel_inside_is_demanded_and_a_conflict_inside_is_found() {
    let missing = support().run(say("hi")).await.unwrap_err();
    assert!(missing.to_string().contains("`payer`"), "{missing}");

    let mut both = StateGraph::<Desk>::new("both");
    for name in ["left", "right"] {
        let node = both.add_node(name, async |_: Desk, _: Cx| {
            Desk::update().support(Support::update().talk(Talk::update().answer("x".to_owned())))
        });
        both.writes(node, ["answer"]);
        both.add_edge(START, node);
    }
    let both = both.compile().unwrap();
    assert!(both.warnings().iter().any(|warning| warning.to_string().contains("`answer`")));
    let input = Desk::update().support(full());
    let conflict = both.run(input).await.unwrap_err().to_string();
    assert!(conflict.contains("nodes `left` and `right` both wrote channel `answer`"), "{conflict}");
}

#[tokio::test]
async fn a_thread_of_the_plain_state_is_one_of_the_state_that_flattens_it() {
    let store = std::sync::Arc::new(MemoryCheckpointer::new());
    let plain = graph("plain", |graph: &mut StateGraph<Talk>| {
        graph.add_node("reply", async |_: Talk, _: Cx| Talk::update().log(["plain".to_owned()]).worked(1))
    });
    let plain = plain.with_checkpointer(store.clone());
    let support = support().with_checkpointer(store);
    for snapshot_every in [None, Some(1)] {
        let id = format!("t{}", snapshot_every.is_some());
        let options = RunOptions::new().thread(id.as_str()).snapshot_every(snapshot_every);
        plain.configured(options.clone()).run(Talk::update().log(["hi".to_owned()])).await.unwrap();
        support.thread(id.as_str()).adopt().await.unwrap();
        // What the thread lacks, it says; what it has, is there.
        let missing = support.thread(id.as_str()).state().await.unwrap_err().to_string();
        assert!(missing.contains("`payer`"), "{missing}");
        let end = support.configured(options.clone()).run(full()).await.unwrap();
        assert_eq!(end.state.talk.log, ["hi", "plain", "a", "3 about tea"].map(str::to_owned));
        assert_eq!((end.state.talk.worked, end.state.bill.cents), (4, 6));
        // And back: what the plain state does not know is named, and kept.
        plain.thread(id.as_str()).adopt().await.unwrap();
        let back = plain.thread(id.as_str()).state().await.unwrap();
        assert_eq!(back.values.log.len(), 4);
        assert_eq!(back.unknown, ["cents", "notes", "open", "payer", "topic"]);
        plain.configured(options).run(Talk::update().log(["again".to_owned()])).await.unwrap();
        support.thread(id.as_str()).adopt().await.unwrap();
        let now = support.thread(id.as_str()).state().await.unwrap().values;
        assert_eq!((now.bill.cents, now.topic.as_str(), now.talk.log.len()), (6, "tea", 6));
        let history = support.thread(id.as_str()).history().states().await;
        assert!(history.is_err(), "the first checkpoints have no payer");
    }
}
