//! Copied threads, and pruned threads.

use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{CheckpointError, Commit, Loaded, Prune, Segment, Source},
};

use super::{
    cases,
    fixture::{
        ONE, Store, THREE, TWO, applied, assert_conflict, cancelled, channel, commit, failed, finished,
        history, known, line, load, plain, record, recorded, superstep, task, updates,
    },
};

cases![
    a_copy_is_like_its_thread,
    a_copy_and_its_thread_know_nothing_of_each_other,
    a_copy_needs_a_thread_and_a_new_name,
    a_copy_takes_its_subgraphs_along,
    retained_checkpoints_load_unchanged,
    a_retained_checkpoint_needs_a_path_to_its_state,
    a_rejected_prune_deletes_nothing,
    a_pruned_parent_is_reported,
    retained_checkpoints_may_get_metadata,
    results_of_retained_tasks_outlive_the_superstep_that_applied_them,
    the_head_retains_its_records_and_ids_continue,
    subgraphs_stay_with_the_checkpoints_that_called_them,
];

const FOUR: CheckpointId = CheckpointId(4);

/// Stores 1 ─ 2 ─ 3, and 4 on a branch from 2 with a failed task.
async fn branched(store: &Store, thread: &ThreadId) {
    line(store, thread, &["\"one\"", "\"two\""]).await;
    record(store, &task(thread, TWO, 0), finished("\"three\"", &["x"])).await;
    let next = Commit { applied: vec![recorded(0, "\"three\"")], ..plain(Some(TWO)) };
    commit(store, thread, Some(TWO), next).await;
    commit(store, thread, Some(THREE), Commit { source: Source::Fork, ..plain(Some(TWO)) }).await;
    record(store, &task(thread, FOUR, 1), failed(2)).await;
}

fn keep(ids: &[CheckpointId], snapshots: &[(CheckpointId, &str)]) -> Prune {
    let snapshots = snapshots.iter().map(|(id, json)| (*id, vec![channel("n", json)]));
    Prune { keep: ids.iter().copied().collect(), snapshots: snapshots.collect(), ..Prune::default() }
}

fn called(of: &ThreadId, task: Option<(u32, CheckpointId)>) -> ThreadId {
    of.child(&Segment { node: "sub".into(), task, key: String::new() })
}

async fn a_copy_is_like_its_thread(store: Store) {
    let [from, to] = [ThreadId::from("from"), ThreadId::from("../to ü")];
    branched(&store, &from).await;
    let before = known(&store, &[&from]).await;
    store.copy(&from, &to).await.expect("the name is free");
    assert_eq!(history(&store, &to).await, history(&store, &from).await);
    for id in [ONE, TWO, THREE, FOUR] {
        assert_eq!(load(&store, &to, id).await, load(&store, &from, id).await);
    }
    store.delete(&to).await.expect("a thread can be deleted");
    assert_eq!(known(&store, &[&from]).await, before);
}

async fn a_copy_and_its_thread_know_nothing_of_each_other(store: Store) {
    let [from, to] = [ThreadId::from("from"), ThreadId::from("to")];
    branched(&store, &from).await;
    store.copy(&from, &to).await.expect("the name is free");
    let copied = load(&store, &to, None).await;
    assert_eq!(commit(&store, &from, Some(FOUR), plain(Some(FOUR))).await, CheckpointId(5));
    assert_eq!(load(&store, &to, None).await, copied);
    record(&store, &task(&to, FOUR, 1), failed(9)).await;
    assert_eq!(commit(&store, &to, Some(FOUR), superstep(Some(FOUR), &["\"to\""])).await, CheckpointId(5));
    assert_eq!(load(&store, &from, FOUR).await.tasks, [(1, failed(2))]);
    store.delete(&from).await.expect("a thread can be deleted");
    assert_eq!(
        updates(&load(&store, &to, None).await),
        [vec!["\"one\""], vec!["\"two\""], vec![], vec!["\"to\""]]
    );
}

async fn a_copy_needs_a_thread_and_a_new_name(store: Store) {
    let [from, to] = [ThreadId::from("from"), ThreadId::from("to")];
    let none = store.copy(&from, &to).await;
    assert!(matches!(&none, Err(CheckpointError::NoThread { thread }) if *thread == from), "{none:?}");
    line(&store, &from, &["1"]).await;
    line(&store, &to, &["2"]).await;
    let before = known(&store, &[&from, &to]).await;
    for (from, to) in [(&from, &to), (&from, &from)] {
        let taken = store.copy(from, to).await;
        assert!(matches!(&taken, Err(CheckpointError::ThreadExists { thread }) if thread == to), "{taken:?}");
    }
    assert_eq!(known(&store, &[&from, &to]).await, before);
}

