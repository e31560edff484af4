//! The threads of subgraphs.

use std::io::Cursor;

use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{CheckpointError, Segment, text::import},
};

use super::{
    cases,
    fixture::{
        ONE, Store, TWO, exported, failed, history, known, line, load, plain, record, superstep, task,
        updates,
    },
};

cases![
    a_subgraph_has_a_thread_of_its_own,
    subgraphs_are_listed_on_request_only,
    a_deleted_thread_takes_its_subgraphs_along,
    a_deleted_subgraph_is_deleted_with_its_subgraphs,
    a_thread_begins_again_without_its_old_subgraphs,
    a_rejected_subgraph_is_not_stored,
    a_new_thread_continues_nothing_that_is_left_below_its_name,
];

fn child(of: &ThreadId, node: &str, slot: u32) -> ThreadId {
    of.child(&Segment { node: node.into(), task: Some((slot, TWO)), key: String::new() })
}

fn own(of: &ThreadId, node: &str) -> ThreadId {
    of.child(&Segment { node: node.into(), task: None, key: String::new() })
}

async fn children(store: &Store, of: &ThreadId) -> Vec<ThreadId> {
    store.children(of).await.expect("subgraphs can be listed")
}

async fn a_subgraph_has_a_thread_of_its_own(store: Store) {
    let thread = ThreadId::from("t");
    let [left, right] = [child(&thread, "sub", 0), child(&thread, "sub", 1)];
    line(&store, &thread, &["1", "2"]).await;
    line(&store, &left, &["3"]).await;
    assert_eq!(line(&store, &right, &["4", "5"]).await, Some(TWO));
    record(&store, &task(&right, TWO, 0), failed(1)).await;
    for (thread, expected) in [(&thread, &["1", "2"][..]), (&left, &["3"]), (&right, &["4", "5"])] {
        assert_eq!(updates(&load(&store, thread, None).await).concat(), expected, "{thread}");
        assert_eq!(history(&store, thread).await.len(), expected.len(), "{thread}");
    }
    assert_eq!(load(&store, &right, None).await.tasks, [(0, failed(1))]);
    assert_eq!(load(&store, &thread, None).await.tasks, []);
}

async fn subgraphs_are_listed_on_request_only(store: Store) {
    let [a, b] = [ThreadId::from("a"), ThreadId::from("a ")];
    for thread in [&a, &b] {
        line(&store, thread, &["1"]).await;
    }
    let sub = child(&a, "sub", 0);
    let all = [own(&a, "memory"), sub.clone(), child(&sub, "inner", 3)];
    for child in &all {
        line(&store, child, &["1"]).await;
    }
    line(&store, &child(&b, "other", 0), &["1"]).await;
    let listed: Vec<_> =
        store.threads().await.expect("threads").into_iter().map(|(thread, _)| thread).collect();
    assert_eq!(listed, [a.clone(), b]);
    assert_eq!(children(&store, &a).await, all);
    assert_eq!(children(&store, &sub).await, all[2..]);
    assert_eq!(children(&store, &all[2]).await, []);
    assert_eq!(children(&store, &"unknown".into()).await, []);
}

async fn a_deleted_thread_takes_its_subgraphs_along(store: Store) {
    let [gone, kept] = [ThreadId::from("t"), ThreadId::from("t1")];
    let sub = child(&gone, "sub", 0);
    let kept_sub = child(&kept, "sub", 0);
    for thread in [&kept, &kept_sub] {
        line(&store, thread, &["1", "2"]).await;
    }
    let before = known(&store, &[&kept, &kept_sub]).await;
    for thread in [&gone, &sub, &child(&sub, "inner", 0), &own(&gone, "memory")] {
        line(&store, thread, &["1", "2"]).await;
        record(&store, &task(thread, TWO, 0), failed(1)).await;
    }
    store.delete(&gone).await.expect("a thread can be deleted");
    assert_eq!(children(&store, &gone).await, []);
    assert_eq!(store.load(&sub, None).await.expect("load"), None);
    assert_eq!(history(&store, &sub).await, []);
    assert_eq!(known(&store, &[&kept, &kept_sub]).await, before);
}

