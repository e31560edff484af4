//! Commits, records, and the resulting loads.

use serde_json::json;
use superstep_graph::{
    CheckpointId, Question, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, HeadState, Loaded, LoadedHead, Prune, RecordedTarget,
        Replaced, Source, TaskRecord,
    },
    state::Snapshot,
    topology::Control,
};

use super::{
    cases,
    fixture::{
        ONE, Store, THREE, TWO, applied, assert_conflict, cancelled, channel, commit, failed, failure,
        finished, known, line, load, once, plain, record, recorded, started, superstep, task, updates,
    },
};

cases![
    an_unknown_thread_is_empty,
    a_commit_is_loaded_as_it_was_given,
    ids_ascend_from_one,
    a_stale_commit_is_a_conflict_and_changes_nothing,
    a_first_commit_needs_a_fresh_thread,
    a_parent_has_to_exist,
    a_control_record_is_stored_completely,
    a_record_is_found_again,
    results_of_once_are_found_again,
    further_effects_join_the_record_of_their_task,
    a_record_replaces_the_one_before,
    a_record_belongs_to_the_head,
    records_are_stored_with_a_commit,
    recorded_tasks_are_applied_in_fold_order,
    a_task_is_applied_as_recorded_only_if_it_is,
    applied_tasks_show_under_the_checkpoint_that_had_to_run_them,
    only_supersteps_have_ends_of_tasks,
    a_snapshot_replaces_the_updates_before_it,
    an_empty_snapshot_is_a_snapshot,
    json_is_stored_exactly,
    a_long_thread_is_loaded_in_order,
    a_checkpoint_names_the_tasks_that_made_it,
    several_commits_are_all_stored_or_none,
    several_records_are_stored_as_one_after_the_other,
    the_head_is_loaded_with_its_own_remembered_state_only,
];

async fn an_unknown_thread_is_empty(store: Store) {
    let thread = ThreadId::from("nobody");
    assert_eq!(store.load(&thread, None).await.expect("load"), None);
    assert_eq!(store.load(&thread, Some(ONE)).await.expect("load"), None);
    assert_eq!(store.history(&thread, Default::default()).await.expect("history"), []);
    assert_eq!(store.threads().await.expect("threads"), []);
    store.delete(&thread).await.expect("there is nothing to delete");
    commit(&store, &thread, None, plain(None)).await;
    for id in [0, 2, u64::from(u32::MAX), u64::from(u32::MAX) + 2, u64::MAX] {
        assert_eq!(store.load(&thread, Some(CheckpointId(id))).await.expect("load"), None, "checkpoint {id}");
    }
}

