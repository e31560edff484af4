//! Replays of recorded threads.

use serde_json::json;
use superstep_testing::{
    script::{Answer, call, txt},
    wire::WireServer,
};

use crate::support::{Place, serve};

/// Records a turn with a tool call, and one without, of a model that is unavailable afterwards.
async fn recorded(place: &Place) {
    let read = call("c1", "read_file", r#"{"path":"notes.txt"}"#);
    let server = serve([read, txt("It has three lines."), txt("You are welcome.")]).await;
    for prompt in ["How long is notes.txt?", "Thanks."] {
        say(place, &server, prompt).await;
    }
}

async fn say(place: &Place, server: &WireServer, prompt: &str) {
    let url = server.base_url();
    let args = ["run", prompt, "--thread", "t", "--base-url", &url, "--model", "m", "--quiet", "--no-memory"];
    place.run(&args).await.ok();
}

#[tokio::test]
async fn a_thread_is_replayed_without_its_model_and_its_files() {
    let place = Place::new();
    recorded(&place).await;
    std::fs::remove_file(place.work().join("notes.txt")).unwrap();
    let before = place.state("t").await;
    let ran = place.run(&["replay", "t"]).await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("12 supersteps replayed, no divergence\n", ""));
    let ran = place.run(&["replay", "t", "--from", "9", "--json"]).await.ok();
    let same = json!({
        "thread": "t", "supersteps": 5, "taken": 0, "skipped": 0, "left": 0, "fork": null, "divergence": null,
    });
    assert_eq!(ran.lines(), [same]);
    assert_eq!(place.state("t").await, before);
}

#[tokio::test]
async fn a_changed_configuration_is_reported_where_it_counts() {
    let place = Place::new();
    recorded(&place).await;
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let ran = place.run(&["replay", "t", "--config", "mine.toml"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let told = "superstep 3, after checkpoint 4: node `agent`: the effect `model` is different at /first\n  \
                expected \"system:";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);

    let ran = place.run(&["replay", "t", "--max-steps", "3", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let divergence = &ran.lines()[0]["divergence"];
    assert_eq!(divergence["node"], "init_state");
    assert_eq!(divergence["at"], json!({ "what": "channel", "name": "max_steps" }));
    assert_eq!(divergence["got"], 3);

    let ran = place.run(&["replay", "t", "--tools", "calculate"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("node `agent`: the effect `model` is different at /tools"), "{}", ran.stdout);
}

#[tokio::test]
async fn the_model_or_the_tools_are_real_on_a_fork() {
    let place = Place::new();
    recorded(&place).await;
    let live = |answers: Vec<Answer>| async {
        let server = serve(answers).await;
        let url = server.base_url();
        let ran = place
            .run(&["replay", "t", "--live-model", "--base-url", &url, "--model", "m", "--to", "8", "--json"])
            .await;
        assert_eq!(server.check(), Ok(()), "{ran:?}");
        ran
    };
    let read = || call("c1", "read_file", r#"{"path":"notes.txt"}"#);
    let same = live(vec![read(), txt("It has three lines.")]).await.ok();
    assert_eq!((&same.lines()[0]["supersteps"], &same.lines()[0]["fork"]), (&json!(7), &json!(15)));
    assert_eq!(same.lines()[0]["left"], 0);
    let other = live(vec![read(), txt("Three.")]).await;
    assert_eq!(other.code, Some(7), "{other:?}");
    let divergence = &other.lines()[0]["divergence"];
    assert_eq!((&divergence["node"], &divergence["place"]), (&json!("agent"), &json!("/0/content")));
    assert_eq!(
        (&divergence["expected"], &divergence["got"]),
        (&json!("It has three lines."), &json!("Three."))
    );

    place.file("notes.txt", "one line\n");
    let ran = place.run(&["replay", "t", "--live-tools", "--to", "8"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("node `tools`: the write to channel"), "{}", ran.stdout);
    assert!(ran.stdout.contains("one line"), "{}", ran.stdout);
}

#[tokio::test]
async fn threads_that_cannot_be_replayed_are_reported() {
    let place = Place::new();
    let ran = place.run(&["replay", "t"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    recorded(&place).await;
    for args in [["replay", "u", "--json"].as_slice(), &["replay", "t", "--from", "99"]] {
        let ran = place.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{ran:?}");
    }
}

#[tokio::test]
async fn an_approved_call_is_replayed_with_its_edited_arguments() {
    let place = Place::new();
    let write = call("c1", "write_file", r#"{"path":"notes.txt","content":"other\n"}"#);
    let server = serve([write, txt("Written.")]).await;
    let url = server.base_url();
    let args = ["run", "Rewrite it.", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory"];
    assert_eq!(place.run(&args).await.code, Some(6));
    place.run(&["resume", "t", "--approve", "--quiet"]).await.ok();
    assert_eq!(std::fs::read_to_string(place.work().join("notes.txt")).unwrap(), "other\n");
    let ran = place.run(&["replay", "t"]).await.ok();
    assert_eq!(ran.stdout, "7 supersteps replayed, no divergence\n");
}

#[tokio::test]
async fn after_a_live_replay_a_thread_retains_its_settings() {
    let place = Place::new();
    let read = call("c1", "read_file", r#"{"path":"notes.txt"}"#);
    let server = serve([read, txt("It has three lines."), txt("You are welcome.")]).await;
    say(&place, &server, "How long is notes.txt?").await;
    place.run(&["replay", "t", "--live-tools"]).await.ok();
    let ran = place.run(&["run", "Thanks.", "--thread", "t", "--quiet"]).await.ok();
    assert_eq!(ran.stdout, "You are welcome.\n");
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn the_model_is_real_in_every_preset() {
    let place = Place::new();
    let server = serve([txt("Hello."), txt("Hello.")]).await;
    let url = server.base_url();
    let args =
        ["run", "Hi", "--thread", "t", "--base-url", &url, "--model", "m", "--preset", "graph", "--quiet"];
    place.run(&args).await.ok();
    let ran = place.run(&["replay", "t", "--live-model", "--strict", "--json"]).await.ok();
    assert_eq!(ran.lines()[0]["divergence"], json!(null), "{ran:?}");
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn strict_replays_fail_if_a_part_was_not_replayed() {
    let place = Place::new();
    recorded(&place).await;
    place.run(&["replay", "t", "--strict"]).await.ok();
    let told = "not all of thread `t` was replayed, which `--strict` requires";
    place.run(&["replay", "t", "--from", "14"]).await.ok();
    let ran = place.run(&["replay", "t", "--from", "14", "--strict"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("0 supersteps replayed") && ran.stderr.contains(told), "{ran:?}");
}

#[tokio::test]
async fn turns_with_other_settings_are_reported_with_the_checkpoint_to_replay_from() {
    let place = Place::new();
    recorded(&place).await;
    let server = serve([txt("Yes.")]).await;
    let url = server.base_url();
    let args =
        ["run", "Sure?", "--thread", "t", "--base-url", &url, "--model", "m", "--max-steps", "3", "--quiet"];
    place.run(&args).await.ok();
    let ran = place.run(&["replay", "t"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let told = "the turn ran with another configuration than the newest one, which this replay used; replay \
        the turns since then with: superstep replay t --from 15";
    assert!(ran.stderr.contains(told), "{ran:?}");
    place.run(&["replay", "t", "--from", "15", "--strict"]).await.ok();
    let ran = place.run(&["replay", "t", "--max-steps", "9"]).await;
    assert!(ran.code == Some(7) && ran.stderr.is_empty(), "{ran:?}");
}
