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
async fn the_help_describes_the_output_of_a_replay() {
    let place = Place::new();
    let help = place.run(&["replay", "--help"]).await.ok().stdout;
    assert!(help.contains("Print JSON: one object per line") && !help.contains("then `final`"), "{help}");
    assert!(!help.contains("--quiet") && !help.contains("stored with the thread"), "{help}");
}

#[tokio::test]
async fn a_changed_configuration_is_reported_where_it_counts() {
    let place = Place::new();
    recorded(&place).await;
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let ran = place.run(&["replay", "t", "--config", "mine.toml"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let told = "superstep 3, after checkpoint 4: node `agent`: the effect `model` is different (prompt)\n  system prompt\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n    + Answer in French.\nif the change is intended, "), "{}", ran.stdout);

    let ran = place.run(&["replay", "t", "--max-steps", "3", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let divergence = &ran.lines()[0]["divergence"];
    assert_eq!(divergence["node"], "init_state");
    assert_eq!(divergence["at"], json!({ "what": "channel", "name": "max_steps" }));
    assert_eq!(divergence["got"], 3);

    let ran = place.run(&["replay", "t", "--tools", "calculate"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("node `agent`: the effect `model` is different (tools)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("  tool `read_file` removed\n"), "{}", ran.stdout);

    place.file("warm.toml", "[models.main]\nmodel = \"n\"\ntemperature = 0.7\n");
    let ran = place.run(&["replay", "t", "--config", "warm.toml", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let divergence = &ran.lines()[0]["divergence"];
    assert_eq!(divergence["kind"], "model");
    let changes = json!([
        { "kind": "model", "what": "model", "diff": "- m\n+ n" },
        { "kind": "parameters", "what": "temperature", "diff": "+ 0.7" },
    ]);
    assert_eq!(divergence["changes"], changes);

    place.file("seeded.toml", "[models.main]\nmodel = \"m\"\nextra = { seed = 7 }\n");
    let ran = place.run(&["replay", "t", "--config", "seeded.toml", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let divergence = &ran.lines()[0]["divergence"];
    assert_eq!(divergence["kind"], "parameters");
    assert_eq!(divergence["changes"], json!([{ "kind": "parameters", "what": "seed", "diff": "+ 7" }]));
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
async fn calls_that_the_user_approved_run_again_in_a_live_replay() {
    let place = Place::new();
    let file = place.beside("log.txt");
    let log = call(
        "c1",
        "shell",
        &serde_json::json!({"command": format!("echo ran >> {}", file.display())}).to_string(),
    );
    let server = serve([log, txt("Logged.")]).await;
    let url = server.base_url();
    let args = ["run", "Log it.", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory"];
    assert_eq!(place.run(&args).await.code, Some(6));
    place.run(&["resume", "t", "--approve", "--quiet"]).await.ok();
    let logged = || std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(logged(), 1);
    for times in [2, 3] {
        let ran = place.run(&["replay", "t", "--live-tools", "--strict"]).await.ok();
        assert!(ran.stdout.contains("supersteps replayed, no divergence\n"), "{ran:?}");
        assert_eq!(logged(), times);
    }
    // The same thread as a file, whose approval only its text claims.
    let text = place.run(&["export", "t"]).await.ok().stdout;
    place.file("t.jsonl", &text);
    place.run(&["import", "t.jsonl", "--as", "other"]).await.ok();
    let ran = place.run(&["replay", "other", "--live-tools"]).await;
    assert_eq!((ran.code, logged()), (Some(7), 3), "{ran:?}");
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
async fn each_turn_is_replayed_with_the_configuration_that_it_had() {
    let place = Place::new();
    recorded(&place).await;
    let server = serve([txt("Yes."), txt("Sure.")]).await;
    let url = server.base_url();
    for (model, prompt, more) in [("m", "Sure?", ["--max-steps", "3"]), ("n", "Why?", ["--max-steps", "4"])] {
        let args = ["run", prompt, "--thread", "t", "--base-url", &url, "--model", model, "--quiet"];
        place.run(&[args.as_slice(), &more].concat()).await.ok();
    }
    let ran = place.run(&["replay", "t", "--strict"]).await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("22 supersteps replayed, no divergence\n", ""));
    place.run(&["replay", "t", "--from", "9", "--to", "20", "--strict"]).await.ok();

    // A flag applies to all turns.
    let ran = place.run(&["replay", "t", "--max-steps", "3", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let divergence = &ran.lines()[0]["divergence"];
    assert_eq!(
        (&divergence["node"], &divergence["step"], &divergence["got"]),
        (&json!("init_state"), &json!(1), &json!(3))
    );
    let ran = place.run(&["replay", "t", "--from", "15", "--max-steps", "3"]).await;
    assert!(ran.code == Some(7) && ran.stdout.contains("expected 4\n  got      3"), "{ran:?}");
}

#[tokio::test]
async fn all_threads_of_a_database_or_a_folder_are_replayed() {
    let place = Place::new();
    recorded(&place).await;
    let server = serve([txt("Hello.")]).await;
    let url = server.base_url();
    let args = ["run", "Hi.", "--thread", "s", "--base-url", &url, "--model", "m", "--quiet", "--no-memory"];
    place.run(&args).await.ok();

    let ran = place.run(&["replay", "--all"]).await.ok();
    assert_eq!(ran.stdout, "same       s\nsame       t\n2 threads: 2 same\n");

    let folder = place.work().join("cases");
    std::fs::create_dir(&folder).unwrap();
    for name in ["s", "t"] {
        let text = place.run(&["export", name]).await.ok().stdout;
        std::fs::write(folder.join(format!("{name}.thread.jsonl")), text).unwrap();
    }
    std::fs::write(folder.join("notes.txt"), "no thread").unwrap();
    let ran = place.run(&["replay", "--all", "cases", "--strict"]).await.ok();
    assert!(ran.stdout.ends_with("2 threads: 2 same\n"), "{ran:?}");

    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let redacted = place.run(&["export", "t", "--redact", "messages"]).await.ok().stdout;
    std::fs::write(folder.join("r.thread.jsonl"), redacted).unwrap();
    std::fs::write(folder.join("broken.thread.jsonl"), "{}\n").unwrap();
    let ran = place.run(&["replay", "--all", "cases", "--config", "mine.toml", "--json"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let lines = ran.lines();
    let status: Vec<_> = lines.iter().map(|line| (&line["thread"], &line["status"])).collect();
    let expected = ["broken", "t", "s", "t"].map(|thread| json!(thread));
    let kinds = ["failed", "failed", "diverged", "diverged"].map(|status| json!(status));
    assert_eq!(status, expected.iter().zip(&kinds).collect::<Vec<_>>());
    assert_eq!(lines[2]["divergence"]["kind"], "prompt");
    assert!(lines[1]["error"].as_str().unwrap().contains("SS199"), "{ran:?}");

    let ran = place.run(&["replay", "--all", "cases/broken.thread.jsonl"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("failed     broken  cases/broken.thread.jsonl\n  SS312"), "{ran:?}");
    for args in
        [["replay", "--all", "nowhere"].as_slice(), &["replay"], &["replay", "--all", "cases", "--from", "1"]]
    {
        let ran = place.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
}

/// Exports a recorded thread to a folder of cases, beside a configuration with another prompt.
async fn cases(place: &Place) -> std::path::PathBuf {
    recorded(place).await;
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let folder = place.work().join("cases");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("t.thread.jsonl");
    std::fs::write(&file, place.run(&["export", "t"]).await.ok().stdout).unwrap();
    file
}

#[tokio::test]
async fn an_accepted_change_is_recorded_as_the_case_without_a_model() {
    let place = Place::new();
    let file = cases(&place).await;
    let before = std::fs::read_to_string(&file).unwrap();
    let ran = place.run(&["replay", "--accept", "cases"]).await.ok();
    assert_eq!(ran.stdout, "1 thread: 1 same\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);

    let ran = place.run(&["replay", "--accept", "cases", "--config", "mine.toml"]).await.ok();
    assert!(ran.stdout.contains("+ Answer in French."), "{ran:?}");
    assert!(ran.stdout.ends_with("\n1 thread: 1 accepted\n"), "{ran:?}");
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.contains("Answer in French.") && after.contains("You are welcome."), "{after}");
    let checkpoints = |text: &str| text.matches("{\"checkpoint\":").count();
    assert_eq!(checkpoints(&after), checkpoints(&before));
    // The accepted configuration belongs to the case.
    place.run(&["replay", "--all", "cases", "--strict"]).await.ok();
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);

    place.run(&["replay", "--accept", "cases", "--max-steps", "7"]).await.ok();
    place.run(&["replay", "--all", "cases", "--strict"]).await.ok();
}

#[tokio::test]
async fn a_review_counts_the_cases_that_are_replayed_in_part() {
    let place = Place::new();
    let file = cases(&place).await;
    // As a program stores it that does not record.
    let text = std::fs::read_to_string(&file).unwrap();
    let unrecorded = text.lines().map(|line| {
        if !line.contains("$state") {
            return format!("{line}\n");
        }
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        let mut metadata = fields.remove("metadata").unwrap();
        metadata.as_object_mut().unwrap().remove("$state");
        if metadata != json!({}) {
            fields.insert("metadata".to_owned(), metadata);
        }
        format!("{line}\n")
    });
    std::fs::write(&file, unrecorded.collect::<String>()).unwrap();
    let ran = place.run(&["replay", "--accept", "cases"]).await.ok();
    assert!(ran.stdout.ends_with("\n1 thread: 1 incomplete\n"), "{ran:?}");
    let ran = place.run(&["replay", "--accept", "cases", "--strict"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("1 thread not replayed completely, which `--strict` requires"), "{ran:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_review_of_a_folder_replaces_no_file_outside_of_it() {
    let place = Place::new();
    let file = cases(&place).await;
    let outside = place.work().join("outside.thread.jsonl");
    std::fs::copy(&file, &outside).unwrap();
    let before = std::fs::read_to_string(&outside).unwrap();
    let folder = file.parent().unwrap();
    for (link, to) in [("linked", &*outside), ("gone", std::path::Path::new("nowhere")), ("inside", &*file)] {
        std::os::unix::fs::symlink(to, folder.join(format!("{link}.thread.jsonl"))).unwrap();
    }
    let ran = place.run(&["replay", "--accept", "cases", "--config", "mine.toml"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.ends_with("4 threads: 1 same, 1 accepted, 2 failed\n"), "{ran:?}");
    assert!(
        ran.stderr.contains("linked.thread.jsonl: it is a link to")
            && ran.stderr.contains("gone.thread.jsonl"),
        "{ran:?}"
    );
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), before);
    // The file of the link is the case now, and the link stays one.
    assert!(folder.join("inside.thread.jsonl").symlink_metadata().unwrap().is_symlink());
    let ran = place.run(&["replay", "--all", "cases"]).await;
    assert!(ran.code == Some(1) && ran.stdout.contains("4 threads: 3 same, 1 failed"), "{ran:?}");
    // A link that is named is replaced where it leads.
    place.run(&["replay", "--accept", "cases/linked.thread.jsonl", "--config", "mine.toml"]).await.ok();
    assert!(std::fs::read_to_string(&outside).unwrap().contains("Answer in French."));
}

#[tokio::test]
async fn a_review_needs_files_and_a_terminal() {
    let place = Place::new();
    cases(&place).await;
    let ran = place.run(&["replay", "--review", "cases"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("`--accept` accepts all of them"), "{ran:?}");
    for args in [
        ["replay", "--review"].as_slice(),
        &["replay", "--accept", "nowhere"],
        &["replay", "--review", "--all"],
    ] {
        let ran = place.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
}

#[tokio::test]
async fn each_part_of_a_resumed_turn_is_replayed_with_the_configuration_that_it_had() {
    let place = Place::new();
    let write = |id: &str, text: &str| {
        call(id, "write_file", &json!({ "path": "notes.txt", "content": text }).to_string())
    };
    let answers = [write("c1", "one\n"), write("c2", "two\n"), txt("Written."), txt("Sure."), txt("Again.")];
    let server = serve(answers).await;
    let url = server.base_url();
    let args = ["run", "Rewrite it.", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory"];
    assert_eq!(place.run(&args).await.code, Some(6));
    let other = ["--preset", "graph", "--max-steps", "7", "--tools", "write_file"];
    let resumed = place.run(&[&["resume", "t", "--approve", "--quiet"], &other[..]].concat()).await;
    assert_eq!(resumed.code, Some(6), "{resumed:?}");
    // These are remembered now.
    place.run(&["resume", "t", "--approve", "--quiet"]).await.ok();
    place.run(&["run", "Sure?", "--thread", "t", "--quiet", "--max-steps", "8"]).await.ok();
    let ran = place.run(&["replay", "t", "--strict"]).await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("14 supersteps replayed, no divergence\n", ""));
    for from in ["3", "5", "6", "8", "11"] {
        place.run(&["replay", "t", "--strict", "--from", from]).await.ok();
    }
    let ran = place.run(&["replay", "t", "--strict", "--tools", "calculate"]).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    // A live replay ends where the turn was resumed.
    let ran = place.run(&["replay", "t", "--live-tools", "--json"]).await.ok();
    assert_eq!((&ran.lines()[0]["supersteps"], &ran.lines()[0]["left"]), (&json!(4), &json!(10)), "{ran:?}");

    // A fork may have others again.
    place.run(&["resume", "t", "--from", "8", "--max-steps", "9", "--quiet"]).await.ok();
    place.run(&["replay", "t", "--strict"]).await.ok();
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn a_case_that_was_resumed_with_another_configuration_is_recorded_again_with_one() {
    let place = Place::new();
    let write = call("c1", "write_file", r#"{"path":"notes.txt","content":"other\n"}"#);
    let server = serve([write, txt("Written.")]).await;
    let url = server.base_url();
    let args = ["run", "Rewrite it.", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory"];
    assert_eq!(place.run(&args).await.code, Some(6));
    place.run(&["resume", "t", "--approve", "--quiet", "--max-steps", "7"]).await.ok();
    let folder = place.work().join("cases");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("t.thread.jsonl");
    std::fs::write(&file, place.run(&["export", "t"]).await.ok().stdout).unwrap();
    let before = std::fs::read_to_string(&file).unwrap();
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");

    let ran = place.run(&["replay", "--accept", "cases", "--tools", "write_file"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let why = "one configuration for a turn that was resumed with another one is missing";
    assert!(ran.stderr.contains(why), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    place.run(&["replay", "--accept", "cases", "--config", "mine.toml"]).await.ok();
    place.run(&["replay", "--all", "cases", "--strict"]).await.ok();
}
