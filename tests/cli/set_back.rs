//! Databases that were set back to an earlier state.

use std::{fs, io::Cursor};

use superstep::{
    Checkpointer, ThreadId,
    checkpoint::text::{self, ExportOptions},
    sqlite::SqliteCheckpointer,
};

use crate::support::{Place, Ran, ended};

const OFFLINE: [&str; 3] = ["run", "--model", "offline"];

async fn turn(place: &Place, more: &[&str]) -> Ran {
    place.run(&[&OFFLINE[..], more].concat()).await
}

/// Returns the error of a run of a thread whose last run ended at checkpoint `at`.
fn refused(place: &Place, thread: &str, at: u64, what: &str) -> String {
    let db = place.database().canonicalize().unwrap();
    format!(
        "thread `{thread}`, which your last run left at checkpoint {at} in `{}`, {what}; restore it, or repeat the command with \
         `--trust` to accept it as it is",
        db.display()
    )
}

/// Asserts that a check names one thread and what was set back, in both forms.
async fn assert_found(place: &Place, thread: &str, what: &str) {
    let check = place.run(&["db", "check"]).await;
    assert_eq!(check.code, Some(4), "{check:?}");
    let named = format!("damaged: thread `{thread}`, which your last run left at ");
    assert!(check.stdout.starts_with(&named) && check.stdout.contains(what), "{check:?}");
    assert!(check.stdout.contains("accept it as it is with `superstep db check --trust`\n"), "{check:?}");
    let json = place.run(&["db", "check", "--json"]).await.lines();
    assert_eq!(json[0]["damages"][0]["thread"], thread);
}

async fn head(place: &Place, thread: &str) -> u64 {
    head_of(&place.run(&["history", thread, "--json"]).await.ok())
}

fn head_of(history: &Ran) -> u64 {
    let history = history.lines();
    history.iter().map(|checkpoint| checkpoint["id"].as_u64().unwrap()).max().unwrap()
}

#[tokio::test]
async fn a_file_that_was_set_back_is_refused_until_it_is_accepted() {
    let place = Place::new();
    turn(&place, &["--thread", "t", "one"]).await.ok();
    let (before, first) = (fs::read(place.database()).unwrap(), head(&place, "t").await);
    turn(&place, &["--thread", "t", "two"]).await.ok();
    turn(&place, &["--thread", "new", "one"]).await.ok();
    let (last, only) = (head(&place, "t").await, head(&place, "new").await);
    place.run(&["db", "check"]).await.ok();
    // In place, and as another file.
    for is_moved in [false, true] {
        let target = if is_moved { place.beside("copy.db") } else { place.database() };
        fs::write(&target, &before).unwrap();
        if is_moved {
            fs::rename(target, place.database()).unwrap();
        }
        let what = format!("was set back: its newest checkpoint is {first}");
        let error = refused(&place, "t", last, &what);
        turn(&place, &["--thread", "t", "three"]).await.refused(4, &error);
        place.run(&["resume", "t"]).await.refused(4, &error);
        let check = place.run(&["db", "check"]).await;
        assert_eq!((check.code, check.stdout.contains(&what)), (Some(4), true), "{check:?}");
    }
    // What an own file has lost as a whole, another one need not have.
    turn(&place, &["--thread", "new", "two"]).await.ok();
    turn(&place, &["--thread", "t", "--trust", "three"]).await.ok();
    fs::write(place.database(), &before).unwrap();
    let missing = "is missing: another program deleted it, or the database was set back";
    turn(&place, &["--thread", "new", "two"]).await.refused(4, &refused(&place, "new", only, missing));
    assert_found(&place, "new", missing).await;
    place.run(&["db", "check", "--trust"]).await.ok();
    place.run(&["db", "check"]).await.ok();
    for thread in ["t", "new"] {
        turn(&place, &["--thread", thread, "four"]).await.ok();
    }
}

#[tokio::test]
async fn a_thread_without_its_end_is_refused_also_if_it_is_encrypted() {
    let key = Place::new().run(&["db", "key"]).await.ok().stdout;
    for key in [None, Some(key.trim())] {
        let place = Place::new();
        let run = async |args: &[&str]| {
            let mut command = place.own_command(args);
            ended(key.iter().fold(&mut command, |command, key| command.env("SUPERSTEP_KEY", key))).await
        };
        run(&["run", "digest", "--thread", "d"]).await.ok();
        let whole = fs::read(place.database()).unwrap();
        run(&["run", "digest", "--thread", "d"]).await.ok();
        fs::write(place.database(), &whole).unwrap();
        let ran = run(&["run", "digest", "--thread", "d"]).await;
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains("was set back: its newest checkpoint is "), "{ran:?}");
        let check = run(&["db", "check"]).await;
        assert_eq!((check.code, check.stdout.contains("was set back")), (Some(4), true), "{check:?}");
        run(&["run", "digest", "--thread", "d", "--trust"]).await.ok();
        run(&["run", "digest", "--thread", "d"]).await.ok();
        run(&["db", "check"]).await.ok();
    }
}

