//! An agent, its tools and its servers on a runtime without timers: a clear error, and no panic.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::json;
use superstep::{
    agent::Agent,
    error::chain,
    llm::{
        ApiKey, ChatModel, Message, ModelError, OpenAiConfig, OpenAiModel, Request, ToolCx,
        limits::{AnswerLimits, bounded},
        retries::Retrying,
    },
    mcp::{McpConfig, McpServer},
    memory::HistoryFiles,
    tools,
};
use superstep_testing::{
    script::{Script, http, txt},
    scripted::ScriptedModel,
};

const SAYS: &str = "SS178: the tokio runtime has no timers, which waits and timeouts need; build it with \
                    `enable_time`, or with `enable_all`";

fn without_timers(run: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(run);
}

fn request() -> Request {
    Request { messages: vec![Message::user("go")], ..Request::default() }
}

async fn failure(model: &dyn ChatModel) -> ModelError {
    let mut deltas = model.stream(request());
    let failed = async {
        while let Some(delta) = deltas.next().await {
            if let Err(error) = delta {
                return error;
            }
        }
        panic!("it does not fail")
    };
    let error = failed.await;
    assert!(deltas.next().await.is_none());
    error
}

#[test]
fn a_turn_fails_with_a_clear_error() {
    without_timers(async {
        let agent = Agent::builder(Arc::new(ScriptedModel::new(Script::new([txt("hi")])))).build().unwrap();
        let error = agent.ask("go").await.unwrap_err();
        assert!(chain(&error).ends_with(SAYS) && !chain(&error).contains("panicked"), "{}", chain(&error));
    });
}

#[test]
fn a_model_fails_with_a_clear_error() {
    without_timers(async {
        let config = OpenAiConfig::new("http://127.0.0.1:9/v1", ApiKey::new("k"), "m");
        assert_eq!(failure(&OpenAiModel::new(config).unwrap()).await.message, SAYS);
        let busy = || ScriptedModel::new(Script::new([http(503, &[], "{}"), txt("hi")]));
        assert_eq!(failure(&Retrying::new(Arc::new(busy()), Default::default())).await.message, SAYS);
        let script = ScriptedModel::new(Script::new([txt("hi")]));
        let mut deltas = bounded(script.stream(request()), AnswerLimits::default());
        assert_eq!(deltas.next().await.unwrap().unwrap_err().message, SAYS);
        assert!(deltas.next().await.is_none());
    });
}

#[test]
fn a_tool_and_a_server_fail_with_a_clear_error() {
    without_timers(async {
        let dir = tempfile::tempdir().unwrap();
        for tool in tools::all(dir.path(), || 0).unwrap() {
            let args = match tool.spec().name.as_str() {
                "shell" => json!({ "command": "touch made" }),
                "fetch_url" => json!({ "url": "http://127.0.0.1:9/" }),
                "calculate" => json!({ "expression": "1 + 1" }),
                _ => continue,
            };
            let failed = tool.call(args, ToolCx::new("c1")).await.unwrap_err();
            assert_eq!(failed.to_string(), SAYS, "{}", tool.spec().name);
        }
        assert!(!dir.path().join("made").exists());
        let server = McpServer::connect("s", McpConfig::program("true", [])).await;
        let error = server.expect_err("it cannot wait for the server").to_string();
        assert!(error.contains(SAYS), "{error}");
        // Parts without timers run.
        let history = HistoryFiles::new(dir.path(), "history").unwrap();
        assert!(history.read("ada", Default::default(), 1, 1).await.unwrap().turns.is_empty());
    });
}
