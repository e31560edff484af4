//! Histories, lists of threads, and deleted threads.

use serde_json::{Value, json};
use superstep_graph::{
    CheckpointId, History, ThreadId,
    checkpoint::{Commit, Source},
    topology::Control,
};

use super::{
    cases,
    fixture::{
        ONE, Store, TWO, commit, failed, finished, history, known, line, load, plain, record, task, updates,
    },
};

cases![
    a_history_is_read_in_pages,
    a_page_of_nothing_is_empty,
    a_history_is_filtered_by_metadata,
    an_input_is_found_by_its_id,
    threads_are_listed_newest_first,
    a_deleted_thread_is_empty,
    a_deleted_thread_can_begin_again,
    odd_names_are_names,
    a_number_and_its_digits_name_the_same_thread,
];

/// Runs S->a->b three times: 12 checkpoints.
async fn three_runs(store: &Store, thread: &ThreadId) {
    let mut head = None;
    for step in -1..=10 {
        let source = if (step + 1) % 4 == 0 { Source::Input } else { Source::Loop };
        let control = Control::new(step, Vec::new());
        head = Some(commit(store, thread, head, Commit { source, control, ..plain(head) }).await);
    }
}

async fn steps(store: &Store, thread: &ThreadId, range: History) -> Vec<i64> {
    let page = store.history(thread, range).await.expect("a history can be read");
    assert!(page.is_sorted_by(|newer, older| newer.id > older.id), "{page:?}");
    page.iter().map(|meta| meta.control.step).collect()
}

async fn a_history_is_read_in_pages(store: Store) {
    let thread = ThreadId::from("t");
    three_runs(&store, &thread).await;
    line(&store, &"other".into(), &["1"]).await;
    let all = History::default;
    assert_eq!(steps(&store, &thread, all()).await, (-1..=10).rev().collect::<Vec<_>>());
    let count = async |thread| store.count(thread).await.expect("checkpoints can be counted");
    assert_eq!((count(&thread).await, count(&"absent".into()).await), (12, 0));
    assert_eq!(steps(&store, &thread, History { limit: Some(2), ..all() }).await, [10, 9]);
    let inputs = || History { source: Some(Source::Input), ..all() };
    assert_eq!(steps(&store, &thread, inputs()).await, [7, 3, -1]);
    let fourth = history(&store, &thread).await[3].id;
    let before = Some(fourth);
    assert_eq!(steps(&store, &thread, History { before, limit: Some(2), ..all() }).await, [6, 5]);
    assert_eq!(steps(&store, &thread, History { before, limit: Some(1), ..inputs() }).await, [3]);
    assert_eq!(steps(&store, &thread, History { limit: Some(usize::MAX), ..inputs() }).await, [7, 3, -1]);
}

async fn a_page_of_nothing_is_empty(store: Store) {
    let thread = ThreadId::from("t");
    three_runs(&store, &thread).await;
    let all = History::default;
    assert_eq!(steps(&store, &thread, History { limit: Some(0), ..all() }).await, [0; 0]);
    assert_eq!(steps(&store, &thread, History { before: Some(ONE), ..all() }).await, [0; 0]);
    assert_eq!(steps(&store, &thread, History { before: Some(CheckpointId(0)), ..all() }).await, [0; 0]);
    assert_eq!(steps(&store, &thread, History { source: Some(Source::Fork), ..all() }).await, [0; 0]);
    let before = Some(CheckpointId(u64::MAX));
    assert_eq!(steps(&store, &thread, History { before, limit: Some(1), ..all() }).await, [10]);
}

async fn a_history_is_filtered_by_metadata(store: Store) {
    let thread = ThreadId::from("t");
    let mut head = None;
    for (step, next, user) in [(0, "a", "kim"), (1, "b", "kim"), (2, "a", "lee"), (1, "a", "")] {
        let control = Control::new(step, vec!["other".into(), next.into()]);
        let mut metadata = serde_json::Map::new();
        if !user.is_empty() {
            metadata.insert("user".into(), user.into());
            metadata.insert("n".into(), step.into());
        }
        head = Some(
            commit(&store, &thread, head, Commit { control, metadata: metadata.into(), ..plain(head) }).await,
        );
    }
    let all = History::default;
    let with = |entries: Value| match entries {
        Value::Object(metadata) => History { metadata, ..all() },
        _ => unreachable!("metadata is an object"),
    };
    assert_eq!(steps(&store, &thread, History { step: Some(1), ..all() }).await, [1, 1]);
    assert_eq!(steps(&store, &thread, History { next: Some("a".into()), ..all() }).await, [1, 2, 0]);
    let next = Some("a".into());
    assert_eq!(steps(&store, &thread, History { next, step: Some(1), ..all() }).await, [1]);
    assert_eq!(steps(&store, &thread, with(json!({"user": "kim"}))).await, [1, 0]);
    assert_eq!(steps(&store, &thread, with(json!({"user": "kim", "n": 0}))).await, [0]);
    assert_eq!(steps(&store, &thread, with(json!({"user": null}))).await, [0; 0]);
    // The limit applies to the result.
    let page = History { limit: Some(1), ..with(json!({"user": "kim"})) };
    assert_eq!(steps(&store, &thread, page).await, [1]);
    let page = History { before: Some(TWO), ..with(json!({"user": "kim"})) };
    assert_eq!(steps(&store, &thread, page).await, [0]);
}

