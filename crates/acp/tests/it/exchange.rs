//! The replay of a recorded exchange between acpx and an agent on the SDK for JavaScript.

use serde_json::Value;

use crate::{
    editor::Editor,
    schema::{validate_params, validate_result},
};

/// Returns the method, the kind of update, and the names of a result's fields. Options and capabilities differ between agents.
fn kind(line: &Value) -> (Value, Value, Vec<&String>) {
    let names = line["result"].as_object().into_iter().flatten().map(|(name, _)| name);
    let names = names.filter(|name| *name != "_meta");
    (line["method"].clone(), line["params"]["update"]["sessionUpdate"].clone(), names.collect())
}

#[tokio::test(start_paused = true)]
async fn a_recorded_exchange_has_the_same_course() {
    let mut editor = Editor::connect();
    for line in include_str!("../fixtures/exchange.ndjson").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let is_answer = line["result"].get("outcome").is_some();
        let method = line["method"].as_str().unwrap_or_default();
        if is_answer {
            validate_result("client", "session/request_permission", &line["result"]);
            editor.send(&line).await;
        } else if ["initialize", "session/new", "session/prompt"].contains(&method) {
            validate_params("agent", method, &line["params"]);
            editor.send(&line).await;
        } else {
            let received = editor.next().await;
            assert_eq!(kind(&received), kind(&line), "{received}\n{line}");
            assert_eq!(received["id"], line["id"]);
        }
    }
    assert_eq!(editor.log.take().last().unwrap(), "Some(Once) None");
    editor.expect_silence().await;
}
