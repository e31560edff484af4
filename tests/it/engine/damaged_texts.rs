//! Threads that lost a part, or fold to other states than were stored: in files, in stores, in replays.

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, History, Log, MemoryCheckpointer, NodeError,
    ReduceError, Reducer, START, State, StateGraph, ThreadId,
    checkpoint::{
        CheckpointError, Commit,
        text::{self, ExportOptions, TextError},
    },
    replay::{At, DivergenceKind, ReplayError},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use crate::support::{Plain, say};

fn encoded() -> Arc<dyn Checkpointer> {
    Arc::new(MemoryCheckpointer::new().keeping_values(false))
}

/// A graph with parallel nodes, a recorded effect and a question.
fn ask(store: Arc<dyn Checkpointer>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("ask");
    let look = graph.add_node("look", async |_: Plain, cx: Cx| {
        say(&cx.recorded("weather", async || "rain".to_owned()).await)
    });
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
        let paid: i64 = cx.once("pay", async |_| Ok::<_, NodeError>(7)).await?;
        let answer: String = cx.interrupt("go", "really?").await;
        Ok::<_, NodeError>(Plain::update().log([answer]).x(paid))
    });
    let last = graph.add_node("last", async |_: Plain, _: Cx| say("last"));
    graph.add_edge(START, look);
    graph.add_edge(START, ask);
    graph.add_join([look, ask], last);
    graph.add_edge(last, END);
    graph.compile().unwrap().with_checkpointer(store)
}

/// Returns the text of a finished thread and of a waiting one, with snapshots.
async fn texts() -> [String; 2] {
    let store = encoded();
    let thread = ask(store.clone()).thread("t").snapshot_every(1);
    thread.run(say("in")).await.unwrap();
    let options = ExportOptions::new().snapshots();
    let waiting = text::export(&*store, &"t".into(), &options).await.unwrap();
    thread.answer("go", "yes").resume().await.unwrap();
    [waiting, text::export(&*store, &"t".into(), &options).await.unwrap()]
}

fn refusal(text: &str) -> Option<(u64, String)> {
    match text::check(&mut Cursor::new(text)) {
        Err(TextError::Line { line, what }) => Some((line, what)),
        Err(other) => panic!("{other:?}"),
        Ok(_) => None,
    }
}

#[tokio::test]
async fn a_file_that_lost_any_of_its_lines_is_refused() {
    for text in texts().await {
        assert_eq!(refusal(&text), None);
        let lines: Vec<&str> = text.lines().collect();
        for lost in 0..lines.len() {
            let rest = lines.iter().enumerate().filter(|(nth, _)| *nth != lost).map(|(_, line)| *line);
            let rest = rest.collect::<Vec<_>>().join("\n") + "\n";
            assert!(refusal(&rest).is_some(), "without line {}: {}\n{text}", lost + 1, lines[lost]);
        }
    }
}

/// Also in a file of an older program, which has no numbers of lines.
#[tokio::test]
async fn a_superstep_without_the_update_of_a_task_is_named_by_its_line() {
    let [_, text] = texts().await;
    let old: Vec<String> = text
        .lines()
        .map(|line| match line.split_once(",\"lines\":") {
            Some((line, _)) => format!("{line}}}"),
            None => line.to_owned(),
        })
        .collect();
    assert_eq!(refusal(&(old.join("\n") + "\n")), None, "a file without numbers of lines is readable");
    let mut applied = 0;
    for (nth, line) in old.iter().enumerate().filter(|(_, line)| line.starts_with("{\"applied\"")) {
        let mut rest = old.clone();
        rest.remove(nth);
        let (at, what) = refusal(&(rest.join("\n") + "\n")).expect(line);
        let checkpoint = (0..nth).rfind(|nth| old[*nth].starts_with("{\"checkpoint\"")).unwrap() as u64 + 1;
        assert_eq!(at, checkpoint, "{line}: {what}");
        let slot = &line["{\"applied\":".len()..][..1];
        assert!(
            what.starts_with(&format!("the `applied` line of task {slot} is missing: checkpoint ")),
            "{what}"
        );
        assert!(what.ends_with("; export the thread again"), "{what}");
        applied += 1;
    }
    assert_eq!(applied, 4);
}

