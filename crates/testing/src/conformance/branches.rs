//! Threads with several branches.

use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{Commit, Source},
};

use super::{
    cases,
    fixture::{
        ONE, Store, THREE, TWO, applied, channel, commit, finished, history, line, load, plain, record,
        recorded, superstep, task, updates,
    },
};

cases![
    two_branches_have_their_own_values,
    a_branch_does_not_see_the_snapshots_of_another,
    a_branch_refers_to_the_records_of_its_own_parent,
    the_newest_superstep_has_the_ends_of_tasks,
    a_thread_can_begin_afresh,
    many_branches_are_distinguished,
];

const FOUR: CheckpointId = CheckpointId(4);
const FIVE: CheckpointId = CheckpointId(5);

async fn two_branches_have_their_own_values(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2", "3"]).await;
    let fork = Commit { source: Source::Fork, ..superstep(Some(ONE), &["\"fork\""]) };
    assert_eq!(commit(&store, &thread, Some(THREE), fork).await, FOUR);
    assert_eq!(commit(&store, &thread, Some(FOUR), superstep(Some(FOUR), &["\"on\""])).await, FIVE);
    let new = load(&store, &thread, None).await;
    assert_eq!(updates(&new), [["1"], ["\"fork\""], ["\"on\""]]);
    assert_eq!((new.meta.id, new.meta.parent), (FIVE, Some(FOUR)));
    let old = load(&store, &thread, THREE).await;
    assert_eq!(updates(&old), [["1"], ["2"], ["3"]]);
    assert_eq!((old.head, old.meta.parent), (FIVE, Some(TWO)));
    // Ids continue on the old branch.
    let back = commit(&store, &thread, Some(FIVE), superstep(Some(THREE), &["\"back\""])).await;
    assert_eq!(back, CheckpointId(6));
    assert_eq!(updates(&load(&store, &thread, None).await), [["1"], ["2"], ["3"], ["\"back\""]]);
    let parents: Vec<_> = history(&store, &thread).await.iter().map(|meta| meta.parent).collect();
    assert_eq!(parents, [Some(THREE), Some(FOUR), Some(ONE), Some(TWO), Some(ONE), None]);
}

async fn a_branch_does_not_see_the_snapshots_of_another(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2"]).await;
    let snapshot = Some(vec![channel("n", "\"three\"")].into());
    commit(&store, &thread, Some(TWO), Commit { snapshot: snapshot.clone(), ..superstep(Some(TWO), &["3"]) })
        .await;
    commit(&store, &thread, Some(THREE), superstep(Some(TWO), &["4"])).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((updates(&loaded), &loaded.snapshot), (vec![vec!["1"], vec!["2"], vec!["4"]], &None));
    commit(&store, &thread, Some(FOUR), superstep(Some(THREE), &["5"])).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((updates(&loaded), &loaded.snapshot), (vec![vec!["5"]], &snapshot));
}

async fn a_branch_refers_to_the_records_of_its_own_parent(store: Store) {
    let thread = ThreadId::from("t");
    let mut head = None;
    for update in ["\"one\"", "\"two\"", "\"three\""] {
        let id = commit(&store, &thread, head, plain(head)).await;
        record(&store, &task(&thread, id, 0), finished(update, &["next"])).await;
        head = Some(id);
    }
    let next = Commit { applied: vec![recorded(0, "\"one\"")], ..plain(Some(ONE)) };
    commit(&store, &thread, head, next).await;
    assert_eq!(updates(&load(&store, &thread, None).await), [vec![], vec!["\"one\""]]);
    for (id, update) in [(ONE, "\"one\""), (TWO, "\"two\""), (THREE, "\"three\"")] {
        assert_eq!(load(&store, &thread, id).await.tasks, [(0, finished(update, &["next"]))]);
    }
}

async fn the_newest_superstep_has_the_ends_of_tasks(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 1), finished("\"kept\"", &["x"])).await;
    commit(&store, &thread, Some(ONE), superstep(Some(ONE), &["\"old\"", "\"kept\""])).await;
    let kept = (1, finished("\"kept\"", &["x"]));
    assert_eq!(load(&store, &thread, ONE).await.tasks, [(0, finished("\"old\"", &[])), kept.clone()]);
    commit(&store, &thread, Some(TWO), superstep(Some(ONE), &["\"new\""])).await;
    assert_eq!(load(&store, &thread, ONE).await.tasks, [(0, finished("\"new\"", &[])), kept.clone()]);
    let update = Commit { source: Source::Update, ..superstep(Some(ONE), &["\"by hand\""]) };
    commit(&store, &thread, Some(THREE), update).await;
    assert_eq!(load(&store, &thread, ONE).await.tasks, [(0, finished("\"new\"", &[])), kept]);
}

async fn a_thread_can_begin_afresh(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2"]).await;
    commit(&store, &thread, Some(TWO), superstep(None, &["3"])).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((updates(&loaded), loaded.meta.parent), (vec![vec!["3"]], None));
    assert_eq!(load(&store, &thread, TWO).await.tasks, []);
}

async fn many_branches_are_distinguished(store: Store) {
    let thread = ThreadId::from("t");
    let mut head = line(&store, &thread, &["0"]).await.expect("a head");
    let mut tips = [head; 3];
    for round in 0..20 {
        for (branch, tip) in tips.iter_mut().enumerate() {
            let update = format!("[{branch},{round}]");
            let next = Commit { applied: vec![applied(0, &update)], ..plain(Some(*tip)) };
            head = commit(&store, &thread, Some(head), next).await;
            *tip = head;
        }
    }
    for (branch, tip) in tips.into_iter().enumerate() {
        let loaded = load(&store, &thread, tip).await;
        let mut expected = vec!["0".to_owned()];
        expected.extend((0..20).map(|round| format!("[{branch},{round}]")));
        assert_eq!(updates(&loaded).concat(), expected);
    }
}
