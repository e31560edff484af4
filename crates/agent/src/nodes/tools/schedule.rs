//! The order in which the calls of a round run, and which of them run in parallel.
//!
//! Start at [`answer_all`].

use futures::{StreamExt, TryStreamExt, stream};
use superstep_graph::NodeError;

use super::{
    answer::Answer,
    call,
    decision::{early_verdict, request_all},
    hooks::prepare,
    pending::Pending,
    round::Round,
};

/// Returns the answers as they arrive. Calls that must run in order run one after the
/// other, even if the first of them waits; see [`side_by_side`].
///
/// Among parallel calls, those that require an external decision come last: an interrupt ends the node, and
/// by then all others are answered. All questions of the round are returned together.
pub(super) async fn answer_all(round: &mut Round, mut calls: Vec<Pending>) -> Result<Vec<Answer>, NodeError> {
    let hold = round.deps.config.approval.hold_batch;
    let asks_first = hold || round.deps.approvals.are_outside();
    // The user approves the final arguments, which also determine whether the call runs alone.
    let prepares_all = asks_first || round.at_once() > 1;
    if prepares_all {
        calls = prepare_all(round, calls).await?;
    }
    // Hooks may have changed a call to any other. A transfer comes after all others.
    calls.sort_by_key(|call| round.deps.group.transfers.contains_key(&call.name));
    round.arrange(&calls);
    let round = &*round;
    if asks_first {
        for call in &mut calls {
            call.verdict = early_verdict(round, call);
        }
    }
    let mut undecided = asks_first && calls.iter().any(Pending::needs_approval);
    let mut answers = Vec::new();
    while !calls.is_empty() {
        let later = calls.split_off(side_by_side(round, &calls));
        let mut now = std::mem::replace(&mut calls, later);
        if !prepares_all {
            now = prepare_all(round, now).await?;
        }
        if undecided && (hold || now.iter().any(Pending::needs_approval)) {
            undecided = false;
            if !hold {
                let (asked, others) = split_off_waiting(round, now);
                answers.extend(answer_some(round, others).await?);
                now = asked;
            }
            let cancelled = round.cx.noted("cancelled.asked", round.cx.cancel().is_cancelled());
            if !cancelled && round.failed.get().is_none() {
                request_all(round, now.iter_mut().chain(&mut calls)).await?;
            }
        }
        answers.extend(answer_some(round, now).await?);
    }
    Ok(answers)
}

async fn prepare_all(round: &Round, calls: Vec<Pending>) -> Result<Vec<Pending>, NodeError> {
    stream::iter(calls).map(|call| prepare(round, call)).buffered(round.at_once()).try_collect().await
}

/// Separates the calls that require a decision, with those behind them in a sequence, from the others.
fn split_off_waiting(round: &Round, calls: Vec<Pending>) -> (Vec<Pending>, Vec<Pending>) {
    let (mut asked, mut others) = (Vec::<Pending>::new(), Vec::new());
    for call in calls {
        let waits = call.needs_approval()
            || round.order.is_behind(call.position, asked.iter().map(|asked| asked.position));
        if waits { &mut asked } else { &mut others }.push(call);
    }
    (asked, others)
}

/// Returns how many of the first calls may run in parallel. The next one waits until all of them are
/// answered.
fn side_by_side(round: &Round, calls: &[Pending]) -> usize {
    if round.at_once() == 1 {
        return 1;
    }
    let alone = calls.iter().position(|call| round.is_alone(call));
    alone.map_or(calls.len(), |first| first.max(1))
}

/// Answers calls that may run in parallel.
///
/// Sub-agents come last: their interrupts end the node, and by then all others are answered.
async fn answer_some(round: &Round, calls: Vec<Pending>) -> Result<Vec<Answer>, NodeError> {
    let (agents, tools): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| round.is_sub_agent(call));
    let mut answers = Vec::new();
    for alike in [tools, agents] {
        let alike = stream::iter(alike).map(|call| call::answer(round, call));
        answers.extend(alike.buffer_unordered(round.at_once()).try_collect::<Vec<_>>().await?);
    }
    Ok(answers)
}
