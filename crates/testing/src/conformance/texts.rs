//! Commits as they were made, and threads that are exported as text and imported.

use std::{io::Cursor, sync::Arc};

use serde_json::{Map, json};
use superstep_graph::{
    CheckpointId, MemoryCheckpointer, Question, ThreadId,
    checkpoint::{
        AppliedTask, CheckpointError, Commit, Prune, RecordedTarget, Segment, Source, TaskRecord,
        text::{self, TextError},
    },
    topology::Control,
};

use super::{
    cases,
    fixture::{
        ONE, Store, THREE, TWO, applied, cancelled, channel, commit, exported, failed, failure, finished,
        history, imported, known, line, load, once, plain, record, recorded, snapshotted, started, superstep,
        task,
    },
};

cases![
    a_commit_is_read_as_it_was_made,
    a_commit_is_read_with_the_records_so_far,
    a_commit_without_its_parent_is_read,
    a_missing_commit_is_none,
    an_imported_thread_is_like_the_exported_one,
    line_breaks_in_json_are_spaces,
    an_imported_thread_continues_under_the_next_ids,
    a_pruned_thread_is_imported_with_its_ids,
    subgraphs_are_imported_with_their_thread,
    an_imported_thread_may_have_another_name,
    an_existing_thread_is_not_overwritten,
    a_bad_text_changes_nothing,
    a_text_of_many_checkpoints_is_imported,
];

async fn read(store: &Store, thread: &ThreadId, at: CheckpointId) -> Commit {
    let commit = store.read_commit(thread, at).await.expect("a commit can be read");
    commit.expect("the checkpoint exists")
}

