//! A program with graphs of its own: `examples/own_program.rs`, with two graphs of different states.

use std::sync::Arc;

use serde_json::{Value, json};
use superstep::prelude::*;
use tokio::sync::Notify;

use crate::{
    listed::{assert_table, own_commands},
    support::{Place, Ran, Running, ended_with_stdin},
};

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
    assert!(
        help.contains("Usage: own_program [OPTIONS] <COMMAND>") && help.contains("Exit codes:"),
        "{help}"
    );
    // As that of the agent's program, but for its models.
    let environment = |help: &str| {
        let (_, text) = help.split_once("Environment:\n").unwrap();
        let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim_start);
        let names = lines.filter_map(|line| line.split([' ', ',']).next()).map(str::to_owned);
        names.filter(|name| name.contains('_') && !name.starts_with('`')).collect::<Vec<_>>()
    };
    let mut wanted = environment(&place.run(&["--help"]).await.ok().stdout);
    let is_of_models =
        |name: &str| ["OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_"].iter().any(|own| name.starts_with(own));
    wanted.retain(|name| !is_of_models(name) && name != "SUPERSTEP_LOCAL_SERVERS");
    assert_eq!(environment(&help), wanted);
    assert!(place.own(&["completions", "bash"]).await.ok().stdout.contains("own_program"));
}

