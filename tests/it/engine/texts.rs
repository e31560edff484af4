//! Threads as text: a thread that was exported and imported is like the original, in every store.

use std::{fs, io::Cursor, path::Path, sync::Arc};

use superstep::{
    Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, NodeError, RunError, START, State, StateGraph,
    Status, ThreadId,
    checkpoint::{
        Retention,
        text::{self, ExportOptions, Redaction, TextError},
    },
    clock::Clock,
    node::Persistence,
    replay::ReplayError,
};

use crate::support::{Plain, on_every_store, say, text as chain};

/// Returns a file of format 1. A promise.
fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the file of a thread with a subgraph, recorded inputs, an effect and a question: [`waiting`].
fn format_1() -> String {
    fixture("thread_1.jsonl")
}

fn options() -> ExportOptions {
    ExportOptions::default()
}

fn redacting(redaction: Redaction) -> ExportOptions {
    ExportOptions::new().redaction(redaction)
}

async fn exported(store: &dyn Checkpointer, thread: &str) -> String {
    text::export(store, &thread.into(), &options()).await.unwrap()
}

async fn imported(store: &dyn Checkpointer, text: &str) -> ThreadId {
    text::import(store, &mut Cursor::new(text)).await.unwrap().thread
}

fn memory(keeps_values: bool) -> Arc<dyn Checkpointer> {
    Arc::new(MemoryCheckpointer::new().keeping_values(keeps_values))
}

/// Always the same time.
struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> i64 {
        43_200_000
    }
}

/// A graph with a subgraph, parallel nodes, a recorded input, an effect and a question.
fn trip(store: Arc<dyn Checkpointer>) -> CompiledGraph<Plain> {
    let mut inner = StateGraph::<Plain>::new("inner");
    let deep = inner.add_node("deep", async |_: Plain, _: Cx| say("deep\nand \"quoted\" ü"));
    inner.add_edge(START, deep);
    inner.add_edge(deep, END);
    let inner = inner.compile().unwrap();

    let mut graph = StateGraph::<Plain>::new("trip");
    graph = graph.version("2");
    let sub = graph.add_subgraph("sub", &inner);
    let look = graph.add_node("look", async |_: Plain, cx: Cx| {
        say(&cx.recorded("weather", async || "rain".to_owned()).await)
    });
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
        let paid: i64 = cx.once("pay", async |_| Ok::<_, NodeError>(7)).await?;
        let answer: String = cx.interrupt("go", "really?").await;
        Ok::<_, NodeError>(Plain::update().log([answer]).x(paid))
    });
    let last = graph.add_node("last", async |_: Plain, _: Cx| say("last"));
    graph.add_edge(START, sub);
    graph.add_edge(sub, look);
    graph.add_edge(sub, ask);
    graph.add_join([look, ask], last);
    graph.add_edge(last, END);
    graph.compile().unwrap().with_checkpointer(store)
}

/// Runs the trip up to its question.
async fn waiting(store: &Arc<dyn Checkpointer>) -> String {
    let thread = trip(store.clone()).thread("t").clock(Noon);
    let end = thread.run(say("in")).await.unwrap();
    assert_eq!(end.status, Status::Interrupted);
    exported(&**store, "t").await
}

#[tokio::test]
async fn typed_and_encoded_values_have_the_same_text() {
    assert_eq!(waiting(&memory(true)).await, waiting(&memory(false)).await);
}

