//! Sequences of commands on one thread: decisions stay with the user who made them.

use std::{fs, path::Path};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rusqlite::Connection;
use superstep::{Checkpointer, checkpoint::Prune, sqlite::SqliteCheckpointer};
use superstep_testing::{
    script::{Answer, call, calls, txt},
    wire::WireServer,
};

use crate::support::{Place, Ran, ended, serve};

fn write(id: &str, path: &str) -> Answer {
    call(id, "write_file", &format!(r#"{{"path":"{path}","content":"made"}}"#))
}

/// Creates an answer with two calls that need approval.
fn two() -> Answer {
    let args = ["a", "b"].map(|name| format!(r#"{{"path":"{name}","content":"made"}}"#));
    calls([("c1", "write_file", args[0].as_str()), ("c2", "write_file", args[1].as_str())])
}

async fn run_as(place: &Place, user: &str, args: &[&str]) -> Ran {
    ended(&mut place.command_of(user, args)).await
}

/// Sends a message on a thread.
async fn say(place: &Place, user: &str, server: &WireServer, args: &[&str]) -> Ran {
    let url = server.base_url();
    run_as(place, user, &[args, &["--base-url", &url, "--model", "m"]].concat()).await
}

fn made(place: &Place, names: [&str; 2]) -> [bool; 2] {
    names.map(|name| place.work().join(name).exists())
}

/// Returns the decisions for all threads in a user's own file.
fn decided(place: &Place, user: &str, what: &str) -> usize {
    let records =
        fs::read_dir(place.beside(user).join("threads")).unwrap().map(|entry| entry.unwrap().path());
    let records = records.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let of = |path| -> usize {
        let record: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        record[what].as_array().unwrap().len()
    };
    records.map(of).sum()
}

#[tokio::test]
async fn grants_apply_to_their_user_only_after_any_commands() {
    let mut chance = StdRng::seed_from_u64(4);
    for nth in 0..6 {
        let place = Place::new();
        let server = serve([write("c1", "a"), txt("ok"), write("c2", "b"), txt("ok")]).await;
        say(&place, "mallory", &server, &["run", "go", "--thread", "t"]).await;
        run_as(&place, "mallory", &["resume", "t", "--always"]).await.ok();
        // Another user, or the same one.
        let user = if nth % 2 == 0 { "ada" } else { "mallory" };
        let (mut thread, mut done) = ("t".to_owned(), Vec::new());
        for step in 0..4 {
            let copy = format!("t{step}");
            // The thread of a graph of another name is adopted; so can be one that belongs to the agent
            // already.
            let command: &[&str] = match chance.random_range(0..5) {
                0 | 1 => &["adopt", &thread],
                2 => &["copy", &thread, &copy],
                3 => &["prune", &thread, "--leaves"],
                _ => &["prune", &thread, "--keep-last", "1"],
            };
            run_as(&place, user, command).await.ok();
            done.push(command.join(" "));
            if command[0] == "copy" {
                thread = copy;
            }
        }
        let more = say(&place, user, &server, &["run", "more", "--thread", &thread]).await;
        let wanted = if user == "ada" { (Some(6), [true, false]) } else { (Some(0), [true, true]) };
        assert_eq!((more.code, made(&place, ["a", "b"])), wanted, "{user}: {done:?}: {more:?}");
    }
}

#[tokio::test]
async fn an_adopted_unfinished_thread_continues_once_its_tasks_are_discarded() {
    let place = Place::new();
    let server = serve([write("c1", "a"), txt("ok")]).await;
    say(&place, "ada", &server, &["run", "go", "--thread", "t"]).await;
    // As if a graph of another name, whose nodes the agent does not have, had run it.
    other_graph(&place.database()).await;
    let asked = say(&place, "ada", &server, &["run", "more", "--thread", "t"]).await;
    assert!(asked.code == Some(5) && asked.stderr.contains("belongs to graph `shop`"), "{asked:?}");
    run_as(&place, "ada", &["adopt", "t"]).await.ok();
    let asked = say(&place, "ada", &server, &["run", "more", "--thread", "t"]).await;
    assert!(asked.code == Some(5) && asked.stderr.contains("or drop that with `--discard`"), "{asked:?}");
    // The pending question is discarded, and an answer to it is invalid.
    let late = say(&place, "ada", &server, &["run", "more", "--thread", "t", "--discard"]).await.ok();
    assert_eq!((late.stdout.as_str(), made(&place, ["a", "b"])), ("ok\n", [false, false]));
    let late = run_as(&place, "ada", &["resume", "t", "--approve", "c1"]).await;
    assert!(
        late.code == Some(5) && late.stderr.contains("no call waits for a decision on thread `t`"),
        "{late:?}"
    );
}

/// Writes another graph name to every checkpoint of a database, with correct checksums.
async fn other_graph(db: &Path) {
    let (store, thread) = (SqliteCheckpointer::open(db).unwrap(), "t".into());
    let history = store.history(&thread, Default::default()).await.unwrap();
    let metadata = history.iter().map(|meta| {
        let text = serde_json::to_string(&meta.metadata).unwrap().replace("\"react\"", "\"shop\"");
        assert!(text.contains("shop"), "{text}");
        (meta.id, serde_json::from_str(&text).unwrap())
    });
    let keep = history.iter().map(|meta| meta.id).collect();
    let prune = Prune { keep, metadata: metadata.collect(), ..Prune::default() };
    store.prune(&thread, history[0].id, prune).await.unwrap();
}

#[tokio::test]
async fn decisions_about_a_discarded_call_are_deleted() {
    let place = Place::new();
    let server = serve([two(), write("c3", "b"), txt("ok")]).await;
    say(&place, "ada", &server, &["run", "go", "--thread", "t"]).await;
    let half = run_as(&place, "ada", &["resume", "t", "--always", "c1"]).await;
    assert_eq!(
        (half.code, decided(&place, "ada", "grants"), decided(&place, "ada", "answers")),
        // The answer counts here, and in live replays.
        (Some(6), 1, 2)
    );
    // A permanent permission counts after its call has run, which never happens here.
    let asked = say(&place, "ada", &server, &["run", "more", "--thread", "t", "--discard"]).await;
    assert!(asked.code == Some(6) && asked.stderr.contains("call `c3` of write_file waits"), "{asked:?}");
    assert_eq!((decided(&place, "ada", "grants"), decided(&place, "ada", "answers")), (0, 0));
    assert_eq!(made(&place, ["a", "b"]), [false, false]);
    run_as(&place, "ada", &["resume", "t", "--always"]).await.ok();
    assert_eq!((decided(&place, "ada", "grants"), made(&place, ["a", "b"])), (1, [false, true]));
    // The permission of a call that ran remains, even if the run is discarded.
    let server = serve([Answer::stream().text(["half"]).stall(), write("c4", "a"), txt("ok")]).await;
    let url = server.base_url();
    let mut command =
        place.command_of("ada", &["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"]);
    let mut child =
        command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    crate::support::received(&server, 1).await;
    child.kill().await.unwrap();
    say(&place, "ada", &server, &["run", "more", "--thread", "t", "--discard"]).await.ok();
    assert_eq!((decided(&place, "ada", "grants"), made(&place, ["a", "b"])), (1, [true, true]));
}

#[tokio::test]
async fn an_answer_is_for_the_thread_that_it_was_given_to() {
    let place = Place::new();
    let server = serve([two(), txt("one"), txt("two")]).await;
    say(&place, "ada", &server, &["run", "Remember that I like tea.", "--thread", "t"]).await;
    assert_eq!(run_as(&place, "ada", &["resume", "t", "--approve", "c1"]).await.code, Some(6));
    run_as(&place, "ada", &["copy", "t", "u"]).await.ok();
    // The copy has the answer, which was given to another thread.
    let copy = say(&place, "ada", &server, &["resume", "u", "--deny", "c2=no"]).await;
    assert!(copy.code == Some(6) && copy.stderr.contains("call `c1.2` of write_file waits:"), "{copy:?}");
    assert!(copy.stderr.contains("the stored answer is not known to be yours"), "{copy:?}");
    assert_eq!(made(&place, ["a", "b"]), [false, false]);
    // The copies are independent, in any order.
    run_as(&place, "ada", &["resume", "t", "--deny", "c2=no"]).await.ok();
    assert_eq!(made(&place, ["a", "b"]), [true, false]);
    fs::remove_file(place.work().join("a")).unwrap();
    run_as(&place, "ada", &["resume", "u", "--deny", "c1.2=no"]).await.ok();
    assert_eq!(made(&place, ["a", "b"]), [false, false]);
    // The memory request was executed once.
    let known = run_as(&place, "ada", &["memory", "list", "--json"]).await.ok().lines();
    assert_eq!(known.len(), 1, "{known:?}");
    // Too late for both, and for a copy of a finished thread.
    run_as(&place, "ada", &["copy", "t", "v"]).await.ok();
    for thread in ["t", "u", "v"] {
        let message = format!("no call waits for a decision on thread `{thread}`");
        run_as(&place, "ada", &["resume", thread, "--approve", "c1"]).await.refused(5, &message);
    }
}

/// Converts a database to the first schema, in the same file.
fn first_schema(db: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.db");
    let sql = Connection::open(&old).unwrap();
    sql.execute_batch(include_str!("../../crates/sqlite/src/schema_1.sql")).unwrap();
    sql.execute("ATTACH ?1 AS new", [db.to_str().unwrap()]).unwrap();
    sql.execute_batch(
        "INSERT INTO threads SELECT key, name FROM new.threads;
         INSERT INTO checkpoints SELECT key, parent, source, created_ms, control, metadata, applied, snapshot FROM new.checkpoints;
         INSERT INTO tasks SELECT checkpoint, slot, record FROM new.tasks;
         DETACH new;
         PRAGMA application_id = 0x53535450;
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(sql);
    fs::write(db, fs::read(&old).unwrap()).unwrap();
}

fn schema(db: &Path) -> i64 {
    Connection::open(db).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn files_are_restored_on_a_pruned_database_of_an_older_program() {
    // The prune or the revert migrates the database.
    for prune_first in [true, false] {
        let place = Place::new();
        let shell = |id: &str, command: &str| call(id, "shell", &format!(r#"{{"command":"{command}"}}"#));
        let server =
            serve([shell("c1", "echo 1 > a"), txt("ok"), shell("c2", "echo 2 > a"), txt("ok"), txt("ok")])
                .await;
        let url = server.base_url();
        let head = async || place.state("t").await["checkpoint"]["id"].as_u64().unwrap();
        let mut heads = Vec::new();
        for _ in 0..2 {
            place
                .run(&["run", "go", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"])
                .await
                .ok();
            heads.push(head().await);
        }
        let a = || fs::read_to_string(place.work().join("a")).ok();
        let (db, keep) = (place.database(), (heads[1] - heads[0] + 1).to_string());
        let [first, second] = [heads[0].to_string(), heads[1].to_string()];
        let before = place.run(&["history", "t", "--json"]).await.ok().stdout;
        first_schema(&db);
        assert_eq!(place.run(&["history", "t", "--json"]).await.ok().stdout, before);
        assert_eq!(schema(&db), 1, "looking changes nothing");
        let prune = async |keep: &str| place.run(&["prune", "t", "--keep-last", keep]).await.ok();
        let revert = async |to: &str| place.run(&["revert", "t", "--to", to]).await;
        if prune_first {
            prune(&keep).await;
            assert_eq!(schema(&db), 4);
        }
        assert_eq!((revert(&first).await.ok().stdout.as_str(), a().as_deref()), ("changed a\n", Some("1\n")));
        assert_eq!(schema(&db), 4);
        if !prune_first {
            // The checkpoint of the revert itself is one more.
            prune(&(heads[1] - heads[0] + 2).to_string()).await;
        }
        assert_eq!(
            (revert(&second).await.ok().stdout.as_str(), a().as_deref()),
            ("changed a\n", Some("2\n"))
        );
        // Pruned checkpoints are not found.
        prune("1").await;
        let gone = revert(&first).await;
        assert_eq!((gone.code, a().as_deref()), (Some(5), Some("2\n")), "{gone:?}");
        assert!(gone.stderr.contains(&format!("checkpoint {first}")), "{gone:?}");
        let newest = head().await.to_string();
        assert_eq!(revert(&newest).await.ok().stdout, "no file had to be restored\n");
        place.run(&["run", "go", "--thread", "t", "--quiet"]).await.ok();
    }
}
