//! Keys that are replaced, and encryption that is required, while other commands use the thread.

use std::fs;

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};

use crate::{
    encryption::{User, assert_refused, new_key},
    support::{Place, Ran, Running, received, serve},
};

/// Ends a command of a user who requires encryption.
async fn required(user: &User<'_>, place: &Place, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    command.env("SUPERSTEP_REQUIRE_ENCRYPTION", "true");
    user.ended(command).await
}

/// Starts a turn of a user at a server of scripted responses.
fn started(user: &User<'_>, place: &Place, url: &str) -> Running {
    let args = ["run", "go", "--thread", "t", "--no-memory", "--base-url", url, "--model", "m"];
    let mut command = place.command(&args);
    user.set(&mut command);
    Running::of(command)
}

/// A text is readable and a case of its own: neither the key of its thread nor the thread decide about it.
#[tokio::test]
async fn a_text_is_accepted_after_the_key_of_its_thread_was_replaced_and_the_thread_stays_as_it_was() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    user.turn("t").await.ok();
    let text = user.run(&["export", "t"]).await.ok().stdout;
    fs::create_dir(place.work().join("cases")).unwrap();
    place.file("cases/t.thread.jsonl", &text);
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let replay = ["replay", "cases", "--all", "--config", "mine.toml"];
    let diverged = user.run(&replay).await;
    assert_eq!(diverged.code, Some(7), "{diverged:?}");

    let both = user.with_keys(&two, &one);
    let accept = ["replay", "--accept", "cases", "--config", "mine.toml"];
    let accept_required = required(&both, &place, &accept);
    let (rekeyed, accepted) = tokio::join!(both.rekeyed(), accept_required);
    assert_eq!(rekeyed["changed"], json!(1));
    assert!(accepted.ok().stdout.ends_with("\n1 thread: 1 accepted\n"));
    let new = user.with_keys(&two, "");
    required(&new, &place, &replay).await.ok();
    assert_eq!(new.run(&["export", "t"]).await.ok().stdout, text);
    required(&new, &place, &["replay", "t"]).await.ok();
    assert_refused(&user.run(&["replay", "t"]).await, 4, "SS316: thread `t`");
    // The accepted case is a thread of its own, under the new key.
    required(&new, &place, &["import", "cases/t.thread.jsonl", "--as", "u"]).await.ok();
    assert_refused(&user.run(&["state", "u"]).await, 4, "SS316: thread `u`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_a_readable_turn_is_readable_or_refused_while_keys_are_replaced_and_is_never_lost() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let (plain, user) = (User::new(&place, ""), User::new(&place, &one));
    let server = serve([Answer::stream().stall(), txt("cinq"), txt("six"), txt("sept")]).await;
    let mut running = started(&plain, &place, &server.base_url());
    received(&server, 1).await;
    let both = user.with_keys(&two, &one);
    let (rekeyed, refused, sent) = tokio::join!(
        required(&both, &place, &["db", "rekey", "--json"]),
        required(&both, &place, &["steer", "t", "a secret"]),
        user.run(&["steer", "t", "in French"]),
    );
    assert_eq!(rekeyed.ok().lines()[0]["not_encrypted"], json!(1));
    assert_refused(&refused, 4, "SS317");
    sent.ok();
    running.child.kill().await.unwrap();

    let texts = async |user: &User<'_>| -> Vec<Value> {
        let state = user.run(&["state", "t", "--json"]).await.ok().lines().remove(0);
        state["values"]["messages"].as_array().unwrap().iter().map(|it| it["content"].clone()).collect()
    };
    user.run(&["resume", "t", "--no-memory"]).await.ok();
    assert_eq!(texts(&user).await, ["go", "in French", "cinq"]);
    // From here on the thread is encrypted, and after a prune so is what was posted to it.
    let again = ["run", "on", "--thread", "t", "--no-memory", "-q"];
    assert_refused(&required(&user, &place, &["state", "t", "--at", "1"]).await, 4, "SS317");
    user.run(&["prune", "t", "--keep-last", "1", "--yes"]).await.ok();
    user.run(&["db", "vacuum"]).await.ok();
    required(&user, &place, &again).await.ok();
    assert_eq!(both.rekeyed().await["changed"], json!(1));
    let new = user.with_keys(&two, "");
    required(&new, &place, &again).await.ok();
    assert_eq!(texts(&new).await, ["go", "in French", "cinq", "on", "six", "on", "sept"]);
    let file = fs::read(place.database()).unwrap();
    assert!(!file.windows(9).any(|part| part == b"in French"), "the message is readable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_an_encrypted_turn_reaches_it_while_its_key_is_replaced() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    let server = serve([Answer::stream().stall(), txt("cinq")]).await;
    let mut running = started(&user, &place, &server.base_url());
    received(&server, 1).await;
    let both = user.with_keys(&two, &one);
    let (rekeyed, sent, other) = tokio::join!(
        both.run(&["db", "rekey"]),
        both.run(&["steer", "t", "in French"]),
        user.run(&["steer", "t", "please"]),
    );
    assert_refused(&rekeyed, 5, "not rekeyed: ");
    sent.ok();
    other.ok();
    assert_refused(&user.with_keys(&two, "").run(&["steer", "t", "hi"]).await, 4, "SS316: thread `t`");
    running.child.kill().await.unwrap();
    assert_eq!(both.rekeyed().await["changed"], json!(1));
    let new = user.with_keys(&two, "");
    required(&new, &place, &["resume", "t", "--no-memory"]).await.ok();
    let sent = server.requests()[1]["messages"].to_string();
    assert!(sent.contains("in French") && sent.contains("please"), "{sent}");
}

