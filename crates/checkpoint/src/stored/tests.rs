use std::collections::BTreeMap;

use superstep_state::StoredUpdate;

use super::*;
use crate::{CheckpointMeta, History, Prune};

fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

fn thread(name: &ThreadId) -> StoredThread<'_> {
    StoredThread { name, place: &"database `x`", backup: "file" }
}

fn meta_row(number: u64) -> MetaRow<'static> {
    MetaRow {
        parent: number.checked_sub(1).filter(|parent| *parent > 0).map(id),
        source: b"loop",
        created_ms: 7,
        control: br#"{"step":2,"next":["a"]}"#,
        is_intact: true,
        ..MetaRow::damaged(id(number))
    }
}

fn content(number: u64, applied: &'static str) -> ContentRow<'static> {
    ContentRow {
        parent: number.checked_sub(1).filter(|parent| *parent > 0).map(id),
        applied: applied.as_bytes(),
        is_intact: true,
        ..ContentRow::damaged(id(number))
    }
}

fn finished(update: &str) -> TaskRecord {
    TaskRecord::Finished { update: update.into(), targets: Vec::new(), failure: None }
}

fn damage<T>(result: Result<T, CheckpointError>) -> String {
    match result {
        Ok(_) => panic!("it is damaged"),
        Err(error) => error.to_string(),
    }
}

const ONE: &str = r#"[{"slot":0,"node":"a","update":1}]"#;
const RECORDED: &str = r#"[{"slot":0,"node":"a","update":2},{"slot":1,"node":"b"}]"#;

fn no_record(_: CheckpointId, _: u32) -> Result<Option<TaskRecord>, CheckpointError> {
    Ok(None)
}

#[test]
fn a_row_is_decoded_if_it_is_intact_and_what_superstep_writes() {
    let name = ThreadId::from("t");
    let meta = thread(&name).meta(&meta_row(3)).unwrap();
    assert_eq!((meta.id, meta.parent, meta.source, meta.control.step), (id(3), Some(id(2)), Source::Loop, 2));
    let cases = [
        (MetaRow::damaged(id(3)), "its row; resume from an older"),
        (MetaRow { source: b"x", ..meta_row(3) }, "superstep did not write this source"),
        (MetaRow { control: b"{}", ..meta_row(3) }, "superstep did not write this control"),
        (MetaRow { metadata: Some(b"x"), ..meta_row(3) }, "superstep did not write this metadata"),
        (MetaRow { parent_pruned: true, ..meta_row(3) }, "its parent is missing; restore the file"),
        (MetaRow { parent_is_lost: true, ..meta_row(3) }, "its parent is missing"),
    ];
    for (row, expected) in cases {
        let error = damage(thread(&name).meta(&row));
        let start = "SS304: checkpoint 3 of thread `t` in database `x` is damaged: ";
        assert!(error.strip_prefix(start).is_some_and(|error| error.starts_with(expected)), "{error}");
    }
}

fn read(rows: &[ContentRow<'_>], depth: Depth) -> Result<PathReader<'static>, CheckpointError> {
    let name: &'static ThreadId = Box::leak(Box::new("t".into()));
    let mut path = PathReader::new(thread(name), thread(name).meta(&meta_row(rows[0].id.0))?, depth);
    for row in rows {
        if path.next() == Some(row.id) {
            path.push(row)?;
        }
    }
    Ok(path)
}

#[test]
fn a_path_ends_at_the_nearest_snapshot() {
    let snapshot = ContentRow { snapshot: Some(br#"{"log":[1]}"#), ..content(2, ONE) };
    let rows = [content(4, RECORDED), content(3, ONE), snapshot, content(1, "damaged")];
    let mut path = read(&rows, Depth::Path).unwrap();
    assert_eq!(path.recorded().collect::<Vec<_>>(), [(id(3), 1)]);
    path.fill(|_, _| Ok::<_, CheckpointError>(Some(finished("3")))).unwrap();
    let loaded = path.into_loaded(id(9), Vec::new()).unwrap();
    let updates = |texts: &[&str]| texts.iter().map(|text| StoredUpdate::from(*text)).collect::<Vec<_>>();
    assert_eq!(loaded.commits, [updates(&["1"]), updates(&["2", "3"])]);
    assert_eq!(loaded.snapshot.unwrap().channels().unwrap()[0].channel, "log");
    assert_eq!(loaded.applied, [(0, "a".into()), (1, "b".into())]);

    let mut tip = read(&rows, Depth::Tip).unwrap();
    tip.fill(no_record).unwrap();
    let tip = tip.into_loaded(id(9), Vec::new()).unwrap();
    assert_eq!((tip.applied, tip.commits.len()), (loaded.applied, 0));
}

#[test]
fn a_commit_has_its_own_updates_and_snapshot() {
    let row = ContentRow { snapshot: Some(b"{}"), ..content(4, RECORDED) };
    let mut path = read(&[row], Depth::Commit).unwrap();
    path.fill(|parent, slot| {
        assert_eq!((parent, slot), (id(3), 1));
        Ok::<_, CheckpointError>(Some(finished("3")))
    })
    .unwrap();
    let commit = path.into_commit(vec![(0, finished("4"))]).unwrap();
    let applied = commit.applied.iter().map(|task| (task.slot, task.recorded, task.update.clone()));
    assert_eq!(applied.collect::<Vec<_>>(), [(0, false, "2".into()), (1, true, "3".into())]);
    assert_eq!((commit.snapshot.is_some(), commit.records.len()), (true, 1));

    let name = ThreadId::from("t");
    let meta = MetaRow { parent_pruned: true, parent_is_lost: true, ..meta_row(4) };
    let mut orphan = PathReader::new(thread(&name), thread(&name).meta(&meta).unwrap(), Depth::Commit);
    orphan.push(&row).unwrap();
    orphan.fill(no_record).unwrap();
    assert_eq!(orphan.into_commit(Vec::new()).unwrap().applied[1].update, StoredUpdate::empty());
}

#[test]
fn a_path_with_a_damaged_or_missing_row_is_an_error() {
    let damaged = |row| damage(read(&[content(4, ONE), row], Depth::Path));
    assert!(damaged(ContentRow::damaged(id(3))).contains("checkpoint 3 of thread `t`"));
    assert!(damaged(content(3, "[{")).contains("did not write this list of applied tasks"));
    let snapshot = ContentRow { snapshot: Some(b"[]"), ..content(3, ONE) };
    assert!(damaged(snapshot).contains("did not write this snapshot"));
    assert!(damaged(ContentRow { parent: Some(id(3)), ..content(3, ONE) }).contains("this parent"));
    let end = |rows: &[ContentRow<'_>]| read(rows, Depth::Path).unwrap().into_loaded(id(4), Vec::new());
    assert!(
        damage(end(&[content(4, ONE)]))
            .contains("checkpoint 4 of thread `t` in database `x` is damaged: its ancestor 3")
    );
    let filled = read(&[content(4, RECORDED)], Depth::Path).unwrap().fill(no_record);
    assert!(damage(filled).contains("the record of task 1 it applied is missing"));
}

fn task_row(slot: i64, record: &'static str) -> TaskRow<'static> {
    TaskRow { slot, record: record.as_bytes(), share: 5, is_intact: true }
}

#[test]
fn results_of_effects_join_the_record_of_their_task() {
    let name = ThreadId::from("t");
    let effects = task_row(EffectSlots::of(1).first, r#"{"end":"started","once":{"b":"2"}}"#);
    let rows = [
        effects,
        task_row(0, r#"{"end":"cancelled"}"#),
        task_row(1, r#"{"end":"started","once":{"a":"1"}}"#),
    ];
    let tasks = |rows: &[TaskRow<'_>], sum| {
        let mut reader = TaskReader::new(thread(&name), id(3));
        rows.iter().try_for_each(|row| reader.push(row))?;
        reader.finish(sum)
    };
    let found = tasks(&rows, 15).unwrap();
    assert_eq!((found.len(), found[1].1.once().unwrap().len()), (2, 2));
    for (rows, sum) in [(&rows[..], 14), (&rows[..2], 10), (&rows[1..], 15)] {
        assert!(damage(tasks(rows, sum)).contains("the record of a task is missing"));
    }
    let changed = TaskRow { is_intact: false, ..effects };
    assert!(damage(tasks(&[changed], 5)).contains("the row of its task 1"));
    assert!(damage(tasks(&[task_row(1 << 40, r#"{"end":"cancelled"}"#)], 5)).contains("slot of a task"));
}

fn child(number: u64, parent: u64) -> ChildRow<'static> {
    let applied = br#"[{"slot":0,"node":"a","update":7},{"slot":1,"node":"b"}]"#;
    ChildRow {
        id: id(number),
        parent: Some(id(parent)),
        source: b"loop",
        applied,
        is_intact: true,
        has_intact_content: true,
    }
}

const COUNTS: Counts = Counts { head: CheckpointId(9), checkpoints: 9, branched: 1 };

#[test]
fn the_newest_superstep_after_a_checkpoint_has_the_results_of_its_tasks() {
    let name = ThreadId::from("t");
    let tasks = |rows: &[ChildRow<'_>]| {
        let mut reader = ChildReader::new(thread(&name), &COUNTS, 1, id(3), Vec::new())?;
        rows.iter().try_for_each(|row| reader.push(row))?;
        Ok((reader.missing_next(), reader.finish()))
    };
    let fork = ChildRow { source: b"fork", ..child(8, 3) };
    assert_eq!(tasks(&[fork, child(4, 3)]).unwrap(), (None, vec![(0, finished("7"))]));
    assert_eq!(tasks(&[child(4, 2)]).unwrap(), (None, Vec::new()));
    assert_eq!(tasks(&[]).unwrap(), (Some(id(4)), Vec::new()));
    // A damaged row counts only if it may be the newest superstep.
    let damaged = ChildRow { is_intact: false, ..child(4, 3) };
    assert_eq!(tasks(&[damaged]).unwrap().1.len(), 1);
    assert_eq!(tasks(&[child(8, 3), ChildRow { has_intact_content: false, ..damaged }]).unwrap().1.len(), 1);
    for row in [
        ChildRow { has_intact_content: false, ..child(4, 3) },
        ChildRow { source: b"x", ..damaged },
        ChildRow { parent: None, ..damaged },
        ChildRow { is_intact: false, ..child(8, 3) },
    ] {
        assert!(damage(tasks(&[row])).contains("is damaged: its row"));
    }
    let lost = ChildReader::new(thread(&name), &COUNTS, 0, id(3), Vec::new());
    assert!(damage(lost).contains("checkpoints are missing, or too many"));
}

/// Reads the rows with these ids of a thread with the head 5.
fn history(ids: &[u64], checkpoints: u64, range: &History) -> Result<Vec<u64>, CheckpointError> {
    let name = ThreadId::from("t");
    let counts = Counts { head: id(5), checkpoints, branched: 0 };
    let rows = |range: &History| -> Result<HistoryEnd, CheckpointError> {
        let mut reader = HistoryReader::new(thread(&name), counts, range);
        let newest = reader.newest().unwrap_or(id(u64::MAX));
        let mut rows = ids.iter().filter(|row| id(**row) <= newest);
        while !reader.is_full() {
            let Some(row) = rows.next() else { return reader.end(true) };
            let row = meta_row(*row);
            reader.push(&MetaRow { source: if row.id.0 == 4 { b"fork" } else { b"loop" }, ..row })?;
        }
        reader.end(false)
    };
    let found = match rows(range)? {
        HistoryEnd::Complete(found) => found,
        HistoryEnd::Partial(part) => {
            let HistoryEnd::Complete(whole) = rows(&History::default())? else { panic!("it is the whole") };
            part.checked(thread(&name), &whole)?
        }
    };
    Ok(found.iter().map(|meta: &CheckpointMeta| meta.id.0).collect())
}

#[test]
fn a_history_has_as_many_checkpoints_as_its_thread_states() {
    let all = History::default();
    let limit = |limit| History { limit: Some(limit), ..History::default() };
    let before = |before| History { before: Some(id(before)), ..History::default() };
    assert_eq!(history(&[5, 4, 3, 2, 1], 5, &all).unwrap(), [5, 4, 3, 2, 1]);
    assert_eq!(history(&[5, 4, 3, 2, 1], 5, &limit(2)).unwrap(), [5, 4]);
    assert_eq!(history(&[5, 4, 3, 2, 1], 5, &before(3)).unwrap(), [2, 1]);
    let forks = History { source: Some(Source::Fork), ..History::default() };
    assert_eq!(history(&[5, 4, 3, 2, 1], 5, &forks).unwrap(), [4]);
    // Pruned.
    assert_eq!(history(&[5, 3], 2, &all).unwrap(), [5, 3]);
    assert_eq!(history(&[5, 3], 2, &limit(2)).unwrap(), [5, 3]);
    assert_eq!(history(&[5, 3], 2, &before(5)).unwrap(), [3]);
    for (ids, checkpoints, range) in [
        (&[5, 3, 2, 1][..], 5, &all),
        (&[5, 4, 3, 2], 5, &all),
        (&[6, 5, 4, 3, 2, 1], 5, &all),
        (&[4, 3], 2, &all),
        (&[5, 3, 2], 2, &all),
        (&[5], 2, &all),
        (&[5], 2, &before(5)),
        (&[5, 5], 2, &all),
    ] {
        assert!(
            damage(history(ids, checkpoints, range)).contains("checkpoints are missing"),
            "{ids:?} {range:?}"
        );
    }
}

#[test]
fn a_prune_retains_readable_checkpoints_and_the_results_of_their_tasks() {
    let name = ThreadId::from("t");
    let known = |parent: u64, has_snapshot| Known { parent: Some(id(parent)), is_loop: true, has_snapshot };
    let known = BTreeMap::from([
        (id(1), Known { parent: None, is_loop: false, has_snapshot: false }),
        (id(2), known(1, false)),
        (id(3), known(2, true)),
        (id(4), known(2, false)),
        (id(5), known(3, false)),
    ]);
    let prune = |keep: &[u64], snapshots: &[u64]| Prune {
        keep: keep.iter().map(|number| id(*number)).collect(),
        snapshots: snapshots.iter().map(|number| (id(*number), Vec::new())).collect(),
        ..Prune::default()
    };
    let plan = prune(&[2, 3], &[2, 3]);
    let plan = PrunePlan::new(&name, id(5), &plan, known.clone()).unwrap();
    assert_eq!(plan.keep, [2, 3, 5].map(id).into());
    assert_eq!(plan.lost_results(), [id(2)], "4 is newer than 3");
    assert_eq!([2, 3, 5].map(|number| plan.adds_snapshot(id(number))), [true, false, false]);
    assert_eq!([2, 3, 5].map(|number| plan.is_orphan(id(number))), [true, false, false]);
    for (keep, expected) in
        [(&[2][..], "cannot be retained without its parent"), (&[9], "has no checkpoint 9")]
    {
        let error = damage(PrunePlan::new(&name, id(5), &prune(keep, &[5]), known.clone()));
        assert!(error.contains(expected), "{error}");
    }
}
