//! The cost of a round on a long conversation.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{Agent, ReactConfig},
    llm::{
        ChatModel, Delta, FinishReason, MessageData, Request, ResponseStream, Role, ToolCx, ToolSpec,
        convert::DerivedFrom, tool_fn,
    },
};

const ROUNDS: usize = 30;

/// The number of messages and lists of tools that were encoded for a provider.
static ENCODED: AtomicUsize = AtomicUsize::new(0);

/// A provider's form of a message or of the tools.
struct Encoded;

impl DerivedFrom<MessageData> for Encoded {
    fn derive(_: &MessageData) -> Self {
        ENCODED.fetch_add(1, Relaxed);
        Self
    }
}

impl DerivedFrom<[ToolSpec]> for Encoded {
    fn derive(_: &[ToolSpec]) -> Self {
        ENCODED.fetch_add(1, Relaxed);
        Self
    }
}

/// Calls its tool in each round, then answers.
struct Encodes;

impl ChatModel for Encodes {
    fn name(&self) -> &str {
        "encodes"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let done = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let before = ENCODED.load(Relaxed);
        for message in &request.messages {
            let _: &Encoded = message.derived();
        }
        let _: &Encoded = request.tools.derived();
        // The first request has the system prompt, the question and the tools; each later one a call and a result.
        let new = if done == 0 { 3 } else { 2 };
        assert_eq!(ENCODED.load(Relaxed) - before, new, "round {done}");
        let deltas = if done < ROUNDS {
            let call = Delta::ToolCall {
                index: 0,
                id: Some(format!("c{done}")),
                name: Some("look".into()),
                arguments: format!(r#"{{"at":{done}}}"#),
            };
            [call, Delta::Finish(FinishReason::ToolCalls)]
        } else {
            [Delta::Text("done".into()), Delta::Finish(FinishReason::Stop)]
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[tokio::test]
async fn a_round_encodes_its_new_messages_only() {
    let spec =
        ToolSpec { name: "look".into(), description: "Looks.".into(), parameters: json!({"type": "object"}) };
    let look = tool_fn(spec, |args: Value, _: ToolCx| async move { Ok(format!("seen {}", args["at"])) });
    let config = ReactConfig { system_prompt: "Be brief.".into(), ..ReactConfig::graph(100) };
    let agent = Agent::builder(Arc::new(Encodes)).config(config).tool(look);
    let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
    let end = agent.thread("t").run(agent.input("go")).await.unwrap();
    assert_eq!((end.state.final_reply.as_str(), end.state.current_step as usize), ("done", ROUNDS));
    assert_eq!(ENCODED.load(Relaxed), 3 + 2 * ROUNDS);
}
