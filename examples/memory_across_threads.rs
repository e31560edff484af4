//! An agent with a memory across threads, with a scripted model that needs no network.
//!
//! Shows: facts stored at the user's request and at the model's, the search of the memory on another thread before the model call,
//! and another user's thread without access to them.
//!
//! `cargo run -p superstep --example memory_across_threads`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use superstep::{
    agent::{
        config::Retrieve,
        deps::{LongTermMemory, MemoryTrigger},
    },
    memory::{StoreMemory, memory_tools},
};
use superstep::{llm::Role, prelude::*, sqlite::SqliteStore};
use superstep_testing::{
    script::{call, txt},
    scripted::ScriptedModel,
};

/// Records a fact about a cat, and otherwise repeats the found facts. A real model is `superstep::llm::OpenAiModel`.
fn clerk() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        let last = request.messages.last().expect("a request has messages");
        if last.role == Role::User && last.content.contains("my cat") {
            let fact = r#"{"thinking": "a pet matters", "content": ["The user's cat is called Mia."]}"#;
            return call("call_1", "record_to_memory", fact);
        }
        let known = last.content.lines().filter(|line| line.starts_with("- ")).collect::<Vec<_>>();
        if known.is_empty() { txt("I know nothing of it.") } else { txt(&known.join("; ")) }
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let memory = Arc::new(StoreMemory::new(SqliteStore::in_memory()?));
    let agent = Agent::builder(clerk())
        .memory(MemoryTrigger::new(memory.clone()))
        .tools(memory_tools(memory.clone()))
        .config(ReactConfig { retrieve: Some(Retrieve::default()), ..ReactConfig::default() })
        .checkpointer(MemoryCheckpointer::new())
        .build()?;
    let ask = async |thread: &str, user: &str, text: &str| {
        let input = agent.input(text).user_id(user);
        let end = agent.thread(thread).run(input).await?;
        println!("{thread}, {user}: {text}\n  {}", Reply::from(end).text.replace('\n', "\n  "));
        Ok::<_, Box<dyn Error>>(())
    };

    ask("monday", "ada", "Remember that I drink green tea.").await?;
    ask("monday", "ada", "By the way, my cat is called Mia.").await?;
    ask("tuesday", "ada", "Which tea do I drink, and what is the cat's name?").await?;
    ask("wednesday", "bob", "Which tea do I drink?").await?;

    for entry in memory.list("ada", 10).await? {
        println!("remembered of ada: {}", entry.text);
    }
    Ok(())
}
