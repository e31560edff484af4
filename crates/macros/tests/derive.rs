//! What the derives expand to behaves as the traits promise.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep_graph::{
    Append, ById, HasId, Log, Merge, ReduceError, Reducer, Route, State, Stored, UnknownId, Update as _,
    reduce,
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Note {
    id: String,
    text: String,
}

impl HasId for Note {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

fn note(id: &str, text: &str) -> Note {
    Note { id: id.to_owned(), text: text.to_owned() }
}

/// Keeps the writes that fit in a byte, refuses others.
enum Small {}

impl Reducer<Vec<u8>> for Small {
    type Write = i32;

    fn reduce(value: &mut Vec<u8>, write: i32) -> Result<(), ReduceError> {
        value.push(u8::try_from(write)?);
        Ok(())
    }
}

/// Lets one task write, and forgets.
enum Flash {}

impl Reducer<bool> for Flash {
    type Write = bool;
    const EXCLUSIVE: bool = true;
    const EPHEMERAL: bool = true;

    fn reduce(value: &mut bool, write: bool) -> Result<(), ReduceError> {
        *value = write;
        Ok(())
    }
}

/// A channel of every kind.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Every {
    answer: Option<String>,
    #[channel(append)]
    log: Log<String>,
    #[channel(append)]
    text: String,
    #[channel(merge_by_id)]
    notes: ById<Note>,
    #[channel(sum)]
    turns: i64,
    #[channel(max)]
    best: f64,
    #[channel(union)]
    tags: BTreeSet<String>,
    #[channel(union)]
    counts: BTreeMap<String, u32>,
    #[channel(ephemeral)]
    hint: Option<String>,
    #[channel(last_value)]
    r#type: u8,
    #[channel(with = Small)]
    small: Vec<u8>,
    #[channel(with = Flash)]
    flash: bool,
}

const NAMES: [&str; 12] =
    ["answer", "log", "text", "notes", "turns", "best", "tags", "counts", "hint", "type", "small", "flash"];

fn full_update() -> EveryUpdate {
    Every::update()
        .answer("yes".to_owned())
        .log(["a".to_owned(), "b".to_owned()])
        .text("t")
        .notes([note("1", "one")])
        .turns(2)
        .best(0.5)
        .tags(["x".to_owned()])
        .counts([("k".to_owned(), 1)])
        .hint("psst".to_owned())
        .r#type(7)
        .small(9)
        .flash(true)
}

fn full_state() -> Every {
    reduce(&Every::default(), [full_update()]).expect("every write fits")
}

fn text(update: &EveryUpdate) -> String {
    serde_json::to_string(update).expect("an update has a JSON form")
}

fn names(set: impl IntoIterator<Item = usize>) -> Vec<String> {
    set.into_iter().map(|position| Every::default().channels()[position].name.to_string()).collect()
}

#[test]
fn channels_are_the_fields_in_their_order() {
    let state = Every::default();
    let listed: Vec<_> = state.channels().iter().map(|channel| &*channel.name).collect();
    assert_eq!(listed, NAMES);
    let ephemeral = state.channels().iter().filter(|channel| channel.ephemeral);
    assert_eq!(ephemeral.map(|channel| &*channel.name).collect::<Vec<_>>(), ["hint", "flash"]);
}

#[test]
fn every_reducer_folds_as_its_attribute_says() {
    let more = Every::update()
        .answer(None)
        .log(["c".to_owned()])
        .text("ext")
        .notes([Merge::Put(note("1", "uno")), Merge::Put(note("2", "dos"))])
        .turns(-5)
        .best(0.25)
        .tags(["y".to_owned()])
        .counts([("k".to_owned(), 3), ("l".to_owned(), 4)])
        .r#type(8)
        .small(10);
    let state = reduce(&full_state(), [more]).unwrap();
    let expected = Every {
        answer: None,
        log: ["a", "b", "c"].map(str::to_owned).into(),
        text: "text".to_owned(),
        notes: [note("1", "uno"), note("2", "dos")].into_iter().collect(),
        turns: -3,
        best: 0.5,
        tags: ["x", "y"].map(str::to_owned).into(),
        counts: [("k".to_owned(), 3), ("l".to_owned(), 4)].into(),
        hint: None,
        r#type: 8,
        small: vec![9, 10],
        flash: false,
    };
    assert_eq!(state, expected);
}

