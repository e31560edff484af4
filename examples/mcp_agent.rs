//! The ReAct agent with the tools of an MCP server, around a model that needs no network.
//!
//! Shows: a server started as a program, the names of its tools, a call that reports its progress, and the reply; the server ends
//! with the program. To need no installation, the server is this program as well, a minimal implementation of the protocol over
//! stdin and stdout.
//!
//! `cargo run -p superstep --features mcp --example mcp_agent`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env,
    error::Error,
    io::{self, BufRead},
    sync::Arc,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::mcp::{Ask, McpConfig, McpServer};
use superstep::prelude::*;
use superstep_testing::{
    script::{call, txt},
    scripted::{ScriptedModel, tool_result},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    let this = env::current_exe()?.into_os_string().into_string().map_err(|_| "the path is no text")?;
    // Without an approver the agent would deny calls that require approval.
    let config = McpConfig { ask: Ask::Never, ..McpConfig::program(this, ["serve".to_owned()]) };
    let library = Arc::new(McpServer::connect("library", config).await?);
    let agent =
        Agent::builder(reader()).tool_source(library.clone()).config(ReactConfig::graph(5)).build()?;

    let mut turn = agent.without_thread().ask_stream("How many books of Lem are there?");
    while let Some(event) = turn.next().await {
        match event {
            AgentEvent::ToolStart { tool, args, .. } => println!("→ {tool} {args}"),
            AgentEvent::ToolOutput { chunk, .. } => print!("  {chunk}"),
            AgentEvent::ToolEnd { result, .. } => println!("← {result}"),
            _ => {}
        }
    }
    println!("{}", turn.reply().await?.text);
    library.close().await;
    Ok(())
}

/// Calls the first offered tool, and repeats its result. A real model is `superstep::llm::OpenAiModel`.
fn reader() -> ScriptedModel {
    ScriptedModel::from_fn(|request| match (tool_result(request), request.tools.first()) {
        (None, Some(tool)) => call("call_0", &tool.name, r#"{"author":"Lem"}"#),
        (result, _) => txt(&format!("The library says: {}", result.unwrap_or_default())),
    })
}

/// A server: a JSON-RPC message a line, until its stdin ends.
fn serve() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": request["params"]["protocolVersion"],
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
                let token = &request["params"]["_meta"]["progressToken"];
                for shelf in 1..=3 {
                    let so_far =
                        json!({"progressToken": token, "progress": shelf, "total": 3, "message": "shelves"});
                    println!(
                        "{}",
                        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": so_far})
                    );
                }
                let author = &request["params"]["arguments"]["author"];
                json!({"content": [{"type": "text", "text": format!("18 books of {author}")}]})
            }
            // Notifications have no answer.
            _ => continue,
        };
        println!("{}", json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }
    Ok(())
}
