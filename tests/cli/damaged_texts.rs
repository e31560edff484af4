//! Texts of threads that lost a part, were changed, or that this program cannot resume.

use std::fs;

use serde_json::json;
use superstep_testing::script::{call, txt};

use crate::support::{Place, ended, serve};

const LARGE: &str = r#"{"items": [{"name": "tea", "euros": 120}]}"#;

/// Returns the text of an order that waits for approval.
async fn order(place: &Place) -> String {
    assert_eq!(place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await.code, Some(6));
    place.own(&["export", "o"]).await.ok().stdout
}

#[tokio::test]
async fn a_file_that_lost_a_line_is_neither_imported_nor_replayed() {
    let (here, there) = (Place::new(), Place::new());
    let text = order(&here).await;
    let lost = text.lines().position(|line| line.contains(r#""node":"price""#)).unwrap();
    let without: Vec<&str> =
        text.lines().enumerate().filter(|(nth, _)| *nth != lost).map(|(_, line)| line).collect();
    there.file("o.thread.jsonl", &(without.join("\n") + "\n"));
    let error = format!(
        "SS312: line {lost} of the thread file: the `applied` line of task 0 is missing: checkpoint 3 folds one update of each task of \
         checkpoint 2; export the thread again"
    );
    there.own(&["import", "o.thread.jsonl"]).await.refused(2, &format!("`o.thread.jsonl`: {error}"));
    assert!(!there.database().exists(), "nothing is made");
    let replayed = there.own(&["replay", "--all", "o.thread.jsonl", "--trust"]).await;
    assert!(replayed.code == Some(1) && replayed.stdout.contains(&error), "{replayed:?}");
}

#[tokio::test]
async fn a_file_that_folds_to_another_state_is_imported_only_if_that_is_accepted() {
    let (here, there) = (Place::new(), Place::new());
    let text = order(&here).await;
    assert!(here.own(&["db", "check"]).await.ok().stdout.ends_with("are intact\n"));
    let changed = text.replacen("\"euros\":120", "\"euros\":130", 1);
    assert_ne!(changed, text);
    there.file("o.thread.jsonl", &changed);
    there.own(&["import", "o.thread.jsonl"]).await.refused(
        2,
        "`o.thread.jsonl`: line 4: checkpoint 2, superstep 0: channel `items`, written by node `__start__`, folds to another value than \
         was stored with it; the file was changed, or the program: `own_program replay --all o.thread.jsonl` shows the difference, and \
         `--accept` imports the thread as it is",
    );
    assert_eq!(there.own(&["threads", "--json"]).await.ok().stdout, "");
    there.own(&["import", "o.thread.jsonl", "--accept"]).await.ok();
    let checked = there.own(&["db", "check"]).await;
    assert_eq!(checked.code, Some(7), "{checked:?}");
    assert_eq!(
        checked.stdout,
        "different: thread `o`, checkpoint 2, superstep 0: channel `items`, written by node `__start__`, folds to another value than was \
         stored with it; see `own_program replay o`\n1 thread and 3 checkpoints are intact; 1 different thread\n"
    );
    let json = there.own(&["db", "check", "--json"]).await.lines().remove(0);
    let different =
        json!([{"thread": "o", "checkpoint": 2, "step": 0, "node": "__start__", "channel": "items"}]);
    assert_eq!((&json["damages"], &json["different"]), (&json!([]), &different));

    let replayed = there.own(&["replay", "o", "--trust"]).await;
    assert_eq!(replayed.code, Some(7), "{replayed:?}");
    let wanted = "at /0/euros\n  expected 120\n  got      130\nif the change is intended, export the thread and accept it there: \
                  `own_program export o > o.thread.jsonl`, then `own_program replay --accept o.thread.jsonl`\n";
    assert!(replayed.stdout.ends_with(wanted), "{replayed:?}");
}

#[tokio::test]
async fn a_thread_of_the_agent_that_was_changed_is_refused_too() {
    let place = Place::new();
    place.run(&["run", "-q", "12 + 30", "--no-memory", "--thread", "t"]).await.ok();
    assert!(place.run(&["db", "check"]).await.ok().stdout.ends_with("are intact\n"));
    let text = place.run(&["export", "t"]).await.ok().stdout;
    let changed = text.replacen("\"current_step\":1", "\"current_step\":2", 1);
    assert_ne!(changed, text);
    let there = Place::new();
    there.file("t.thread.jsonl", &changed);
    let refused = there.run(&["import", "t.thread.jsonl"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("channel `current_step`, written by node `"), "{refused:?}");
}

#[tokio::test]
async fn a_thread_that_the_program_cannot_resume_is_listed_with_the_reason() {
    let (here, there) = (Place::new(), Place::new());
    let text = order(&here).await;
    let resumable = here.own(&["threads", "--check"]).await.ok().stdout;
    assert_eq!(resumable, "this program can resume 1 thread\n");
    // As if the program had renamed the node.
    let renamed = text.replace("\"approve\"", "\"confirm\"");
    let typed = text.replace("\"total\":120", "\"total\":\"much\"");
    for (name, text) in [("renamed", renamed), ("typed", typed), ("same", text)] {
        there.file("o.jsonl", &text);
        there.own(&["import", "o.jsonl", "--as", name, "--accept"]).await.ok();
    }
    there.run(&["run", "-q", "1 + 1", "--no-memory", "--thread", "t"]).await.ok();
    let checked = there.own(&["threads", "--check"]).await;
    assert_eq!(checked.code, Some(5), "{checked:?}");
    let lines: Vec<&str> = checked.stdout.lines().collect();
    assert!(
        lines.iter().any(|line| line.starts_with("renamed: ") && line.contains("`confirm`")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("typed: SS") && line.contains("does not fit")),
        "{lines:?}"
    );
    assert_eq!(lines.last(), Some(&"this program cannot resume 2 of 4 threads"), "{lines:?}");
    let json = there.own(&["threads", "--check", "--json"]).await.lines();
    assert_eq!(json.len(), 2, "{json:?}");
    assert_eq!(json[0]["graph"]["name"], "orders", "{json:?}");

    let listed = there.own(&["threads"]).await.ok().stdout;
    let status = |name: &str| {
        let row = listed.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        row.split_whitespace().skip(4).collect::<Vec<_>>().join(" ")
    };
    assert!(listed.contains("cannot be resumed, see `threads --check`"), "{listed}");
    assert!(listed.contains("cannot be read"), "{listed}");
    assert!(status("same").ends_with("waits for an answer"), "{listed}");
    // Threads of the agent are not the concern of this program, and the other way round.
    assert_eq!(there.run(&["threads", "--check"]).await.ok().stdout, "this program can resume 4 threads\n");
}

#[tokio::test]
async fn a_rule_for_messages_covers_what_repeats_them() {
    let server = serve([
        call("c1", "read_file", r#"{"path":"notes.txt"}"#),
        txt("The needle in the haystack was found in the notes."),
    ])
    .await;
    let place = Place::new();
    let url = server.base_url();
    let prompt = "Where is the needle that I lost?";
    place
        .run(&["run", "-q", prompt, "--no-memory", "--thread", "t", "--base-url", &url, "--model", "m"])
        .await
        .ok();
    let text = place.run(&["export", "t"]).await.ok().stdout;
    for part in ["needle in the haystack", "the needle is here", prompt] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for rule in ["messages.*.content", "messages", "conversation"] {
        let hidden = place.run(&["export", "t", "--redact", rule]).await.ok().stdout;
        for part in ["needle in the haystack", "the needle is here", "that I lost"] {
            assert!(!hidden.contains(part), "{rule}: {part}: {hidden}");
        }
    }
}

#[tokio::test]
async fn what_still_contains_a_replaced_value_is_named_and_nothing_is_written() {
    let place = Place::new();
    let input = r#"{"texts": ["sum_up"]}"#;
    place.own(&["run", "digest", "--input", input, "--thread", "d"]).await.ok();
    let mut secret = place.own_command(&["export", "d", "--redact-env", "SECRET"]);
    // It is also the name of a node, which is not replaced.
    let refused = ended(secret.env("SECRET", "sum_up")).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    let wanted = "what the rules replace is still in entry `next`, entry `node`; nothing was written.";
    assert!(refused.stderr.contains(wanted), "{refused:?}");
}

#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_a_text_or_a_prompt() {
    let here = Place::new();
    let ran = here
        .run_with_stdin(&["run", "-", "-q", "--no-memory", "--thread", "t"], "\u{feff}12 + 30\n".as_bytes())
        .await
        .ok();
    assert!(ran.stdout.contains("42"), "{ran:?}");
    assert_eq!(here.state("t").await["values"]["messages"][0]["content"], "12 + 30");
    let text = here.run(&["export", "t"]).await.ok().stdout;
    let there = Place::new();
    fs::write(there.work().join("t.jsonl"), format!("\u{feff}{text}")).unwrap();
    there.run(&["import", "t.jsonl"]).await.ok();
}
