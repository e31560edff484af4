//! Changes of files by tools, and their restoration.

use std::fs;

use serde_json::Value;
use superstep_testing::{
    script::{Answer, call, calls, txt},
    wire::WireServer,
};

use crate::support::{Place, Ran, serve};

fn shell(id: &str, command: &str) -> Answer {
    call(id, "shell", &serde_json::json!({ "command": command }).to_string())
}

async fn run(place: &Place, server: &WireServer, more: &[&str]) -> Ran {
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"];
    place.run(&[&args[..], more].concat()).await
}

fn read(place: &Place, name: &str) -> Option<String> {
    fs::read_to_string(place.work().join(name)).ok()
}

/// Returns the id of the newest checkpoint.
async fn head(place: &Place) -> String {
    place.state("t").await["checkpoint"]["id"].to_string()
}

#[tokio::test]
async fn files_are_restored_to_any_checkpoint_and_the_model_is_informed() {
    let place = Place::new();
    place.file(".gitignore", "*.log\n");
    place.file("a.log", "1");
    let round = calls([
        ("c1", "write_file", r#"{"path":"new/made.txt","content":"made\n"}"#),
        ("c2", "edit_file", r#"{"path":"notes.txt","old":"needle","new":"thread"}"#),
    ]);
    let second = shell("c3", "rm notes.txt; echo more >> new/made.txt; echo 2 > a.log");
    let server = serve([round, txt("one"), second, txt("two"), txt("three")]).await;
    let ran = run(&place, &server, &["--json"]).await.ok();
    let changed = ran.lines().into_iter().find(|line| line["event"] == "files_changed").unwrap();
    let changes: Vec<Value> = changed["data"]["changes"].as_array().unwrap().clone();
    assert_eq!((&changes[0]["path"], &changes[0]["kind"]), (&"new/made.txt".into(), &"made".into()));
    let diff = "@@ -1,3 +1,3 @@\n first line\n-the needle is here\n+the thread is here\n last line\n";
    assert_eq!((&changes[1]["path"], &changes[1]["diff"]), (&"notes.txt".into(), &diff.into()));
    assert_eq!(place.state("t").await["values"]["files"]["changes"], changed["data"]["changes"]);
    let first = head(&place).await;
    let ran = run(&place, &server, &[]).await.ok();
    assert!(ran.stderr.contains("    changed new/made.txt\n    removed notes.txt\n"), "{}", ran.stderr);
    let second = head(&place).await;
    let shown = place.run(&["state", "t"]).await.ok().stdout;
    assert!(shown.contains("files       changed new/made.txt\n            removed notes.txt\n"), "{shown}");

    let ran = place.run(&["revert", "t", "--to", &first]).await.ok();
    assert_eq!(ran.stdout, "changed new/made.txt\nmade notes.txt\n");
    assert_eq!(read(&place, "new/made.txt").unwrap(), "made\n");
    assert!(read(&place, "notes.txt").unwrap().contains("thread"));
    assert_eq!(read(&place, "a.log").unwrap(), "2\n", "what is ignored is left alone");
    assert_eq!(place.run(&["revert", "t", "--to", &first]).await.ok().stdout, "no file had to be restored\n");

    // To before the first round, and forward again.
    place.run(&["revert", "t", "--to", "1"]).await.ok();
    assert!(read(&place, "notes.txt").unwrap().contains("needle") && !place.work().join("new").exists());
    let ran = place.run(&["revert", "t", "--to", &second, "--json"]).await.ok();
    assert_eq!(ran.lines()[0]["files"]["changes"][1]["kind"], "removed");
    assert_eq!(
        (read(&place, "notes.txt"), read(&place, "new/made.txt").unwrap()),
        (None, "made\nmore\n".into())
    );

    run(&place, &server, &[]).await.ok();
    let request = server.requests().pop().unwrap().to_string();
    assert!(request.contains("The user put these files back to what they were"), "{request}");
    server.check().unwrap();
}

#[tokio::test]
async fn changes_by_others_are_reverted_by_force_only() {
    let place = Place::new();
    let server = serve([shell("c1", "echo 1 > a; echo 1 > b"), txt("ok")]).await;
    run(&place, &server, &[]).await.ok();
    place.file("b", "mine");
    place.run(&["revert", "t", "--to", "1"]).await.refused(
        5,
        "files of thread `t` were changed by another program since: b; nothing was done, restore them \
         anyway with `--force`",
    );
    assert_eq!((read(&place, "a").unwrap(), read(&place, "b").unwrap()), ("1\n".into(), "mine".into()));
    place.run(&["revert", "t", "--to", "1", "--force"]).await.ok();
    assert_eq!((read(&place, "a"), read(&place, "b")), (None, None));
}

#[tokio::test]
async fn a_stopped_revert_is_reported_completely_by_the_next_one() {
    let place = Place::new();
    let server = serve([
        shell("c1", "echo 1 > a; echo 1 > b"),
        txt("ok"),
        shell("c2", "echo 2 > a; echo 2 > b"),
        txt("ok"),
    ])
    .await;
    run(&place, &server, &[]).await.ok();
    let first = head(&place).await;
    run(&place, &server, &[]).await.ok();
    let second = head(&place).await;
    // A folder in place of `b` stops it between the two files.
    fs::remove_file(place.work().join("b")).unwrap();
    fs::create_dir_all(place.work().join("b/in_the_way")).unwrap();
    let stopped = place.run(&["revert", "t", "--to", &first, "--force"]).await;
    assert_eq!((stopped.code, read(&place, "a").unwrap().as_str()), (Some(1), "1\n"), "{stopped:?}");
    fs::remove_dir_all(place.work().join("b")).unwrap();
    place.file("b", "2\n");
    let ran = place.run(&["revert", "t", "--to", &first]).await.ok();
    assert_eq!(ran.stdout, "changed a\nchanged b\n");
    let hints = place.state("t").await["values"]["hints"].to_string();
    assert!(hints.contains("changed a\\nchanged b"), "{hints}");
    place.run(&["revert", "t", "--to", &second]).await.ok();
    assert_eq!(["a", "b"].map(|name| read(&place, name).unwrap()), ["2\n", "2\n"], "it is undone as a whole");
    let ran = place.run(&["revert", "t", "--to", &second]).await.ok();
    assert_eq!(ran.stdout, "no file had to be restored\n");
}

#[tokio::test]
async fn changes_by_the_user_between_two_rounds_are_left_alone() {
    let place = Place::new();
    let rounds = ["echo 1 > a; echo 1 > b", "echo 2 > a", "echo 3 > a"];
    let turns = (0..).zip(rounds).map(|(n, command)| shell(&format!("c{n}"), command));
    let server = serve(turns.flat_map(|turn| [turn, txt("ok")])).await;
    run(&place, &server, &[]).await.ok();
    let first = head(&place).await;
    place.file("a", "mine");
    place.file("b", "mine");
    place.file("notes.txt", "mine");
    place.file("new.txt", "mine");
    run(&place, &server, &[]).await.ok();
    let second = head(&place).await;

    // Files that the second round changed are restored to their content before it, which is the user's.
    let ran = place.run(&["revert", "t", "--to", &first]).await.ok();
    assert_eq!((&*ran.stdout, &*read(&place, "a").unwrap()), ("changed a\n", "mine"));
    place.run(&["revert", "t", "--to", &second]).await.ok();
    assert_eq!(read(&place, "a").unwrap(), "2\n");

    // Changes of the user in between are lost only with `--force`, and files that no tool changed are left
    // alone.
    run(&place, &server, &[]).await.ok();
    place.run(&["revert", "t", "--to", "1"]).await.refused(
        5,
        "files of thread `t` were changed by another program since: a, b; nothing was done, restore them \
         anyway with `--force`",
    );
    place.run(&["revert", "t", "--to", "1", "--force"]).await.ok();
    let left = ["a", "b", "notes.txt", "new.txt"].map(|name| read(&place, name));
    assert_eq!(left, [None, None, Some("mine".into()), Some("mine".into())]);
}

#[tokio::test]
async fn a_killed_round_is_compared_with_its_first_snapshot() {
    let place = Place::new();
    let round = calls([
        ("c1", "write_file", r#"{"path":"one","content":"1"}"#),
        ("c2", "shell", r#"{"command":"echo 2 > two; echo begun; read line < pipe"}"#),
    ]);
    // The pipe ends with the test, so that the command does not outlive it.
    let pipe = place.work().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _pipe = fs::File::options().read(true).write(true).open(pipe).unwrap();
    let server = serve([round, txt("ok")]).await;
    let url = server.base_url();
    let mut running =
        place.start(&["run", "go", "--thread", "t", "--yes", "--json", "--base-url", &url, "--model", "m"]);
    while read(&place, "two").unwrap_or_default().is_empty() {
        tokio::task::yield_now().await;
    }
    running.child.kill().await.unwrap();
    let refused = place.run(&["revert", "t", "--to", "1"]).await;
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("is not finished, its tools may still change files"), "{refused:?}");
    let ran = place.run(&["resume", "t", "--yes", "--json"]).await.ok();
    let changed = ran.lines().into_iter().find(|line| line["event"] == "files_changed").unwrap();
    let paths: Vec<_> =
        changed["data"]["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["one", "two"]);
    place.run(&["revert", "t", "--to", "1"]).await.ok();
    assert_eq!((read(&place, "one"), read(&place, "two")), (None, None));
    assert!(read(&place, "notes.txt").unwrap().contains("needle"));
}

#[tokio::test]
async fn what_cannot_be_restored_is_named_and_the_rest_is_restored() {
    let place = Place::new();
    let server = serve([shell("c1", "echo 2 > notes.txt; echo 1 > new"), txt("ok")]).await;
    run(&place, &server, &[]).await.ok();
    let stored = place.work().join(".superstep/files/t");
    let content = |entry: fs::DirEntry| Some(entry.path()).filter(|path| path.extension().is_none());
    for path in fs::read_dir(stored).unwrap().filter_map(|entry| content(entry.unwrap())) {
        if fs::read_to_string(&path).unwrap().contains("needle") {
            let length = fs::metadata(&path).unwrap().len();
            fs::write(&path, "x".repeat(usize::try_from(length).unwrap())).unwrap();
        }
    }
    let ran = place.run(&["revert", "t", "--to", "1", "--json"]).await;
    assert_eq!(ran.code, Some(1));
    let line = &ran.lines()[0];
    assert_eq!(line["files"]["changes"][0]["path"], "new");
    assert!(line["left"]["notes.txt"].as_str().unwrap().ends_with("is damaged"), "{line}");
    assert!(ran.stderr.contains("not restored, and left as they are: notes.txt: "), "{}", ran.stderr);
    assert_eq!((read(&place, "new"), read(&place, "notes.txt").as_deref()), (None, Some("2\n")));
}

#[tokio::test]
async fn file_snapshots_are_stored_copied_and_deleted_with_their_thread_if_enabled() {
    let place = Place::new();
    let server = serve([shell("c1", "echo 1 > a"), txt("ok"), shell("c2", "echo 1 > b"), txt("ok")]).await;
    run(&place, &server, &[]).await.ok();
    place.run(&["copy", "t", "u"]).await.ok();
    place.run(&["delete", "t"]).await.ok();
    assert!(!place.work().join(".superstep/files/t").exists());
    place.run(&["revert", "u", "--to", "1"]).await.ok();
    assert_eq!(read(&place, "a"), None);

    place.file("off.toml", "snapshots = false\n");
    run(&place, &server, &["--config", "off.toml"]).await.ok();
    assert_eq!(place.state("t").await["values"]["files"], Value::Null);
    let refused = place.run(&["revert", "t", "--to", "1"]).await;
    refused.refused(
        1,
        "not restored, and left as they are: checkpoint 7: its tools ran without a snapshot, so their changes are unknown",
    );
    assert_eq!(read(&place, "b").unwrap(), "1\n");
    place
        .run(&["revert", "t", "--to", "99"])
        .await
        .refused(5, "SS111: thread `t` has no checkpoint 99; its history lists those it has");
    place.file("bad.toml", "snapshots = 3\n");
    let refused = place.run(&["run", "go", "--config", "bad.toml"]).await;
    refused.refused(
        2,
        "the configuration `bad.toml` does not fit: line 1, column 13: `snapshots`: invalid type: integer `3`, expected \
         `true` or `false`",
    );
}

#[tokio::test]
async fn a_pruned_thread_retains_the_files_of_its_remaining_checkpoints() {
    let place = Place::new();
    let rounds = ["echo 1 > a", "echo 2 > a", "echo 3 > a"];
    let turns = (0..).zip(rounds).map(|(n, command)| shell(&format!("c{n}"), command));
    let server = serve(turns.flat_map(|turn| [turn, txt("ok")])).await;
    let mut heads = Vec::new();
    for _ in rounds {
        run(&place, &server, &[]).await.ok();
        heads.push(head(&place).await);
    }
    let kept = || fs::read_dir(place.work().join(".superstep/files/t")).unwrap().count();
    let before = kept();
    // The last three checkpoints belong to the last turn, from its round on.
    let told = place.run(&["prune", "t", "--keep-last", "3", "--json"]).await.ok().lines();
    // Two trees and a content: before and after the first round.
    assert_eq!((&told[0]["left"], &told[0]["files"]), (&3.into(), &3.into()), "{told:?}");
    assert_eq!(kept(), before - 3);
    place.run(&["revert", "t", "--to", &heads[2]]).await.ok();
    assert_eq!(read(&place, "a").unwrap(), "3\n");

    // An unfinished turn has saved files that belong to no checkpoint.
    let asking = serve([shell("c9", "echo 9 > a")]).await;
    let url = asking.base_url();
    let run = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"];
    assert_eq!(place.run(&run).await.code, Some(6));
    let told = place.run(&["prune", "t", "--keep-last", "1", "--json"]).await.ok().lines();
    assert_eq!(told[0]["files"], 0, "{told:?}");
}

#[tokio::test]
async fn agents_without_file_tools_take_no_snapshots() {
    let place = Place::new();
    place.file("agent.toml", "tools = [\"facts\"]\n[memory]\n");
    let record = || call("c1", "record_to_memory", r#"{"content":["Mia is my cat"]}"#);
    let server = serve([record(), txt("noted"), record(), txt("noted")]).await;
    run(&place, &server, &["--config", "agent.toml"]).await.ok();
    assert!(!place.work().join(".superstep/files").exists());
    place.file("agent.toml", "tools = [\"write\"]\n[memory]\n");
    run(&place, &server, &["--config", "agent.toml"]).await.ok();
    assert!(place.work().join(".superstep/files/t").exists());
}

#[tokio::test]
async fn files_are_restored_in_the_folder_of_the_rounds() {
    let place = Place::new();
    let folder = |name: &str| {
        fs::create_dir_all(place.beside(name)).unwrap();
        place.beside(name).canonicalize().unwrap().to_str().unwrap().to_owned()
    };
    let (one, two, db) = (folder("one"), folder("two"), place.beside("t.db"));
    let db = db.to_str().unwrap();
    let made = |name: &str| place.beside(name).join("made").exists();
    let server = serve([
        shell("c1", "echo 1 > made"),
        txt("ok"),
        txt("nothing to do"),
        shell("c2", "echo 2 > made"),
        txt("ok"),
    ])
    .await;
    run(&place, &server, &["--db", db, "--cwd", &one]).await.ok();
    // The newest settings name a folder without a round.
    run(&place, &server, &["--db", db, "--cwd", &two]).await.ok();
    let revert = ["revert", "t", "--to", "1", "--db", db];
    place.run(&[&revert[..], &["--cwd", &two]].concat()).await.refused(
        5,
        &format!(
            "nothing was done: the rounds to revert worked in the folder `{one}`; name it with `--cwd {one}`"
        ),
    );
    assert!(made("one"));
    place.run(&revert).await.ok();
    assert!(!made("one"));
    let undone = place.run(&["history", "t", "--json", "--db", db]).await.ok().lines();
    assert_eq!(undone[0]["metadata"]["cwd"], one.as_str());

    run(&place, &server, &["--db", db]).await.ok();
    assert!(made("two"));
    place.run(&revert).await.refused(
        5,
        &format!(
            "nothing was done: the rounds to revert worked in several folders, `{one}` and `{two}` among \
             them; name a later checkpoint with `--to`"
        ),
    );
    let after = undone[0]["id"].to_string();
    // Another user's setting of the folder does not count.
    let mut other = place.command_of("ada", &["revert", "t", "--to", &after, "--db", db, "--force"]);
    let refused = crate::support::ended(&mut other).await;
    refused.refused(
        2,
        &format!("the thread remembers the folder `{two}`, in which nothing is done unless you name it: repeat `--cwd {two}`"),
    );
    place.run(&["revert", "t", "--to", &after, "--db", db]).await.ok();
    assert!(!made("two"));
}

#[tokio::test]
async fn rounds_with_files_stored_elsewhere_are_not_reverted() {
    let place = Place::new();
    fs::create_dir(place.beside("other")).unwrap();
    let other = place.beside("other").canonicalize().unwrap();
    let other = other.to_str().unwrap();
    let server = serve([shell("c1", "echo 1 > made"), txt("ok")]).await;
    let db = place.database();
    fs::create_dir(place.work().join(".superstep")).unwrap();
    run(&place, &server, &["--db", db.to_str().unwrap(), "--cwd", other]).await.ok();
    let here = place.work().canonicalize().unwrap();
    place.run(&["revert", "t", "--to", "1", "--yes"]).await.refused(
        5,
        &format!(
            "nothing was done: the rounds to revert worked in the folder `{other}`, and its stored files \
             are not in `{}`",
            here.display()
        ),
    );
    assert!(place.beside("other/made").exists());
}

#[tokio::test]
async fn an_imported_thread_comes_without_stored_files() {
    let place = Place::new();
    let server = serve([shell("c1", "echo 1 > made"), txt("ok")]).await;
    run(&place, &server, &[]).await.ok();
    place.file("t.jsonl", &place.run(&["export", "t"]).await.ok().stdout);
    place.run(&["import", "t.jsonl", "--as", "u"]).await.ok();
    let here = place.work().canonicalize().unwrap();
    let told = format!(
        "nothing was done: `{}` has no stored files of the rounds to revert; an imported thread comes without them",
        here.display()
    );
    place.run(&["revert", "u", "--to", "1", "--force"]).await.refused(5, &told);
    assert_eq!(read(&place, "made").as_deref(), Some("1\n"));
}

#[tokio::test]
async fn a_turn_that_waits_is_not_resumed_in_another_folder() {
    let place = Place::new();
    let folder = |name: &str| {
        fs::create_dir_all(place.beside(name)).unwrap();
        place.beside(name).canonicalize().unwrap().to_str().unwrap().to_owned()
    };
    let (one, two, db) = (folder("one"), folder("two"), place.beside("t.db"));
    let db = db.to_str().unwrap();
    let server = serve([shell("c1", "echo 1 > made"), txt("ok")]).await;
    let url = server.base_url();
    let asks = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m", "--db", db, "--cwd", &one];
    assert_eq!(place.run(&asks).await.code, Some(6));
    let resume = ["resume", "t", "--approve", "--db", db];
    place.run(&[&resume[..], &["--cwd", &two]].concat()).await.refused(
        2,
        &format!(
            "the turn of thread `t` began in the folder `{one}` and can continue only there: repeat `--cwd \
             {one}`, or begin another turn with `superstep run --discard`"
        ),
    );
    place.run(&resume).await.ok();
    assert!(place.beside("one/made").exists() && !place.beside("two/made").exists());
}

#[tokio::test]
async fn files_of_a_discarded_round_are_restored_if_a_call_of_it_ran() {
    let allows =
        "[[permissions]]\ntool = \"write_file\"\narguments = { path = \"notes.txt\" }\nthen = \"allow\"\n";
    let write = |id, path: &str| (id, "write_file", format!(r#"{{"path":"{path}","content":"new\n"}}"#));
    for (path, changed) in [("notes.txt", true), ("other.txt", false)] {
        let place = Place::new();
        place.file("agent.toml", allows);
        let (first, second) = (write("c1", path), write("c2", "more.txt"));
        let round = calls([(first.0, first.1, &*first.2), (second.0, second.1, &*second.2)]);
        let server = serve([round, txt("ok")]).await;
        let url = server.base_url();
        let go = ["--thread", "t", "--config", "agent.toml", "--base-url", &url, "--model", "m", "--json"];
        assert_eq!(place.run(&[&["run", "go"], &go[..]].concat()).await.code, Some(6));
        place.file("mine.txt", "of the user\n");
        let ran = place.run(&[&["run", "no", "--discard"], &go[..]].concat()).await.ok();
        let events = ran.lines();
        let reported = events.iter().find(|line| line["event"] == "files_changed");
        assert_eq!(reported.is_some(), changed, "{ran:?}");
        let files = &place.state("t").await["values"]["files"];
        assert_eq!(files.is_null(), !changed, "{files}");
        let replayed = place.run(&["replay", "t", "--config", "agent.toml", "--strict"]).await.ok();
        assert!(replayed.stdout.ends_with("no divergence\n"), "{}", replayed.stdout);
        place.run(&["prune", "t", "--keep-last", "99", "--yes"]).await.ok();
        let reverted = place.run(&["revert", "t", "--to", "1"]).await;
        if changed {
            // What changed while the round waited counts as its own.
            assert_eq!(reverted.ok().stdout, "removed mine.txt\nchanged notes.txt\n");
            assert!(read(&place, "notes.txt").unwrap().contains("needle"));
        } else {
            assert_eq!(reverted.ok().stdout, "no file had to be restored\n");
            assert_eq!(read(&place, "mine.txt").unwrap(), "of the user\n");
        }
        server.check().unwrap();
    }
}
