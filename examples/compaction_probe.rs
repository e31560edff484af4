//! Plays a conversation and prints what the model still receives after each compaction, when its summaries forget everything.
//!
//! Shows: pins, and a summary on request.
//!
//! `cargo run -p superstep --features openai --example compaction_probe`
//!
//! Each line of stdin is a round, such as `{"say": [{"text": "Never push.", "pin": "rule", "id": "push"}, {"text": "Hello."}]}`:
//! messages of the user, of which some are pinned, and then a requested summary; `user_messages` of the
//! first one is the [share](superstep::agent::config::Keep::user_messages) of the window for the user's messages. Each line of stdout has
//! the texts of the next request. `tests/it/compaction` lets a kit from PyPI grade them. With `OPENAI_MODEL`, and `OPENAI_BASE_URL` for a
//! server of one's own, this model writes the summaries.

use std::{
    env,
    io::{BufRead as _, Write as _},
    sync::{Arc, Mutex},
};

use futures::stream;
use serde::Deserialize;
use serde_json::json;
use superstep::{
    agent::{
        Agent, AgentState, ReactConfig,
        config::{Pin, PinKind},
    },
    llm::{Delta, FinishReason, Request, ResponseStream},
    prelude::*,
};

#[derive(Deserialize)]
struct Round {
    say: Vec<Said>,
    user_messages: Option<f64>,
}

#[derive(Deserialize)]
struct Said {
    text: String,
    pin: Option<PinKind>,
    #[serde(default)]
    id: String,
}

/// A model that stores the texts of the last request.
struct Probe {
    last: Mutex<String>,
    /// The model that writes the summaries. Without it they have nothing of the conversation.
    summarizer: Option<OpenAiModel>,
}

impl ChatModel for Probe {
    fn name(&self) -> &str {
        "probe"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let texts: Vec<_> = request.messages.iter().map(|message| message.content.as_str()).collect();
        let is_summary = texts.last().is_some_and(|text| text.contains("<conversation>"));
        if !is_summary && let Ok(mut last) = self.last.lock() {
            *last = texts.join("\n\n");
        }
        let text = match &self.summarizer {
            Some(model) if is_summary => return model.stream(request),
            None if is_summary => "The user and the assistant talked.",
            _ => "Noted.",
        };
        Box::pin(stream::iter([Ok(Delta::Text(text.to_owned())), Ok(Delta::Finish(FinishReason::Stop))]))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let summarizer = env::var("OPENAI_MODEL").ok().map(OpenAiModel::from_env).transpose()?;
    let model = Arc::new(Probe { last: Mutex::default(), summarizer });
    let mut agent: Option<Agent> = None;
    for line in std::io::stdin().lock().lines() {
        let round: Round = serde_json::from_str(&line?)?;
        let agent = match &agent {
            Some(agent) => agent,
            None => {
                let mut config = ReactConfig::default();
                config.context.window = Some(20_000);
                config.context.keep.user_messages =
                    round.user_messages.unwrap_or(config.context.keep.user_messages);
                let store = MemoryCheckpointer::new();
                let agent =
                    agent.insert(Agent::builder(model.clone()).config(config).checkpointer(store).build()?);
                agent.thread("probe").ask("Let us begin.").await?;
                agent
            }
        };
        let thread = agent.graph().thread("probe");
        let answered = |said: &Said| [Message::user(&said.text), Message::assistant("Noted.")];
        let messages: Vec<_> = round.say.iter().flat_map(answered).collect();
        thread.update(AgentState::update().messages(messages)).await?;
        for Said { text, pin, id } in round.say {
            if let Some(kind) = pin {
                thread.update(AgentState::pin([Pin::new(kind, text).with_id(id)])).await?;
            }
        }
        thread.run(agent.input("Go on.").compact(true)).await?;
        let sent = model.last.lock().map_err(|_| "the model panicked")?.clone();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", json!({ "text": sent }))?;
        out.flush()?;
    }
    Ok(())
}