#[tokio::test]
async fn what_shows_or_edits_a_thread_says_that_it_was_set_back() {
    let place = Place::new();
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    let read = || fs::read(place.database()).unwrap();
    let before = read();
    let first = head_of(&place.own(&["history", "d", "--json"]).await.ok());
    // Nothing was run since.
    for args in [&["edit", "d", "--update", "{}"][..], &["fork", "d", "--at", &first.to_string()]] {
        place.own(args).await.ok();
        let last = head_of(&place.own(&["history", "d", "--json"]).await.ok());
        let newest = read();
        fs::write(place.database(), &before).unwrap();
        let note = format!(
            "checkpoint {last} in `{}`, was set back",
            place.database().canonicalize().unwrap().display()
        );
        for args in [
            &["state", "d"][..],
            &["history", "d"],
            &["draw", "--thread", "d"],
            &["edit", "d", "--update", "{}"],
        ] {
            let shown = place.own(args).await;
            assert_eq!((shown.code, shown.stderr.contains(&note)), (Some(0), true), "{args:?}: {shown:?}");
        }
        fs::write(place.database(), newest).unwrap();
        assert_eq!(place.own(&["state", "d"]).await.stderr, "");
    }
    place.own(&["run", "digest", "--thread", "d", "--trust"]).await.ok();
    turn(&place, &["--thread", "t", "one"]).await.ok();
    let before = read();
    turn(&place, &["--thread", "t", "two"]).await.ok();
    fs::write(place.database(), before).unwrap();
    assert!(place.run(&["state", "t"]).await.stderr.contains("was set back"));
}

/// The other threads of the database are as they were.
#[tokio::test]
async fn one_thread_that_lost_its_end_or_was_replaced_is_named() {
    let place = Place::new();
    for thread in ["t", "u"] {
        turn(&place, &["--thread", thread, "one"]).await.ok();
    }
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    let thread = ThreadId::from("t");
    let earlier = text::export(&store, &thread, &ExportOptions::default()).await.unwrap();
    drop(store);
    turn(&place, &["--thread", "t", "two"]).await.ok();
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    store.delete(&thread).await.unwrap();
    text::import(&store, &mut Cursor::new(&earlier)).await.unwrap();
    drop(store);
    assert_found(&place, "t", "was set back").await;
    turn(&place, &["--thread", "u", "two"]).await.ok();
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    store.delete(&thread).await.unwrap();
    store.copy(&"u".into(), &thread).await.unwrap();
    drop(store);
    assert_found(&place, "t", "was replaced: another program deleted it, and began another one").await;
}

#[tokio::test]
async fn what_the_program_itself_deletes_and_prunes_is_not_missed() {
    let place = Place::new();
    for prompt in ["one", "two"] {
        turn(&place, &["--thread", "t", prompt]).await.ok();
    }
    place.run(&["prune", "t", "--keep-last", "1", "--yes"]).await.ok();
    place.run(&["db", "check"]).await.ok();
    turn(&place, &["--thread", "t", "three"]).await.ok();
    place.run(&["prune", "t", "--keep-last", "1", "--yes"]).await.ok();
    place.file("t.jsonl", &place.run(&["export", "t"]).await.ok().stdout);
    place.run(&["delete", "t", "--yes"]).await.ok();
    turn(&place, &["--thread", "t", "one"]).await.ok();
    place.run(&["delete", "t", "--yes"]).await.ok();
    place.run(&["import", "t.jsonl"]).await.ok();
    place.run(&["copy", "t", "u"]).await.ok();
    place.run(&["db", "check"]).await.ok();
    turn(&place, &["--thread", "t", "four"]).await.ok();
    // Another program has continued it.
    place.own(&["run", "digest", "--thread", "d", "--trust"]).await.ok();
    place.own(&["edit", "d", "--update", "{}"]).await.ok();
    place.own(&["run", "digest", "--thread", "d", "--trust"]).await.ok();
    place.run(&["db", "check"]).await.ok();
}
