//! Dreams behind a turn, and on demand.

use superstep::{
    agent::AgentOutcome,
    memory::{Dream, DreamEnd, DreamResult, Dreams},
};
use tokio_util::sync::CancellationToken;

use crate::{
    offline::planner::OFFLINE,
    output::{
        exit::{Exit, Failure},
        run_output::Output,
        text::{indented, printable_line},
    },
    session::{
        dream_thread::failed,
        setup::{Basis, Setup},
        signals,
    },
};

impl Setup<'_> {
    /// Records the end of the thread, dreams if the turn is done and a dream is due, then shuts down the servers.
    pub(crate) async fn close(&self, exit: Result<Exit, Failure>) -> Result<Exit, Failure> {
        self.location.anchor(&*self.store, self.thread(), &exit).await;
        if let (Ok(Exit::Ok), Some(dreams)) = (&exit, &self.dreams) {
            after_turn(dreams, &self.basis, &self.cancel, &mut *self.output()).await;
        }
        self.close_servers().await;
        exit
    }
}

/// Dreams after a turn, if due. The result is reported and does not affect the turn.
async fn after_turn(dreams: &Dreams, basis: &Basis, cancel: &CancellationToken, output: &mut dyn Output) {
    let (Some(user), true) = (&basis.user, basis.choice.name != OFFLINE) else { return };
    let dreamt = match run(dreams, user, false, basis, cancel).await {
        Ok(DreamResult::NotDue { .. } | DreamResult::Busy) => return,
        Ok(DreamResult::Ended(dream)) => ended(user, &dream),
        Err(failure) => Err(failure),
    };
    match dreamt {
        Ok(text) => output.note(&text),
        Err(Failure { message, .. }) => output.note(&format!("no dream: {message}")),
    }
}

/// Dreams until it ends, or Ctrl-C ends it.
pub(crate) async fn run(
    dreams: &Dreams,
    user: &str,
    now: bool,
    basis: &Basis,
    cancel: &CancellationToken,
) -> Result<DreamResult, Failure> {
    let options = basis.run_on(&Dreams::thread(user), cancel)?;
    let watch = tokio::spawn(signals::watch(cancel.clone()));
    let dreamt = match now {
        true => dreams.dream_now(user, options).await,
        false => dreams.dream_if_due(user, options).await,
    };
    watch.abort();
    dreamt.map_err(failed)
}

/// Returns the report of a dream, or its failure.
pub(crate) fn ended(user: &str, dream: &Dream) -> Result<String, Failure> {
    let (name, turns) = (printable_line(user), turns(dream.turns));
    let wait = format!("{} for another dream", waits(user, dream.turns));
    let reply = indented(dream.reply.trim());
    match dream.outcome {
        Some(AgentOutcome::Completed) if dream.end == DreamEnd::LastCallFailed => Err(Failure::new(
            Exit::Failed,
            format!("the dream gave up after a call that failed: {reply}\n{wait}"),
        )),
        // The next dream reads them again.
        Some(AgentOutcome::Completed) if dream.end == DreamEnd::NothingChanged => {
            Ok(format!("the dream changed nothing: {reply}\n{wait}"))
        }
        Some(AgentOutcome::Completed) => {
            Ok(format!("consolidated {turns} of `{name}`: {reply}").trim_end_matches([':', ' ']).to_owned())
        }
        Some(AgentOutcome::LlmError) => {
            let error = indented(dream.error.as_deref().unwrap_or("no reason was stored"));
            Err(Failure::new(Exit::Model, format!("the model call of a dream failed: {error}\n{wait}")))
        }
        Some(AgentOutcome::Cancelled) | None => {
            Err(Failure::new(Exit::Interrupted, format!("the dream was interrupted; {wait}")))
        }
        Some(outcome) => {
            let end = outcome.as_str();
            Err(Failure::new(Exit::Failed, format!("the dream ended before it was done ({end}); {wait}")))
        }
    }
}

fn turns(number: usize) -> String {
    format!("{number} turn{}", if number == 1 { "" } else { "s" })
}

/// Says how many turns wait.
pub(crate) fn waits(user: &str, number: usize) -> String {
    let wait = if number == 1 { "waits" } else { "wait" };
    format!("{} of `{}` {wait}", turns(number), printable_line(user))
}
