//! An agent with three guards: one of its own, secrets, and the size of the input.
//!
//! Shows: a blocked input, an answer of which a secret is removed before anybody reads it, and the stored verdicts.
//!
//! `cargo run -p superstep --example guardrails`

use std::{
    error::Error,
    io::{Write, stdout},
};

use futures::StreamExt;
use superstep::{
    agent::guards::{Guard, GuardAt, OnSecret, Verdict, View},
    prelude::*,
};
use superstep_testing::{script::Answer, scripted::ScriptedModel};

/// Answers with a key. A real model is `superstep::llm::OpenAiModel`.
fn careless() -> ScriptedModel {
    ScriptedModel::from_fn(|_| {
        let words = ["Use the key ", "correct-horse-battery", " for that."];
        Answer::stream().text(words).end("stop").usage(20, 5).done()
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A guard of one's own is an async function of the text.
    let weather = Guard::new("no_weather", GuardAt::Input, async |view: View| {
        Ok(match view.text.contains("weather") {
            true => Verdict::Block { reply: "I do not talk about the weather.".to_owned() },
            false => Verdict::Pass,
        })
    });
    let secrets = Guard::secrets(GuardAt::Output, OnSecret::Redact, ["correct-horse-battery"]);
    let agent = Agent::builder(careless())
        .guard(Guard::size(GuardAt::Input, 1_000))
        .guard(weather)
        .guard(secrets.hold())
        .checkpointer(MemoryCheckpointer::new())
        .build()?;
    let mut out = stdout();
    write!(out, "{}", agent.graph().topology().text())?;

    let blocked = agent.thread("a").ask("How is the weather?").await?;
    writeln!(out, "{} ({})", blocked.text, blocked.metadata.stop_reason)?;
    assert_eq!(blocked.outcome, AgentOutcome::Guarded);
    assert_eq!(blocked.metadata.stop_reason.as_str(), "guardrail:no_weather");

    // What the guard holds back is streamed once it is accepted, without the key.
    let mut turn = agent.thread("b").ask_stream("How do I log in?");
    let mut streamed = String::new();
    while let Some(event) = turn.next().await {
        if let AgentEvent::LlmToken { token, .. } = event {
            streamed.push_str(&token);
        }
    }
    writeln!(out, "{streamed}")?;
    assert_eq!(streamed, "Use the key [secret] for that.");
    assert_eq!(turn.reply().await?.text, streamed);

    for verdict in &agent.thread("b").state().await?.values.verdicts {
        writeln!(out, "{}: {:?}", verdict.guard, verdict.verdict)?;
    }
    Ok(())
}