async fn a_commit_is_loaded_as_it_was_given(store: Store) {
    let thread = ThreadId::from("t");
    let metadata = json!({"user": "Ünal\u{0}", "nested": {"n": [1, -2, 2.5, null]}, "big": u64::MAX});
    let serde_json::Value::Object(metadata) = metadata else { unreachable!("it is an object") };
    let control = Control::new(-1, vec!["__start__".into()]);
    let first = Commit {
        source: Source::Input,
        control: control.clone(),
        created_ms: -5,
        metadata: metadata.clone().into(),
        records: vec![(0, finished(r#"{"log":["in"]}"#, &[]))],
        ..plain(None)
    };
    assert_eq!(commit(&store, &thread, None, first).await, ONE);
    let meta = CheckpointMeta {
        id: ONE,
        parent: None,
        parent_pruned: false,
        source: Source::Input,
        control,
        created_ms: -5,
        metadata,
    };
    let expected = Loaded {
        meta,
        head: ONE,
        applied: Vec::new(),
        snapshot: None,
        commits: vec![Vec::new()],
        tasks: vec![(0, finished(r#"{"log":["in"]}"#, &[]))],
        fingerprints: None,
    };
    assert_eq!(load(&store, &thread, None).await, expected);
    assert_eq!(load(&store, &thread, ONE).await, expected);

    for (parent, source) in [(ONE, Source::Loop), (TWO, Source::Update), (THREE, Source::Fork)] {
        let next = Commit { source, created_ms: i64::MAX, ..plain(Some(parent)) };
        let id = commit(&store, &thread, Some(parent), next.clone()).await;
        let loaded = load(&store, &thread, None).await.meta;
        assert_eq!((loaded.id, loaded.parent, loaded.source), (id, Some(parent), source));
        assert_eq!((loaded.control, loaded.created_ms), (next.control, i64::MAX));
        assert!(loaded.metadata.is_empty());
    }
}

async fn ids_ascend_from_one(store: Store) {
    let thread = ThreadId::from("t");
    let mut head = None;
    for expected in 1..=5 {
        let id = commit(&store, &thread, head, plain(head)).await;
        assert_eq!(id, CheckpointId(expected));
        head = Some(id);
    }
    let loaded = load(&store, &thread, TWO).await;
    assert_eq!((loaded.meta.id, loaded.head), (TWO, CheckpointId(5)));
}

async fn a_stale_commit_is_a_conflict_and_changes_nothing(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2", "3"]).await;
    let before = known(&store, &[&thread]).await;
    for expected in [0, 1, 2, 4, 5, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
        let expected = Some(CheckpointId(expected));
        let stale = Commit { parent: Some(THREE), records: vec![(0, failed(1))], ..superstep(None, &["9"]) };
        assert_conflict(store.commit(&thread, expected, stale).await, &thread, expected);
        let stale = Commit { parent: expected, ..superstep(None, &["9"]) };
        assert_conflict(store.commit(&thread, expected, stale).await, &thread, expected);
    }
    assert_conflict(store.commit(&thread, None, superstep(None, &["9"])).await, &thread, None);
    assert_eq!(known(&store, &[&thread]).await, before);
    assert_eq!(commit(&store, &thread, Some(THREE), plain(Some(THREE))).await, CheckpointId(4));
}

async fn a_first_commit_needs_a_fresh_thread(store: Store) {
    let thread = ThreadId::from("t");
    assert_conflict(store.commit(&thread, Some(ONE), plain(Some(ONE))).await, &thread, Some(ONE));
    assert_conflict(store.commit(&thread, Some(ONE), plain(None)).await, &thread, Some(ONE));
    assert_eq!(store.threads().await.expect("threads"), []);
    assert_eq!(commit(&store, &thread, None, plain(None)).await, ONE);
}

async fn a_parent_has_to_exist(store: Store) {
    let thread = ThreadId::from("t");
    for parent in [1, 2, u64::MAX] {
        let orphan =
            store.commit(&thread, None, Commit { parent: Some(CheckpointId(parent)), ..plain(None) }).await;
        assert!(matches!(orphan, Err(CheckpointError::Storage { .. })), "{parent}: {orphan:?}");
    }
    assert_eq!(store.threads().await.expect("threads"), []);
    line(&store, &thread, &["1"]).await;
    let before = known(&store, &[&thread]).await;
    for parent in [0, 2, 3, u64::MAX] {
        let next = Commit { parent: Some(CheckpointId(parent)), ..plain(None) };
        let orphan = store.commit(&thread, Some(ONE), next).await;
        assert!(matches!(orphan, Err(CheckpointError::Storage { .. })), "{parent}: {orphan:?}");
    }
    assert_eq!(known(&store, &[&thread]).await, before);
}

async fn a_control_record_is_stored_completely(store: Store) {
    let thread = ThreadId::from("t");
    let mut control =
        Control::new(*Control::STEPS.end(), ["a", "a b", "\u{fc}\"", "", "a"].map(Into::into).into());
    control.items.insert(4, "{\"n\": [1, null]}".into());
    control.items.insert(0, "\"\"".into());
    commit(&store, &thread, None, Commit { control: control.clone(), ..plain(None) }).await;
    let end = Control::new(*Control::STEPS.start(), Vec::new());
    commit(&store, &thread, Some(ONE), Commit { control: end.clone(), ..plain(Some(ONE)) }).await;
    assert_eq!(load(&store, &thread, ONE).await.meta.control, control);
    assert_eq!(load(&store, &thread, None).await.meta.control, end);
}

async fn a_record_is_found_again(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let sent = RecordedTarget::Send { node: "worker".into(), item: "{\"n\": 1}".into() };
    let targets = vec!["a".into(), sent, "a".into()];
    let ends = [
        (8, TaskRecord::Finished { update: "{}".into(), targets, failure: None }),
        (9, TaskRecord::Finished { update: "{}".into(), targets: Vec::new(), failure: Some(failure()) }),
        (10, TaskRecord::Handled { failure: failure(), handler: Box::new(failed(1)) }),
        (11, TaskRecord::Handled { failure: failure(), handler: Box::new(started(1, 2)) }),
        (7, finished(r#"{"log":["ok"]}"#, &["b", "__end__"])),
        (0, failed(2)),
        (300, cancelled()),
        (u32::MAX, failed(0)),
    ];
    for (slot, end) in &ends {
        record(&store, &task(&thread, ONE, *slot), end.clone()).await;
    }
    let [eight, nine, ten, eleven, seven, zero, many, most] = ends;
    let ends = [zero, seven, eight, nine, ten, eleven, many, most];
    assert_eq!(load(&store, &thread, None).await.tasks, ends);
}

async fn results_of_once_are_found_again(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let replaces = Some(Replaced { id: "a:1.0:q~0".into(), question: "1".into() });
    let question =
        Question { key: "q".into(), question: "null".into(), schema: None, within: None, replaces };
    let asked = |error: Option<String>, once| TaskRecord::Interrupted {
        questions: vec![question.clone()],
        answers: [("p".to_owned(), "7".into())].into(),
        asked: [("p".to_owned(), question.clone())].into(),
        attempts: 1,
        error,
        once,
    };
    let ends = [
        (0, started(0, 1)),
        (1, started(2, 3)),
        (2, TaskRecord::Failed { attempts: 1, error: "no".into(), once: once(1) }),
        (3, asked(None, once(2))),
        (4, asked(Some("no".into()), once(0))),
        (5, TaskRecord::Cancelled { once: once(1) }),
    ];
    for (slot, end) in &ends {
        record(&store, &task(&thread, ONE, *slot), end.clone()).await;
    }
    assert_eq!(load(&store, &thread, None).await.tasks, ends);
    // It belongs to the task: a finished task has its update.
    let applied = vec![applied(0, "{}")];
    commit(&store, &thread, Some(ONE), Commit { applied, ..plain(Some(ONE)) }).await;
    assert_eq!(load(&store, &thread, ONE).await.tasks[0], (0, finished("{}", &[])));
    assert_eq!(load(&store, &thread, ONE).await.tasks[1..], ends[1..]);
    assert_eq!(load(&store, &thread, None).await.tasks, []);
}

async fn further_effects_join_the_record_of_their_task(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let handled = |once| TaskRecord::Handled { failure: failure(), handler: Box::new(once) };
    let ends = [(0, started(1, 1)), (1, handled(started(0, 1))), (u32::MAX, started(0, 1))];
    for (slot, end) in &ends {
        record(&store, &task(&thread, ONE, *slot), end.clone()).await;
    }
    let name = |nth: u32| format!("more {nth}");
    for nth in 0..3 {
        for slot in [u32::MAX, 0, 1] {
            let result = [(name(nth), nth.to_string().into())].into();
            if !store.add_effects(&task(&thread, ONE, slot), result).await.expect("the head takes effects") {
                // It stores whole records only.
                return;
            }
        }
    }
    let mut expected = ends.to_vec();
    for (_, record) in &mut expected {
        let once = record.once_mut().expect("they are unfinished");
        once.extend((0..3).map(|nth| (name(nth), nth.to_string().into())));
    }
    assert_eq!(load(&store, &thread, None).await.tasks, expected);
    // A whole record replaces all of them.
    expected[0].1 = finished("{}", &[]);
    expected[1].1 = handled(started(1, 2));
    for (slot, end) in &expected[..2] {
        record(&store, &task(&thread, ONE, *slot), end.clone()).await;
    }
    assert_eq!(load(&store, &thread, None).await.tasks, expected);
    for (checkpoint, slot) in [(ONE, 0), (ONE, 2)] {
        let added = store.add_effects(&task(&thread, checkpoint, slot), once(1)).await;
        assert!(!added.expect("the head takes effects"), "task {slot} has no unfinished record");
    }
    let late = store.add_effects(&task(&thread, TWO, 1), once(1)).await;
    assert_conflict(late.map(|_| ()), &thread, Some(TWO));
    assert_eq!(load(&store, &thread, None).await.tasks, expected);
}

async fn a_record_replaces_the_one_before(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    let key = task(&thread, ONE, 1);
    for end in [failed(1), failed(1), cancelled(), finished("{}", &[]), finished("{}", &[])] {
        record(&store, &key, end.clone()).await;
        assert_eq!(load(&store, &thread, None).await.tasks, [(1, end)]);
    }
}

async fn a_record_belongs_to_the_head(store: Store) {
    let thread = ThreadId::from("t");
    let none = store.record(&task(&thread, ONE, 0), failed(1)).await;
    assert_conflict(none, &thread, Some(ONE));
    line(&store, &thread, &["1", "2"]).await;
    let before = known(&store, &[&thread]).await;
    for id in [0, 1, 3, u64::MAX] {
        let id = CheckpointId(id);
        assert_conflict(store.record(&task(&thread, id, 0), failed(1)).await, &thread, Some(id));
    }
    assert_eq!(known(&store, &[&thread]).await, before);
}

async fn several_records_are_stored_as_one_after_the_other(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2"]).await;
    record(&store, &task(&thread, TWO, 1), started(0, 2)).await;
    let before = known(&store, &[&thread]).await;
    let records = vec![(2, finished("{}", &["a"])), (1, finished("[]", &[])), (0, failed(1)), (0, failed(2))];
    for id in [0, 1, 3, u64::MAX].map(CheckpointId) {
        assert_conflict(store.record_all(&thread, id, records.clone()).await, &thread, Some(id));
    }
    let missing = ThreadId::from("missing");
    assert_conflict(store.record_all(&missing, ONE, records.clone()).await, &missing, Some(ONE));
    assert_eq!(known(&store, &[&thread]).await, before);
    store.record_all(&thread, TWO, records).await.expect("tasks of the head can be recorded");
    store.record_all(&thread, TWO, Vec::new()).await.expect("there is nothing to store");
    let expected = [(0, failed(2)), (1, finished("[]", &[])), (2, finished("{}", &["a"]))];
    assert_eq!(load(&store, &thread, None).await.tasks, expected);
}

async fn records_are_stored_with_a_commit(store: Store) {
    let thread = ThreadId::from("t");
    let records = vec![(2, failed(1)), (0, failed(2)), (2, finished("[]", &["a"]))];
    commit(&store, &thread, None, Commit { records, ..plain(None) }).await;
    let expected = [(0, failed(2)), (2, finished("[]", &["a"]))];
    assert_eq!(load(&store, &thread, None).await.tasks, expected);
    commit(&store, &thread, Some(ONE), Commit { records: vec![(1, failed(3))], ..plain(Some(ONE)) }).await;
    assert_eq!(load(&store, &thread, None).await.tasks, [(1, failed(3))]);
    assert_eq!(load(&store, &thread, ONE).await.tasks, expected);
}

async fn recorded_tasks_are_applied_in_fold_order(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 0), finished("\"zero\"", &["x"])).await;
    record(&store, &task(&thread, ONE, 2), failed(1)).await;
    record(&store, &task(&thread, ONE, 2), finished("\"two\"", &[])).await;
    let applied = vec![recorded(2, "\"two\""), applied(1, "\"one\""), recorded(0, "\"zero\"")];
    commit(&store, &thread, Some(ONE), Commit { applied, ..plain(Some(ONE)) }).await;
    let child = load(&store, &thread, None).await;
    assert_eq!(updates(&child), [vec!["1"], vec!["\"two\"", "\"one\"", "\"zero\""]]);
    assert_eq!(child.tasks, []);
    let parent = load(&store, &thread, ONE).await;
    assert_eq!(updates(&parent), [["1"]]);
    let expected =
        [(0, finished("\"zero\"", &["x"])), (1, finished("\"one\"", &[])), (2, finished("\"two\"", &[]))];
    assert_eq!(parent.tasks, expected);
}

async fn a_task_is_applied_as_recorded_only_if_it_is(store: Store) {
    let thread = ThreadId::from("t");
    let first = store.commit(&thread, None, Commit { applied: vec![recorded(0, "1")], ..plain(None) }).await;
    assert!(matches!(first, Err(CheckpointError::Storage { .. })), "{first:?}");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 0), finished("0", &[])).await;
    record(&store, &task(&thread, ONE, 1), failed(1)).await;
    let before = known(&store, &[&thread]).await;
    for slot in [1, 2] {
        let applied = vec![recorded(0, "0"), recorded(slot, "1")];
        let refused = store.commit(&thread, Some(ONE), Commit { applied, ..plain(Some(ONE)) }).await;
        assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "slot {slot}: {refused:?}");
    }
    assert_eq!(known(&store, &[&thread]).await, before);
}

async fn applied_tasks_show_under_the_checkpoint_that_had_to_run_them(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 0), failed(1)).await;
    record(&store, &task(&thread, ONE, 5), cancelled()).await;
    let applied = vec![applied(3, "{\"d\":1}"), applied(0, "{\"a\":1}")];
    commit(&store, &thread, Some(ONE), Commit { applied, ..plain(Some(ONE)) }).await;
    let expected = [(0, finished("{\"a\":1}", &[])), (3, finished("{\"d\":1}", &[])), (5, cancelled())];
    assert_eq!(load(&store, &thread, ONE).await.tasks, expected);
    commit(&store, &thread, Some(TWO), plain(Some(TWO))).await;
    assert_eq!(load(&store, &thread, ONE).await.tasks, expected);
}

async fn only_supersteps_have_ends_of_tasks(store: Store) {
    for source in [Source::Input, Source::Update, Source::Fork] {
        let thread = ThreadId::from(source.as_str());
        line(&store, &thread, &["1"]).await;
        let next = Commit { source, ..superstep(Some(ONE), &["\"by hand\""]) };
        commit(&store, &thread, Some(ONE), next).await;
        assert_eq!(load(&store, &thread, ONE).await.tasks, [], "{source:?}");
        assert_eq!(updates(&load(&store, &thread, None).await), [["1"], ["\"by hand\""]], "{source:?}");
    }
}

async fn a_snapshot_replaces_the_updates_before_it(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1", "2"]).await;
    let full = vec![channel("z", "[1,2,3]"), channel("a", "null"), channel("a b \"c\"\n", "{}")];
    let full = Snapshot::from(full);
    let snapshot = Some(full.clone());
    commit(&store, &thread, Some(TWO), Commit { snapshot, ..superstep(Some(TWO), &["3"]) }).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((loaded.snapshot, loaded.commits), (Some(full.clone()), Vec::new()));
    let four = commit(&store, &thread, Some(THREE), superstep(Some(THREE), &["4", "5"])).await;
    let five = commit(&store, &thread, Some(four), superstep(Some(four), &[])).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!(updates(&loaded), [vec!["4", "5"], vec![]]);
    assert_eq!(loaded.snapshot.as_ref(), Some(&full));
    let newer = Some(vec![channel("z", "9")].into());
    let six = Commit { snapshot: newer.clone(), ..superstep(Some(five), &["6"]) };
    let six = commit(&store, &thread, Some(five), six).await;
    commit(&store, &thread, Some(six), superstep(Some(six), &["7"])).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((updates(&loaded), &loaded.snapshot), (vec![vec!["7"]], &newer));
    let loaded = load(&store, &thread, TWO).await;
    assert_eq!((updates(&loaded), &loaded.snapshot), (vec![vec!["1"], vec!["2"]], &None));
    let loaded = load(&store, &thread, four).await;
    assert_eq!((updates(&loaded), &loaded.snapshot), (vec![vec!["4", "5"]], &Some(full)));
    // The tasks of a checkpoint are readable even if the superstep that applied them has a snapshot.
    assert_eq!(load(&store, &thread, TWO).await.tasks, [(0, finished("3", &[]))]);
}

async fn an_empty_snapshot_is_a_snapshot(store: Store) {
    let thread = ThreadId::from("t");
    let snapshot = Some(Vec::new().into());
    commit(&store, &thread, None, Commit { snapshot, ..superstep(None, &["1"]) }).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!((loaded.snapshot, loaded.commits), (Some(Vec::new().into()), Vec::new()));
}

async fn json_is_stored_exactly(store: Store) {
    let thread = ThreadId::from("t");
    let long = format!("\"{}\"", "ä".repeat(20_000));
    let texts = [
        "null",
        "\"\"",
        "\"\\u0000\\\"\\\\ü\u{2028}\"",
        r#"{"b":1,"a":18446744073709551615,"c":1.0,"d":-0.0,"e":1e400}"#,
        "[[[]],{}]",
        &long,
    ];
    commit(&store, &thread, None, superstep(None, &texts)).await;
    for (slot, text) in (0..).zip(&texts) {
        record(&store, &task(&thread, ONE, slot), finished(text, &[])).await;
    }
    let snapshot = texts
        .iter()
        .map(|text| channel(&text.chars().take(20).collect::<String>(), text))
        .collect::<Vec<_>>();
    assert_eq!(updates(&load(&store, &thread, None).await), [texts]);
    let kept = load(&store, &thread, None).await.tasks;
    assert!(kept.iter().zip(&texts).all(|((_, end), text)| *end == finished(text, &[])), "{kept:?}");
    let applied = (0..).zip(&texts).map(|(slot, text)| recorded(slot, text)).collect();
    commit(&store, &thread, Some(ONE), Commit { applied, ..plain(Some(ONE)) }).await;
    assert_eq!(updates(&load(&store, &thread, None).await), [texts, texts]);
    let full = Commit { snapshot: Some(snapshot.clone().into()), ..plain(Some(TWO)) };
    commit(&store, &thread, Some(TWO), full).await;
    assert_eq!(load(&store, &thread, None).await.snapshot, Some(snapshot.into()));
}

async fn a_long_thread_is_loaded_in_order(store: Store) {
    let thread = ThreadId::from("t");
    let numbers: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    line(&store, &thread, &numbers).await;
    let loaded = load(&store, &thread, None).await;
    assert_eq!(updates(&loaded).concat(), numbers);
    assert_eq!(updates(&load(&store, &thread, CheckpointId(123)).await).concat(), numbers[..123]);
}

async fn a_checkpoint_names_the_tasks_that_made_it(store: Store) {
    let thread = ThreadId::from("t");
    line(&store, &thread, &["1"]).await;
    record(&store, &task(&thread, ONE, 7), finished("7", &[])).await;
    let named = |slot: u32| (slot, format!("node-{slot}").as_str().into());
    let both = vec![applied(3, "3"), recorded(7, "7"), applied(3, "4")];
    commit(&store, &thread, Some(ONE), Commit { applied: both.clone(), ..plain(Some(ONE)) }).await;
    assert_eq!(load(&store, &thread, None).await.applied, [named(3), named(7), named(3)]);
    let snapshot = Some(vec![channel("n", "1")].into());
    commit(&store, &thread, Some(TWO), Commit { snapshot, ..superstep(Some(TWO), &["5"]) }).await;
    assert_eq!(load(&store, &thread, None).await.applied, [named(0)]);
    assert_eq!(load(&store, &thread, TWO).await.applied, [named(3), named(7), named(3)]);
    commit(&store, &thread, Some(THREE), plain(Some(THREE))).await;
    assert_eq!(load(&store, &thread, None).await.applied, []);
}

async fn several_commits_are_all_stored_or_none(store: Store) {
    let thread = ThreadId::from("t");
    let two = vec![superstep(None, &["1"]), superstep(Some(ONE), &["2"])];
    store.commit_all(&thread, None, two).await.expect("the thread is fresh");
    let loaded = load(&store, &thread, None).await;
    assert_eq!((loaded.head, updates(&loaded)), (TWO, vec![vec!["1"], vec!["2"]]));
    store.commit_all(&thread, Some(TWO), Vec::new()).await.expect("there is nothing to store");
    record(&store, &task(&thread, TWO, 0), failed(1)).await;
    let before = known(&store, &[&thread]).await;

    let orphan = vec![superstep(Some(ONE), &["3"]), superstep(Some(CheckpointId(9)), &["4"])];
    let refused = store.commit_all(&thread, Some(TWO), orphan).await;
    assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{refused:?}");
    let stale = vec![superstep(Some(ONE), &["3"]), superstep(Some(THREE), &["4"])];
    assert_conflict(store.commit_all(&thread, Some(ONE), stale.clone()).await, &thread, Some(ONE));
    assert_conflict(store.commit_all(&thread, None, stale.clone()).await, &thread, None);
    let fresh = ThreadId::from("fresh");
    let refused = store.commit_all(&fresh, None, vec![plain(None), plain(Some(TWO))]).await;
    assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{refused:?}");
    assert_eq!(store.load(&fresh, None).await.expect("load"), None);
    assert_eq!(known(&store, &[&thread]).await, before);

    store.commit_all(&thread, Some(TWO), stale).await.expect("the head is as expected");
    let loaded = load(&store, &thread, None).await;
    assert_eq!((loaded.head, updates(&loaded)), (CheckpointId(4), vec![vec!["1"], vec!["3"], vec!["4"]]));
}

async fn the_head_is_loaded_with_its_own_remembered_state_only(store: Store) {
    let [thread, other] = ["t", "other"].map(ThreadId::from);
    assert_eq!(store.load_head(&thread).await.expect("load").map(|head| head.loaded), None);
    let remember = |thread: &ThreadId, head, text: &str| {
        store.remember(thread, head, HeadState::new(text.to_owned(), text.len()));
    };
    // Returns the remembered text, after checking everything but the path to the state.
    let text = async |thread: &ThreadId| {
        let head = store.load_head(thread).await.expect("load").expect("the thread exists");
        let LoadedHead { loaded: head, state } = head;
        let loaded = load(&store, thread, None).await;
        match state {
            Some(state) => {
                assert_eq!((head.meta, head.head), (loaded.meta, loaded.head));
                assert_eq!((head.applied, head.tasks), (loaded.applied, loaded.tasks));
                Some(state.get::<String>().expect("the type that was remembered").clone())
            }
            None => {
                assert_eq!(head, loaded);
                None
            }
        }
    };
    // A store need not remember anything.
    let is_or_none = |found: Option<String>, expected| assert!(found.is_none_or(|found| found == expected));
    commit(&store, &thread, None, superstep(None, &[r#"{"x":1}"#])).await;
    assert_eq!(text(&thread).await, None);
    remember(&thread, ONE, "one");
    is_or_none(text(&thread).await, "one");
    record(&store, &task(&thread, ONE, 0), finished(r#"{"x":2}"#, &[])).await;
    is_or_none(text(&thread).await, "one");
    commit(&store, &thread, Some(ONE), superstep(Some(ONE), &[r#"{"x":2}"#, r#"{"x":3}"#])).await;
    assert_eq!(text(&thread).await, None);
    remember(&thread, ONE, "late");
    assert_eq!(text(&thread).await, None);
    remember(&thread, TWO, "two");
    is_or_none(text(&thread).await, "two");
    commit(&store, &other, None, superstep(None, &[r#"{"x":7}"#])).await;
    commit(&store, &other, Some(ONE), superstep(Some(ONE), &[r#"{"x":8}"#])).await;
    assert_eq!(text(&other).await, None);
    let keep =
        Prune { keep: [TWO].into(), snapshots: [(TWO, vec![channel("x", "3")])].into(), ..Prune::default() };
    store.prune(&thread, TWO, keep).await.expect("prune");
    assert_eq!(text(&thread).await, None, "of a pruned thread");
    remember(&thread, TWO, "two");
    store.delete(&thread).await.expect("delete");
    store.copy(&other, &thread).await.expect("copy");
    assert_eq!(text(&thread).await, None, "of a copy in place of a deleted thread");
}