on_every_store! {
    async fn a_moved_thread_is_answered_replayed_and_forked_like_the_original(backend: Backend) {
        let here = backend.open();
        let text = waiting(&here).await;
        let there = memory(true);
        imported(&*there, &text).await;
        assert_eq!(exported(&*there, "t").await, text);
        let [original, moved] = [here.clone(), there.clone()].map(|store| trip(store).thread("t").clock(Noon));
        let questions = async |thread: &superstep::Thread<Plain>| {
            let snapshot = thread.state().await.unwrap();
            snapshot.tasks.into_iter().flat_map(|task| task.interrupts).collect::<Vec<_>>()
        };
        assert_eq!(questions(&original).await, questions(&moved).await);
        for thread in [&original, &moved] {
            let end = thread.answer("go", "yes").resume().await.unwrap();
            assert_eq!((end.state.x, end.state.log.len()), (7, 5));
            thread.replay().run().await.unwrap().assert_same();
        }
        assert_eq!(exported(&*there, "t").await, exported(&*here, "t").await);
        let old = original.history().checkpoints().await.unwrap().last().unwrap().id;
        for thread in [&original, &moved] {
            thread.at(old).update(say("other")).await.unwrap();
            thread.prune(Retention::Last(2)).await.unwrap();
        }
        let text = exported(&*here, "t").await;
        assert_eq!(exported(&*there, "t").await, text);
        let back = memory(false);
        imported(&*back, &text).await;
        assert_eq!(exported(&*back, "t").await, text);
        assert_eq!(
            trip(back).thread("t").state().await.unwrap().values,
            original.state().await.unwrap().values
        );
    }

    async fn a_pruned_thread_of_a_subgraph_with_its_own_memory_is_moved(backend: Backend) {
        let graph = |store| {
            let mut inner = StateGraph::<Plain>::new("inner");
            let count = inner.add_node("count", async |state: Plain, _: Cx| Plain::update().x(state.x + 1));
            inner.add_edge(START, count);
            inner.add_edge(count, END);
            let inner = inner.compile().unwrap().with_persistence(Persistence::PerNode);
            let mut graph = StateGraph::<Plain>::new("outer");
            let (input, output) = (|_: &Plain| say("in"), |inner: &Plain| Plain::update().x(inner.x));
            let sub = graph.add_subgraph_with("sub", &inner, input, output);
            graph.add_edge(START, sub);
            graph.add_edge(sub, END);
            graph.compile().unwrap().with_checkpointer(store)
        };
        let here = backend.open();
        for _ in 0..3 {
            graph(here.clone()).thread("t").run(say("in")).await.unwrap();
        }
        graph(here.clone()).thread("t").prune(Retention::Last(1)).await.unwrap();
        let there = memory(false);
        imported(&*there, &exported(&*here, "t").await).await;
        let mut ends = Vec::new();
        for store in [here, there] {
            ends.push(graph(store).thread("t").run(say("in")).await.unwrap().state);
        }
        assert_eq!((ends[0].x, &ends[0]), (4, &ends[1]));
    }

    async fn a_redacted_thread_can_be_read_and_says_so(backend: Backend) {
        let here = backend.open();
        waiting(&here).await;
        let secret = redacting(Redaction::new().secret("rain").channel("no such channel"));
        let text = text::export(&*here, &"t".into(), &secret).await.unwrap();
        assert!(!text.contains("rain"), "{text}");
        let there = memory(true);
        imported(&*there, &text).await;
        assert_eq!(exported(&*there, "t").await, text, "the rules are remembered");
        let thread = trip(there).thread("t");
        let refused = thread.replay().run().await.expect_err("values are missing");
        assert!(matches!(refused, ReplayError::Redacted { .. }), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "SS199: thread `t` was redacted when it was exported (channel no such channel, secrets), so the values that a \
             replay compares are missing; replay the thread that was exported"
        );

        let channel = redacting(Redaction::new().channel("log"));
        let text = text::export(&*here, &"t".into(), &channel).await.unwrap();
        for hidden in ["rain", "deep\\n", "really?", "\"in\"", "$state"] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
        assert!(text.contains(r#""update":{"log":{"$redacted":"channel log"}}"#), "{text}");
        let there = memory(true);
        imported(&*there, &text).await;
        let unread = trip(there).thread("t").state().await.expect_err("the channel is not a list");
        assert!(matches!(unread, RunError::Decode { .. }), "{unread:?}");
        let told = chain(&unread);
        assert!(told.contains("an update, redacted when the thread was exported (channel log), does not fit"), "{told}");
    }
}

#[tokio::test]
async fn paths_and_functions_redact_parts_of_values() {
    #[derive(State, Clone, Debug, Default)]
    struct Mail {
        #[channel(append)]
        sent: superstep::Log<serde_json::Value>,
        count: u32,
    }

    let mut graph = StateGraph::<Mail>::new("mail");
    let send = graph.add_node("send", async |_: Mail, _: Cx| {
        let mail =
            serde_json::json!({"to": "ada@example.org", "text": "call +49 30 123", "n": [1, {"to": "x"}]});
        Mail::update().sent([mail]).count(1)
    });
    graph.add_edge(START, send);
    graph.add_edge(send, END);
    let store = memory(true);
    let graph = graph.compile().unwrap().with_checkpointer(store.clone());
    graph.thread("t").run(Mail::update()).await.unwrap();
    let shown = async |redaction| {
        let text = text::export(&*store, &"t".into(), &redacting(redaction)).await.unwrap();
        text.lines().find(|line| line.contains(r#""node":"send","update""#)).unwrap().to_owned()
    };
    assert_eq!(
        shown(Redaction::new().path("sent.*.to").path("sent.*.n.1")).await,
        r#"{"applied":0,"node":"send","update":{"count":1,"sent":[{"n":[1,{"$redacted":"path sent.*.n.1"}],"text":"call +49 30 123","to":{"$redacted":"path sent.*.to"}}]}}"#
    );
    let digits = |text: &str| text.contains('+').then(|| text.split('+').next().unwrap().to_owned() + "+…");
    assert_eq!(
        shown(Redaction::new().texts("numbers", digits).secret("ada")).await,
        r#"{"applied":0,"node":"send","update":{"count":1,"sent":[{"n":[1,{"to":"x"}],"text":"call +…","to":"[redacted]@example.org"}]}}"#
    );
}

#[tokio::test]
async fn a_file_of_format_1_stays_readable() {
    assert_eq!(waiting(&memory(true)).await, format_1());
    let store = memory(true);
    let thread = imported(&*store, &format_1()).await;
    assert_eq!(thread, "t".into());
    assert_eq!(exported(&*store, "t").await, format_1());
    let state = trip(store.clone()).thread("t").state().await.unwrap();
    assert_eq!(state.tasks.iter().flat_map(|task| &task.interrupts).count(), 1);
    let end = trip(store).thread("t").answer("go", "yes").resume().await.unwrap();
    assert_eq!(end.state.x, 7);
}

/// It has no numbers of lines, and fingerprints of small values in place of the values.
#[tokio::test]
async fn an_older_file_of_format_1_stays_readable() {
    let store = memory(true);
    let thread = trip(store.clone()).thread("t");
    thread.import(&fixture("thread_1_without_lines.jsonl")).await.unwrap();
    let end = thread.answer("go", "yes").resume().await.unwrap();
    assert_eq!(end.state.x, 7);
    thread.replay().run().await.unwrap().assert_same();
    assert_eq!(thread.check_states().await.unwrap(), None);
}

#[tokio::test]
async fn a_file_of_format_1_with_branches_and_a_pruned_parent_stays_readable() {
    let store = memory(true);
    waiting(&store).await;
    let thread = trip(store.clone()).thread("t").clock(Noon);
    thread.answer("go", "yes").resume().await.unwrap();
    let old = thread.history().checkpoints().await.unwrap()[1].id;
    thread.at(old).update_as("look", say("other")).await.unwrap();
    thread.prune(Retention::Last(3)).await.unwrap();
    let text = fixture("thread_1_pruned.jsonl");
    assert_eq!(exported(&*store, "t").await, text);
    let there = memory(false);
    imported(&*there, &text).await;
    assert_eq!(exported(&*there, "t").await, text);
    let [one, other] = [store, there].map(|store| trip(store).thread("t"));
    assert_eq!(one.state().await.unwrap().values, other.state().await.unwrap().values);
    assert_eq!(one.history().checkpoints().await.unwrap(), other.history().checkpoints().await.unwrap());
}

/// Replaces the first occurrence of a part of the fixture.
fn changed(from: &str, to: &str) -> Vec<u8> {
    let text = format_1();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}

fn line_of(part: &str) -> usize {
    format_1().lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}")) + 1
}

#[tokio::test]
async fn a_wrong_line_is_named_and_nothing_is_stored() {
    let text = format_1();
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len();
    let cut = |most: usize| (lines[..most].join("\n") + "\n").into_bytes();
    let second = line_of(r#""checkpoint":2"#);
    let deep = format!(r#""update":{}1{}"#, "[".repeat(200), "]".repeat(200));
    let bad: Vec<(Vec<u8>, usize, &str)> = vec![
        (Vec::new(), 0, "the file is empty"),
        (b"{}\n".to_vec(), 1, "it is not the first line of a thread's text"),
        (b"\x00\x01".to_vec(), 1, "it is not the first line of a thread's text"),
        (b"\xef\xbb\xbf{\n".to_vec(), 1, "it is not the first line of a thread's text"),
        (
            changed("\"format\":1", "\"format\":2"),
            1,
            "the file has format 2, and this program knows format 1; use a newer superstep",
        ),
        (
            changed("\"format\":1", "\"format\":0"),
            1,
            "the file has format 0, and this program knows format 1",
        ),
        (changed("\"thread\":\"t\"", "\"thread\":\"\""), 1, "`thread` is not a valid name of a thread"),
        (
            changed("\"thread\":\"t\"", "\"thread\":\"a\\u001fb\""),
            1,
            "`thread` is not a valid name of a thread",
        ),
        (changed("\"thread\":\"t\"", "\"thread\":\"t\",\"sum\":7"), 1, "unknown field `sum`"),
        (cut(1), 2, "the file ends here, without its last line, `total`: it is incomplete"),
        (cut(count - 1), count, "the file ends here, without its last line, `total`: it is incomplete"),
        (text.as_bytes()[..text.len() - 5].to_vec(), count, "EOF while parsing"),
        ([&*text, "\n"].concat().into_bytes(), count + 1, "it follows the last line, `total`"),
        ([&*text, &*text].concat().into_bytes(), count + 1, "it follows the last line, `total`"),
        (
            changed("\"total\":{\"threads\":2", "\"total\":{\"threads\":3"),
            count,
            "`total` does not fit the file",
        ),
        (
            changed("\"checkpoint\":2,", "\"checkpoint\":1,"),
            second,
            "checkpoint 1 is there already, or not in order",
        ),
        (
            changed("\"checkpoint\":2,", "\"checkpoint\":0,"),
            second,
            "checkpoint 0 is there already, or not in order",
        ),
        (
            changed("\"checkpoint\":2,", "\"checkpoint\":2000002,"),
            second,
            "the ids of more than 1000000 checkpoints are missing",
        ),
        (
            changed("\"checkpoint\":2,", "\"checkpoint\":18446744073709551615,"),
            second,
            "the ids of more than 1000000",
        ),
        (
            changed("\"checkpoint\":2,", "\"checkpoint\":-1,"),
            second,
            "invalid value: integer `-1`, expected u64",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1", "\"checkpoint\":2,\"parent\":2"),
            second,
            "the parent 2 is not older than checkpoint 2",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1", "\"checkpoint\":2,\"parent\":9"),
            second,
            "the parent 9 is not older than checkpoint 2",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1", "\"checkpoint\":2,\"parent\":1,\"parent\":1"),
            second,
            "duplicate field `parent`",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1", "\"checkpoint\":2,\"parent\":1,\"parent_pruned\":true"),
            second,
            "the parent 1 is in the file, so it is not pruned",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1", "\"checkpoint\":2,\"parent_pruned\":true"),
            second,
            "a checkpoint without `parent` cannot have `parent_pruned`",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1,", "\"checkpoint\":2,\"colour\":\"red\",\"parent\":1,"),
            second,
            "unknown field `colour`",
        ),
        (
            changed("\"checkpoint\":2,\"parent\":1,", "\"checkpoint\":2,\"parent\":1,\"snapshot\":false,"),
            second,
            "`snapshot` is unknown or superfluous",
        ),
        (
            changed("\"source\":\"loop\"", "\"source\":\"magic\""),
            second,
            "unknown variant `magic`, expected one of",
        ),
        (
            changed("\"recorded\":true", "\"recorded\":false"),
            second + 1,
            "`recorded` is unknown or superfluous",
        ),
        (
            changed(",\"recorded\":true", ""),
            second + 1,
            "an applied task has either its `update` or `recorded`",
        ),
        (
            changed("{\"applied\":0", "{\"applied\":5"),
            second + 1,
            "task 5 is not recorded as finished under the parent",
        ),
        (
            changed("{\"applied\":0", "{\"folded\":0"),
            second + 1,
            "unknown kind of line, with the entries `folded`, `node`, `recorded`",
        ),
        (
            changed("\"task\":0,\"node\":\"__start__\"", "\"task\":0,\"node\":\"other\""),
            3,
            "task 0 of the checkpoint is of node `__start__`",
        ),
        (
            changed("\"task\":0,\"node\":\"__start__\"", "\"task\":7,\"node\":\"__start__\""),
            3,
            "the checkpoint has no task 7 to run",
        ),
        (changed("\"end\":\"finished\"", "\"end\":\"over\""), 3, "unknown variant `over`"),
        (changed("\"end\":\"finished\"", "\"end\":\"cancelled\""), 3, "`targets` is unknown or superfluous"),
        (changed(",\"targets\":[]", ""), 3, "a task with the end \"finished\" needs `targets`"),
        (changed("\"update\":{\"log\":[\"in\"]}", &deep), 3, "recursion limit exceeded"),
        (
            changed("{\"subgraph\":[\"sub:0@2\"]", "{\"subgraph\":[]"),
            line_of("subgraph"),
            "`subgraph` is not a valid path",
        ),
        (
            changed("{\"subgraph\":[\"sub:0@2\"]", "{\"subgraph\":[\"a\\u001f\"]"),
            line_of("subgraph"),
            "`subgraph` is not a valid path",
        ),
    ];
    let store = memory(true);
    for (file, line, what) in bad {
        let shown = String::from_utf8_lossy(&file).into_owned();
        let refused = text::import(&*store, &mut Cursor::new(file)).await;
        match refused {
            Err(TextError::Line { line: at, what: found }) => {
                assert!(
                    at == line as u64 && found.contains(what),
                    "wanted {line}: {what}\ngot {at}: {found}\n{shown}"
                );
            }
            other => panic!("wanted {line}: {what}, got {other:?}\n{shown}"),
        }
        assert!(store.names().await.unwrap().is_empty(), "{shown}");
    }
    let mut bytes = text.as_bytes().to_vec();
    let at = text.find("\"in\"").unwrap() + 1;
    bytes[at] = 0xff;
    let refused = text::import(&*store, &mut Cursor::new(bytes)).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("SS312: line 3 of the thread file: it is not UTF-8 at byte "),
        "{refused}"
    );
}

