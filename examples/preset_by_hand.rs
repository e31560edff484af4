//! A custom design of a ReAct loop as a value: only the fields that differ from the default are set.
//!
//! Shows: the design as a configuration file, a turn that ends by its rules, and the same design read from that file.
//!
//! `cargo run -p superstep --example preset_by_hand`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use superstep::agent::config::{AtLimit, Limit, LimitUnit, LoopAction, LoopRule, Repeat, ToolMode};
use superstep::{llm::tool_fn, prelude::*};
use superstep_testing::{
    script::{call, txt},
    scripted::ScriptedModel,
};

/// A careful design: few rounds, one tool after the other, the second identical call is refused, and a summary at the limit.
fn careful() -> ReactConfig {
    let limit = Limit {
        max: 3,
        unit: LimitUnit::ToolRounds,
        at: AtLimit::NoToolsCall { hint: Some("Say what you know by now.".into()) },
    };
    let loops = vec![LoopRule { when: Repeat::Identical { n: 2 }, then: LoopAction::Refuse }];
    ReactConfig { limit, loops, tool_mode: ToolMode::Sequential, ..ReactConfig::default() }
}

#[derive(Deserialize, JsonSchema)]
struct Look {
    /// The place to search.
    place: String,
}

/// Searches the same place as long as a tool is offered. A real model is `superstep::llm::OpenAiModel`.
fn stubborn() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        if request.tools.is_empty() {
            return txt("They are not in the drawer.");
        }
        call(&format!("call_{}", request.messages.len()), "look", r#"{"place":"drawer"}"#)
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Look>("look", "Looks somewhere.");
    let look = tool_fn(spec, |args: Look, _| async move { Ok(format!("Nothing in the {}.", args.place)) });
    let agent = Agent::builder(stubborn()).tool(look).config(careful()).build()?;
    let reply = agent.ask("Where are my keys?").await?;
    println!("{}: {}", reply.metadata.stop_reason, reply.text);
    assert_eq!(reply.outcome, AgentOutcome::Limit);
    // Three rounds, of which only the first call ran.
    assert_eq!((reply.metadata.steps_taken, reply.metadata.tools_used.len()), (3, 1));

    // A file contains only the differences: `superstep run --config careful.toml` reads the same as TOML.
    let file = json!({
        "preset": "default",
        "tool_mode": "sequential",
        "limit": { "max": 3, "at": { "no_tools_call": { "hint": "Say what you know by now." } } },
        "loops": [{ "when": { "identical": { "n": 2 } }, "then": "refuse" }],
    });
    println!("{}", serde_json::to_string_pretty(&careful().limit)?);
    println!("{}", serde_json::to_string_pretty(&careful().loops)?);
    assert_eq!(ReactConfig::read(file)?, careful());
    Ok(())
}
