//! An agent that consolidates its memory after three turns, with scripted models that need no network.
//!
//! Shows: the records of the history, the events of the consolidation, and a `MEMORY.md` with an outdated line replaced.
//!
//! `cargo run -p superstep --features workspace-tools --example dream`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, fs};

use futures::{StreamExt, stream};
use superstep::prelude::*;
use superstep::{
    agent::facades::cococat::AgentLoop,
    memory::{DreamConfig, DreamEvent, Dreams, HistoryFiles, HistoryPlace, MemoryFiles},
};

/// Confirms messages; for a consolidation it reads the memory and changes a line of it. A real one is
/// `superstep::llm::OpenAiModel`, which decides by itself which facts it stores.
struct Sleeper;

impl ChatModel for Sleeper {
    fn name(&self) -> &str {
        "sleeper"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let call = |name: &str, arguments: &str| {
            let (id, name) = (Some(format!("call_{name}")), Some(name.to_owned()));
            vec![
                Delta::ToolCall { index: 0, id, name, arguments: arguments.to_owned() },
                Delta::Finish(FinishReason::ToolCalls),
            ]
        };
        let say = |text: &str| vec![Delta::Text(text.to_owned()), Delta::Finish(FinishReason::Stop)];
        let results = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let deltas = match results {
            _ if request.tools.is_empty() => say("Noted."),
            0 => call("read_file", r#"{"path": "MEMORY.md"}"#),
            1 => call(
                "edit_file",
                r#"{"path": "MEMORY.md", "old": "- lives in Oslo", "new": "- lives in Lisbon, with a cat"}"#,
            ),
            _ => say("The home has changed, and there is a cat."),
        };
        stream::iter(deltas.into_iter().map(Ok)).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let history = HistoryFiles::new(folder.path(), "history")?;
    let memory = MemoryFiles::new(folder.path(), "memory")?;
    let file = memory.file_of("ada")?;
    fs::write(&file, "# Memory\n\n- lives in Oslo\n- likes tea\n")?;

    let agent = Agent::builder(Sleeper).checkpointer(MemoryCheckpointer::new());
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