async fn a_copy_takes_its_subgraphs_along(store: Store) {
    let [from, to] = [ThreadId::from("t"), ThreadId::from("t ")];
    line(&store, &from, &["1", "2"]).await;
    let sub = called(&from, Some((0, TWO)));
    let inner = called(&sub, None);
    line(&store, &sub, &["3"]).await;
    line(&store, &inner, &["4"]).await;
    store.copy(&from, &to).await.expect("the name is free");
    let copied = called(&to, Some((0, TWO)));
    assert_eq!(store.children(&to).await.expect("children"), [copied.clone(), called(&copied, None)]);
    assert_eq!(updates(&load(&store, &called(&copied, None), None).await), [["4"]]);
    assert_eq!(store.children(&from).await.expect("children"), [sub, inner]);
}

/// Returns everything except the path to the state.
fn without_way(loaded: Loaded) -> Loaded {
    let mut meta = loaded.meta;
    meta.parent_pruned = false;
    Loaded { snapshot: None, commits: Vec::new(), meta, ..loaded }
}

async fn retained_checkpoints_load_unchanged(store: Store) {
    let thread = ThreadId::from("t");
    let other = ThreadId::from("other");
    branched(&store, &other).await;
    let untouched = known(&store, &[&other]).await;
    branched(&store, &thread).await;
    let before = [load(&store, &thread, THREE).await, load(&store, &thread, FOUR).await];
    let pruned = store.prune(&thread, FOUR, keep(&[THREE], &[(THREE, "3"), (FOUR, "4")])).await;
    assert_eq!(pruned.expect("both have snapshots"), 2);
    let after = [load(&store, &thread, THREE).await, load(&store, &thread, FOUR).await];
    for (before, after) in before.into_iter().zip(after) {
        let id = after.meta.id;
        assert_eq!(after.snapshot, Some(vec![channel("n", &id.to_string())].into()));
        assert_eq!((&after.commits, after.meta.parent_pruned), (&Vec::new(), true));
        assert_eq!(without_way(after), without_way(before));
    }
    for id in [ONE, TWO] {
        assert_eq!(store.load(&thread, Some(id)).await.expect("load"), None);
    }
    store.delete(&thread).await.expect("a thread can be deleted");
    assert_eq!(known(&store, &[&other]).await, untouched);
}

async fn a_retained_checkpoint_needs_a_path_to_its_state(store: Store) {
    let thread = ThreadId::from("t");
    branched(&store, &thread).await;
    let before = known(&store, &[&thread]).await;
    for prune in [keep(&[], &[]), keep(&[ONE, THREE], &[(FOUR, "4")]), keep(&[TWO, FOUR], &[(ONE, "1")])] {
        let refused = store.prune(&thread, FOUR, prune).await;
        assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{refused:?}");
    }
    assert_eq!(known(&store, &[&thread]).await, before);
    // If the whole path is retained, no snapshot is needed.
    let pruned = store.prune(&thread, FOUR, keep(&[ONE, TWO], &[])).await.expect("2 has its parent");
    assert_eq!(pruned, 1);
    assert_eq!(updates(&load(&store, &thread, None).await), [vec!["\"one\""], vec!["\"two\""], vec![]]);
}

async fn a_rejected_prune_deletes_nothing(store: Store) {
    let thread = ThreadId::from("t");
    assert_conflict(store.prune(&thread, ONE, Prune::default()).await, &thread, Some(ONE));
    branched(&store, &thread).await;
    let before = known(&store, &[&thread]).await;
    for head in [0, 3, 5, u64::MAX] {
        let head = CheckpointId(head);
        assert_conflict(store.prune(&thread, head, keep(&[], &[(FOUR, "4")])).await, &thread, Some(head));
    }
    for missing in [0, 5, u64::MAX] {
        let refused = store.prune(&thread, FOUR, keep(&[CheckpointId(missing)], &[(FOUR, "4")])).await;
        assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{refused:?}");
    }
    assert_eq!(known(&store, &[&thread]).await, before);
}

async fn a_pruned_parent_is_reported(store: Store) {
    let thread = ThreadId::from("t");
    branched(&store, &thread).await;
    store.prune(&thread, FOUR, keep(&[ONE], &[(FOUR, "4")])).await.expect("4 has a snapshot");
    let told: Vec<_> = history(&store, &thread)
        .await
        .iter()
        .map(|meta| (meta.id, meta.parent, meta.parent_pruned))
        .collect();
    assert_eq!(told, [(FOUR, Some(TWO), true), (ONE, None, false)]);
    assert_eq!(
        store.threads().await.expect("threads"),
        [(thread.clone(), load(&store, &thread, None).await.meta)]
    );
    assert!(load(&store, &thread, None).await.meta.parent_pruned);
    // Repeated, with the remaining checkpoints.
    assert_eq!(store.prune(&thread, FOUR, keep(&[], &[])).await.expect("4 has a snapshot"), 1);
    assert_eq!(history(&store, &thread).await.len(), 1);
}