#[tokio::test]
async fn files_of_an_encrypted_thread_are_restored_after_a_prune_of_the_database() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    let rounds = ["echo 1 > a", "echo 2 > a", "echo 3 > a"];
    let calls = (0..)
        .zip(rounds)
        .map(|(nth, command)| call(&format!("c{nth}"), "shell", &json!({ "command": command }).to_string()));
    let server = serve(calls.flat_map(|call| [call, txt("ok")])).await;
    let url = server.base_url();
    let mut heads = Vec::new();
    for _ in rounds {
        let run = ["run", "go", "--thread", "t", "--yes", "--no-memory", "--base-url", &url, "--model", "m"];
        user.run(&run).await.ok();
        let state = user.run(&["state", "t", "--json"]).await.ok().lines().remove(0);
        heads.push(state["checkpoint"]["id"].to_string());
    }
    let stored = || fs::read_dir(place.work().join(".superstep/files/t")).unwrap().count();
    let read = || fs::read_to_string(place.work().join("a")).unwrap();
    let before = stored();
    let prune = ["db", "prune", "--keep-last", "4", "--yes"];
    // Without its key, or with another one, nothing of the thread is deleted or restored.
    for other in [user.with_keys("", ""), user.with_keys(&two, "")] {
        assert_refused(&other.run(&prune).await, 4, "not pruned: SS316: thread `t`");
        assert_refused(&other.run(&["revert", "t", "--to", &heads[1]]).await, 4, "SS316: thread `t`");
    }
    assert_eq!((stored(), read().as_str()), (before, "3\n"));

    required(&user, &place, &prune).await.ok();
    assert!(stored() < before, "{before}");
    assert_eq!(user.with_keys(&two, &one).rekeyed().await["changed"], json!(1));
    let new = user.with_keys(&two, "");
    required(&new, &place, &["revert", "t", "--to", &heads[2]]).await.ok();
    assert_eq!(read(), "3\n");
    let history = new.run(&["history", "t", "--json"]).await.ok().lines();
    let oldest = history.last().unwrap()["id"].to_string();
    required(&new, &place, &["revert", "t", "--to", &oldest]).await.ok();
    assert_eq!(read(), "2\n", "{history:?}");
    let gone = new.run(&["revert", "t", "--to", &heads[0]]).await;
    assert_refused(&gone, 5, "SS111");
}
