//! Threads in a PostgreSQL database.

#[path = "../../crates/postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the crate use more of it")]
pub(crate) mod server;

use std::sync::Mutex;

use crate::{
    listed::{assert_all_tried, commands},
    support::{Place, Ran, ended},
};

/// The password in the URL.
const SECRET: &str = "s3cret";

/// An input whose run waits for an approval.
const LARGE: &str = r#"{"items": [{"name": "tea", "euros": 100}]}"#;

#[track_caller]
pub(crate) fn assert_secret(ran: &Ran) {
    assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
}

#[track_caller]
fn assert_unknown(ran: &Ran, error: &str) {
    assert!(ran.code == Some(5) && ran.stderr.contains(error), "{ran:?}");
}

#[tokio::test]
async fn a_url_is_a_database_of_every_command_and_in_no_output() {
    let Some(server) = server::shared() else { return };
    let (place, url, tried) = (Place::new(), server.url(), Mutex::new(Vec::new()));
    let run = async |args: &[&'static str]| {
        tried.lock().unwrap().push(args.to_vec());
        let mut command = place.command(args);
        let ran = ended(command.env("SUPERSTEP_DB", &url)).await;
        assert_secret(&ran);
        ran
    };
    let missing = run(&["state", "t"]).await;
    assert_unknown(&missing, "thread `t` does not exist in `postgres://");
    assert!(run(&["threads", "--json"]).await.ok().lines().is_empty());
    run(&["run", "-q", "12 + 30", "--no-memory", "--thread", "t"]).await.ok();
    // The next process need not wait for the lease of the last one.
    run(&["run", "-q", "2 + 2", "--no-memory", "--thread", "t"]).await.ok();
    let threads = run(&["threads", "--json"]).await.ok().lines();
    assert_eq!((threads.len(), &threads[0]["thread"]), (1, &"t".into()));
    for command in [
        &["state", "t"][..],
        &["history", "t"],
        &["replay", "t", "--strict"],
        &["diff", "t@1", "@2"],
        &["draw", "--thread", "t"],
        &["watch", "t"],
        &["adopt", "t"],
        &["resume", "t", "--model", "offline"],
    ] {
        run(command).await.ok();
    }

    // The same thread in a file, and back under another name.
    let text = run(&["export", "t"]).await.ok().stdout;
    place.file("case.jsonl", &text);
    place.run(&["import", "case.jsonl"]).await.ok();
    assert_eq!(place.run(&["export", "t"]).await.ok().stdout, text);
    run(&["import", "case.jsonl", "--as", "u"]).await.ok();
    run(&["copy", "t", "v"]).await.ok();
    run(&["prune", "v", "--keep-last", "2", "--yes"]).await.ok();
    run(&["delete", "u", "v", "--yes"]).await.ok();
    assert_eq!(run(&["threads", "--json"]).await.ok().lines().len(), 1);

    // The database as a whole.
    for command in
        [&["db", "check"][..], &["db", "migrate"], &["db", "prune", "--leaves", "--yes"], &["db", "vacuum"]]
    {
        run(command).await.ok();
    }
    let stats = run(&["db", "stats", "--json"]).await.ok().lines().remove(0);
    assert_eq!(
        (&stats["storage"]["kind"], &stats["checkpoints"]),
        (&"PostgreSQL".into(), &1.into()),
        "{stats}"
    );
    run(&["state", "t"]).await.ok();
    run(&["usage"]).await.ok();
    let commands = commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    // Other tests try these with a server; a memory and the files of a folder are not in this database.
    let elsewhere = [
        "acp", "chat", "db rekey", "doctor", "dream", "jobs", "memory", "pin", "revert", "serve", "steer",
        "worker",
    ];
    assert_all_tried(with_database, tried.into_inner().unwrap(), &elsewhere);

    // A flag is the same, and suggested commands name the database without it.
    let flag = place.run(&["state", "x", "--db", &url]).await;
    assert_secret(&flag);
    assert_unknown(&flag, "see `superstep threads  # with the URL of postgres://");
    let elsewhere = place.run(&["threads", "--db", "postgres://a:s3cret@127.0.0.1:1/x"]).await;
    assert_secret(&elsewhere);
    assert!(elsewhere.code != Some(0) && elsewhere.stderr.contains("127.0.0.1:1/x"), "{elsewhere:?}");
}

#[tokio::test]
async fn a_program_with_graphs_of_its_own_takes_a_url() {
    let Some(server) = server::shared() else { return };
    let place = Place::new();
    let ran = place.own(&["threads", "--db", &server.url()]).await;
    assert_secret(&ran);
    ran.ok();
}

/// The decisions of a user belong to one database under one name, and the mark of an imported thread to the database.
#[tokio::test]
async fn a_server_under_another_name_and_another_server_under_the_same_name_are_not_trusted() {
    if server::shared().is_none() {
        return;
    }
    let [one, two] = [(); 2].map(|()| server::Server::start(&["fsync=off"]).unwrap());
    let place = Place::new();
    let alias = place.beside("server");
    std::os::unix::fs::symlink(one.folder(), &alias).unwrap();
    let (url, other_name) = (one.url(), server::url_of(&alias));
    let own = async |url: &str, args: &[&str]| {
        let ran = ended(place.own_command(args).env("SUPERSTEP_DB", url)).await;
        assert_secret(&ran);
        ran
    };
    let run = ["run", "orders", "--input", LARGE, "--thread", "o"];
    own(&url, &run).await;
    let text = ended(place.command(&["export", "o"]).env("SUPERSTEP_DB", &url)).await.ok().stdout;
    place.file("o.jsonl", &text);
    ended(place.command(&["import", "o.jsonl", "--as", "forged"]).env("SUPERSTEP_DB", &url)).await.ok();
    for name in [&url, &other_name] {
        let refused = own(name, &["answer", "forged", "approve", "true"]).await;
        assert!(
            refused.code == Some(2) && refused.stderr.contains("was imported from a file"),
            "{refused:?}"
        );
    }
    let unknown = own(&other_name, &["answer", "o", "approve", "true"]).await;
    let error = "this program did not create the database";
    assert!(unknown.code == Some(2) && unknown.stderr.contains(error), "{unknown:?}");
    // A suggested command has no URL, and needs none.
    assert!(!unknown.stderr.contains("--db"), "{unknown:?}");
    own(&other_name, &["answer", "o", "approve", "true", "--trust"]).await.ok();
    assert_eq!(own(&other_name, &["answer", "forged", "approve", "true"]).await.code, Some(2));

    // Another person's database gets the name.
    let mut stranger = place.own_command(&run);
    stranger.env("SUPERSTEP_STATE_DIR", place.beside("stranger")).env("SUPERSTEP_DB", two.url());
    ended(&mut stranger).await;
    std::fs::remove_file(&alias).unwrap();
    std::os::unix::fs::symlink(two.folder(), &alias).unwrap();
    let swapped = own(&other_name, &["answer", "o", "approve", "true"]).await;
    assert!(swapped.code == Some(2) && swapped.stderr.contains(error), "{swapped:?}");
}
