//! An agent that waits until somebody outside has decided about its tool calls.
//!
//! See: the turn stops with a question for each call that needs one, while the others have run; another process, which has
//! nothing but the database, brings the decisions, and the turn goes on where it stopped; what was permitted for good is not
//! asked again.
//!
//! `cargo run -p superstep --example approvals`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, stream};
use superstep::{
    Answers,
    agent::{Agent, AgentOutcome, Approval, ReactConfig},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, tool},
    sqlite::SqliteCheckpointer,
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

/// Sends two mails and looks something up, whenever somebody says something to it.
struct Secretary;

impl ChatModel for Secretary {
    fn name(&self) -> &str {
        "secretary"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let turns = request.messages.iter().filter(|message| message.role == Role::User).count();
        let call = |index, name: &str, arguments: &str| Delta::ToolCall {
            index,
            id: Some(format!("call_{turns}{index}")),
            name: Some(name.into()),
            arguments: arguments.into(),
        };
        let is_told = request.messages.last().is_some_and(|last| last.role == Role::Tool);
        let deltas = match is_told {
            true => vec![Delta::Text("Done.".into()), Delta::Finish(FinishReason::Stop)],
            false => vec![
                call(0, "send", r#"{"to":"ada"}"#),
                call(1, "address", r#"{"of":"grace"}"#),
                call(2, "send", r#"{"to":"bob"}"#),
                Delta::Finish(FinishReason::ToolCalls),
            ],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

/// A program that was just started: it has the database and nothing else.
fn program(database: &Path) -> Result<Agent, Box<dyn Error>> {
    let agent = Agent::builder(Arc::new(Secretary))
        .tools([send(), address()])
        .config(ReactConfig::graph(5))
        .checkpointer(Arc::new(SqliteCheckpointer::open(database)?))
        .approve_by_interrupt();
    Ok(agent.build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("threads.db");

    let asked = program(&database)?.thread("mail").ask("Write to both.").await?;
    assert_eq!(asked.outcome, Some(AgentOutcome::AwaitingApproval));
    for interrupt in &asked.interrupts {
        println!("{}: {}", interrupt.key, interrupt.question["question"]);
    }

    // Days later, in another process. Several calls may be decided in any order, at once or one by one.
    let to_ada = Approval::AlwaysFor([("to".to_owned(), "ada".to_owned())].into());
    let answers =
        Answers::new().answer("call_12", Approval::Deny("not today".into())).answer("call_10", to_ada);
    let reply = program(&database)?.thread("mail").answers(answers).resume().await?;
    println!("{} {} mail was sent", reply.final_reply, SENT.load(Ordering::Relaxed));
    assert_eq!((reply.outcome, SENT.load(Ordering::Relaxed)), (Some(AgentOutcome::Completed), 1));

    let again = program(&database)?.thread("mail").ask("Once more.").await?;
    println!("still asked about: {}", again.interrupts[0].question["args"]);
    assert_eq!((again.interrupts.len(), SENT.load(Ordering::Relaxed)), (1, 2));
    Ok(())
}
