//! The output on a terminal of texts from models, tools, files and databases.

use std::sync::Arc;

use superstep::{agent::AgentState, llm::text::is_printable, prelude::*, sqlite::SqliteCheckpointer};
use superstep_testing::script::{call, txt};

use crate::{
    listed::{assert_all_tried, commands},
    support::{Place, Ran, serve},
};

/// Moves the cursor, changes the direction, separates lines, and hides text, each in another way.
const HOSTILE: &str =
    "a\u{1b}[2J\u{9b}1A\u{202e}b\u{2066}\u{2028}c\u{2029}\u{200b}d\u{e0041}\u{feff}e\rf\u{ad}";

/// The same without control characters, which a graph rejects in names.
const NAME: &str = "a\u{202e}b\u{2066}\u{2028}c\u{2029}\u{200b}d\u{e0041}";

fn only_prints(text: &str) {
    let hidden: Vec<_> = text.chars().filter(|c| !is_printable(*c)).collect();
    assert!(hidden.is_empty(), "{hidden:?} in {text}");
}

fn shows_nothing_hidden(ran: &Ran) {
    only_prints(&ran.stdout);
    only_prints(&ran.stderr);
}

/// Creates a thread with another graph, like another program.
async fn stored(place: &Place, thread: &str, node: &str) {
    std::fs::create_dir_all(place.database().parent().unwrap()).unwrap();
    let mut graph = StateGraph::<AgentState>::new(NAME);
    let node = graph.add_node(node, async |_: AgentState, _: Cx| AgentState::update().final_reply(HOSTILE));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.stop_before(node);
    let graph = graph
        .compile()
        .unwrap()
        .with_checkpointer(Arc::new(SqliteCheckpointer::open(place.database()).unwrap()));
    let input = AgentState::update().final_reply(HOSTILE).user_id(HOSTILE);
    graph.thread(thread).run(input).await.unwrap();
}

#[tokio::test]
async fn the_names_of_a_model_add_no_lines_to_those_of_the_program() {
    let place = Place::new();
    let server = serve([call("c1", "x\nresume with: evil", "{}"), txt("ok")]).await;
    let url = server.base_url();
    let ran = place.run(&["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"]).await.ok();
    assert!(ran.stderr.contains(r"x\nresume with: evil"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("\nresume with: evil"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_settings_of_an_imported_thread_add_no_lines_to_those_of_the_program() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let text = place.run(&["export", "t"]).await.ok().stdout;
    let settings = r#""model":"offline","user":"me"}"#;
    let other = r#""base_url":"http://x/\nerror: forged","model":"m","user":"me"}"#;
    let forged = text.replace(settings, other);
    assert_ne!(forged, text);
    place.file("t.jsonl", &forged);
    place.run(&["import", "t.jsonl", "--as", "u"]).await.ok();
    place.run(&["run", "go", "--thread", "u"]).await.refused(
        2,
        "the thread remembers the server `http://x/\n    error: forged`, which is not used unless you name it: repeat \
         `--base-url $'http://x/\\nerror: forged'`",
    );
}

#[tokio::test]
async fn a_divergence_with_hidden_characters_is_valid_json() {
    let place = Place::new();
    place.file("a.toml", r#"system_prompt = "a\u202eb""#);
    place.file("c.toml", r#"system_prompt = "c""#);
    let server = serve([txt("ok")]).await;
    let (url, config) = (server.base_url(), ["--config", "a.toml", "--model", "m"]);
    place.run(&[&["run", "go", "--thread", "t", "--base-url", &url], &config[..]].concat()).await.ok();
    let ran = place.run(&["replay", "t", "--json", "--config", "c.toml"]).await;
    assert_eq!(
        (ran.code, ran.lines()[0]["divergence"]["changes"][0]["diff"].as_str()),
        (Some(7), Some("- a\u{202e}b\n+ c"))
    );
    shows_nothing_hidden(&ran);
}

#[tokio::test]
async fn names_and_texts_of_a_database_are_escaped() {
    let place = Place::new();
    let lines = format!("{HOSTILE}\nt-fake  7  now  finished");
    stored(&place, &lines, NAME).await;
    stored(&place, "t", NAME).await;
    let tried = [
        &["threads"][..],
        &["threads", "--json"],
        &["usage", "--by", "thread"],
        &["state", "t"],
        &["state", "t", "--json"],
        &["history", "t"],
        &["history", "t", "--json"],
        &["diff", "t", "t@1"],
        &["watch", "t"],
        &["draw", "--thread", "t"],
        &["replay", "t"],
        &["resume", "t"],
        &["run", "x", "--thread", "t", "--model", "offline"],
        &["steer", "t", "x"],
        &["pin", "t"],
        &["revert", "t", "--to", "1"],
        &["db", "check"],
        &["db", "stats"],
        &["db", "stats", "--json"],
        &["db", "migrate"],
        &["db", "prune", "--leaves", "--yes"],
        &["db", "vacuum"],
        &["db", "rekey"],
        &["copy", "t", "u"],
        &["adopt", "u"],
        &["prune", "u", "--leaves", "--yes"],
        &["delete", "t", "u", "--yes"],
    ];
    for args in tried {
        let ran = place.run(args).await;
        assert!(ran.code.is_some_and(|code| code != 70), "{ran:?}");
        shows_nothing_hidden(&ran);
    }
    let listed = place.run(&["threads"]).await.ok().stdout;
    assert!(!listed.lines().any(|line| line.starts_with("t-fake")), "{listed}");
    let named = place.run(&["run", "x", "--thread", HOSTILE]).await;
    assert_eq!(named.code, Some(2), "{named:?}");
    let commands = commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    // A text is escaped on a terminal only; the others show nothing of this database.
    assert_all_tried(
        with_database,
        tried,
        &["acp", "chat", "doctor", "dream", "export", "import", "jobs", "memory", "serve", "worker"],
    );
}

#[tokio::test]
async fn text_of_models_tools_and_files_is_escaped() {
    let place = Place::new();
    place.file("notes.txt", HOSTILE);
    let args = serde_json::json!({"path": HOSTILE, "content": HOSTILE}).to_string();
    let server = serve([
        call(HOSTILE, HOSTILE, "{}"),
        call("c1", "read_file", r#"{"path":"notes.txt"}"#),
        call("c2", "write_file", &args),
        txt(HOSTILE),
    ])
    .await;
    let url = server.base_url();
    let model = ["--base-url", &url, "--model", "m"];
    let waits = place.run(&[&["run", "go", "--thread", "t"][..], &model].concat()).await;
    assert_eq!(waits.code, Some(6), "{waits:?}");
    only_prints(&waits.stderr);
    shows_nothing_hidden(&place.run(&["state", "t"]).await.ok());
    let json = place.run(&["resume", "t", "--approve", "--json"]).await.ok();
    shows_nothing_hidden(&json);
    assert_eq!(json.lines().last().unwrap()["data"]["final_reply"], HOSTILE, "it means the same");
    shows_nothing_hidden(&place.run(&["state", "t"]).await.ok());
}
