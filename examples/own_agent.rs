//! A program with an agent of its own, which editors and the chat in the terminal use like `superstep` itself.
//!
//! Shows: `chat` and `acp` for an agent in code; a tool that waits for the decision of the user; the other commands on its threads.
//!
//! `cargo run -p superstep-cli --example own_agent`
//!
//! ```sh
//! export OPENAI_API_KEY=... OPENAI_BASE_URL=...
//! own_agent chat "Refund order 7, please."
//! own_agent acp
//! own_agent threads
//! ```

use std::{error::Error, process::ExitCode};

use superstep::{agent::AgentBuilder, llm::OpenAiModel, prelude::*};
use superstep_cli::Program;

/// Shows an order.
#[tool(idempotent)]
async fn order(number: u32) -> String {
    format!("order {number}: a kettle, 40 €, arrived broken")
}

/// Pays the money of an order back.
#[tool(ask = "Pay {euros} € back for order {number}?")]
async fn refund(number: u32, euros: u32) -> String {
    format!("{euros} € of order {number} are paid back")
}

fn support() -> Result<AgentBuilder, Box<dyn Error + Send + Sync>> {
    let model = std::env::var("OPENAI_MODEL").unwrap_or_else(|_| "gpt-5.2".to_owned());
    let prompt = "You answer the customers of a shop.";
    let agent = Agent::builder(OpenAiModel::from_env(model)?).config(ReactConfig::graph(25));
    Ok(agent.system_prompt(prompt).tools([order(), refund()]))
}

fn graph() -> Result<CompiledGraph<AgentState>, Box<dyn Error + Send + Sync>> {
    Ok(support()?.build()?.graph().clone())
}

fn main() -> ExitCode {
    Program::new("own_agent", graph()).about("Support of a shop.").agent(|_folder| support()).main()
}
