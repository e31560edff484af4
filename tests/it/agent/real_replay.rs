//! A thread of a real language model, with all answers recorded: `tests/it/fixtures/real_replay.db`.
//!
//! It was made by [`agent`] with Qwen2.5-Coder-0.5B-Instruct (Q4_K_M) on llama.cpp's server, with
//! [`QUESTIONS`] one after the other.

use std::{fs, path::Path, sync::Arc};

use serde_json::{Value, json};
use superstep::{
    agent::{Agent, ReactConfig},
    llm::{ChatModel, Tool, ToolCx, ToolError, ToolSpec, tool_fn},
    replay::At,
    sqlite::SqliteCheckpointer,
};
use superstep_testing::{script::Script, scripted::ScriptedModel};

const QUESTIONS: [&str; 2] =
    ["What is 17+25? Use the add tool.", "Thank you! Say goodbye in one short sentence."];

fn add() -> Arc<dyn Tool> {
    let number = json!({"type": "integer"});
    let parameters = json!({
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
    });
    let spec = ToolSpec { name: "add".into(), description: "Adds two integers.".into(), parameters };
    Arc::new(tool_fn(spec, |args: Value, _: ToolCx| async move {
        let number = |name: &str| args[name].as_i64().ok_or_else(|| ToolError::failed("no integer"));
        Ok((number("a")? + number("b")?).to_string())
    }))
}

fn agent(model: Arc<dyn ChatModel>, path: &Path, prompt: &str) -> Agent {
    let config = ReactConfig { system_prompt: prompt.to_owned(), ..ReactConfig::graph(4) };
    let store = Arc::new(SqliteCheckpointer::open(path).unwrap());
    Agent::builder(model).tools([add()]).config(config).checkpointer(store).build().unwrap()
}

const PROMPT: &str = "Use the tools to find facts. Answer briefly.";

#[tokio::test]
async fn responses_of_a_real_model_are_replayed_without_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    // A copy, because opening a database creates files next to it.
    let path = folder.path().join("threads.db");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures/real_replay.db");
    fs::copy(stored, &path).expect("the fixture is in the repository");
    let nobody = || Arc::new(ScriptedModel::new(Script::default()));
    let same = agent(nobody(), &path, PROMPT);
    let state = same.graph().thread("sum").state().await.unwrap().values;
    let asked = state.messages.iter().filter(|message| QUESTIONS.contains(&message.content.as_str()));
    assert_eq!(asked.count(), QUESTIONS.len());
    let replayed = same.graph().thread("sum").replay().run().await.unwrap();
    replayed.assert_same();
    assert_eq!(replayed.supersteps, 12);

    let other = agent(nobody(), &path, "Answer in verse.");
    let found = other.graph().thread("sum").replay().run().await.unwrap().divergence.unwrap();
    assert_eq!(
        (found.node.as_str(), found.at, &*found.place),
        ("agent", At::Effect("model".into()), "/first")
    );
}
