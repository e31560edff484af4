//! An agent that consolidates its memory after three turns, with scripted models that need no network.
//!
//! Shows: the records of the history, the events of the consolidation, and a `MEMORY.md` with an outdated line replaced.
//!
//! `cargo run -p superstep --features workspace-tools --example dream`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, fs};

use superstep::{
    agent::facades::cococat::AgentLoop,
    memory::{DreamConfig, DreamEvent, Dreams, HistoryFiles, HistoryPlace, MemoryFiles},
};
use superstep::{llm::Role, prelude::*};
use superstep_testing::{
    script::{call, txt},
    scripted::ScriptedModel,
};

/// Confirms messages; for a consolidation it reads the memory and changes a line of it. A real model is
/// `superstep::llm::OpenAiModel`, which decides by itself which facts it stores.
fn sleeper() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        let results = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        match results {
            _ if request.tools.is_empty() => txt("Noted."),
            0 => call("call_0", "read_file", r#"{"path": "MEMORY.md"}"#),
            1 => call(
                "call_1",
                "edit_file",
                r#"{"path": "MEMORY.md", "old": "- lives in Oslo", "new": "- lives in Lisbon, with a cat"}"#,
            ),
            _ => txt("The home has changed, and there is a cat."),
        }
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let history = HistoryFiles::new(folder.path(), "history")?;
    let memory = MemoryFiles::new(folder.path(), "memory")?;
    let file = memory.file_of("ada")?;
    fs::write(&file, "# Memory\n\n- lives in Oslo\n- likes tea\n")?;

    let agent = Agent::builder(sleeper()).checkpointer(MemoryCheckpointer::new());
    let dreams = Dreams::new(agent.clone(), history.clone(), memory, DreamConfig::default())?;
    let dreams = dreams.listener(|event| match event {
        DreamEvent::DreamBegun { turns, .. } => println!("  a dream of {turns} turns"),
        DreamEvent::DreamEnded { outcome, .. } => println!("  its end: {}", outcome.as_str()),
        DreamEvent::Agent(event) => {
            if let AgentEvent::ToolStart { tool, args, .. } = *event {
                println!("  {tool} {args}");
            }
        }
        _ => {}
    });
    let agent = AgentLoop::new(agent.history(history.clone()))?.after_turn(dreams);
    for (thread, text) in
        [("monday", "I moved to Lisbon."), ("tuesday", "Hi!"), ("friday", "I have a cat now.")]
    {
        println!("{thread}: {text}");
        agent.run_with(text, "ada", RunOptions::new().thread(thread)).await?;
    }

    for turn in history.read("ada", HistoryPlace::default(), 10, 1 << 20).await?.turns {
        println!("history: {} said {:?}", turn.user_id, turn.user);
    }
    let memory = fs::read_to_string(file)?;
    print!("{memory}");
    assert_eq!(memory, "# Memory\n\n- lives in Lisbon, with a cat\n- likes tea\n");
    Ok(())
}
