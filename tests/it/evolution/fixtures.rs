//! Three programs, each the next version of the previous one, and their stored data.
//!
//! `tests/it/fixtures/evolution_1.db` was stored by the first program, `evolution_2.db` by the second from a
//! copy of that, and `evolution_3.db` by the third from a copy of that. They are never written again; a JSON
//! file next to each shows its content for people. A changed stored form gets fixtures of its own, and these
//! must still load: add their names to [`the_stored_form_is_unchanged`] and run the tests
//! once with `SUPERSTEP_WRITE_FIXTURE=1`. An existing file is not overwritten.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, Log, Route, RunOptions, START, State, StateGraph,
    Status,
    checkpoint::{Loaded, TaskRecord},
    clock::Clock,
    sqlite::SqliteCheckpointer,
    state::Stored,
    thread::StateSnapshot,
};
use tempfile::TempDir;

#[derive(State, Clone, Debug, Default, PartialEq)]
struct First {
    #[channel(append)]
    lines: Log<String>,
    #[channel(sum)]
    minutes: i64,
    #[channel(append)]
    note: String,
    #[channel(ephemeral)]
    hint: Option<String>,
}

/// Lines are called texts, half hours replace minutes, a place is added, and note and hint are removed.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Second {
    #[channel(append, was = "lines")]
    texts: Log<String>,
    #[channel(sum, was = "minutes", version = 2, migrate = half_hours)]
    halves: i64,
    place: Option<String>,
}

/// A text has an author, the place is removed, and note and hint are restored.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Third {
    #[channel(append, was = "lines", version = 2, migrate = with_authors)]
    texts: Log<Text>,
    #[channel(sum, was = "minutes", version = 2, migrate = half_hours)]
    halves: i64,
    #[channel(append)]
    note: String,
    #[channel(ephemeral)]
    hint: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Text {
    by: Option<String>,
    text: String,
}

fn half_hours(minutes: Value, _: u32, _: Stored) -> Result<Value, String> {
    let minutes = minutes.as_i64().ok_or_else(|| format!("{minutes} is no number of minutes"))?;
    Ok(json!(minutes / 30))
}

fn with_authors(texts: Value, _: u32, _: Stored) -> Result<Value, serde_json::Error> {
    let texts: Vec<String> = serde_json::from_value(texts)?;
    Ok(texts.into_iter().map(|text| json!({"by": null, "text": text})).collect())
}

/// A program: the behaviour of each superstep, and the number of supersteps so far.
trait Program: State {
    fn work(n: i64) -> Self::Update;

    fn done(&self) -> i64;
}

impl Program for First {
    fn work(n: i64) -> FirstUpdate {
        Self::update().lines([format!("line {n}")]).minutes(30).note(".").hint(format!("hint {n}"))
    }

    fn done(&self) -> i64 {
        self.minutes / 30
    }
}

impl Program for Second {
    fn work(n: i64) -> SecondUpdate {
        Self::update().texts([format!("text {n}")]).halves(1).place(format!("place {n}"))
    }

    fn done(&self) -> i64 {
        self.halves
    }
}

impl Program for Third {
    fn work(n: i64) -> ThirdUpdate {
        let text = Text { by: Some("me".to_owned()), text: format!("text {n}") };
        Self::update().texts([text]).halves(1).note("!").hint(format!("hint {n}"))
    }

    fn done(&self) -> i64 {
        self.halves
    }
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// A store that a program of this version has opened.
struct Opened<S: State>(CompiledGraph<S>, Arc<dyn Checkpointer>);

impl<S: Program> Opened<S> {
    /// Runs one node in a loop, until it has run for another 10 times or a multiple of it.
    fn new(path: &Path) -> Self {
        let mut graph = StateGraph::<S>::new("work");
        let node = graph.add_node("work", async |state: S, _: Cx| S::work(state.done() + 1));
        graph.add_edge(START, node);
        let next = |state: &S| if state.done() % 10 == 0 { Next::Done } else { Next::Again };
        graph.add_conditional_edges(node, next, |next| match next {
            Next::Again => node,
            Next::Done => END,
        });
        let store: Arc<dyn Checkpointer> = Arc::new(SqliteCheckpointer::open(path).unwrap());
        Self(graph.compile().unwrap().with_checkpointer(store.clone()), store)
    }

    async fn invoke(&self, config: RunOptions) -> Status {
        self.0.configured(config).run(S::update()).await.unwrap().status
    }

    async fn stop_after(&self, supersteps: u32, config: RunOptions) {
        let stop = config.step_limit(supersteps);
        assert!(self.0.configured(stop).run(S::update()).await.is_err(), "the limit stops it");
    }