async fn retained_checkpoints_may_get_metadata(store: Store) {
    let thread = ThreadId::from("t");
    branched(&store, &thread).await;
    let before = load(&store, &thread, TWO).await.meta.metadata;
    let said = serde_json::Map::from_iter([("who".to_owned(), "me \" ü".into())]);
    // Metadata for checkpoints that are not retained is ignored.
    let metadata = [(FOUR, said.clone()), (THREE, said.clone())].into();
    let prune = Prune { metadata, ..keep(&[ONE, TWO], &[]) };
    store.prune(&thread, FOUR, prune).await.expect("2 is kept, from which 4 comes");
    assert_eq!(load(&store, &thread, FOUR).await.meta.metadata, said);
    assert_eq!(load(&store, &thread, TWO).await.meta.metadata, before);
}

async fn results_of_retained_tasks_outlive_the_superstep_that_applied_them(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 0), failed(1)).await;
    record(&store, &task(&thread, ONE, 1), finished("\"kept\"", &["x"])).await;
    let tasks = vec![applied(0, "\"a\""), recorded(1, "\"kept\""), applied(2, "\"c\"")];
    commit(&store, &thread, Some(ONE), Commit { applied: tasks, ..plain(Some(ONE)) }).await;
    commit(&store, &thread, Some(TWO), plain(Some(TWO))).await;
    let before = load(&store, &thread, ONE).await;
    store.prune(&thread, THREE, keep(&[ONE], &[(THREE, "3")])).await.expect("3 has a snapshot");
    let after = load(&store, &thread, ONE).await;
    assert_eq!(after, before);
    assert_eq!(after.tasks.len(), 3);
}

async fn the_head_retains_its_records_and_ids_continue(store: Store) {
    let thread = ThreadId::from("t");
    branched(&store, &thread).await;
    store.prune(&thread, FOUR, keep(&[], &[(FOUR, "4")])).await.expect("4 has a snapshot");
    assert_eq!(load(&store, &thread, None).await.tasks, [(1, failed(2))]);
    record(&store, &task(&thread, FOUR, 1), finished("\"done\"", &[])).await;
    record(&store, &task(&thread, FOUR, 2), cancelled()).await;
    let next = Commit { applied: vec![recorded(1, "\"done\"")], ..plain(Some(FOUR)) };
    assert_eq!(commit(&store, &thread, Some(FOUR), next).await, CheckpointId(5));
    let loaded = load(&store, &thread, None).await;
    assert_eq!(
        (updates(&loaded), &loaded.snapshot),
        (vec![vec!["\"done\""]], &Some(vec![channel("n", "4")].into()))
    );
    let orphan = store.commit(&thread, Some(CheckpointId(5)), plain(Some(TWO))).await;
    assert!(matches!(orphan, Err(CheckpointError::Storage { .. })), "{orphan:?}");
}

/// Covers also the checkpoints listed by the caller.
async fn subgraphs_stay_with_the_checkpoints_that_called_them(store: Store) {
    let thread = ThreadId::from("t");
    branched(&store, &thread).await;
    let [two, three, own] = [Some((0, TWO)), Some((1, THREE)), None].map(|task| called(&thread, task));
    // Its own task does not refer to the thread's checkpoints.
    let inner = called(&three, Some((0, ONE)));
    for child in [&two, &three, &own, &inner, &called(&two, None)] {
        line(&store, child, &["1", "2"]).await;
    }
    let carried = called(&thread, Some((7, ONE)));
    line(&store, &carried, &["1"]).await;
    let prune = keep(&[THREE], &[(THREE, "3"), (FOUR, "4")]);
    let prune = Prune { callers: [ONE].into(), ..prune };
    store.prune(&thread, FOUR, prune).await.expect("both have snapshots");
    let mut stay = [own, three.clone(), inner.clone(), carried];
    stay.sort();
    assert_eq!(store.children(&thread).await.expect("children"), stay);
    // A subgraph is pruned like any thread, with the threads below it.
    store.prune(&three, TWO, keep(&[], &[(TWO, "2")])).await.expect("2 has a snapshot");
    assert_eq!(store.load(&inner, None).await.expect("load"), None);
    assert_eq!(history(&store, &three).await.len(), 1);
}
