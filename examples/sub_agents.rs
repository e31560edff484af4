//! An agent that calls another one, which requires approval.
//!
//! Shows: the graph of graphs, an interrupt of the inner agent answered by the caller, and the tokens of both.
//!
//! `cargo run -p superstep --example sub_agents`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use superstep::agent::{
    config::{PermissionRule, Permit},
    deps::SubAgent,
};
use superstep::{llm::tool_fn, prelude::*};
use superstep_testing::{
    script::Answer,
    scripted::{ScriptedModel, tool_result},
};

/// Calls one tool and then repeats its result. A real model is `superstep::llm::OpenAiModel`.
fn parrot(tool: &'static str, arguments: &'static str) -> ScriptedModel {
    ScriptedModel::from_fn(move |request| {
        let answer = match tool_result(request) {
            Some(result) => Answer::stream().text([result]).end("stop"),
            None => Answer::stream().call(0, "call_1", tool, [arguments]).end("tool_calls"),
        };
        answer.usage(20, 5).done()
    })
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
    let archivist = Agent::builder(parrot("open", r#"{"archive":"cellar"}"#))
        .tool(open)
        .config(ReactConfig {
            permissions: vec![PermissionRule::new("open", Permit::Ask)],
            ..ReactConfig::graph(5)
        })
        .approve_by_interrupt()
        .build()?;
    let boss = Agent::builder(parrot("archivist", r#"{"task":"What is in the cellar?"}"#))
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
