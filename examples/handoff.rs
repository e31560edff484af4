//! A supervisor that transfers the conversation to specialists, who transfer it back.
//!
//! Shows: the graph of all agents, the active agent of a thread, and the view of a specialist.
//!
//! `cargo run -p superstep --example handoff`

use std::{
    error::Error,
    io::{Write, stdout},
};

use superstep::{
    agent::deps::{Handoff, HandoffView},
    llm::{Request, Role},
    prelude::*,
};
use superstep_testing::{script::Answer, scripted::ScriptedModel};

/// Transfers the conversation with the tool of the first rule whose word the user said, and answers otherwise. A real model is
/// `superstep::llm::OpenAiModel`.
fn model(rules: &'static [(&'static str, &'static str)], answer: &'static str) -> ScriptedModel {
    ScriptedModel::from_fn(move |request: &Request| {
        let said = request.messages.iter().rfind(|message| message.role == Role::User);
        let said = said.map_or("", |message| message.content.as_str());
        let is_offered = |tool: &str| request.tools.iter().any(|offered| offered.name == tool);
        let rule = rules.iter().find(|(word, tool)| said.contains(word) && is_offered(tool));
        let answer = match rule {
            Some((word, tool)) => {
                let reason = format!(r#"{{"reason":"{word}"}}"#);
                Answer::stream().call(0, "c1", tool, [reason.as_str()]).end("tool_calls")
            }
            None => Answer::stream().text([answer]).end("stop"),
        };
        answer.usage(20, 5).done()
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let billing = Agent::builder(model(&[("parcel", "transfer_back")], "The invoice is paid."))
        .system_prompt("You answer questions about invoices.")
        .build()?;
    let shipping = Agent::builder(model(&[("invoice", "transfer_back")], "The parcel comes today."))
        .system_prompt("You answer questions about parcels.")
        .build()?;
    let rules = &[("invoice", "transfer_to_billing"), ("parcel", "transfer_to_shipping")];
    let back = "when it is about something else";
    let supervisor = Agent::builder(model(rules, "What is it about?"))
        .system_prompt("You find out what the user needs.")
        .handoff(Handoff::new("billing", "when it is about an invoice", &billing).back(back))
        .handoff(
            Handoff::new("shipping", "when it is about a parcel", &shipping)
                .back(back)
                .view(HandoffView::NoToolRounds),
        )
        .checkpointer(MemoryCheckpointer::new())
        .build()?;
    let mut out = stdout();
    write!(out, "{}", supervisor.graph().topology().text())?;

    let thread = supervisor.thread("ada");
    let turns = [
        ("Hello!", "What is it about?", ""),
        ("About my invoice.", "The invoice is paid.", "billing"),
        ("Thank you.", "The invoice is paid.", "billing"),
        ("And where is my parcel?", "The parcel comes today.", "shipping"),
    ];
    for (text, reply, active) in turns {
        let turn = thread.ask(text).await?;
        let state = thread.state().await?.values;
        writeln!(out, "> {text}\n{} [{}]", turn.text, state.active)?;
        assert_eq!((turn.text.as_str(), state.active.as_str()), (reply, active));
    }
    Ok(())
}