#[tokio::test]
async fn every_truncated_or_doubled_file_is_refused() {
    let text = format_1();
    let lines: Vec<&str> = text.lines().collect();
    let store = memory(true);
    for nth in 0..lines.len() {
        let without: Vec<_> =
            lines.iter().enumerate().filter(|(at, _)| *at != nth).map(|(_, line)| *line).collect();
        let mut twice = lines.clone();
        twice.insert(nth, lines[nth]);
        for (what, lines) in [("without", without), ("twice", twice)] {
            let file = lines.join("\n") + "\n";
            let refused = text::import(&*store, &mut Cursor::new(&file)).await;
            assert!(refused.is_err(), "{what} line {}", nth + 1);
        }
    }
}

#[tokio::test]
async fn an_unreadable_source_is_an_error_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::open(folder.path()).unwrap();
    let refused = text::import(&*memory(true), &mut std::io::BufReader::new(file)).await.unwrap_err();
    assert!(matches!(refused, TextError::Io { .. }), "{refused:?}");
    assert!(
        chain(&refused).starts_with("SS314: the thread file cannot be read\n  cause: "),
        "{}",
        chain(&refused)
    );
}

#[tokio::test]
async fn only_a_thread_that_exists_is_exported() {
    let store = memory(true);
    waiting(&store).await;
    let child = store.children(&"t".into()).await.unwrap().remove(0);
    for thread in [ThreadId::from("u"), child] {
        let refused = text::export(&*store, &thread, &options()).await.unwrap_err();
        assert!(refused.to_string().starts_with("SS311: "), "{refused}");
    }
}

/// Threads of real models, from databases to memory: their runs are replayed there without a difference.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn threads_of_databases_have_the_same_text_in_memory() {
    for name in ["real_model.db", "real_replay.db", "evolution_1.db", "evolution_2.db", "evolution_3.db"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures");
        fs::copy(fixtures.join(name), &path).unwrap();
        let store = superstep::sqlite::SqliteCheckpointer::open_read_only(&path).unwrap();
        let there = memory(true);
        for thread in store.names().await.unwrap() {
            let text = text::export(&store, &thread, &options()).await.unwrap();
            imported(&*there, &text).await;
            assert_eq!(text::export(&*there, &thread, &options()).await.unwrap(), text);
        }
        drop(store);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{name}: nothing is left beside the database: {left:?}");
    }
}
