//! Dreams behind a turn, and on demand.

use crate::{
    offline::planner::OFFLINE,
    output::{
        exit::{Exit, Failure},
        run_output::Output,
        text::{indented, printable_line},
    },
    session::{dream_thread::failed, setup::Setup, signals},
};
use superstep::{
    agent::AgentOutcome,
    memory::{Dream, DreamEnd, DreamResult, Dreams},
};

/// Dreams after a turn, if due. The result is reported and does not affect the turn.
pub(crate) async fn after_turn(setup: &Setup<'_>, output: &mut dyn Output) {
    let (Some(dreams), Some(user)) = (&setup.dreams, &setup.settings.user) else { return };
    if setup.choice.name == OFFLINE {
        return;
    }
    let dreamt = match run(setup, dreams, user, false).await {
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
    setup: &Setup<'_>,
    dreams: &Dreams,
    user: &str,
    now: bool,
) -> Result<DreamResult, Failure> {
    let options = setup.dream_options(user)?;
    let watch = tokio::spawn(signals::watch(setup.cancel.clone()));
    let dreamt =
        if now { dreams.dream_now(user, options).await } else { dreams.dream_if_due(user, options).await };
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
