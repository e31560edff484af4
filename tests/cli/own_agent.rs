//! A program with an agent of its own: `examples/own_agent.rs`.

use serde_json::json;
use superstep_testing::script::{call, txt};
use tokio::process::Command;

use crate::{
    acp::editor::Editor,
    support::{Place, ended, ended_with_stdin, example, serve},
};

const REFUND: &str = r#"{"number": 7, "euros": 40}"#;

fn program(place: &Place, url: &str, args: &[&str]) -> Command {
    let mut command = place.bare(&example("own_agent"));
    command.args(args).env("OPENAI_BASE_URL", url).env("OPENAI_API_KEY", "k").env("OPENAI_MODEL", "m");
    command
}

#[tokio::test]
async fn an_editor_uses_the_agent_of_a_program_and_decides_about_its_calls() {
    let place = Place::new();
    let server =
        serve([call("c1", "refund", REFUND), txt("Done."), call("c2", "refund", REFUND), txt("No.")]).await;
    let url = server.base_url();
    let mut editor = Editor::with(program(&place, &url, &["acp"]), json!({})).await;
    assert_eq!(editor.agent["name"], "own_agent");
    let params = json!({ "cwd": place.work(), "mcpServers": [] });
    let new = editor.call("session/new", params).await;
    let options: Vec<_> =
        new["configOptions"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(options, ["mode"], "the agent is set in code");
    let session = new["sessionId"].as_str().unwrap().to_owned();
    let model = json!({ "sessionId": session, "configId": "model", "value": "other" });
    assert_eq!(editor.refused("session/set_config_option", model).await["code"], -32602);
    let turn = editor.ask(&session, "Refund order 7.", &["allow_once"]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "Done."));
    let question = turn.asked[0]["toolCall"]["content"][0]["content"]["text"].as_str().unwrap();
    assert!(question.contains("Pay 40 € back for order 7?"), "{question}");
    assert_eq!(turn.statuses().last().unwrap(), "c1 completed");
    assert_eq!(editor.end().await.code, Some(0));
    let prompt = &server.requests()[0]["messages"][0]["content"];
    assert_eq!(prompt, "You answer the customers of a shop.");

    // Another process has the conversation, and the other commands have its thread.
    let mut editor = Editor::with(program(&place, &url, &["acp"]), json!({})).await;
    let loaded = editor.load(&place, &session).await;
    assert_eq!((loaded.text().as_str(), loaded.statuses()), ("Done.", vec!["c1 completed".to_owned()]));
    assert_eq!(editor.ask(&session, "Again.", &["reject_once"]).await.text(), "No.");
    assert_eq!(editor.end().await.code, Some(0));
    let threads = ended(&mut program(&place, &url, &["threads"])).await.ok().stdout;
    assert!(threads.contains(&session) && threads.contains("finished"), "{threads}");
    server.check().unwrap();
}

#[tokio::test]
async fn the_chat_is_one_with_the_agent_of_the_program() {
    let place = Place::new();
    let server = serve([call("c1", "refund", REFUND), txt("Done.")]).await;
    let url = server.base_url();
    // Without a terminal nobody decides.
    let args = ["chat", "--plain", "--thread", "t", "Refund order 7."];
    let ran = ended(&mut program(&place, &url, &args)).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("Pay 40 € back for order 7?"), "{ran:?}");
    assert!(ran.stderr.contains("decide with: own_agent chat --thread t "), "{ran:?}");
    let again = program(&place, &url, &["chat", "--plain", "--thread", "t", "--yes"]);
    let ran = ended_with_stdin(again, b"/continue\n/model other\n").await;
    assert!(ran.stdout.contains("Done."), "{ran:?}");
    let refused = "the agent of this program has one model and no presets";
    assert_eq!((ran.code, ran.stderr.contains(refused)), (Some(2), true), "{ran:?}");
    server.check().unwrap();
}

#[tokio::test]
async fn a_program_without_an_agent_says_so_and_does_not_list_the_commands() {
    let place = Place::new();
    let ran = place.own(&["chat"]).await;
    assert_eq!((ran.code, ran.stderr.contains("`Program::agent`")), (Some(2), true), "{ran:?}");
    let listed = |help: &str| help.lines().any(|line| line.trim_start().starts_with("acp "));
    assert!(!listed(&place.own(&["--help"]).await.ok().stdout));
    let help = ended(&mut program(&place, "http://localhost:1", &["--help"])).await.ok().stdout;
    assert!(listed(&help), "{help}");
}
