//! `superstep steer`.

#![cfg(unix)]

use serde_json::json;
use superstep_testing::script::{Answer, txt};

use crate::support::{Place, serve};

#[tokio::test]
async fn a_turn_is_steered_by_another_process() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["let me see"]).stall(), txt("cinq")]).await;
    let args = ["run", "2 + 3?", "--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&args);
    running.line_with("let me see").await;
    let told = place.run(&["steer", "t", "in French"]).await.ok().stdout;
    assert_eq!(told, "`t` receives the message before its next model call\n");
    let told = place.run(&["steer", "t", "please", "--json"]).await.ok().lines();
    assert_eq!(told, [json!({ "thread": "t", "steered": 2 })]);
    running.signal("INT");
    assert_eq!(running.end().await.code, Some(130));

    let ran = place.run(&["resume", "t", "--json"]).await.ok();
    let steered: Vec<_> = ran.lines().into_iter().filter(|line| line["event"] == "steered").collect();
    assert_eq!(steered[0]["data"], json!({ "id": "steered.1", "text": "in French" }));
    assert_eq!(steered.len(), 2);
    let messages = server.requests()[1]["messages"].as_array().unwrap().clone();
    let last: Vec<_> = messages.iter().rev().take(3).map(|message| message["content"].clone()).collect();
    assert_eq!(last, ["please", "in French", "2 + 3?"]);
    assert_eq!(ran.lines().pop().unwrap()["data"]["final_reply"], "cinq");
}

#[tokio::test]
async fn a_finished_thread_cannot_be_steered() {
    let place = Place::new();
    place.run(&["run", "1 + 1", "--thread", "t"]).await.ok();
    let refused = "thread `t` has no turn in progress; use `superstep run 'and now?' --thread t`";
    place.run(&["steer", "t", "and now?"]).await.refused(5, refused);
    assert_eq!(place.run(&["steer", "nobody", "hi"]).await.code, Some(5));
    for blank in [" ", "\n\t"] {
        let refused = "the message is empty; write what the turn should take into account";
        place.run(&["steer", "t", blank]).await.refused(2, refused);
    }
}
