//! The ReAct agent around a real model, with its own tool and threads in a file.
//!
//! Shows: the configuration of a server with the chat-completions protocol; the streamed answer; a second question on the same
//! thread, with the conversation so far.
//!
//! `OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 cargo run -p superstep --features openai --example openai`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error, io::Write};

use futures::StreamExt;
use superstep::prelude::*;

/// Returns the temperature in a city.
#[tool(idempotent)]
async fn weather(
    /// The city, by its English name.
    city: String,
) -> Result<String, ToolError> {
    match city.as_str() {
        "Paris" => Ok("21 °C".to_owned()),
        "Rome" => Ok("27 °C".to_owned()),
        _ => Err(ToolError::failed(format!("there is no station in {city}"))),
    }
}

/// An agent whose threads are in this file.
pub(crate) fn agent(model: OpenAiModel, threads: &str) -> Result<Agent, Box<dyn Error>> {
    let agent = Agent::builder(model)
        .tools([weather()])
        .checkpointer(SqliteCheckpointer::open(threads)?)
        .system_prompt("Answer in one sentence.")
        .build()?;
    Ok(agent)
}

/// Runs a turn, prints the answer as it is streamed, and returns it.
pub(crate) async fn ask(agent: &Agent, question: &str) -> Result<String, Box<dyn Error>> {
    println!("> {question}");
    let mut turn = agent.thread("travel").ask_stream(question);
    while let Some(event) = turn.next().await {
        match event {
            AgentEvent::LlmToken { token, .. } => print!("{token}"),
            AgentEvent::ToolStart { tool, args, .. } => println!("{tool} {args}"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    // If the model call failed, the reply explains it, and `resume` of the thread repeats it.
    Ok(turn.reply().await?.text)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(model) = env::var("OPENAI_MODEL") else {
        println!(
            "set OPENAI_MODEL, OPENAI_BASE_URL for your own server, and OPENAI_API_KEY if it requires one"
        );
        return Ok(());
    };
    let agent = agent(OpenAiModel::from_env(model)?, "travel.db")?;

    ask(&agent, "How warm is it in Paris?").await?;
    // The thread has the conversation, in the next run of this program too.
    ask(&agent, "And in Rome?").await?;
    Ok(())
}
