//! The ReAct agent with the tools of an MCP server, around a model that needs no network.
//!
//! See: a server that is started as a program and asked for its tools, the names they get, a call that tells how far it is,
//! the reply; the server ends with the program. The server is this program as well, so that nothing has to be installed; what it
//! does with its stdin and stdout is all that the protocol asks of one.
//!
//! `cargo run -p superstep --features mcp --example mcp_agent`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env,
    error::Error,
    io::{self, BufRead},
    sync::Arc,
};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use superstep::{
    Event, StreamMode,
    agent::{Agent, AgentState, ReactConfig},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role},
    mcp::{Ask, McpConfig, McpServer},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    let this = env::current_exe()?.into_os_string().into_string().map_err(|_| "the path is no text")?;
    // Nobody is asked: the agent would deny its calls, for it was given no one to ask.
    let config = McpConfig { ask: Ask::Never, ..McpConfig::program(this, ["serve".to_owned()]) };
    let library = Arc::new(McpServer::connect("library", config).await?);
    let agent = Agent::builder(Arc::new(Reader))
        .tool_source(library.clone())
        .config(ReactConfig::graph(5))
        .build()?;

    let mut run = agent.without_thread().ask_stream("How many books of Lem are there?", StreamMode::Custom);
    while let Some(event) = run.next().await {
        if let Event::<AgentState>::Custom { name, data, .. } = event {
            match name {
                "tool_start" => println!("→ {} {}", data["tool"], data["args"]),
                "tool_output" => print!("  {}", data["chunk"].as_str().unwrap_or_default()),
                "tool_end" => println!("← {}", data["result"]),
                _ => {}
            }
        }
    }
    println!("{}", run.outcome().await?.state.final_reply);
    library.close().await;
    Ok(())
}

/// Calls the first tool it is offered, and says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Reader;

impl ChatModel for Reader {
    fn name(&self) -> &str {
        "reader"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let told = request.messages.last().filter(|last| last.role == Role::Tool);
        let deltas = match (told, request.tools.first()) {
            (None, Some(tool)) => {
                let call = Delta::ToolCall {
                    index: 0,
                    id: Some("call_0".into()),
                    name: Some(tool.name.clone()),
                    arguments: r#"{"author":"Lem"}"#.into(),
                };
                vec![call, Delta::Finish(FinishReason::ToolCalls)]
            }
            (told, _) => {
                let text =
                    told.map_or_else(String::new, |told| format!("The library says: {}", told.content));
                vec![Delta::Text(text), Delta::Finish(FinishReason::Stop)]
            }
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

/// A server: a JSON-RPC message a line, until its stdin ends.
fn serve() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "library", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{
                "name": "count_books",
                "description": "Counts the books of an author.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"author": {"type": "string"}},
                    "required": ["author"],
                },
                "annotations": {"readOnlyHint": true},
            }]}),
            Some("tools/call") => {
                let token = &asked["params"]["_meta"]["progressToken"];
                for shelf in 1..=3 {
                    let so_far =
                        json!({"progressToken": token, "progress": shelf, "total": 3, "message": "shelves"});
                    println!(
                        "{}",
                        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": so_far})
                    );
                }
                let author = &asked["params"]["arguments"]["author"];
                json!({"content": [{"type": "text", "text": format!("18 books of {author}")}]})
            }
            // Notifications have no answer.
            _ => continue,
        };
        println!("{}", json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    }
    Ok(())
}
