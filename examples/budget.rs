//! A budget: a researcher that would search for ever, an agent that may spend 1,200 tokens and three searches, and an answer
//! all the same.
//!
//! See: three searches, the warning beyond four fifths, the last question without tools, and why the turn ended.
//!
//! `cargo run -p superstep --example budget`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use futures::{StreamExt, stream};
use superstep::{
    Event, StreamMode,
    agent::{Agent, AgentOutcome, AgentState, Budget, ReactConfig},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, Usage, tool},
};

/// Searches the library.
#[tool(idempotent)]
async fn search(query: String) -> String {
    format!("Three more books about {query}.")
}

/// Searches as long as it is offered a tool. A real one is `superstep::llm::OpenAiModel`.
struct Researcher;

impl ChatModel for Researcher {
    fn name(&self) -> &str {
        "researcher"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let searches = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let says = match request.tools.is_empty() {
            false => Delta::ToolCall {
                index: 0,
                id: Some(format!("call_{searches}")),
                name: Some("search".into()),
                arguments: format!(r#"{{"query": "tea, part {searches}"}}"#),
            },
            true => Delta::Text(format!("After {searches} answers: there are many books about tea.")),
        };
        let usage = Delta::Usage(Usage { input_tokens: 200, output_tokens: 50 });
        stream::iter([says, usage, Delta::Finish(FinishReason::Stop)]).map(Ok).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let budget =
        Budget { tokens: Some(1_200), tool_calls: Some(3), reserve_final: true, ..Budget::default() };
    let agent = Agent::builder(Arc::new(Researcher))
        .tools([search()])
        .config(ReactConfig { budget, loops: Vec::new(), ..ReactConfig::default() })
        .build()?;
    let mut run = agent.without_thread().ask_stream("What about tea?", [StreamMode::Custom]);
    while let Some(event) = run.next().await {
        if let Event::Custom { name: name @ ("tool_end" | "budget_warning"), data, .. } = event {
            println!("{name:14} {data}");
        }
    }
    let AgentState { outcome, final_reply, metadata, usage, .. } = run.outcome().await?.state;
    let tokens = usage.input_tokens + usage.output_tokens;
    println!("{final_reply} ({}, {tokens} tokens)", metadata.stop_reason);
    assert_eq!(outcome, Some(AgentOutcome::Budget));
    assert_eq!(metadata.tools_used.len(), 3);
    Ok(())
}