    async fn head(&self, thread: &str) -> StateSnapshot<S> {
        self.0.thread(thread).state().await.unwrap()
    }
}

/// Returns the state of the thread `thread`, and its channels that the program does not know.
async fn read<S: Program>(path: &Path, thread: &str) -> (S, String) {
    let StateSnapshot { values, unknown, .. } = Opened::<S>::new(path).head(thread).await;
    (values, unknown.join(" "))
}

struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

fn on(thread: &str) -> RunOptions {
    RunOptions::new().thread(thread).clock(Still)
}

/// Runs the programs up to `program` on a store, one after the other.
async fn write(path: &Path, program: usize) {
    let first = Opened::<First>::new(path);
    for _ in 0..6 {
        first.invoke(on("long")).await;
    }
    first.invoke(on("finished")).await;
    first.stop_after(3, on("stopped")).await;
    let cancelled = on("begun");
    cancelled.get_cancel().cancel();
    let input = First::update().lines(["in".to_owned()]).note("in").hint("in".to_owned());
    first.0.configured(cancelled).run(input).await.unwrap();
    if program > 1 {
        let second = Opened::<Second>::new(path);
        for _ in 0..6 {
            second.invoke(on("long")).await;
        }
        second.0.configured(on("stopped")).resume().await.unwrap();
    }
    if program > 2 {
        let third = Opened::<Third>::new(path);
        third.invoke(on("long")).await;
        third.0.configured(on("begun")).resume().await.unwrap();
    }
}

/// Returns the stored data of every thread at its head.
async fn dump(path: &Path) -> String {
    let store = SqliteCheckpointer::open(path).unwrap();
    let mut threads = serde_json::Map::new();
    for (thread, _) in store.threads().await.unwrap() {
        let loaded = store.load(&thread, None).await.unwrap().unwrap();
        let json = |json: &str| serde_json::from_str::<Value>(json).unwrap();
        let snapshot =
            loaded.snapshot.map_or_else(Vec::new, |snapshot| snapshot.channels().unwrap().into_owned());
        let snapshot: serde_json::Map<_, _> =
            snapshot.into_iter().map(|value| (value.channel, json(&value.json))).collect();
        let commits: Vec<String> = loaded.commits.concat().iter().map(|update| update.to_string()).collect();
        let tasks: Vec<_> = loaded.tasks.iter().map(|(slot, task)| json!([slot, task])).collect();
        let (head, next) = (loaded.head, &loaded.meta.control.next);
        threads.insert(
            thread.to_string(),
            json!({"head": head, "next": next, "snapshot": snapshot, "updates since": commits, "tasks": tasks}),
        );
    }
    serde_json::to_string_pretty(&threads).unwrap() + "\n"
}

fn fixture(program: usize, ending: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures");
    folder.join(format!("evolution_{program}.{ending}"))
}

/// Copies a fixture, because opening a database creates files next to it.
fn copy(program: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads.db");
    std::fs::copy(fixture(program, "db"), &path).expect("the fixture is in the repository");
    (folder, path)
}

/// Returns the channels of the snapshot of a checkpoint.
fn names(loaded: &Loaded) -> Vec<String> {
    let channels = loaded.snapshot.as_ref().unwrap().channels().unwrap();
    channels.iter().map(|value| value.channel.clone()).collect()
}

#[tokio::test]
async fn the_stored_form_is_unchanged() {
    for program in 1..=3 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        write(&path, program).await;
        let dumped = dump(&path).await;
        let (db, json) = (fixture(program, "db"), fixture(program, "json"));
        if std::env::var_os("SUPERSTEP_WRITE_FIXTURE").is_some() && !db.exists() {
            std::fs::copy(&path, &db).unwrap();
            std::fs::write(&json, &dumped).unwrap();
        }
        assert_eq!(dumped, std::fs::read_to_string(json).unwrap(), "program {program}");
        assert_eq!(dumped, dump(&copy(program).1).await, "program {program}");
    }
}

fn numbered(word: &str, from: i64, to: i64) -> impl Iterator<Item = String> + use<'_> {
    (from..=to).map(move |n| format!("{word} {n}"))
}

#[tokio::test]
async fn the_first_fixture_is_read_by_every_program() {
    let (_folder, path) = copy(1);
    let first = First {
        lines: numbered("line", 1, 60).collect(),
        minutes: 1_800,
        note: ".".repeat(60),
        hint: Some("hint 60".to_owned()),
    };
    assert_eq!(read::<First>(&path, "long").await, (first, String::new()));
    let second = Second { texts: numbered("line", 1, 60).collect(), halves: 60, place: None };
    assert_eq!(read::<Second>(&path, "long").await, (second, "hint note".to_owned()));
    let texts = numbered("line", 1, 60).map(|text| Text { by: None, text }).collect();
    let hint = Some("hint 60".to_owned());
    let third = Third { texts, halves: 60, note: ".".repeat(60), hint };
    assert_eq!(read::<Third>(&path, "long").await, (third, String::new()));
}

