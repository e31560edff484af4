//! A program with graphs of its own: `examples/own_program.rs`, with two graphs of different states.

use serde_json::{Value, json};

use crate::support::{Place, Ran, Running, ended_with_stdin};

const LARGE: &str = r#"{"items": [{"name": "tea", "euros": 100}, {"name": "mug", "euros": 20}]}"#;
const SMALL: &str = r#"{"items": [{"name": "tea", "euros": 3}]}"#;

/// Runs an order that waits for approval.
async fn with_an_order() -> Place {
    let place = Place::new();
    let ran = place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    place
}

/// Removes times, which differ between runs.
fn timeless(text: &str) -> String {
    let is_time = |word: &str| word.len() == 20 && word.ends_with('Z') && word.starts_with("20");
    let line = |line: &str| {
        let words: Vec<&str> =
            line.split(' ').map(|word| if is_time(word) { "TIME" } else { word }).collect();
        words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

#[tokio::test]
async fn without_a_command_it_prints_its_help() {
    let place = Place::new();
    let help = place.own(&[]).await.ok().stdout;
    assert!(help.contains("Usage: own_program <COMMAND>") && help.contains("Exit codes:"), "{help}");
    assert!(place.own(&["completions", "bash"]).await.ok().stdout.contains("own_program"));
}

#[tokio::test]
async fn a_graph_runs_on_json_from_the_command_line_a_file_or_stdin() {
    let place = Place::new();
    let ran = place.own(&["run", "orders", "--input", SMALL, "--thread", "a"]).await.ok();
    insta::assert_snapshot!(ran.stdout, @"");
    insta::assert_snapshot!(ran.stderr, @"");
    place.file("order.json", SMALL);
    let quiet = place.own(&["run", "orders", "-q", "--input", "@order.json"]).await.ok();
    assert_eq!((&quiet.stdout, quiet.stderr.as_str()), (&ran.stdout, ""));
    let piped = place.own_command(&["run", "orders", "-q", "--input", "-"]);
    assert_eq!(ended_with_stdin(piped, SMALL.as_bytes()).await.ok().stdout, ran.stdout);
    let unread = place.own_command(&["run", "digest"]);
    let unread = ended_with_stdin(unread, b"{}").await.ok();
    assert!(unread.stderr.contains("the piped input is not read; add `--input -` to read it"), "{unread:?}");
}

#[tokio::test]
async fn a_fan_out_and_its_events_are_shown_as_json() {
    let place = Place::new();
    let input = r#"{"texts": ["one two", "three"]}"#;
    let ran = place.own(&["run", "digest", "--input", input, "--json", "--thread", "d"]).await.ok();
    let updates: Vec<Value> = ran
        .lines()
        .into_iter()
        .filter(|line| line["event"] == "update")
        .map(|line| line["data"].clone())
        .collect();
    let update = |step: i64, node: &str, update: Value| json!({"step": step, "node": node, "update": update, "cached": false});
    assert_eq!(
        updates,
        [
            update(1, "count", json!({"counts": [2]})),
            update(1, "count", json!({"counts": [1]})),
            update(2, "sum_up", json!({"summary": "3 words in 2 texts"})),
        ]
    );
    assert!(ran.lines().iter().any(|line| line["event"] == "checkpoint" && line["data"]["id"] == 1));
    assert_eq!(
        ran.lines().pop().unwrap(),
        json!({"event": "final", "data": {
            "thread": "d", "graph": "digest", "checkpoint": 4, "status": "completed", "interrupts": [],
            "values": {"texts": ["one two", "three"], "counts": [2, 1], "summary": "3 words in 2 texts"},
        }})
    );
}

#[tokio::test]
async fn a_thread_is_answered_forked_edited_resumed_compared_and_replayed() {
    let place = with_an_order().await;
    insta::assert_snapshot!(timeless(&place.own(&["state", "o"]).await.ok().stdout), @"");
    // It still waits.
    let waits = place.own(&["resume", "o"]).await;
    assert!(
        waits.code == Some(6) && waits.stderr.ends_with("answer with: own_program answer o approve JSON\n"),
        "{waits:?}"
    );
    let paid = json_of(&place.own(&["answer", "o", "approve", "true"]).await.ok());
    assert_eq!((&paid["status"], &paid["notes"]), (&json!("paid"), &json!(["120 € paid"])));

    let forked = place.own(&["fork", "o", "--at", "3", "--as", "o2"]).await.ok().stdout;
    assert_eq!(forked, "checkpoint 6 of thread `o2` is a fork of 3; continue with: own_program resume o2\n");
    let edited =
        place.own(&["edit", "o2", "--update", r#"{"status": "refused"}"#, "--as", "approve"]).await.ok();
    assert_eq!(
        edited.stdout,
        "stored as checkpoint 7 of thread `o2`; next: pay; continue with: own_program resume o2\n"
    );
    let refused = json_of(&place.own(&["resume", "o2"]).await.ok());
    assert_eq!((&refused["status"], &refused["notes"]), (&json!("refused"), &json!(["nothing is paid"])));
    insta::assert_snapshot!(timeless(&place.own(&["history", "o2"]).await.ok().stdout), @"");
    insta::assert_snapshot!(place.own(&["diff", "o", "o2"]).await.ok().stdout, @"");
    insta::assert_snapshot!(place.own(&["diff", "o@2", "@3"]).await.ok().stdout, @"");
    assert_eq!(place.own(&["diff", "o", "o@5"]).await.ok().stdout, "no differences\n");
    for thread in ["o", "o2"] {
        let replayed = place.own(&["replay", thread, "--strict"]).await.ok().stdout;
        assert!(replayed.contains("no divergence"), "{replayed}");
    }
    insta::assert_snapshot!(place.own(&["draw", "--thread", "o2"]).await.ok().stdout, @"");
}

#[tokio::test]
async fn json_has_the_documented_form() {
    let place = with_an_order().await;
    let threads = place.own(&["threads", "--json"]).await.ok().lines();
    assert_eq!(
        (&threads[0]["thread"], &threads[0]["graph"], &threads[0]["status"]),
        (&json!("o"), &json!({"name": "orders"}), &json!("waits for an answer"))
    );
    let state = place.own(&["state", "o", "--json"]).await.ok().lines().remove(0);
    assert_eq!((&state["graph"], &state["next"]), (&json!("orders"), &json!(["approve"])));
    assert_eq!(state["tasks"][0]["waits"][0]["question"], "pay 120 €?");
    assert_eq!(state["values"]["total"], 120);
    let history = place.own(&["history", "o", "--json"]).await.ok().lines();
    assert_eq!(history.iter().map(|line| line["id"].clone()).collect::<Vec<_>>(), [3, 2, 1]);
    let asked = place.own(&["answer", "o", "approve", "false", "--json"]).await.ok().lines();
    assert_eq!(asked.last().unwrap()["data"]["values"]["status"], "refused");
    let diff = place.own(&["diff", "o@3", "@4", "--json"]).await.ok().lines();
    assert_eq!(diff, [json!({"channel": "status", "a": "", "b": "refused"})]);
    let fork = place.own(&["fork", "o", "--at", "2", "--json"]).await.ok().lines();
    assert_eq!(fork, [json!({"thread": "o", "from": "o", "at": 2, "checkpoint": 6})]);
    let edit = place.own(&["edit", "o", "--update", r#"{"total": 7}"#, "--as", "price", "--json"]).await.ok();
    assert_eq!(edit.lines(), [json!({"thread": "o", "checkpoint": 7, "next": ["pay"]})]);
    let replay = place.own(&["replay", "o", "--to", "5", "--json"]).await.ok().lines();
    assert_eq!((&replay[0]["thread"], &replay[0]["divergence"]), (&json!("o"), &Value::Null));
}

#[tokio::test]
async fn threads_of_all_graphs_are_listed_with_their_status() {
    let place = with_an_order().await;
    let none = Place::new().own(&["threads"]).await.ok().stdout;
    assert_eq!(none, "no threads yet; begin one with: own_program run\n");
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    let listed = place.own(&["threads"]).await.ok().stdout;
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][0], rows[0][1], rows[0][4]), ("d", "digest", "finished"), "{listed}");
    assert_eq!((rows[1][0], rows[1][1], &rows[1][4..].join(" ")[..]), ("o", "orders", "waits for an answer"));
    // The agent's program lists them as those of another graph.
    assert!(place.run(&["threads"]).await.ok().stdout.contains("belongs to graph `orders`"));
}

#[tokio::test]
async fn a_second_input_goes_on_behind_a_finished_thread_and_discards_an_unfinished_one_only_if_asked() {
    let place = with_an_order().await;
    let unfinished = place.own(&["run", "orders", "--input", SMALL, "--thread", "o"]).await;
    assert_eq!(unfinished.code, Some(5), "{unfinished:?}");
    assert!(
        unfinished.stderr.contains("thread `o` is not finished") && unfinished.stderr.contains("--discard")
    );
    let discarded = place
        .own(&["run", "orders", "--thread", "o", "--discard", "--input", r#"{"clear": ["items"]}"#])
        .await
        .ok();
    assert!(discarded.stderr.contains("discarded the pending tasks"), "{discarded:?}");
    assert_eq!(json_of(&discarded)["status"], "paid");
    let branch = place
        .own(&[
            "run",
            "orders",
            "--thread",
            "o",
            "--from",
            "3",
            "--discard",
            "--input",
            r#"{"clear": ["items"]}"#,
        ])
        .await;
    assert_eq!(branch.code, Some(0), "{branch:?}");
    let tree = place.own(&["history", "o"]).await.ok().stdout;
    assert!(tree.contains("├─● "), "{tree}");
}

#[tokio::test]
async fn a_watch_follows_the_run_of_another_process() {
    let place = with_an_order().await;
    let waits = place.own(&["watch", "o"]).await;
    assert!(
        waits.code == Some(6) && waits.stderr.contains("answer with: own_program answer o approve JSON"),
        "{waits:?}"
    );
    assert!(waits.stdout.starts_with("● 3  superstep 1  "), "{waits:?}");
    // A fork makes a task pending that nothing runs yet.
    place.own(&["edit", "o", "--update", r#"{"status": "approved"}"#, "--as", "approve"]).await.ok();
    let mut watch = Running::of(place.own_command(&["watch", "o", "--json"]));
    watch.line_with("\"id\":4").await;
    place.own(&["resume", "o"]).await.ok();
    watch.line_with("\"id\":5").await;
    let end = watch.end().await;
    assert!(end.code == Some(0) && end.stderr.contains("thread `o` is finished"), "{end:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_watch_ends_at_a_signal() {
    let place = with_an_order().await;
    place.own(&["edit", "o", "--update", "{}", "--as", "approve"]).await.ok();
    let mut watch = Running::of(place.own_command(&["watch", "o"]));
    watch.line_with("● 4").await;
    watch.signal("INT");
    assert_eq!(watch.end().await.code, Some(130));
}
