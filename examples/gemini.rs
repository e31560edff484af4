//! A reasoning model behind the API of Gemini.
//!
//! Shows: the effort of the reasoning; its summary, streamed before the answer; a tool. The signature of the call is stored with the
//! thread and goes back with the result of the tool, and with the next question.
//!
//! `GEMINI_API_KEY=… cargo run -p superstep --features gemini --example gemini`
//!
//! On Vertex AI: `GOOGLE_CLOUD_PROJECT=… GOOGLE_ACCESS_TOKEN_COMMAND="gcloud auth print-access-token" cargo run …`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error, io::Write};

use futures::StreamExt;
use superstep::{llm::GeminiConfig, prelude::*};

/// Returns the number of days from a date to the end of its year.
#[tool(idempotent)]
async fn days_left(
    /// The day of the year, from 1.
    day: u32,
    /// The year.
    year: u32,
) -> Result<String, ToolError> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match (365 + u32::from(is_leap)).checked_sub(day) {
        Some(left) => Ok(left.to_string()),
        None => Err(ToolError::failed(format!("{year} has no day {day}"))),
    }
}

/// An agent whose model reasons for a short time.
pub(crate) fn agent(config: GeminiConfig) -> Result<Agent, Box<dyn Error>> {
    let model = GeminiModel::new(GeminiConfig { effort: Some("low".to_owned()), ..config })?;
    Ok(Agent::builder(model).tools([days_left()]).checkpointer(MemoryCheckpointer::new()).build()?)
}

/// Runs a turn, prints the reasoning and the answer as they are streamed, and returns the answer.
pub(crate) async fn ask(agent: &Agent, question: &str) -> Result<String, Box<dyn Error>> {
    println!("> {question}");
    let mut turn = agent.thread("dates").ask_stream(question);
    while let Some(event) = turn.next().await {
        match event {
            AgentEvent::LlmToken { token, reasoning_token } => print!("{reasoning_token}{token}"),
            AgentEvent::ToolStart { tool, args, .. } => println!("\n{tool} {args}"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    Ok(turn.reply().await?.text)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = env::var("GEMINI_MODEL").unwrap_or_else(|_| "gemini-3.5-flash".to_owned());
    let is_on_vertex = env::var_os("GOOGLE_CLOUD_PROJECT").is_some();
    let config =
        if is_on_vertex { GeminiConfig::vertex_from_env(model) } else { GeminiConfig::from_env(model) };
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let agent = agent(config)?;

    ask(&agent, "How many days of 2028 are left after the 1st of March?").await?;
    ask(&agent, "And of 2029?").await?;
    Ok(())
}
