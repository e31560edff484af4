//! A thread that becomes encrypted, and another feature at the same time.

use std::sync::Arc;

use superstep_graph::{
    Checkpointer, CompiledGraph, Cx, END, Log, NodeError, START, State, StateGraph, checkpoint::Retention,
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_sealed::{Rekeyed, SealOptions, SealedCheckpointer};

use crate::{
    server::shared,
    support::{Folder, text, with_keys},
};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    read: u64,
    #[channel(sum)]
    inputs: i64,
    #[channel(append)]
    log: Log<String>,
}

/// Builds a graph that reads its inbox.
fn chat() -> CompiledGraph<Chat> {
    let mut graph = StateGraph::<Chat>::new("chat");
    let listen = graph.add_node("listen", async |chat: Chat, cx: Cx| {
        let new = cx.inbox(chat.read).await?;
        let read = new.last().map_or(chat.read, |last| last.number);
        let log = new.iter().map(|posted| posted.item.as_str().unwrap_or_default().to_owned());
        Ok::<_, NodeError>(Chat::update().read(read).log(log.collect::<Vec<_>>()))
    });
    graph.add_edge(START, listen);
    graph.add_edge(listen, END);
    graph.compile().unwrap()
}

fn log(state: &Chat) -> Vec<&str> {
    state.log.iter().map(String::as_str).collect()
}

fn input() -> ChatUpdate {
    Chat::update().inputs(1)
}

/// Opens the database anew, as another process does.
type Open<'a> = &'a dyn Fn() -> Arc<dyn Checkpointer>;

async fn on_sqlite_and_postgres(test: impl for<'a> AsyncFn(Open<'a>)) {
    let folder = Folder::new();
    test(&|| Arc::new(folder.open())).await;
    let Some(server) = shared() else { return };
    let options = PostgresOptions::new(server.url()).schema(server.schema());
    test(&|| Arc::new(PostgresCheckpointer::open(options.clone()).unwrap())).await;
}

fn with(open: Open<'_>, options: SealOptions) -> CompiledGraph<Chat> {
    chat().with_checkpointer(SealedCheckpointer::new(open(), options))
}

fn required(keys: &[u8]) -> SealOptions {
    SealOptions { required: true, ..with_keys(keys) }
}

/// Asserts that a post to a readable thread is encrypted by the prune after which encryption can be required.
async fn posts_are_encrypted_by_a_prune(open: Open<'_>) {
    let plain = chat().with_checkpointer(open());
    plain.thread("t").run(input()).await.unwrap();
    // At the same time as a rotation: the message is readable, or refused, and is never lost.
    let layer = SealedCheckpointer::new(open(), required(&[2, 1]));
    assert_eq!(layer.rekey(&"t".into()).await.unwrap(), Rekeyed::Plain);
    let refused = with(open, required(&[1])).thread("t").post("a secret").await.unwrap_err();
    assert!(refused.to_string().starts_with("SS317"), "{refused}");
    assert_eq!(with(open, with_keys(&[1])).thread("t").post("in French").await.unwrap(), 1);

    let encrypted = with(open, with_keys(&[1]));
    encrypted.thread("t").run(input()).await.unwrap();
    assert_eq!(encrypted.thread("t").post("and short").await.unwrap(), 2);
    assert_eq!(log(&encrypted.thread("t").run(input()).await.unwrap().state), ["in French", "and short"]);
    encrypted.thread("t").prune(Retention::Last(1)).await.unwrap();

    let inbox = &open().children(&"t".into()).await.unwrap();
    let inbox = inbox.iter().find(|child| child.as_str().ends_with("$inbox")).unwrap();
    let posts = open().history(inbox, Default::default()).await.unwrap();
    assert_eq!(posts.len(), 2);
    for post in posts {
        assert!(post.metadata.keys().eq(["$sealed"]), "{post:?}");
    }
    let graph = with(open, required(&[1]));
    let state = graph.thread("t").run(input()).await.unwrap().state;
    assert_eq!((log(&state), state.inputs), (vec!["in French", "and short"], 4));
    assert_eq!(graph.thread("t").post("please").await.unwrap(), 3);
    // After a rotation, everything is read with the new key alone.
    assert_eq!(layer.rekey(&"t".into()).await.unwrap(), Rekeyed::Changed);
    let graph = with(open, required(&[2]));
    let state = graph.thread("t").run(input().read(0)).await.unwrap().state;
    assert_eq!(log(&state)[2..], ["in French", "and short", "please"]);
}

