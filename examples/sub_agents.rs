//! An agent that calls another one, which requires approval.
//!
//! Shows: the graph of graphs, an interrupt of the inner agent answered by the caller, and the tokens of both.
//!
//! `cargo run -p superstep --example sub_agents`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::agent::{
    config::{PermissionRule, Permit},
    deps::SubAgent,
};
use superstep::prelude::*;

/// Calls one tool and then repeats its result. A real one is `superstep::llm::OpenAiModel`.
struct Parrot {
    tool: &'static str,
    arguments: &'static str,
}

impl ChatModel for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let result = request.messages.last().filter(|last| last.role == Role::Tool);
        let usage = Delta::Usage(Usage { input_tokens: 20, output_tokens: 5 });
        let deltas = match result {
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
    /// The name of the archive.
    archive: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Open>("open", "Opens an archive.");
    let open = tool_fn(spec, |args: Open, _| async move { Ok(format!("The {} is empty.", args.archive)) });
    let archivist = Agent::builder(Parrot { tool: "open", arguments: r#"{"archive":"cellar"}"# })
        .tool(open)
        .config(ReactConfig {
            permissions: vec![PermissionRule::new("open", Permit::Ask)],
            ..ReactConfig::graph(5)
        })
        .approve_by_interrupt()
        .build()?;
    let boss =
        Agent::builder(Parrot { tool: "archivist", arguments: r#"{"task":"What is in the cellar?"}"# })
            .sub_agent(SubAgent::new("archivist", "Knows the archives.", &archivist).share(0.5))
            .checkpointer(MemoryCheckpointer::new())
            .build()?;
    print!("{}", boss.graph().topology().expanded().text());

    let interrupted = boss.thread("t").ask("What is in the cellar?").await?;
    let interrupt = &interrupted.interrupts[0];
    println!("{} asks: {}", interrupt.id, interrupt.question["question"]);
    assert!(interrupt.id.starts_with("tools:4.0:archivist.0/tools:4.0:call_1~"));

    let answers = Answers::new().answer(interrupt.id.as_str(), Approval::Approve);
    let reply = boss.thread("t").answers(answers).resume().await?;
    println!("{} ({} tokens in all)", reply.text, reply.usage.input_tokens + reply.usage.output_tokens);
    assert_eq!((reply.text.as_str(), reply.usage.input_tokens), ("The cellar is empty.", 80));
    Ok(())
}
