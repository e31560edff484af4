//! A budget of 1,200 tokens and three searches for an agent that would never stop searching, and an answer nevertheless.
//!
//! Shows: three searches, the warning at four fifths, the last request without tools, and the reason for the end of the turn.
//!
//! `cargo run -p superstep --example budget`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::StreamExt;
use superstep::agent::config::Budget;
use superstep::{llm::Role, prelude::*};
use superstep_testing::{script::Answer, scripted::ScriptedModel};

/// Searches the library.
#[tool(idempotent)]
async fn search(query: String) -> String {
    format!("Three more books about {query}.")
}

/// Searches as long as a tool is offered. A real model is `superstep::llm::OpenAiModel`.
fn researcher() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        let searches = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let answer = if request.tools.is_empty() {
            Answer::stream().text([&*format!("After {searches} answers: there are many books about tea.")])
        } else {
            let query = format!(r#"{{"query": "tea, part {searches}"}}"#);
            Answer::stream().call(0, &format!("call_{searches}"), "search", [&*query])
        };
        answer.end("stop").usage(200, 50).done()
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let budget =
        Budget { tokens: Some(1_200), tool_calls: Some(3), reserve_final: true, ..Budget::default() };
    let agent = Agent::builder(researcher())
        .tools([search()])
        .config(ReactConfig { budget, loops: Vec::new(), ..ReactConfig::default() })
        .build()?;
    let mut turn = agent.without_thread().ask_stream("What about tea?");
    while let Some(event) = turn.next().await {
        if let AgentEvent::ToolEnd { .. } | AgentEvent::BudgetWarning { .. } = event {
            println!("{:14} {}", event.name(), event.data());
        }
    }
    let Reply { text, outcome, metadata, usage, .. } = turn.reply().await?;
    let tokens = usage.input_tokens + usage.output_tokens;
    println!("{text} ({}, {tokens} tokens)", metadata.stop_reason);
    assert_eq!(outcome, AgentOutcome::Budget);
    assert_eq!(metadata.tools_used.len(), 3);
    Ok(())
}