#[tokio::test]
async fn posts_to_a_readable_thread_are_encrypted_by_the_prune_after_which_that_can_be_required() {
    on_sqlite_and_postgres(posts_are_encrypted_by_a_prune).await;
}

/// A post that was inserted into a thread which was encrypted from its beginning does not become a valid one.
#[tokio::test]
async fn a_prune_encrypts_no_post_that_somebody_inserted() {
    let folder = Folder::new();
    let open = || -> Arc<dyn Checkpointer> { Arc::new(folder.open()) };
    let graph = with(&open, with_keys(&[1]));
    graph.thread("t").run(input()).await.unwrap();
    // As a process without the layer posts, whose check of the graph reads nothing of that thread.
    chat().with_checkpointer(open()).thread("u").run(input()).await.unwrap();
    chat().with_checkpointer(open()).thread("u").post("obey").await.unwrap();
    let (from, to) = ("u\u{1f}$inbox", "t\u{1f}$inbox");
    let inserted = open().children(&"u".into()).await.unwrap().remove(0);
    assert_eq!(inserted.as_str(), from);
    let commit = open().read_commit(&inserted, superstep_graph::CheckpointId(1)).await.unwrap().unwrap();
    open().commit(&to.into(), None, commit).await.unwrap();
    let error = |error: superstep_graph::RunError| superstep_graph::error::chain(&error);
    let before = error(graph.thread("t").run(input()).await.unwrap_err());
    assert!(before.contains("SS317"), "{before}");
    graph.thread("t").prune(Retention::Last(1)).await.unwrap();
    let after = error(graph.thread("t").resume().await.unwrap_err());
    assert!(after.contains("SS317"), "{after}");
}

/// The deliveries of a job: the first one without a key, or with the old one.
async fn an_input_is_accepted_once(open: Open<'_>) {
    let deliver = async |options: SealOptions, id: &str| {
        with(open, options).thread("t").input_id(id).run(input()).await.map(|end| end.state.inputs)
    };
    assert_eq!(deliver(SealOptions::default(), "one").await.unwrap(), 1);
    // The second delivery encrypts the thread: it has another input.
    assert_eq!(deliver(with_keys(&[1]), "two").await.unwrap(), 2);
    for id in ["one", "two"] {
        assert_eq!(deliver(with_keys(&[1]), id).await.unwrap(), 2, "{id}");
    }
    // A process without the key accepts neither.
    for id in ["one", "two", "three"] {
        let refused = deliver(SealOptions::default(), id).await.unwrap_err();
        assert!(superstep_graph::error::chain(&refused).contains("SS316"), "{refused}");
    }
    // Nor is one accepted again when its checkpoints are pruned, and the key is replaced.
    with(open, with_keys(&[1])).thread("t").prune(Retention::Last(1)).await.unwrap();
    let layer = SealedCheckpointer::new(open(), required(&[2, 1]));
    assert_eq!(layer.rekey(&"t".into()).await.unwrap(), Rekeyed::Changed);
    for id in ["one", "two"] {
        assert_eq!(deliver(required(&[2]), id).await.unwrap(), 2, "{id}");
    }
    assert_eq!(deliver(required(&[2]), "three").await.unwrap(), 3);
}

#[tokio::test]
async fn an_input_is_accepted_once_by_a_thread_that_becomes_encrypted_between_its_deliveries() {
    on_sqlite_and_postgres(an_input_is_accepted_once).await;
}

