//! An agent that knows on Tuesday what it was told on Monday, with a scripted model that needs no network.
//!
//! See: what is stored because the user asks for it and because the model wants it, what is looked up on another thread before the
//! model is asked, and that another user's thread knows nothing of it.
//!
//! `cargo run -p superstep --example memory_across_threads`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use futures::{StreamExt, stream};
use superstep::{
    agent::{Agent, LongTermMemory, MemoryTrigger, ReactConfig, Reply, Retrieve},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role},
    memory::{StoreMemory, memory_tools},
    prelude::*,
    sqlite::SqliteStore,
};

/// Records that somebody has a cat, and otherwise says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Clerk;

impl ChatModel for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let last = request.messages.last().expect("a request has messages");
        let deltas = if last.role == Role::User && last.content.contains("my cat") {
            let call = Delta::ToolCall {
                index: 0,
                id: Some("call_1".into()),
                name: Some("record_to_memory".into()),
                arguments: r#"{"thinking": "a pet matters", "content": ["The user's cat is called Mia."]}"#
                    .into(),
            };
            vec![call, Delta::Finish(FinishReason::ToolCalls)]
        } else {
            let known = last.content.lines().filter(|line| line.starts_with("- ")).collect::<Vec<_>>();
            let text = if known.is_empty() { "I know nothing of it.".into() } else { known.join("; ") };
            vec![Delta::Text(text), Delta::Finish(FinishReason::Stop)]
        };
        stream::iter(deltas.into_iter().map(Ok)).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let memory: Arc<dyn LongTermMemory> = Arc::new(StoreMemory::new(Arc::new(SqliteStore::in_memory()?)));
    let agent = Agent::builder(Arc::new(Clerk))
        .memory(MemoryTrigger::new(memory.clone()))
        .tools(memory_tools(memory.clone()))
        .config(ReactConfig { retrieve: Some(Retrieve::default()), ..ReactConfig::default() })
        .checkpointer(Arc::new(MemoryCheckpointer::new()))
        .build()?;
    let ask = async |thread: &str, user: &str, text: &str| {
        let input = agent.input(text).user_id(user);
        let end = agent.thread(thread).run(input).await?;
        println!("{thread}, {user}: {text}\n  {}", Reply::from(end).final_reply.replace('\n', "\n  "));
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
