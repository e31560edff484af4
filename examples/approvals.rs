//! An agent that waits for decisions about its tool calls.
//!
//! Shows: the turn is interrupted once for each call that requires approval, and the other calls run; another process, which
//! has only the database, resumes it with the decisions; a call that was permitted permanently needs no second approval.
//!
//! `cargo run -p superstep --example approvals`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use superstep::{llm::Role, prelude::*};
use superstep_testing::{
    script::{calls, txt},
    scripted::{ScriptedModel, tool_result},
};

static SENT: AtomicUsize = AtomicUsize::new(0);

/// Sends a mail.
#[tool(ask = "Send a mail to {to}?")]
async fn send(to: String) -> String {
    SENT.fetch_add(1, Ordering::Relaxed);
    format!("sent to {to}")
}

/// Looks an address up.
#[tool(idempotent)]
async fn address(of: String) -> String {
    format!("{of}@example.org")
}

/// Answers each user message with two mails and a lookup. A real model is `superstep::llm::OpenAiModel`.
fn secretary() -> ScriptedModel {
    ScriptedModel::from_fn(|request| {
        if tool_result(request).is_some() {
            return txt("Done.");
        }
        let turn = request.messages.iter().filter(|message| message.role == Role::User).count();
        let ids = [0, 1, 2].map(|index| format!("call_{turn}{index}"));
        calls([
            (&*ids[0], "send", r#"{"to":"ada"}"#),
            (&*ids[1], "address", r#"{"of":"grace"}"#),
            (&*ids[2], "send", r#"{"to":"bob"}"#),
        ])
    })
}

/// A newly started process, which has only the database.
fn program(database: &Path) -> Result<Agent, Box<dyn Error>> {
    let agent = Agent::builder(secretary())
        .tools([send(), address()])
        .config(ReactConfig::graph(5))
        .checkpointer(SqliteCheckpointer::open(database)?)
        .approve_by_interrupt();
    Ok(agent.build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("threads.db");

    let interrupted = program(&database)?.thread("mail").ask("Write to both.").await?;
    assert_eq!(interrupted.outcome, AgentOutcome::AwaitingApproval);
    for interrupt in &interrupted.interrupts {
        println!("{}: {}", interrupt.key, interrupt.question["question"]);
    }

    // Days later, in another process. Decisions may come in any order, together or one by one.
    let to_ada = Approval::always_for([("to", "ada")]);
    let answers =
        Answers::new().answer("call_12", Approval::Deny("not today".into())).answer("call_10", to_ada);
    let reply = program(&database)?.thread("mail").answers(answers).resume().await?;
    println!("{} {} mail was sent", reply.text, SENT.load(Ordering::Relaxed));
    assert_eq!((reply.outcome, SENT.load(Ordering::Relaxed)), (AgentOutcome::Completed, 1));

    let again = program(&database)?.thread("mail").ask("Once more.").await?;
    println!("approval is still required for: {}", again.interrupts[0].question["args"]);
    assert_eq!((again.interrupts.len(), SENT.load(Ordering::Relaxed)), (1, 2));
    Ok(())
}