#[test]
fn reduce_leaves_the_old_state_as_it_was_and_clears_ephemerals() {
    let old = full_state();
    let copy = old.clone();
    let new = reduce(&old, []).unwrap();
    assert_eq!(old, copy);
    assert_eq!((old.hint.as_deref(), old.flash), (Some("psst"), true));
    assert_eq!(new, Every { hint: None, flash: false, ..old });
}

#[test]
fn a_second_call_replaces_the_write_of_the_first() {
    let update = Every::update().turns(1).turns(2).log(["a".to_owned()]).log(["b".to_owned()]);
    assert_eq!(text(&update), r#"{"log":["b"],"turns":2}"#);
}

#[test]
fn an_update_has_one_json_entry_per_written_channel() {
    assert_eq!(text(&Every::update()), "{}");
    assert_eq!(text(&Every::update().log(["a".to_owned()]).clear_log()), r#"{"log":["a"],"clear":["log"]}"#);
    assert_eq!(
        text(&Every::update().r#type(1).clear_turns().clear_log()),
        r#"{"type":1,"clear":["log","turns"]}"#
    );
    let all = text(&full_update());
    assert_eq!(
        all,
        r#"{"answer":"yes","log":["a","b"],"text":"t","notes":[{"id":"1","text":"one"}],"turns":2,"best":0.5,"tags":["x"],"counts":{"k":1},"hint":"psst","type":7,"small":9,"flash":true}"#
    );
    let read: EveryUpdate = serde_json::from_str(&all).unwrap();
    assert_eq!(text(&read), all);
}

#[test]
fn a_written_null_survives_a_round_trip() {
    let written = text(&Every::update().answer(None));
    assert_eq!(written, r#"{"answer":null}"#);
    let update: EveryUpdate = serde_json::from_str(&written).unwrap();
    assert_eq!(update.answer, Some(None));
    assert_eq!(reduce(&full_state(), [update]).unwrap().answer, None);
    let unwritten: EveryUpdate = serde_json::from_str("{}").unwrap();
    assert_eq!(unwritten.answer, None);
}

#[test]
fn a_null_for_a_channel_that_has_none_is_refused() {
    let error = serde_json::from_str::<EveryUpdate>(r#"{"turns":null}"#).unwrap_err();
    assert!(error.to_string().starts_with("invalid type: null, expected i64"), "{error}");
}

#[test]
fn an_unknown_entry_in_the_json_of_an_update_is_refused() {
    let error = serde_json::from_str::<EveryUpdate>(r#"{"answr":"yes"}"#).unwrap_err();
    assert!(
        error.to_string().starts_with("unknown field `answr`, expected one of `answer`, `log`"),
        "{error}"
    );
    let error = serde_json::from_str::<EveryUpdate>(r#"{"clear":["lag"]}"#).unwrap_err();
    assert!(error.to_string().starts_with("no channel is named `lag`"), "{error}");
}

#[test]
fn a_cleared_channel_starts_over_before_the_write_of_the_same_update() {
    let state = full_state();
    let written_first = Every::update().log(["new".to_owned()]).clear_log();
    assert_eq!(reduce(&state, [written_first]).unwrap().log, ["new".to_owned()]);
    let only_cleared = Every::update().clear_turns().clear_small().clear_notes();
    let next = reduce(&state, [only_cleared]).unwrap();
    assert_eq!((next.turns, next.small.len(), next.notes.len()), (0, 0, 0));
    assert_eq!(next.text, "t");
}

#[test]
fn a_last_value_channel_can_be_cleared_by_json() {
    let update: EveryUpdate = serde_json::from_str(r#"{"clear":["answer","type"]}"#).unwrap();
    let next = reduce(&full_state(), [update]).unwrap();
    assert_eq!((next.answer, next.r#type), (None, 0));
}

#[test]
fn written_has_the_written_and_the_cleared_channels() {
    assert!(Every::default().written(&Every::update()).is_empty());
    assert_eq!(names(Every::default().written(&full_update()).iter()), NAMES);
    let update = Every::update().answer(None).turns(1).clear_log();
    assert_eq!(names(Every::default().written(&update).iter()), ["answer", "log", "turns"]);
}

#[test]
fn exclusive_has_what_only_one_task_may_write_and_all_that_is_cleared() {
    assert_eq!(names(Every::default().exclusive(&full_update()).iter()), ["answer", "hint", "type", "flash"]);
    let update = Every::update().log(["a".to_owned()]).turns(1).clear_log().clear_flash();
    assert_eq!(names(Every::default().exclusive(&update).iter()), ["log", "flash"]);
}

#[test]
fn channels_round_trip_through_encode_and_decode() {
    let state = full_state();
    let mut copy = Every::default();
    for position in 0..Every::default().channels().len() {
        copy.decode(position, &state.encode(position).unwrap()).unwrap();
    }
    assert_eq!(copy, state);
    assert_eq!(state.encode(1).unwrap(), br#"["a","b"]"#);
}

#[test]
fn a_value_of_another_type_is_not_decoded_and_changes_nothing() {
    let mut state = full_state();
    let error = state.decode(4, b"\"two\"").unwrap_err();
    assert!(error.to_string().starts_with("invalid type: string \"two\", expected i64"), "{error}");
    assert_eq!(state, full_state());
}

#[test]
fn a_position_without_a_channel_is_an_error() {
    let mut state = Every::default();
    let expected = "the state `Every` has 12 channels, and none that is stored at position 12";
    assert_eq!(state.encode(12).unwrap_err().to_string(), expected);
    assert_eq!(state.decode(12, b"1").unwrap_err().to_string(), expected);
}

#[test]
fn a_refused_write_names_its_channel_and_the_reason() {
    let state = full_state();
    let error = reduce(&state, [Every::update().turns(1).small(256)]).unwrap_err();
    assert_eq!(error.to_string(), "channel `small` refused a write");
    assert_eq!(error.source.to_string(), "out of range integral type conversion attempted");

    let error = reduce(&state, [Every::update().notes([Merge::remove("9")])]).unwrap_err();
    assert_eq!(error.channel, "notes");
    assert_eq!(error.source.downcast_ref::<UnknownId>(), Some(&UnknownId("9".to_owned())));

    let error = reduce(&state, [Every::update().turns(i64::MAX)]).unwrap_err();
    assert_eq!(error.channel, "turns");
    assert_eq!(state, full_state());
}

#[test]
fn debug_of_an_update_names_what_it_clears() {
    let debug = format!("{:?}", Every::update().clear_log().clear_turns());
    assert!(debug.ends_with(r#"clear: ["log", "turns"], __later: [] }"#), "{debug}");
}

#[test]
fn a_state_may_have_no_channels() {
    #[derive(State, Clone, Default)]
    struct Empty {}

    assert!(Empty {}.channels().is_empty());
    assert!(reduce(&Empty::default(), [Empty::update()]).is_ok());
    assert_eq!(
        Empty {}.encode(0).unwrap_err().to_string(),
        "the state `Empty` has 0 channels, and none that is stored at position 0"
    );
}

mod elsewhere {
    use superstep_graph::{Log, State};

    // The traits are in scope under no name, and common names mean something else.
    type Option = ();
    #[expect(dead_code, reason = "only its name matters")]
    struct Vec;

    /// A state that others see, with a field they do not.
    #[derive(State, Clone, Debug, Default)]
    pub(crate) struct Hidden {
        #[channel(append)]
        log: Log<Option>,
        #[channel(with = super::Append)]
        pub(crate) text: String,
    }

    impl Hidden {
        pub(crate) fn entries(&self) -> usize {
            self.log.len()
        }
    }
}

#[test]
fn an_update_is_as_visible_as_its_state() {
    let update: elsewhere::HiddenUpdate = elsewhere::Hidden::update().log([()]).text("a");
    let state = reduce(&elsewhere::Hidden::default(), [update]).unwrap();
    assert_eq!((state.entries(), state.text.as_str()), (1, "a"));
}

#[derive(Route, Clone, Copy, Debug, PartialEq)]
enum Next {
    Tools = 7,
    Finalize = 3,
    #[expect(non_camel_case_types, reason = "a keyword has no other case")]
    r#try = 1,
}

#[test]
fn routes_are_the_variants_in_their_order() {
    assert_eq!(Next::ALL, [Next::Tools, Next::Finalize, Next::r#try]);
    for (position, route) in Next::ALL.iter().enumerate() {
        assert_eq!(route.index(), position);
    }
    assert_eq!(Next::ALL.iter().map(|route| route.label()).collect::<Vec<_>>(), ["Tools", "Finalize", "try"]);
}

/// Hours that were once minutes.
fn hours(minutes: Value, from: u32, _: Stored) -> Result<Value, String> {
    match (from, minutes.as_i64()) {
        (1, Some(minutes)) => Ok(json!(minutes / 60)),
        (_, None) => Err(format!("`{minutes}` is no number")),
        (from, _) => Err(format!("there was no version {from}")),
    }
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Older {
    #[channel(append, was = "texts", was = "lines")]
    messages: Log<String>,
    #[channel(sum, version = 2, migrate = hours, required)]
    worked: i64,
}

#[test]
fn a_channel_tells_its_history() {
    let older = Older::default();
    let [messages, worked] = older.channels() else { panic!("two channels") };
    assert_eq!(*messages.was, ["texts", "lines"]);
    assert_eq!((messages.version, messages.required), (1, false));
    assert!(messages.migrate.is_none());
    assert!(worked.was.is_empty());
    assert_eq!((worked.version, worked.required), (2, true));
    let migrate = worked.migrate.expect("it has a version");
    assert_eq!(migrate(json!(120), 1, Stored::Write).unwrap(), json!(2));
    assert_eq!(migrate(json!("x"), 1, Stored::Value).unwrap_err().to_string(), "`\"x\"` is no number");
}

#[test]
fn an_update_is_read_under_the_old_names_of_its_channels_and_written_under_the_new_ones() {
    for old in [r#"{"texts":["a"],"clear":["texts"]}"#, r#"{"lines":["a"],"clear":["lines"]}"#] {
        let update: OlderUpdate = serde_json::from_str(old).unwrap();
        let new = serde_json::to_string(&update).unwrap();
        assert_eq!(new, r#"{"messages":["a"],"clear":["messages"]}"#);
    }
}

#[test]
fn updates_follow_each_other_as_one() {
    let words = |update: EveryUpdate| {
        reduce(&Every::default(), [update]).unwrap().log.iter().cloned().collect::<String>()
    };
    let say = |word: &str| Every::update().log([word.to_owned()]);
    // Channels that only one of the two writes stand side by side.
    let apart = say("a").then(Every::update().turns(1)).then(Every::update().clear_text());
    assert_eq!(serde_json::to_value(&apart).unwrap(), json!({"log": ["a"], "turns": 1, "clear": ["text"]}));
    let both = say("a")
        .answer("x".to_owned())
        .then(say("b").then(say("c")))
        .then(Every::update().clear_log())
        .then(say("d"));
    let stored = json!({
        "answer": "x", "log": ["a"], "$then": [{"log": ["b"]}, {"log": ["c"]}, {"clear": ["log"]}, {"log": ["d"]}],
    });
    assert_eq!(serde_json::to_value(&both).unwrap(), stored);
    assert_eq!(words(both.clone()), "d");
    assert_eq!(words(serde_json::from_value(stored).unwrap()), "d");
    assert_eq!(Every::default().written(&both).iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(Every::default().exclusive(&both).iter().collect::<Vec<_>>(), [0, 1]);
    // A builder goes on where the update ends.
    assert_eq!(words(say("a").then(say("b")).log(["c".to_owned()])), "ac");
    // Each part is refused on its own.
    let refused = Every::update().small(1).then(Every::update().small(300));
    assert_eq!(reduce(&Every::default(), [refused]).unwrap_err().channel, "small");
}