#[tokio::test]
async fn an_unfinished_thread_is_gone_on_with_by_every_program() {
    let (_folder, path) = copy(1);
    let end = Opened::<Second>::new(&path).0.configured(on("stopped")).resume().await.unwrap();
    assert_eq!((end.status, end.state.halves), (Status::Completed, 10));
    let texts: Vec<_> = numbered("line", 1, 3).chain(numbered("text", 4, 10)).collect();
    assert_eq!(end.state.texts.iter().cloned().collect::<Vec<_>>(), texts);
    // The first program knows the old part of it, and retains the rest.
    let (state, unknown) = read::<First>(&path, "stopped").await;
    assert_eq!((state.lines.len(), state.minutes, state.note.as_str()), (3, 90, "..."));
    assert_eq!(unknown, "halves place texts");
}

#[tokio::test]
async fn the_second_fixture_has_data_unknown_to_the_second_program() {
    let (_folder, path) = copy(2);
    let (state, unknown) = read::<Second>(&path, "long").await;
    let texts: Log<_> = numbered("line", 1, 60).chain(numbered("text", 61, 120)).collect();
    assert_eq!(state, Second { texts, halves: 120, place: Some("place 120".to_owned()) });
    assert_eq!(unknown, "hint note");
    // Its snapshot precedes the thread's end, so that later data was retained by it.
    let store = SqliteCheckpointer::open(&path).unwrap();
    let loaded = store.load(&"long".into(), None).await.unwrap().unwrap();
    let names = names(&loaded);
    assert_eq!(names, ["texts", "halves", "place", "$v", "$kept"]);
}

#[tokio::test]
async fn after_a_rollback_the_first_program_has_its_removed_channel_again() {
    let (_folder, path) = copy(2);
    let (state, unknown) = read::<First>(&path, "long").await;
    // Renamed channels are unknown to it; it retains them unchanged.
    assert_eq!((state.lines.len(), state.minutes, state.note), (0, 0, ".".repeat(60)));
    assert_eq!(state.hint, None, "it was over long ago");
    assert_eq!(unknown, "halves place texts");
}

#[tokio::test]
async fn nothing_is_lost_when_a_rolled_back_program_continues_until_its_own_snapshot() {
    let (_folder, path) = copy(2);
    let first = Opened::<First>::new(&path);
    for _ in 0..6 {
        first.invoke(on("long")).await;
    }
    let loaded = first.1.load(&"long".into(), None).await.unwrap().unwrap();
    let names = names(&loaded);
    assert_eq!(names, ["lines", "minutes", "note", "hint", "$kept"], "the first program made it");
    drop(first);

    let (state, unknown) = read::<Second>(&path, "long").await;
    assert_eq!(state.place.as_deref(), Some("place 120"));
    // If both names have a value, the current one counts; later writes are folded, as always.
    let since = loaded.commits.concat();
    let since = since.iter().filter(|update| update.touches("lines")).count();
    assert_eq!((state.texts.len(), since > 0), (120 + since, true));
    assert_eq!(unknown, "hint lines minutes note");
    assert_eq!(read::<First>(&path, "long").await.0.note, ".".repeat(120));
}

#[tokio::test]
async fn the_third_fixture_is_read_by_the_third_program_and_refused_by_the_second() {
    let (_folder, path) = copy(3);
    let (state, unknown) = read::<Third>(&path, "long").await;
    assert_eq!((state.texts.len(), state.halves), (130, 130));
    assert_eq!(state.texts[0], Text { by: None, text: "line 1".to_owned() });
    assert_eq!(state.texts[129], Text { by: Some("me".to_owned()), text: "text 130".to_owned() });
    assert_eq!(state.note, format!("{}{}", ".".repeat(60), "!".repeat(10)));
    assert_eq!((state.hint.as_deref(), unknown.as_str()), (Some("hint 130"), "place"));

    let second = Opened::<Second>::new(&path);
    let error = second.0.thread("long").state().await.err().unwrap();
    let expected = "channel `texts` is stored in version 2, and this program knows versions up to 1";
    assert!(error.to_string().contains(expected), "{error}");
    // What is older than the newer program can be read.
    let newest = second.0.thread("long").history().checkpoints().await.unwrap()[0].id;
    let before = CheckpointId(newest.0 - 11);
    let state = second.0.thread("long").at(before).state().await.unwrap();
    assert_eq!(state.values.halves, 120);
}

#[tokio::test]
async fn an_input_that_an_older_program_accepted_is_run_by_a_newer_one() {
    let (_folder, path) = copy(1);
    let second = Opened::<Second>::new(&path);
    let begun = second.head("begun").await;
    assert_eq!((begun.next.len(), begun.unknown.join(" ").as_str()), (1, "hint note"));
    second.0.configured(on("begun")).resume().await.unwrap();
    let loaded = second.1.load(&"begun".into(), Some(CheckpointId(1))).await.unwrap().unwrap();
    let (_, record) = &loaded.tasks[0];
    let TaskRecord::Finished { update, .. } = record else { panic!("an accepted input is finished") };
    assert_eq!(update, r#"{"lines":["in"],"note":"in","hint":"in"}"#, "what is stored stays as it is");
    let (state, _) = read::<Third>(&path, "begun").await;
    assert_eq!((state.texts.len(), state.halves, state.note.as_str()), (11, 10, "in"));
}
