//! `[memory] store = "mem0"`.

use superstep_testing::{
    mem0::{Mem0Kind, Mem0Server},
    script::txt,
};

use crate::support::{Place, Ran, ended, serve};

const KEY: &str = "m0-very-secret-key";

/// Returns the table for a server, whose key is in the variable `MY_KEY`.
fn table(server: &Mem0Server, form: &str) -> String {
    let url = server.base_url();
    format!(
        "[memory]\nstore = \"mem0\"\nbase_url = \"{url}\"\nform = \"{form}\"\nkey_env = \"MY_KEY\"\nuser = \"ada\"\n"
    )
}

async fn run(place: &Place, args: &[&str]) -> Ran {
    let ran = ended(place.command(args).env("MY_KEY", KEY)).await;
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{ran:?}");
    ran
}

#[tokio::test]
async fn memories_of_one_thread_are_found_on_the_next_with_a_server() {
    for (kind, form) in [(Mem0Kind::Hosted, "hosted"), (Mem0Kind::SelfHosted, "self_hosted")] {
        let place = Place::new();
        let memory = Mem0Server::start(kind, KEY).await.unwrap();
        place.file("agent.toml", &table(&memory, form));
        let server = serve([txt("noted"), txt("tea"), txt("still tea")]).await;
        let url = server.base_url();
        let flags = ["-q", "--base-url", &url, "--model", "m"];
        let config = [&flags[..], &["--config", "agent.toml"]].concat();
        run(&place, &[&["run", "remember that I like tea"], &config[..]].concat()).await.ok();
        assert_eq!(memory.memories(), [("ada".to_owned(), "remember that I like tea".to_owned())]);
        run(&place, &[&["run", "Which tea?", "--thread", "two"], &config[..]].concat()).await.ok();
        // The thread stores the place of its memory and of its key, but not the key.
        run(&place, &[&["run", "Which tea?", "--thread", "two"], &flags[..]].concat()).await.ok();
        for request in &server.requests()[1..] {
            assert!(request.to_string().contains("- remember that I like tea"), "{request}");
        }
        let database = std::fs::read(place.database()).unwrap();
        assert!(!database.windows(KEY.len()).any(|bytes| bytes == KEY.as_bytes()));
    }
}

#[tokio::test]
async fn a_server_is_inspected_and_changed_by_commands() {
    for (kind, form) in [(Mem0Kind::Hosted, "hosted"), (Mem0Kind::SelfHosted, "self_hosted")] {
        let place = Place::new();
        let memory = Mem0Server::start(kind, KEY).await.unwrap();
        place.file("agent.toml", &table(&memory, form));
        let run = async |args: &[&str]| run(&place, &[args, &["--config", "agent.toml"]].concat()).await;
        run(&["memory", "add", "I like tea"]).await.ok();
        let found = run(&["memory", "search", "tea", "--json"]).await.ok().lines();
        assert_eq!((found.len(), &found[0]["text"]), (1, &"I like tea".into()));
        assert_eq!(run(&["memory", "list"]).await.ok().stdout.lines().count(), 2);
        let id = found[0]["id"].as_str().unwrap();
        assert_eq!(run(&["memory", "forget", id, "--user", "bob"]).await.code, Some(1));
        assert_eq!(run(&["memory", "forget", id]).await.ok().stdout, format!("forgot {id}\n"));
        assert!(memory.memories().is_empty());
    }
}

#[tokio::test]
async fn a_wrong_server_is_reported_and_stops_no_turn() {
    let place = Place::new();
    let memory = Mem0Server::start(Mem0Kind::SelfHosted, "another key").await.unwrap();
    place.file("agent.toml", &table(&memory, "self_hosted"));
    let list = run(&place, &["memory", "list", "--config", "agent.toml"]).await;
    assert_ne!(list.code, Some(0));
    assert!(
        list.stderr.contains("it answered 401") && list.stderr.contains("is the key the one"),
        "{}",
        list.stderr
    );
    let server = serve([txt("noted")]).await;
    let url = server.base_url();
    let flags = ["--base-url", &url, "--model", "m", "--config", "agent.toml"];
    let ran = run(&place, &[&["run", "remember that I like tea"], &flags[..]].concat()).await.ok();
    assert!(ran.stderr.contains("the memory failed") || ran.stdout.contains("the memory failed"), "{ran:?}");
    // Without the variable no request is sent.
    let unset = place.run(&["memory", "list", "--config", "agent.toml"]).await;
    unset.refused(2, "the configuration takes a key from the variable `MY_KEY`, which is not set");
}

#[tokio::test]
async fn a_remote_server_is_used_only_if_a_file_configures_it() {
    let place = Place::new();
    place.file("agent.toml", "[memory]\nstore = \"mem0\"\nbase_url = \"http://0.0.0.0:1\"\nretrieve = 0\n");
    let server = serve([txt("ok"), txt("ok")]).await;
    let url = server.base_url();
    let flags = ["run", "hello", "--thread", "t", "--base-url", &url, "--model", "m"];
    place.run(&[&flags[..], &["--config", "agent.toml"]].concat()).await.ok();
    place.run(&flags).await.refused(
        2,
        "thread `t` remembers a memory outside of its folder, which is not opened unless you name it: repeat `--config FILE`",
    );
}