async fn a_deleted_subgraph_is_deleted_with_its_subgraphs(store: Store) {
    let thread = ThreadId::from("t");
    let (gone, kept) = (child(&thread, "sub", 0), child(&thread, "sub", 1));
    for thread in [&thread, &gone, &child(&gone, "inner", 0), &kept] {
        line(&store, thread, &["1"]).await;
    }
    store.delete(&gone).await.expect("a thread can be deleted");
    assert_eq!(children(&store, &thread).await, [kept]);
    assert_eq!(updates(&load(&store, &thread, None).await), [["1"]]);
}

async fn a_thread_begins_again_without_its_old_subgraphs(store: Store) {
    let thread = ThreadId::from("t");
    let sub = child(&thread, "sub", 0);
    for _ in 0..2 {
        assert_eq!(line(&store, &thread, &["1"]).await, Some(ONE));
        assert_eq!(line(&store, &sub, &["1", "2", "3"]).await, Some(CheckpointId(3)));
        store.delete(&thread).await.expect("a thread can be deleted");
    }
}

async fn a_rejected_subgraph_is_not_stored(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let sub = child(&thread, "sub", 0);
    assert!(store.record(&task(&sub, ONE, 0), failed(1)).await.is_err());
    assert!(store.commit(&sub, None, plain(Some(ONE))).await.is_err());
    assert!(store.commit(&sub, Some(ONE), plain(Some(ONE))).await.is_err());
    assert_eq!(children(&store, &thread).await, []);
    assert_eq!(store.load(&sub, None).await.expect("load"), None);
}

async fn a_new_thread_continues_nothing_that_is_left_below_its_name(store: Store) {
    let [orphan, kept] = [ThreadId::from("t"), ThreadId::from("t ")];
    let left = [own(&orphan, "memory"), child(&orphan, "pay", 0)];
    for thread in [&left[0], &left[1], &kept, &child(&kept, "pay", 0)] {
        line(&store, thread, &["1", "2"]).await;
    }
    record(&store, &task(&left[1], TWO, 0), failed(1)).await;
    let before = known(&store, &[&left[0], &left[1], &kept]).await;
    for _ in 0..2 {
        let began = store.commit(&orphan, None, superstep(None, &["1"])).await;
        assert_leftovers(began.map(drop), &orphan, &left);
        let began = store.commit_all(&orphan, None, vec![superstep(None, &["1"]), plain(Some(ONE))]).await;
        assert_leftovers(began, &orphan, &left);
    }
    assert!(store.copy(&kept, &orphan).await.is_err());
    let text = exported(&store, &kept).await.replacen("\"t \"", "\"t\"", 1);
    assert!(import(&*store, &mut Cursor::new(text)).await.is_err());
    assert_eq!(known(&store, &[&left[0], &left[1], &kept]).await, before);
    assert_eq!(load(&store, &left[1], None).await.tasks, [(0, failed(1))]);
    for (thread, is_stored) in [(&orphan, true), (&kept, true), (&"u".into(), false)] {
        assert_eq!(store.is_stored(thread).await.expect("it can be looked up"), is_stored, "{thread}");
    }
    assert_eq!(orphans(&store).await, std::slice::from_ref(&orphan));
    store.delete(&orphan).await.expect("what is left can be deleted");
    assert_eq!(orphans(&store).await, []);
    assert!(!store.is_stored(&orphan).await.expect("it can be looked up"));
    assert_eq!(line(&store, &orphan, &["1"]).await, Some(ONE));
    assert_eq!(children(&store, &orphan).await, []);
}

async fn orphans(store: &Store) -> Vec<ThreadId> {
    store.orphans().await.expect("threads without checkpoints can be listed")
}

#[track_caller]
fn assert_leftovers(began: Result<(), CheckpointError>, on: &ThreadId, left: &[ThreadId]) {
    match began {
        Err(CheckpointError::Leftovers { thread, children }) => {
            assert_eq!((&thread, &children[..]), (on, left))
        }
        other => panic!("thread `{on}` began in spite of what is left below it: {other:?}"),
    }
}