#[tokio::test]
async fn a_line_that_was_added_is_refused() {
    let [_, text] = texts().await;
    let line = text.lines().find(|line| line.contains(r#""node":"last""#)).unwrap();
    let (_, what) = refusal(&text.replacen(line, &format!("{line}\n{line}"), 1)).unwrap();
    assert!(what.starts_with("the `applied` line of task 0 is superfluous"), "{what}");
    let (_, what) = refusal(&text.replacen(",\"lines\":1", ",\"lines\":2", 1)).unwrap();
    assert!(what.starts_with("checkpoint 1 has 2 `lines`, and 1 follow"), "{what}");
}

/// Copies a thread without the update of its last superstep, as an older program imported it.
async fn without_an_update(from: &dyn Checkpointer) -> Arc<dyn Checkpointer> {
    let (to, thread) = (encoded(), ThreadId::from("t"));
    let mut ids: Vec<_> = from.history(&thread, History::default()).await.unwrap();
    ids.reverse();
    let (mut commits, last) = (Vec::new(), ids.last().unwrap().id);
    for meta in ids {
        let commit = from.read_commit(&thread, meta.id).await.unwrap().unwrap();
        let applied = if meta.id == last { Vec::new() } else { commit.applied.clone() };
        commits.push(Commit { applied, snapshot: None, ..commit });
    }
    to.commit_all(&thread, None, commits).await.unwrap();
    to
}

#[tokio::test]
async fn a_stored_thread_without_an_update_is_neither_replayed_nor_exported() {
    let store = encoded();
    let thread = ask(store.clone()).thread("t");
    thread.run(say("in")).await.unwrap();
    thread.answer("go", "yes").resume().await.unwrap();
    thread.replay().run().await.unwrap().assert_same();

    let damaged = without_an_update(&*store).await;
    let error = ask(damaged.clone()).thread("t").replay().run().await.unwrap_err();
    assert!(matches!(error, ReplayError::Run(_)), "{error:?}");
    insta::assert_snapshot!(error, @"SS304: checkpoint 4 of thread `t` has no update of node `last`, task 0 of checkpoint 3, so its state is not the one that was stored; import the thread again from a complete file, or delete it");
    let error = text::export(&*damaged, &"t".into(), &ExportOptions::new()).await.unwrap_err();
    insta::assert_snapshot!(error, @"SS313: checkpoint 4 of thread `t` cannot be exported: the update of task 0 is missing, because the thread is damaged");
}

/// Appends words, or only those that the list does not have.
enum Words<const UNIQUE: bool> {}

impl<const UNIQUE: bool> Reducer<Vec<String>> for Words<UNIQUE> {
    type Write = Vec<String>;

    fn reduce(value: &mut Vec<String>, write: Vec<String>) -> Result<(), ReduceError> {
        for word in write {
            if !(UNIQUE && value.contains(&word)) {
                value.push(word);
            }
        }
        Ok(())
    }
}

macro_rules! words {
    ($name:ident, $unique:literal) => {
        #[derive(State, Clone, Debug, Default)]
        struct $name {
            #[channel(with = Words<$unique>)]
            words: Vec<String>,
            #[channel(append)]
            log: Log<String>,
        }

        impl $name {
            fn graph(store: Arc<dyn Checkpointer>) -> CompiledGraph<Self> {
                let mut graph = StateGraph::<Self>::new("words");
                let a = graph.add_node("a", async |_: Self, _: Cx| {
                    Self::update().words(vec!["x".to_owned()]).log(["a"])
                });
                let b = graph.add_node("b", async |_: Self, _: Cx| {
                    Self::update().words(vec!["x".to_owned()]).log(["b"])
                });
                graph.add_edge(START, a);
                graph.add_edge(a, b);
                graph.add_edge(b, END);
                graph.compile().unwrap().with_checkpointer(store)
            }
        }
    };
}

words!(Every, false);
words!(Unique, true);

#[tokio::test]
async fn a_changed_reducer_is_named_with_both_values() {
    let store = encoded();
    Every::graph(store.clone()).thread("t").run(Every::update()).await.unwrap();
    assert_eq!(Every::graph(store.clone()).thread("t").check_states().await.unwrap(), None);
    let thread = Unique::graph(store).thread("t");
    let mismatch = thread.check_states().await.unwrap().unwrap();
    insta::assert_snapshot!(mismatch, @"checkpoint 4, superstep 2: channel `words`, written by node `b`, folds to another value than was stored with it");

    let found = thread.replay().run().await.unwrap().divergence.unwrap();
    assert_eq!((found.kind, &found.at), (DivergenceKind::Reducer, &At::State("words".to_owned())));
    assert_eq!((&found.expected, &found.got), (&serde_json::json!(["x", "x"]), &serde_json::json!(["x"])));
    // A replay that begins behind the superstep adopts the state.
    let found = thread.replay().from(CheckpointId(4)).run().await.unwrap().divergence.unwrap();
    assert_eq!((found.kind, found.step, found.node.as_str()), (DivergenceKind::Reducer, 2, "b"));
    assert_eq!((&found.expected, &found.got), (&serde_json::json!(["x", "x"]), &serde_json::json!(["x"])));
}

#[tokio::test]
async fn a_text_that_folds_to_another_state_is_imported_by_its_graph_only_if_that_is_accepted() {
    let store = encoded();
    Every::graph(store.clone()).thread("t").run(Every::update()).await.unwrap();
    let text = Every::graph(store).thread("t").export().await.unwrap();
    let elsewhere = encoded();
    let thread = Unique::graph(elsewhere.clone()).thread("t");
    let error = thread.import(&text).await.unwrap_err();
    insta::assert_snapshot!(error, @"SS312: line 8 of the thread file: checkpoint 4, superstep 2: channel `words`, written by node `b`, folds to another value than was stored with it; the file was changed, or the graph: `Replay` shows the difference, and `text::import` stores the thread as it is");
    assert!(elsewhere.names().await.unwrap().is_empty(), "nothing is stored");
    text::import(&*elsewhere, &mut Cursor::new(&text)).await.unwrap();
    assert!(thread.replay().run().await.unwrap().divergence.is_some());

    let changed = text.replace(r#""log":["a"]"#, r#""log":["A"]"#);
    let error = Every::graph(encoded()).thread("t").import(&changed).await.unwrap_err();
    assert!(changed != text && error.to_string().contains("channel `log`, written by node `a`"), "{error}");
}

/// Beyond what a fingerprint covers.
#[tokio::test]
async fn a_snapshot_is_compared_as_a_whole() {
    let store = encoded();
    let thread = Every::graph(store.clone()).thread("t").snapshot_every(1);
    let long = |last: &str| {
        let words = (0..2_000).map(|nth| format!("word {nth}"));
        words.chain([last.to_owned()]).collect::<Vec<_>>()
    };
    thread.run(Every::update().words(long("one"))).await.unwrap();
    let options = ExportOptions::new().snapshots();
    let text = text::export(&*store, &"t".into(), &options).await.unwrap();
    let at = text.rfind("\"one\"").unwrap();
    let changed = format!("{}\"two\"{}", &text[..at], &text[at + 5..]);
    let elsewhere = encoded();
    text::import(&*elsewhere, &mut Cursor::new(&changed)).await.unwrap();
    let mismatch = Every::graph(elsewhere).thread("t").check_states().await.unwrap().unwrap();
    assert_eq!((mismatch.checkpoint, &*mismatch.channel), (CheckpointId(4), "words"));
    assert_eq!(Every::graph(store).thread("t").check_states().await.unwrap(), None);
}

/// A store that notes the largest number of commits at a time.
struct Batches(MemoryCheckpointer, Arc<AtomicUsize>);

impl Wrapper for Batches {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.1.fetch_max(next.len(), Ordering::SeqCst);
        self.0.commit_all(thread, expected, next)
    }
}

#[tokio::test]
async fn metadata_counts_as_data_that_is_stored_at_a_time() {
    let metadata = "x".repeat(256 << 10);
    let mut text = "{\"superstep\":\"thread\",\"format\":1,\"thread\":\"t\"}\n".to_owned();
    for id in 1..=40 {
        let parent = if id == 1 { String::new() } else { format!("\"parent\":{},", id - 1) };
        text += &format!(
            "{{\"checkpoint\":{id},{parent}\"source\":\"fork\",\"step\":0,\"next\":[],\"created_ms\":0,\"metadata\":{{\"a\":\"{metadata}\"}}}}\n"
        );
    }
    text += "{\"total\":{\"threads\":1,\"checkpoints\":40}}\n";
    let most = Arc::new(AtomicUsize::new(0));
    let store = Wrapped(Batches(MemoryCheckpointer::new(), most.clone()));
    text::import(&store, &mut Cursor::new(&text)).await.unwrap();
    assert!((1..=8).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

#[test]
fn a_mark_that_each_checkpoint_would_copy_is_limited() {
    let mark = |length: usize| {
        format!(
            "{{\"superstep\":\"thread\",\"format\":1,\"thread\":\"t\",\"mark\":{{\"version\":\"{}\"}}}}\n",
            "x".repeat(length)
        )
    };
    let (line, what) = refusal(&mark(1 << 20)).unwrap();
    assert_eq!((line, &*what), (1, "`mark` has 1048590 bytes, and at most 4096 can be imported"));
    let (line, what) = refusal(&mark(100)).unwrap();
    assert_eq!(line, 2, "{what}");
}

#[tokio::test]
async fn a_byte_order_mark_at_the_beginning_is_read_over() {
    for text in texts().await {
        let store = encoded();
        text::import(&*store, &mut Cursor::new(format!("\u{feff}{text}"))).await.unwrap();
        assert_eq!(
            text::export(&*store, &"t".into(), &ExportOptions::new().snapshots()).await.unwrap(),
            text
        );
    }
}
