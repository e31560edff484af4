//! Replies with a schema.

use serde_json::json;
use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, Ran, serve};

/// Returns the example of `docs/structured.md`.
fn schema() -> &'static str {
    let page = include_str!("../../docs/structured.md");
    let (_, example) = page.split_once("```toml\n").unwrap();
    example.split_once("```").unwrap().0
}

async fn run(config: &str, flags: &[&str], answers: impl IntoIterator<Item = Answer>) -> Ran {
    let place = Place::new();
    let server = serve(answers).await;
    place.file("s.toml", config);
    let url = server.base_url();
    let args = [
        "run",
        "The largest city?",
        "--config",
        "s.toml",
        "--thread",
        "t",
        "--base-url",
        &url,
        "--model",
        "m",
    ];
    let ran = place.run(&[&args, flags].concat()).await;
    server.check().unwrap();
    ran
}

#[tokio::test]
async fn a_value_is_in_the_last_line() {
    let reply = call("c1", "generate_response", r#"{"response":"It is Tokyo.","city":"Tokyo"}"#);
    let ran = run(schema(), &["--json"], [reply.clone()]).await.ok();
    let end = &ran.lines().pop().unwrap()["data"];
    assert_eq!(end["output"], json!({"city": "Tokyo"}));
    assert_eq!((&end["final_reply"], end.get("output_problem")), (&json!("It is Tokyo."), None));
    assert_eq!(run(schema(), &["-q"], [reply]).await.ok().stdout, "It is Tokyo.\n");

    let native = schema().replace(r#""tool""#, r#""native""#);
    let ran = run(&native, &["-q"], [txt(r#"{"city":"Tokyo"}"#)]).await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("{\"city\":\"Tokyo\"}\n", ""));
}

#[tokio::test]
async fn a_reply_that_does_not_fit_is_a_failure() {
    let native = schema().replace(r#""tool""#, r#""native""#).replace("retries = 2", "retries = 1");
    let script = || [txt("Tokyo"), txt(r#"{"city":7}"#)];
    let ran = run(&native, &["-q"], script()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "{\"city\":7}\n"), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "error: the reply does not fit its schema: `city`: expected string, got a number\n\
         ask again with: superstep run --thread t \"...\"\n"
    );
    let ran = run(&native, &["--json"], script()).await;
    let end = &ran.lines().pop().unwrap()["data"];
    assert_eq!((ran.code, end.get("output")), (Some(1), None));
    assert_eq!(end["output_problem"], "`city`: expected string, got a number");
    assert_eq!(end["outcome"], "structured_output_invalid");
}

#[tokio::test]
async fn a_turn_that_ends_without_a_value_is_a_failure() {
    let spent = format!("budget = {{ tool_calls = 1, reserve_final = false }}\n{}", schema());
    let ran = run(&spent, &["-q"], [call("c1", "calculate", r#"{"expression":"1+1"}"#)]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let error = "error: the turn ended without a reply that fits its schema (budget)\n";
    assert!(ran.stderr.starts_with(error), "{ran:?}");
}
