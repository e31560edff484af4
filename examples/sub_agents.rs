//! An agent that asks another one, which asks for permission.
//!
//! See: the graph of graphs, a question that comes from inside and is answered outside, and what both of them spent.
//!
//! `cargo run -p superstep --example sub_agents`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    Answers,
    agent::{Agent, Approval, PermissionRule, Permit, ReactConfig, SubAgent},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, Tool, ToolSpec, Usage, tool_fn},
    prelude::*,
};

/// Calls one tool and then says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Parrot {
    tool: &'static str,
    arguments: &'static str,
}

impl ChatModel for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let told = request.messages.last().filter(|last| last.role == Role::Tool);
        let usage = Delta::Usage(Usage { input_tokens: 20, output_tokens: 5 });
        let deltas = match told {
            Some(result) => {
                vec![Delta::Text(result.content.clone()), usage, Delta::Finish(FinishReason::Stop)]
            }
            None => vec![
                Delta::ToolCall {
                    index: 0,
                    id: Some("call_1".into()),
                    name: Some(self.tool.into()),
                    arguments: self.arguments.into(),
                },
                usage,
                Delta::Finish(FinishReason::ToolCalls),
            ],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Open {
    /// What to open.
    archive: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Open>("open", "Opens an archive.");
    let open = tool_fn(spec, |args: Open, _| async move { Ok(format!("The {} is empty.", args.archive)) });
    let archivist = Agent::builder(Arc::new(Parrot { tool: "open", arguments: r#"{"archive":"cellar"}"# }))
        .tools([Arc::new(open) as Arc<dyn Tool>])
        .config(ReactConfig {
            permissions: vec![PermissionRule::new("open", Permit::Ask)],
            ..ReactConfig::graph(5)
        })
        .approve_by_interrupt()
        .build()?;
    let boss = Agent::builder(Arc::new(Parrot {
        tool: "archivist",
        arguments: r#"{"task":"What is in the cellar?"}"#,
    }))
    .sub_agent(SubAgent::new("archivist", "Knows the archives.", &archivist).share(0.5))
    .checkpointer(Arc::new(MemoryCheckpointer::new()))
    .build()?;
    print!("{}", boss.graph().topology().expanded().text());

    let asked = boss.thread("t").ask("What is in the cellar?").await?;
    let interrupt = &asked.interrupts[0];
    println!("{} asks: {}", interrupt.id, interrupt.question["question"]);
    assert!(interrupt.id.starts_with("tools:4.0:archivist.0/tools:4.0:call_1~"));

    let answers = Answers::new().answer(interrupt.id.as_str(), Approval::Approve);
    let reply = boss.thread("t").answers(answers).resume().await?;
    println!(
        "{} ({} tokens in all)",
        reply.final_reply,
        reply.usage.input_tokens + reply.usage.output_tokens
    );
    assert_eq!((reply.final_reply.as_str(), reply.usage.input_tokens), ("The cellar is empty.", 80));
    Ok(())
}