/// A thread with everything that a checkpoint can have: forks, records of every kind, a snapshot.
async fn rich(store: &Store, thread: &ThreadId) {
    let mut metadata = Map::new();
    metadata.insert("$graph".into(), json!("trip"));
    metadata.insert("$nonce".into(), json!("7"));
    let marked = |commit: Commit| Commit { metadata: metadata.clone().into(), ..commit };
    let mut input = marked(Commit { source: Source::Input, ..plain(None) });
    Arc::make_mut(&mut input.metadata)
        .insert("user".into(), json!({"name": "Ada \u{202e}\n", "n": [1, 2.5, null]}));
    input.records = vec![(0, finished(r#"{"city": "Bonn"}"#, &[]))];
    let one = commit(store, thread, None, input).await;
    let first = marked(Commit { applied: vec![recorded(0, r#"{"city": "Bonn"}"#)], ..plain(Some(one)) });
    let two = commit(store, thread, Some(one), first).await;
    let send = RecordedTarget::Send { node: "w".into(), item: r#"{"of": 1}"#.into() };
    let TaskRecord::Finished { update, targets, .. } = finished("7", &["x", "__end__"]) else {
        unreachable!("the task is finished")
    };
    let targets = targets.into_iter().chain([send]).collect();
    let handled = TaskRecord::Finished { update, targets, failure: Some(failure()) };
    record(store, &task(thread, two, 1), handled).await;
    record(store, &task(thread, two, 0), failed(2)).await;
    let second = marked(Commit {
        applied: vec![recorded(1, "7"), applied(0, "[1, 2]")],
        snapshot: Some(vec![channel("n", "7"), channel("log", "[1, 2]")].into()),
        ..plain(Some(two))
    });
    let three = commit(store, thread, Some(two), second).await;
    let fork = marked(Commit { source: Source::Fork, created_ms: -5, ..plain(Some(two)) });
    let four = commit(store, thread, Some(three), fork).await;
    let mut control = Control::new(7, vec!["a".into(), "b".into(), "b".into()]);
    control.items.extend([(1, r#"{"item": "ä"}"#.to_owned()), (2, "null".to_owned())]);
    control.arrived.insert("a,b:c".to_owned(), vec!["a".into()]);
    control.deferred.push("last".into());
    let last = Commit { control, applied: vec![applied(0, r#"{"x":1}"#)], ..plain(Some(four)) };
    let five = commit(store, thread, Some(four), last).await;
    let question = |key: &str| Question {
        key: key.into(),
        question: r#"{"text": "really?\n"}"#.into(),
        schema: Some("null".into()),
        within: None,
        replaces: None,
    };
    let asks = TaskRecord::Interrupted {
        questions: vec![question("ok"), question("sure")],
        answers: once(2),
        asked: once(1).into_keys().map(|key| (key.clone(), question(&key))).collect(),
        attempts: 1,
        error: Some("no \"answer\"".into()),
        once: once(1),
    };
    record(store, &task(thread, five, 0), asks).await;
    record(store, &task(thread, five, 1), started(0, 1)).await;
    store.add_effects(&task(thread, five, 1), once(3)).await.expect("effects can be added");
    let handled = TaskRecord::Handled { failure: failure(), handler: Box::new(failed(0)) };
    record(store, &task(thread, five, 2), handled).await;
    record(store, &task(thread, five, 9), cancelled()).await;
}

async fn a_commit_is_read_as_it_was_made(store: Store) {
    let thread = ThreadId::from("t");
    let snapshot = vec![channel("n", "1"), channel("a", "2")];
    let first = Commit {
        snapshot: Some(snapshot.into()),
        records: vec![(0, finished("1", &["x"])), (3, failed(1))],
        ..superstep(None, &["\"one\""])
    };
    commit(&store, &thread, None, first.clone()).await;
    let mut metadata = Map::new();
    metadata.insert("k".into(), json!([1]));
    let next = vec![recorded(0, "1"), applied(3, "2")];
    let second = Commit { metadata: metadata.into(), applied: next, ..plain(Some(ONE)) };
    commit(&store, &thread, Some(ONE), second.clone()).await;
    assert_eq!(read(&store, &thread, ONE).await, first);
    assert_eq!(read(&store, &thread, TWO).await, second);
}

async fn a_commit_is_read_with_the_records_so_far(store: Store) {
    let thread = ThreadId::from("t");
    commit(&store, &thread, None, plain(None)).await;
    record(&store, &task(&thread, ONE, 1), started(0, 1)).await;
    record(&store, &task(&thread, ONE, 0), cancelled()).await;
    commit(&store, &thread, Some(ONE), superstep(Some(ONE), &["1", "2", "3"])).await;
    let found = read(&store, &thread, ONE).await.records;
    assert_eq!(found, [(0, cancelled()), (1, started(0, 1))], "without the tasks that a superstep applied");
}

async fn a_commit_without_its_parent_is_read(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 0), finished("2", &[])).await;
    commit(&store, &thread, Some(ONE), Commit { applied: vec![recorded(0, "2")], ..plain(Some(ONE)) }).await;
    let snapshots = [(TWO, vec![channel("n", "3")])].into();
    let prune = Prune { snapshots, ..Prune::default() };
    store.prune(&thread, TWO, prune).await.expect("the head has a snapshot");
    let found = read(&store, &thread, TWO).await;
    assert_eq!(found.snapshot, Some(vec![channel("n", "3")].into()));
    let named: Vec<_> =
        found.applied.into_iter().map(|AppliedTask { slot, node, .. }| (slot, node)).collect();
    assert_eq!((found.parent, named), (Some(ONE), vec![(0, "node-0".into())]));
}

async fn a_missing_commit_is_none(store: Store) {
    let thread = ThreadId::from("t");
    assert_eq!(store.read_commit(&thread, ONE).await.expect("a thread can be read"), None);
    line(&store, &thread, &["1"]).await;
    for id in [0, 2, u64::MAX] {
        assert_eq!(store.read_commit(&thread, CheckpointId(id)).await.expect("a thread can be read"), None);
    }
}

/// Moves a thread to memory and back as text, and compares each copy.
async fn moved(store: &Store, thread: &ThreadId) -> String {
    let memory: Store = Arc::new(MemoryCheckpointer::new());
    imported(&memory, &exported(store, thread).await).await;
    let mut threads = store.children(thread).await.expect("subgraphs can be listed");
    assert_eq!(memory.children(thread).await.expect("subgraphs can be listed"), threads);
    threads.push(thread.clone());
    for thread in &threads {
        assert_eq!(history(&memory, thread).await, history(store, thread).await);
        for meta in history(store, thread).await {
            let (there, here) = (load(&memory, thread, meta.id).await, load(store, thread, meta.id).await);
            assert_eq!(there.tasks, here.tasks);
            assert_eq!((there.applied, there.head, there.meta), (here.applied, here.head, here.meta));
        }
    }
    moved_text(store, thread).await
}

/// Moves a thread to memory and back as text, and compares the texts.
async fn moved_text(store: &Store, thread: &ThreadId) -> String {
    let text = exported(store, thread).await;
    let memory: Store = Arc::new(MemoryCheckpointer::new());
    imported(&memory, &text).await;
    assert_eq!(exported(&memory, thread).await, text);
    store.delete(thread).await.expect("a thread can be deleted");
    imported(store, &text).await;
    assert_eq!(exported(store, thread).await, text);
    text
}

async fn an_imported_thread_is_like_the_exported_one(store: Store) {
    let thread = ThreadId::from("../t ü");
    rich(&store, &thread).await;
    let before = known(&store, &[&thread]).await;
    let text = snapshotted(&store, &thread).await;
    moved(&store, &thread).await;
    store.delete(&thread).await.expect("a thread can be deleted");
    imported(&store, &text).await;
    assert_eq!(known(&store, &[&thread]).await, before);
    assert_eq!(snapshotted(&store, &thread).await, text);
}

async fn line_breaks_in_json_are_spaces(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["[1,\r\n2]"]).await;
    let text = moved_text(&store, &thread).await;
    assert!(text.contains("\"update\":[1,  2]}\n"), "{text}");
}

async fn an_imported_thread_continues_under_the_next_ids(store: Store) {
    let thread = ThreadId::from("t");
    rich(&store, &thread).await;
    moved(&store, &thread).await;
    let head = CheckpointId(5);
    assert_eq!(commit(&store, &thread, Some(head), plain(Some(head))).await, CheckpointId(6));
}

async fn a_pruned_thread_is_imported_with_its_ids(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2", "3"]).await;
    commit(&store, &thread, Some(THREE), Commit { source: Source::Fork, ..plain(Some(TWO)) }).await;
    let head = CheckpointId(5);
    commit(&store, &thread, Some(CheckpointId(4)), superstep(Some(THREE), &["5"])).await;
    let snapshots = [(TWO, vec![channel("n", "3")]), (head, vec![channel("n", "4")])].into();
    let prune = Prune { keep: [TWO].into(), snapshots, ..Prune::default() };
    assert_eq!(store.prune(&thread, head, prune).await.expect("both have a snapshot"), 3);
    let before = known(&store, &[&thread]).await;
    moved(&store, &thread).await;
    assert_eq!(known(&store, &[&thread]).await, before);
    assert_eq!(commit(&store, &thread, Some(head), plain(Some(TWO))).await, CheckpointId(6));
}

async fn subgraphs_are_imported_with_their_thread(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2"]).await;
    let called = |of: &ThreadId, task| of.child(&Segment { node: "sub".into(), task, key: "k:1".into() });
    let sub = called(&thread, Some((0, TWO)));
    let inner = called(&sub, None);
    let memory = called(&thread, None);
    for (child, updates) in [(&sub, &["3"][..]), (&inner, &["4", "5"]), (&memory, &["6"])] {
        line(&store, child, updates).await;
    }
    let text = moved(&store, &thread).await;
    let paths: Vec<_> = text.lines().filter(|line| line.starts_with("{\"subgraph\"")).collect();
    let of = |path: &str| format!("{{\"subgraph\":[{path}]}}");
    let own = "\"sub:0@2:k:1\"";
    assert_eq!(paths, [of(own), of(&format!("{own},\"sub::k:1\"")), of("\"sub::k:1\"")]);
}

async fn an_imported_thread_may_have_another_name(store: Store) {
    let [thread, other] = ["t", "other"].map(ThreadId::from);
    rich(&store, &thread).await;
    let sub = Segment { node: "sub".into(), task: Some((0, TWO)), key: String::new() };
    line(&store, &thread.child(&sub), &["1"]).await;
    let text = exported(&store, &thread).await;
    let mut source = Cursor::new(&text);
    let checked = text::check(&mut source).expect("it is the text of a thread");
    assert_eq!((checked.thread(), checked.checkpoints()), (&thread, 6));
    let copied = checked.store(&*store, &other).await.expect("the name is free");
    assert_eq!((&copied.thread, copied.threads, copied.checkpoints), (&other, 2, 6));
    assert_eq!(exported(&store, &thread).await, text);
    assert_eq!(exported(&store, &other).await, text.replacen("\"thread\":\"t\"", "\"thread\":\"other\"", 1));
    let names = store.names().await.expect("threads can be listed");
    assert_eq!(names, [other, thread], "nothing of a temporary thread is left");
}

async fn an_existing_thread_is_not_overwritten(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let text = exported(&store, &thread).await;
    line_after(&store, &thread).await;
    let before = known(&store, &[&thread]).await;
    let refused = text::import(&*store, &mut Cursor::new(&text)).await;
    let Err(TextError::Checkpoint(CheckpointError::ThreadExists { thread: there })) = refused else {
        panic!("the thread exists: {refused:?}");
    };
    assert_eq!(there, thread);
    assert_eq!(known(&store, &[&thread]).await, before);
    let lease = store.lease(&"new".into()).await.expect("nobody has the thread");
    let mut source = Cursor::new(&text);
    let checked = text::check(&mut source).expect("it is the text of a thread");
    let busy = checked.store(&*store, &"new".into()).await;
    assert!(matches!(busy, Err(TextError::Checkpoint(CheckpointError::Busy { .. }))), "{busy:?}");
    drop(lease);
}

async fn line_after(store: &Store, thread: &ThreadId) {
    commit(store, thread, Some(ONE), superstep(Some(ONE), &["2"])).await;
}

async fn a_bad_text_changes_nothing(store: Store) {
    let [thread, other] = ["t", "other"].map(ThreadId::from);
    rich(&store, &thread).await;
    let text = exported(&store, &thread).await;
    store.delete(&thread).await.expect("a thread can be deleted");
    line(&store, &other, &["1"]).await;
    let before = known(&store, &[&other]).await;
    let mut end = text.len();
    // Without its last line, without its last two, and so on; the rest of the last one is cut.
    while let Some(at) = text[..end].rfind('\n') {
        end = at;
        for cut in [&text[..end], &text[..end.saturating_sub(1)]] {
            let bad = text::import(&*store, &mut Cursor::new(cut)).await;
            match bad {
                Err(TextError::Line { .. }) => {}
                // Only the last line break is missing.
                Ok(_) if cut.len() + 1 == text.len() => {
                    store.delete(&thread).await.expect("a thread can be deleted")
                }
                other => panic!("the text is incomplete: {other:?}"),
            }
        }
    }
    assert_eq!(known(&store, &[&other]).await, before);
}

async fn a_text_of_many_checkpoints_is_imported(store: Store) {
    let thread = ThreadId::from("t");
    let mut commits: Vec<Commit> = Vec::new();
    for id in 1..=600 {
        let parent = (id > 1).then(|| CheckpointId(id - 1));
        let applied = match parent {
            // Every task is recorded, one under a checkpoint of another batch.
            Some(_) => vec![recorded(0, "1")],
            None => Vec::new(),
        };
        commits.push(Commit { applied, records: vec![(0, finished("1", &[]))], ..plain(parent) });
    }
    let far = Commit { source: Source::Update, applied: vec![recorded(0, "1")], ..plain(Some(TWO)) };
    commits.push(far);
    store.commit_all(&thread, None, commits).await.expect("they follow each other");
    let before = load(&store, &thread, None).await;
    moved(&store, &thread).await;
    assert_eq!(load(&store, &thread, None).await, before);
}
