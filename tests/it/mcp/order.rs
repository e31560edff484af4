//! The calls of one answer to one server retain their order.

use std::sync::Arc;

use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{
        Agent, Approval, ReactConfig,
        config::{PermissionRule, Permit, ToolMode},
    },
    llm::{ChatModel, Tool, ToolCx, ToolFuture, ToolSpec, calls::Sequence},
    mcp::{McpConfig, McpServer},
};
use superstep_testing::{
    script::{Script, calls, txt},
    scripted::ScriptedModel,
};
use tokio::sync::Barrier;

use super::{Small, http, notices::allowed};

const CALLS: usize = 12;

/// Creates one answer with calls of a server's tools, one after the other, and the final answer.
fn model(tools: &[&str]) -> Arc<dyn ChatModel> {
    let ids: Vec<_> = (0..CALLS).map(|n| (format!("c{n}"), format!(r#"{{"what":"{n:02}"}}"#))).collect();
    let answer = ids.iter().zip(tools.iter().cycle()).map(|((id, args), tool)| (&**id, *tool, &**args));
    Arc::new(ScriptedModel::new(Script::new([calls(answer), txt("done")])))
}

fn agent(
    server: McpServer,
    tools: &[&str],
    permissions: Vec<PermissionRule>,
) -> superstep::agent::AgentBuilder {
    let config =
        ReactConfig { permissions, tool_mode: ToolMode::Parallel { max: 16 }, ..ReactConfig::graph(5) };
    Agent::builder(model(tools)).tool_source(Arc::new(server)).config(config)
}

fn arrived<'a>(seen: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let noted = |seen: &str| seen.strip_prefix("noted:").or(seen.strip_prefix("said:")).map(str::to_owned);
    seen.into_iter().filter_map(noted).collect()
}

fn in_order() -> Vec<String> {
    (0..CALLS).map(|n| format!("{n:02}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_program_gets_the_calls_of_one_answer_in_their_order_whether_they_read_or_write() {
    for tools in [["small_note"; 2], ["small_say"; 2], ["small_say", "small_note"]] {
        for _ in 0..5 {
            let small = Small::new();
            let server = McpServer::connect("small", small.with("ORDER", "1")).await.unwrap();
            let agent = agent(server, &tools, allowed()).build().unwrap();
            agent.ask("go").await.unwrap();
            assert_eq!(arrived(small.seen().split(' ')), in_order(), "{tools:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_gets_the_calls_of_one_answer_in_their_order_whether_they_read_or_write() {
    for tools in [["far_note"; 2], ["far_say"; 2], ["far_say", "far_note"]] {
        for _ in 0..5 {
            let (url, asked) = http::serve().await;
            let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
            let agent = agent(server, &tools, allowed()).build().unwrap();
            agent.ask("go").await.unwrap();
            assert_eq!(arrived(http::methods(&asked).iter().map(String::as_str)), in_order(), "{tools:?}");
        }
    }
}

/// Waits for another call of its kind, after it was sent.
struct Meets(ToolSpec, Barrier);

impl Tool for Meets {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn sequence(&self) -> Option<Sequence<'_>> {
        Some(Sequence { name: "meets", overlaps: true })
    }

    fn call(&self, _: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            cx.sent();
            self.1.wait().await;
            Ok("met".into())
        })
    }
}

#[tokio::test]
async fn calls_that_overlap_run_side_by_side_once_the_one_before_was_sent() {
    let parameters = json!({"type": "object"});
    let spec = ToolSpec { name: "meet".into(), description: String::new(), parameters };
    let meets: Arc<dyn Tool> = Arc::new(Meets(spec, Barrier::new(CALLS)));
    let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 16 }, ..ReactConfig::graph(5) };
    let agent = Agent::builder(model(&["meet"])).tools([meets]);
    let outcome = agent.config(config).build().unwrap().ask("go").await;
    assert_eq!(outcome.unwrap().text, "done");
}

#[tokio::test]
async fn a_call_that_waits_for_an_approval_holds_back_those_behind_it_at_the_same_server() {
    let small = Small::new();
    let server = McpServer::connect("small", small.with("ORDER", "1")).await.unwrap();
    let asks = |n: usize| PermissionRule {
        arguments: [("what".to_owned(), format!("{n:02}"))].into(),
        ..PermissionRule::new("*", Permit::Ask)
    };
    let rules = allowed().into_iter().chain([asks(2), asks(5)]).collect();
    let store = Arc::new(MemoryCheckpointer::new());
    let agent = agent(server, &["small_note", "small_say"], rules);
    let agent = agent.approve_by_interrupt().checkpointer(store).build().unwrap();
    agent.thread("t").ask("go").await.unwrap();
    assert_eq!(arrived(small.seen().split(' ')), in_order()[..2]);
    let answers = superstep::Answers::new().answer("c2", Approval::Approve).answer("c5", Approval::Approve);
    let reply = agent.thread("t").answers(answers).resume().await.unwrap();
    assert_eq!(reply.text, "done");
    assert_eq!(arrived(small.seen().split(' ')), in_order());
}
