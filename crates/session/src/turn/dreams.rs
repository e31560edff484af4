//! Dreams behind a turn, and on demand.

use crate::{
    error::{ErrorKind, SessionError},
    offline::planner::OFFLINE,
    text::{indented, printable_line},
    turn::{dream_thread::failed, setup::Setup},
};
use superstep::{
    agent::AgentOutcome,
    memory::{Dream, DreamEnd, DreamResult, Dreams},
};

/// Dreams after a turn, if due; returns what there is to report. A failure does not affect the turn.
pub(crate) async fn after_turn(setup: &Setup) -> Option<String> {
    let (Some(dreams), Some(user)) = (&setup.dreams, &setup.settings.user) else { return None };
    if setup.model == OFFLINE {
        return None;
    }
    let dreamt = match run(setup, dreams, user, false).await {
        Ok(DreamResult::NotDue { .. } | DreamResult::Busy) => return None,
        Ok(DreamResult::Ended(dream)) => ended(user, &dream),
        Err(failure) => Err(failure),
    };
    Some(dreamt.unwrap_or_else(|SessionError { message, .. }| format!("no dream: {message}")))
}

/// Dreams until it ends, or the setup's run is cancelled.
pub async fn run(setup: &Setup, dreams: &Dreams, user: &str, now: bool) -> Result<DreamResult, SessionError> {
    let options = setup.dream_options(user)?;
    let dreamt =
        if now { dreams.dream_now(user, options).await } else { dreams.dream_if_due(user, options).await };
    dreamt.map_err(failed)
}

/// Returns the report of a dream, or its failure.
pub fn ended(user: &str, dream: &Dream) -> Result<String, SessionError> {
    let (name, turns) = (printable_line(user), turns(dream.turns));
    let wait = format!("{} for another dream", waits(user, dream.turns));
    let reply = indented(dream.reply.trim());
    match dream.outcome {
        Some(AgentOutcome::Completed) if dream.end == DreamEnd::LastCallFailed => Err(SessionError::new(
            ErrorKind::Failed,
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
            Err(SessionError::new(
                ErrorKind::Model,
                format!("the model call of a dream failed: {error}\n{wait}"),
            ))
        }
        Some(AgentOutcome::Cancelled) | None => {
            Err(SessionError::new(ErrorKind::Interrupted, format!("the dream was interrupted; {wait}")))
        }
        Some(outcome) => {
            let end = outcome.as_str();
            Err(SessionError::new(
                ErrorKind::Failed,
                format!("the dream ended before it was done ({end}); {wait}"),
            ))
        }
    }
}

fn turns(number: usize) -> String {
    format!("{number} turn{}", if number == 1 { "" } else { "s" })
}

/// Says how many turns wait.
pub fn waits(user: &str, number: usize) -> String {
    let wait = if number == 1 { "waits" } else { "wait" };
    format!("{} of `{}` {wait}", turns(number), printable_line(user))
}