#[tokio::test]
async fn the_guide_has_every_command() {
    let page = include_str!("../../docs/own-program.md");
    let (_, table) = page.split_once("| command | effect |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    assert_table(table, "", &own_commands(&Place::new()).await);
}

#[tokio::test]
async fn a_graph_runs_on_json_from_the_command_line_a_file_or_stdin() {
    let place = Place::new();
    let ran = place.own(&["run", "orders", "--input", SMALL, "--thread", "a"]).await.ok();
    insta::assert_snapshot!(ran.stdout, @r#"
    {
      "items": [
        {
          "euros": 3,
          "name": "tea"
        }
      ],
      "notes": [
        "3 € paid"
      ],
      "status": "paid",
      "total": 3
    }
    "#);
    insta::assert_snapshot!(ran.stderr, @r#"
    superstep 1  price: total = 3
    superstep 2  pay: notes = ["3 € paid"], status = "paid"
    "#);
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
    let mut updates: Vec<Value> = ran
        .lines()
        .into_iter()
        .filter(|line| line["event"] == "update")
        .map(|line| line["data"].clone())
        .collect();
    // The tasks of a superstep end in any order; the state has their writes in the order of the items.
    updates.sort_by_key(|update| (update["step"].as_i64(), update["update"]["counts"][0].as_i64()));
    let update = |step: i64, node: &str, update: Value| json!({"step": step, "node": node, "update": update, "cached": false});
    assert_eq!(
        updates,
        [
            update(1, "count", json!({"counts": [1]})),
            update(1, "count", json!({"counts": [2]})),
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
    insta::assert_snapshot!(timeless(&place.own(&["state", "o"]).await.ok().stdout), @r#"
    thread      o
    graph       orders
    checkpoint  3 of superstep 1, TIME
    status      waits for an answer
    waits       `approve` of approve: pay 120 €?

    {
      "items": [
        {
          "euros": 100,
          "name": "tea"
        },
        {
          "euros": 20,
          "name": "mug"
        }
      ],
      "notes": [],
      "status": "",
      "total": 120
    }
    "#);
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
    insta::assert_snapshot!(timeless(&place.own(&["history", "o2"]).await.ok().stdout), @r#"
    ● 1  input  TIME
    ● 2  superstep 0  TIME
    │     input: items = [{"euros":100,"name":"tea"},{"euros":20,"name":"mug"}]
    ● 3  superstep 1  TIME
    │     price: total = 120
    ├─● 4  superstep 2  TIME
    │ │     approve: status = "approved"
    │ ● 5  superstep 3  TIME
    │       pay: notes = ["120 € paid"]
    │       pay: status = "paid"
    ● 6  fork of 3  TIME
    ● 7  update  TIME
    │     approve: status = "refused"
    ● 8  superstep 4  TIME  head
          pay: notes = ["nothing is paid"]
    "#);
    insta::assert_snapshot!(place.own(&["diff", "o", "o2"]).await.ok().stdout, @r#"
    --- o@5  superstep 3
    +++ o2@8  superstep 4
    notes
      - - "120 € paid"
      + - "nothing is paid"
    status
      - "paid"
      + "refused"
    "#);
    insta::assert_snapshot!(place.own(&["diff", "o@2", "@3"]).await.ok().stdout, @r#"
    --- o@2  superstep 0
    +++ o@3  superstep 1
    total
      - 0
      + 120
    "#);
    assert_eq!(place.own(&["diff", "o", "o@5"]).await.ok().stdout, "no differences\n");
    for thread in ["o", "o2"] {
        let replayed = place.own(&["replay", thread, "--strict"]).await.ok().stdout;
        assert!(replayed.contains("no divergence"), "{replayed}");
    }
    insta::assert_snapshot!(place.own(&["draw", "--thread", "o2"]).await.ok().stdout, @r#"
    START   ──▶ price  ×1
    price   ┄┄▶ pay  (Small)
    price   ┄┄▶ approve  (Large)  ×1
    pay     ──▶ END  ×1
    approve ──▶ pay
    "#);
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
async fn the_schema_of_inputs_and_states_is_printed() {
    let place = Place::new();
    let input = json_of(&place.own(&["schema", "digest"]).await.ok());
    assert_eq!(input["properties"]["texts"], json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(input["properties"]["clear"]["items"], json!({"enum": ["texts", "counts", "summary"]}));
    assert_eq!(input["additionalProperties"], false);
    // The type of an item has no schema.
    assert_eq!(json_of(&place.own(&["schema", "orders"]).await.ok())["properties"]["items"], true);
    let output = json_of(&place.own(&["schema", "digest", "--output"]).await.ok());
    assert_eq!(
        (&output["properties"]["summary"], &output["properties"]["clear"]),
        (&json!({"type": "string"}), &Value::Null)
    );
    place.own(&["schema", "x"]).await.refused(2, "unknown graph `x`; the graphs are `orders`, `digest`");
}

#[tokio::test]
async fn threads_of_all_graphs_are_listed_with_their_status() {
    let place = with_an_order().await;
    let none = Place::new().own(&["threads"]).await.ok().stdout;
    assert_eq!(none, "no threads yet; begin one with: own_program run\n");
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    let listed = place.own(&["threads"]).await.ok().stdout;
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][0], rows[0][1], rows[0][5]), ("d", "digest", "finished"), "{listed}");
    assert_eq!((rows[1][0], rows[1][1], &rows[1][5..].join(" ")[..]), ("o", "orders", "waits for an answer"));
    // The agent's program lists them as those of another graph.
    assert!(place.run(&["threads"]).await.ok().stdout.contains("belongs to graph `orders`"));
}

#[tokio::test]
async fn a_second_input_continues_a_finished_thread_and_discards_an_unfinished_one_only_with_its_flag() {
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
    assert!(discarded.stderr.contains("discarded pending nodes: "), "{discarded:?}");
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
    // A thread that no process runs.
    place.own(&["edit", "o", "--update", r#"{"status": "approved"}"#, "--as", "approve"]).await.ok();
    let stopped = place.own(&["watch", "o"]).await;
    let wanted = "error: no process runs thread `o`, which stopped before `pay`; resume it with: own_program resume o\n";
    assert_eq!((stopped.code, stopped.stderr.as_str()), (Some(5), wanted));

    let (graph, gate) = slow_digest(&place);
    let run = tokio::spawn(graph.thread("d").run(Digest::update().texts(["one".to_owned()])));
    gate.reached.notified().await;
    let mut watch = Running::of(place.own_command(&["watch", "d"]));
    watch.line_with("  superstep 1  ").await;
    watch.line_with("count: counts = [1]").await;
    gate.open.notify_one();
    watch.line_with("sum_up: summary = \"one\"").await;
    let end = watch.end().await;
    assert!(end.code == Some(0) && end.stderr == "thread `d` is finished\n", "{end:?}");
    run.await.unwrap().unwrap();
}

/// Two questions are not two nodes that wait.
#[tokio::test]
async fn a_resume_runs_what_failed_beside_a_node_with_two_questions() {
    let place = with_an_order().await;
    let (mut graph, asked) = (StateGraph::<Digest>::new("digest"), Arc::new(Notify::new()));
    let count = graph.add_worker_with(
        "count",
        asked.clone(),
        async |asked: Arc<Notify>, _: String, _: Digest, cx: Cx| {
            let ask = async |key: &str| cx.interrupt::<bool>(key, "count it?").await;
            tokio::join!(ask("once"), ask("twice"), async { asked.notify_one() });
            Digest::update()
        },
    );
    let sum_up = graph.add_node_with("sum_up", asked, async |asked: Arc<Notify>, _: Digest, _: Cx| {
        asked.notified().await;
        Err::<DigestUpdate, _>(NodeError::new("not yet"))
    });
    graph.add_fan_out(START, |digest: &Digest| digest.texts.clone(), count);
    graph.add_edge(START, sum_up);
    graph.add_edge(sum_up, END);
    let graph = graph.compile().unwrap();
    let graph = graph.with_checkpointer(SqliteCheckpointer::open(place.database()).unwrap());
    let failed = graph.thread("d").run(Digest::update().texts(["one".to_owned()])).await;
    assert!(failed.unwrap_err().to_string().contains("sum_up"));
    let state = place.own(&["state", "d", "--json"]).await.ok().lines().remove(0);
    let waits = |task: usize| state["tasks"][task]["waits"].as_array().unwrap().len();
    assert_eq!((&state["next"], waits(0), waits(1)), (&json!(["sum_up", "count"]), 0, 2));
    let resumed = json_of(&place.own(&["resume", "d"]).await.ok());
    assert_eq!(resumed["summary"], "1 words in 1 texts");
}

/// A state like that of the program's graph `digest`.
#[derive(State, Clone, Debug, Default)]
struct Digest {
    texts: Vec<String>,
    #[channel(append)]
    counts: Log<usize>,
    summary: String,
}

/// Stops the last node of a graph until it is opened.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    open: Arc<Notify>,
}

/// Returns a graph like `digest` of the program, on its database, whose last node waits at a gate.
fn slow_digest(place: &Place) -> (CompiledGraph<Digest>, Gate) {
    let (mut graph, gate) = (StateGraph::<Digest>::new("digest"), Gate::default());
    let count = graph.add_node("count", async |_: Digest, _: Cx| Digest::update().counts([1]));
    let sum_up = graph.add_node_with("sum_up", gate.clone(), async |gate: Gate, digest: Digest, _: Cx| {
        gate.reached.notify_one();
        gate.open.notified().await;
        Digest::update().summary(digest.texts.join(" "))
    });
    graph.add_edge(START, count);
    graph.add_edge(count, sum_up);
    graph.add_edge(sum_up, END);
    let store = Arc::new(SqliteCheckpointer::open(place.database()).unwrap());
    (graph.compile().unwrap().with_checkpointer(store), gate)
}

#[cfg(unix)]
#[tokio::test]
async fn a_watch_ends_at_a_signal() {
    let place = with_an_order().await;
    let (graph, gate) = slow_digest(&place);
    let run = tokio::spawn(graph.thread("d").run(Digest::update()));
    gate.reached.notified().await;
    let mut watch = Running::of(place.own_command(&["watch", "d", "--json"]));
    watch.line_with("\"id\":3").await;
    watch.signal("INT");
    assert_eq!(watch.end().await.code, Some(130));
    run.abort();
}

#[tokio::test]
async fn the_texts_of_its_threads_are_replayed_and_accepted_if_they_are_trusted() {
    let place = with_an_order().await;
    place.own(&["answer", "o", "approve", "true"]).await.ok();
    place.own(&["run", "orders", "--input", SMALL, "--thread", "p"]).await.ok();
    let ran = place.own(&["replay", "--all", "--strict"]).await.ok();
    assert_eq!(ran.stdout, "same       o\nsame       p\n2 threads: 2 same\n");

    let folder = place.work().join("cases");
    std::fs::create_dir(&folder).unwrap();
    for thread in ["o", "p"] {
        let text = place.run(&["export", thread]).await.ok().stdout;
        // As a program had recorded it that calculates otherwise.
        let text = text.replace("\"total\":120", "\"total\":121");
        std::fs::write(folder.join(format!("{thread}.thread.jsonl")), text).unwrap();
    }
    for flag in ["--all", "--accept"] {
        let ran = place.own(&["replay", flag, "cases"]).await;
        assert!(ran.code == Some(2) && ran.stderr.contains("`--trust`"), "{ran:?}");
    }
    let ran = place.own(&["replay", "--all", "cases", "--trust", "--json"]).await;
    let lines = ran.lines();
    assert_eq!((&lines[0]["thread"], &lines[1]["thread"]), (&json!("o"), &json!("p")));
    assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&json!("diverged"), &json!("same")));
    assert_eq!(
        (&lines[0]["divergence"]["kind"], &lines[0]["divergence"]["got"]),
        (&json!("update"), &json!(120))
    );
    place.own(&["replay", "--accept", "cases", "--trust"]).await.ok();
    place.own(&["replay", "--all", "cases", "--trust", "--strict"]).await.ok();
}
