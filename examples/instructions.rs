//! An agent that reads `AGENTS.md` and skills of a folder.
//!
//! Shows: the instructions of the folder are in the system prompt; those of a folder below follow when a tool touches it; a
//! skill is listed by its description, and its text is loaded by its name in a prompt.
//!
//! `cargo run -p superstep --features workspace-tools --example instructions`

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use futures::StreamExt;
use superstep::{
    MemoryCheckpointer,
    agent::{Agent, AgentEvent},
    tools::{FolderInstructions, Workspace, read_file},
};
use superstep_testing::{
    script::{call, txt},
    scripted::{ScriptedModel, tool_result},
};

/// Reads a file, and answers. A real model is `superstep::llm::OpenAiModel`.
fn model() -> ScriptedModel {
    ScriptedModel::from_fn(|request| match tool_result(request) {
        Some(_) => txt("Done."),
        None => call("c1", "read_file", r#"{"path":"api/routes.txt"}"#),
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let at = |path: &str| folder.path().join(path);
    write(&at("AGENTS.md"), "Answer in one sentence.")?;
    write(&at("api/AGENTS.md"), "Routes are sorted by path.")?;
    write(&at("api/routes.txt"), "/a\n/b\n")?;
    let skill = "---\nname: release\ndescription: How a version is released.\n---\nTag first.";
    write(&at(".agents/skills/release/SKILL.md"), skill)?;

    // The example made the folder. A program asks its user, and stores the paths and hashes.
    let instructions = FolderInstructions::new(folder.path(), |_path, _hash| true)?;
    let model = Arc::new(model());
    let agent = Agent::builder(model.clone())
        .tool(read_file(&Workspace::open(folder.path())?))
        .instructions(instructions)
        .checkpointer(MemoryCheckpointer::new())
        .build()?;
    let mut out = io::stdout();
    let mut turn = agent.thread("t").ask_stream("Add a route, then use $release.");
    while let Some(event) = turn.next().await {
        if let AgentEvent::InstructionsLoaded { path, .. } = event {
            let path = Path::new(&path).strip_prefix(folder.path().canonicalize()?)?.to_owned();
            writeln!(out, "read {}", path.display())?;
        }
    }
    let requests = model.requests();
    for message in requests.iter().flat_map(|request| &request.messages).skip(1) {
        writeln!(out, "\n{:?}: {}", message.role, message.content.lines().next().unwrap_or_default())?;
    }
    Ok(())
}
