//! Threads of a real model: `tests/cli/threads`.
//!
//! Qwen2.5-Coder-0.5B-Instruct (Q4_K_M) on llama.cpp's server wrote their responses, and the reference MCP servers `everything` and
//! `time` the results of their tools; the paths were changed. After a deliberate change of a prompt or of `calculate`:
//! `superstep replay --accept tests/cli/threads`.

use crate::support::Place;

const THREADS: [&str; 3] = ["sums", "times", "tools_of_a_server"];

fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cli/threads").to_owned()
}

#[tokio::test]
async fn their_texts_are_replayed_without_model_servers_and_folder() {
    let ran = Place::new().run(&["replay", "--all", &folder(), "--strict"]).await.ok();
    assert!(ran.stdout.ends_with("3 threads: 3 same\n"), "{ran:?}");
}

/// Removes the number of lines of a checkpoint, if the line has one.
fn without_count(line: &str) -> String {
    let Some((before, rest)) = line.split_once(",\"lines\":") else { return line.to_owned() };
    before.to_owned() + rest.trim_start_matches(|digit: char| digit.is_ascii_digit())
}

#[tokio::test]
async fn they_are_replayed_in_another_database_and_leave_it_with_the_same_text() {
    let place = Place::new();
    for thread in THREADS {
        let file = format!("{}/{thread}.thread.jsonl", folder());
        place.run(&["import", &file, "--db", "other.db"]).await.ok();
        let text = place.run(&["export", thread, "--db", "other.db"]).await.ok().stdout;
        // They were written before checkpoints counted their lines.
        let text: String = text.lines().map(|line| without_count(line) + "\n").collect();
        assert!(text == std::fs::read_to_string(file).unwrap(), "{thread}");
    }
    let ran = place.run(&["replay", "--all", "--strict", "--db", "other.db"]).await.ok();
    assert_eq!(ran.stdout.lines().last(), Some("3 threads: 3 same"), "{ran:?}");
}

#[tokio::test]
async fn a_changed_prompt_is_reported_in_each_of_them() {
    let place = Place::new();
    place.file("poet.toml", "system_prompt = \"Answer in verse.\"\n");
    for thread in THREADS {
        let file = format!("{}/{thread}.thread.jsonl", folder());
        let ran = place.run(&["replay", "--all", &file, "--config", "poet.toml"]).await;
        assert_eq!(ran.code, Some(7), "{ran:?}");
        let words = "    - Use the tools to find facts. Answer briefly.\n      + Answer in verse.\n";
        assert!(
            ran.stdout.contains("after checkpoint 5: node `agent`") && ran.stdout.contains(words),
            "{ran:?}"
        );
    }
}