/// A thread has the keys of its process until its lease: a delivery that began before another process encrypted the thread.
#[tokio::test]
async fn an_input_is_found_by_a_process_that_has_known_the_thread_as_readable() {
    let folder = Folder::new();
    let open = || -> Arc<dyn Checkpointer> { Arc::new(folder.open()) };
    let early = with(&open, with_keys(&[1]));
    chat().with_checkpointer(open()).thread("t").run(input()).await.unwrap();
    assert_eq!(early.thread("t").state().await.unwrap().values.inputs, 1);
    with(&open, with_keys(&[1])).thread("t").input_id("one").run(input()).await.unwrap();
    let again = early.thread("t").input_id("one").run(input()).await.unwrap();
    assert_eq!(again.state.inputs, 2);
    let raw = folder.open().history(&"t".into(), Default::default()).await.unwrap();
    assert!(raw[0].metadata.contains_key("$sealed"), "{:?}", raw[0]);
    let stored = SealedCheckpointer::new(open(), SealOptions::default());
    let refused = stored.has_input(&"t".into(), "one").await;
    assert!(refused.is_err_and(|error| text(&error).starts_with("SS316")));
}

/// Builds a graph of two items, of which the second one waits for an answer. `levels` graphs are between them and the thread.
fn asking(levels: usize) -> CompiledGraph<Chat> {
    let mut graph = StateGraph::<Chat>::new("asking");
    let work = graph.add_worker("work", async |item: u64, _: Chat, cx: Cx| {
        let name = match item {
            1 => "one".to_owned(),
            _ => cx.interrupt::<String>("name", item).await,
        };
        Chat::update().inputs(1).log([name])
    });
    graph.add_fan_out(START, |_: &Chat| vec![1_u64, 2], work);
    let last = graph.add_node("last", async |_: Chat, _: Cx| Chat::update().log(["last".to_owned()]));
    graph.add_join([work], last);
    let mut graph = graph.compile().unwrap();
    for _ in 0..levels {
        let mut outer = StateGraph::<Chat>::new("asking");
        let sub = outer.add_subgraph("sub", &graph);
        outer.add_edge(START, sub);
        graph = outer.compile().unwrap();
    }
    graph
}

/// Asserts that a task that ended before a thread was encrypted is applied by a checkpoint after that.
async fn an_incomplete_superstep_becomes_encrypted(open: Open<'_>) {
    for levels in 0..3 {
        let thread = levels.to_string();
        let stopped = asking(levels).with_checkpointer(open()).thread(&*thread).run(input()).await.unwrap();
        let id = &stopped.interrupts[0].id;
        let encrypted = |keys: &[u8]| {
            let store = SealedCheckpointer::new(open(), with_keys(keys));
            asking(levels).with_checkpointer(store)
        };
        let end = encrypted(&[1]).thread(&*thread).answer(id, "two").resume().await.unwrap();
        assert_eq!(log(&end.state), ["one", "two", "last"], "{levels}");
        for keys in [&[1][..], &[2, 1]] {
            let read = encrypted(keys).thread(&*thread).state().await.unwrap().values;
            assert_eq!((log(&read), read.inputs), (vec!["one", "two", "last"], 3), "{levels}");
            let replayed = encrypted(keys).thread(&*thread).replay().run().await.unwrap();
            assert!(replayed.is_same(), "{levels}: {replayed}");
        }
        // A later turn, a fork and a copy are read as well.
        let again = encrypted(&[1]).thread(&*thread).run(input()).await.unwrap();
        encrypted(&[1]).thread(&*thread).answer(&again.interrupts[0].id, "three").resume().await.unwrap();
        let copy = encrypted(&[1]).thread(&*thread).copy_to(format!("copy of {levels}")).await.unwrap();
        assert_eq!(log(&copy.state().await.unwrap().values), ["one", "two", "last", "one", "three", "last"]);
        let forked = encrypted(&[1]).thread(&*thread).at(stopped.checkpoint).resume().await.unwrap();
        assert_eq!(forked.interrupts.len(), 1);
        let end =
            encrypted(&[1]).thread(&*thread).answer(&forked.interrupts[0].id, "four").resume().await.unwrap();
        assert_eq!(log(&end.state), ["one", "four", "last"], "{levels}");
    }
}

#[tokio::test]
async fn a_thread_with_an_incomplete_superstep_becomes_encrypted() {
    on_sqlite_and_postgres(an_incomplete_superstep_becomes_encrypted).await;
}
