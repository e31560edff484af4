//! `db`: a whole database.

use rusqlite::Connection;
use serde_json::json;

use crate::support::Place;

async fn turn(place: &Place, thread: &str) {
    place.run(&["run", "2+2", "--model", "offline", "--thread", thread, "-q"]).await.ok();
}

fn damage(place: &Place, thread: &str) {
    let database = Connection::open(place.database()).unwrap();
    let changed = database.execute(
        "UPDATE checkpoints SET created_ms = created_ms + 1 WHERE id = 2 AND thread =
         (SELECT key FROM threads WHERE name = ?1)",
        [thread],
    );
    assert_eq!(changed, Ok(1));
}

#[tokio::test]
async fn a_check_reads_all_threads_and_names_the_damaged_ones() {
    let place = Place::new();
    for thread in ["a", "b", "c"] {
        turn(&place, thread).await;
    }
    let intact = place.run(&["db", "check", "--json"]).await.ok().lines().remove(0);
    assert_eq!((&intact["threads"], &intact["damages"]), (&json!(3), &json!([])));
    damage(&place, "b");
    let checked = place.run(&["db", "check"]).await;
    assert_eq!(checked.code, Some(4), "{checked:?}");
    let lines: Vec<_> = checked.stdout.lines().collect();
    assert!(lines[0].starts_with("damaged: SS304: checkpoint 2 of thread `b` in database"), "{lines:?}");
    assert!(lines[1].starts_with("2 threads and ") && lines[1].ends_with("; 1 damage"), "{lines:?}");
    let json = place.run(&["db", "check", "--json"]).await.lines().remove(0);
    assert_eq!(json["damages"][0]["thread"], "b", "{json}");
    let stats = place.run(&["db", "stats", "--json"]).await.ok().lines().remove(0);
    assert_eq!((&stats["threads"], &stats["damaged_threads"]), (&json!(3), &json!(1)), "{stats}");
}

#[tokio::test]
async fn all_threads_are_pruned_and_the_file_shrinks() {
    let place = Place::new();
    for thread in ["a", "a", "a", "b", "b"] {
        turn(&place, thread).await;
    }
    let stats = async || place.run(&["db", "stats", "--json"]).await.ok().lines().remove(0);
    let before = stats().await;
    assert_eq!(before["largest"][0]["thread"], "a", "{before}");
    assert_eq!((&before["storage"]["kind"], &before["storage"]["version"]), (&json!("SQLite"), &json!(4)));
    let prune = ["db", "prune", "--keep-last", "1", "--yes", "--json"];
    let pruned = place.run(&prune).await.ok().lines().remove(0);
    let after = stats().await;
    assert_eq!((&pruned["threads"], &after["checkpoints"]), (&json!(2), &json!(2)), "{pruned} {after}");
    assert_eq!(pruned["pruned"].as_u64().unwrap() + 2, before["checkpoints"].as_u64().unwrap());
    let vacuumed = place.run(&["db", "vacuum", "--json"]).await.ok().lines().remove(0);
    assert!(vacuumed["bytes"].as_u64() < vacuumed["bytes_before"].as_u64(), "{vacuumed}");
    assert_eq!(stats().await["storage"]["free_bytes"], 0);
    place.run(&["db", "check"]).await.ok();
    turn(&place, "a").await;
}

#[tokio::test]
async fn a_damaged_thread_does_not_keep_the_others_from_being_pruned() {
    let place = Place::new();
    for thread in ["a", "b"] {
        turn(&place, thread).await;
    }
    damage(&place, "a");
    let pruned = place.run(&["db", "prune", "--keep-last", "1", "--yes"]).await;
    assert_eq!(pruned.code, Some(4), "{pruned:?}");
    assert!(pruned.stderr.contains("not pruned: SS304: checkpoint 2 of thread `a`"), "{pruned:?}");
    assert!(pruned.stdout.ends_with(" of 1 thread\n"), "{pruned:?}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_not_made() {
    let place = Place::new();
    for command in ["check", "stats", "migrate", "vacuum"] {
        let ran = place.run(&["db", command]).await;
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains("does not exist"), "{ran:?}");
    }
    assert!(!place.database().exists());
    turn(&place, "a").await;
    let migrated = place.run(&["db", "migrate"]).await.ok();
    assert_eq!(migrated.stdout, "the tables already have version 4\n");
}

#[tokio::test]
async fn a_program_of_ones_own_checks_and_prunes_its_threads() {
    let place = Place::new();
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    let checked = place.own(&["db", "check"]).await.ok();
    assert!(checked.stdout.starts_with("1 thread and "), "{checked:?}");
    let pruned = place.own(&["db", "prune", "--leaves", "--yes", "--json"]).await.ok().lines().remove(0);
    assert_eq!(pruned["threads"], 1, "{pruned}");
    place.own(&["state", "d"]).await.ok();
}