async fn an_input_is_found_by_its_id(store: Store) {
    let thread = ThreadId::from("t");
    let long = "1".repeat(5000);
    let odd = ["17", "17 ", "", "a\"b\\", "a\0b", "$input", "ü\n", "\"]", long.as_str()];
    let known = async |thread: &ThreadId, id: &str| {
        store.has_input(thread, id).await.expect("an input can be looked up")
    };
    let accept = async |head, metadata: Value| {
        let Value::Object(metadata) = metadata else { unreachable!("metadata is an object") };
        let input = Commit { source: Source::Input, metadata: metadata.into(), ..plain(head) };
        Some(commit(&store, &thread, head, input).await)
    };
    assert!(!known(&thread, "17").await);
    let mut head = None;
    for id in odd {
        assert!(!known(&thread, id).await, "{id}");
        head = accept(head, json!({"$input": [id]})).await;
        assert!(known(&thread, id).await, "{id}");
        head = Some(commit(&store, &thread, head, plain(head)).await);
    }
    // Those that a prune retained.
    head = accept(head, json!({"$input": ["new", "old", "older"]})).await;
    // Entries of the caller.
    head = accept(head, json!({"!": {"$input": ["first"]}, "$input": ["nested"], "z": {"$input": ["last"]}}))
        .await;
    accept(head, json!({"text": "{\"$input\":[\"quoted\"]}", "\"$input\"": ["named"], "zero": "\0"})).await;
    for id in ["new", "old", "older", "nested"] {
        assert!(known(&thread, id).await, "{id}");
    }
    for id in ["first", "last", "quoted", "named", "1", "a", "a\"b\\\\"] {
        assert!(!known(&thread, id).await, "{id}");
    }
    let copy = ThreadId::from("copy");
    assert!(!known(&copy, "17").await);
    store.copy(&thread, &copy).await.expect("a thread can be copied");
    assert!(known(&copy, "17").await && known(&copy, "older").await);
    store.delete(&thread).await.expect("a thread can be deleted");
    assert!(!known(&thread, "17").await && known(&copy, "17").await);
}

async fn threads_are_listed_newest_first(store: Store) {
    for (name, times) in [("b", [1, 50]), ("c", [99, 20]), ("a", [2, 50]), ("d", [3, 70])] {
        let thread = ThreadId::from(name);
        let first = Commit { created_ms: times[0], ..plain(None) };
        let second = Commit { created_ms: times[1], ..plain(Some(ONE)) };
        commit(&store, &thread, None, first).await;
        commit(&store, &thread, Some(ONE), second).await;
    }
    let threads = store.threads().await.expect("threads can be listed");
    let names: Vec<_> = threads.iter().map(|(thread, _)| thread.as_str()).collect();
    assert_eq!(names, ["d", "a", "b", "c"]);
    assert_eq!(store.names().await.expect("names"), ["a", "b", "c", "d"].map(ThreadId::from));
    for (thread, head) in threads {
        assert_eq!(load(&store, &thread, None).await.meta, head);
        assert_eq!(head.id, TWO);
    }
}

async fn a_deleted_thread_is_empty(store: Store) {
    let [gone, kept] = [ThreadId::from("gone"), ThreadId::from("kept")];
    line(&store, &kept, &["1", "2"]).await;
    record(&store, &task(&kept, TWO, 0), failed(1)).await;
    let before = known(&store, &[&kept]).await;
    line(&store, &gone, &["1", "2"]).await;
    record(&store, &task(&gone, TWO, 0), failed(1)).await;
    store.delete(&gone).await.expect("a thread can be deleted");
    assert_eq!(store.load(&gone, None).await.expect("load"), None);
    assert_eq!(store.load(&gone, Some(ONE)).await.expect("load"), None);
    assert_eq!(history(&store, &gone).await, []);
    assert_eq!(known(&store, &[&kept]).await, before);
    store.delete(&gone).await.expect("there is nothing to delete");
}

async fn a_deleted_thread_can_begin_again(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2", "3"]).await;
    record(&store, &task(&thread, CheckpointId(3), 0), finished("1", &[])).await;
    store.delete(&thread).await.expect("a thread can be deleted");
    assert!(store.record(&task(&thread, CheckpointId(3), 0), failed(1)).await.is_err());
    assert_eq!(line(&store, &thread, &["\"new\""]).await, Some(ONE));
    let loaded = load(&store, &thread, None).await;
    assert_eq!((updates(&loaded), &loaded.tasks), (vec![vec!["\"new\""]], &Vec::new()));
    assert_eq!(store.load(&thread, Some(TWO)).await.expect("load"), None);
}

async fn odd_names_are_names(store: Store) {
    let long = "x".repeat(10_000);
    let longer = format!("{long}y");
    let names = [
        "", " ", "a", "A", "a ", "a\0", "a\0b", "ü", "u\u{308}", "../x", "/", "'; --", "%", "\n", &long,
        &longer,
    ];
    for (number, name) in names.iter().enumerate() {
        let thread = ThreadId::from(*name);
        let lease = store.lease(&thread).await.expect("nobody has it");
        line(&store, &thread, &[&number.to_string()]).await;
        drop(lease);
    }
    for (number, name) in names.iter().enumerate() {
        let thread = ThreadId::from(*name);
        assert_eq!(updates(&load(&store, &thread, None).await), [[number.to_string()]], "{thread:?}");
        assert_eq!(history(&store, &thread).await.len(), 1, "{thread:?}");
    }
    let mut listed: Vec<_> =
        store.threads().await.expect("threads").into_iter().map(|(thread, _)| thread).collect();
    listed.sort();
    let mut expected = names.map(ThreadId::from);
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(store.names().await.expect("names"), expected);
    for name in names {
        store.delete(&name.into()).await.expect("a thread can be deleted");
    }
    assert_eq!(store.threads().await.expect("threads"), []);
}

async fn a_number_and_its_digits_name_the_same_thread(store: Store) {
    line(&store, &7.into(), &["1"]).await;
    assert_eq!(updates(&load(&store, &"7".into(), None).await), [["1"]]);
}
