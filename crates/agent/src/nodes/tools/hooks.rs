//! The hooks around calls and results.

use serde_json::Value;
use superstep_graph::NodeError;

use super::{answer::CallResult, pending::Pending, round::Round};
use crate::{
    AgentEvent,
    config::prompts,
    events::emit,
    guards::{Guard, GuardAt, View},
    hooks::{Acting, ToolCheck, around::caught},
    state::HookFailure,
};

// Before the approval, because the user must approve what actually runs.
/// Runs the pre hooks on a call; refuses it if one of them fails. The result is stored: if the node runs
/// again, they are not called again.
pub(super) async fn prepare(round: &Round, mut call: Pending) -> Result<Pending, NodeError> {
    let (hooks, cx) = (&round.deps.hooks.acting, &round.cx);
    let has_none = hooks.is_empty() && round.deps.check.is_none() && tool_guards(round).next().is_none();
    if has_none || call.refused.is_some() {
        return Ok(call);
    }
    let original = Acting::new(&call.call.id, &call.name, call.args());
    let mark = format!("pre.{}", call.position);
    let mut failed = None;
    let hooked = async {
        // A call with a result needs what the hooks made of it.
        let is_stored = cx.has_result(&mark);
        let hooked = cx.once(&mark, async |_| Ok::<_, NodeError>(checked(round, original.clone()).await));
        let hooked = tokio::select! {
            biased;
            () = cx.cancel().cancelled(), if !is_stored => return None,
            hooked = hooked => hooked,
        };
        hooked.map_err(|error| failed = Some(error)).ok()
    };
    let hooked: Option<Result<Acting, HookFailure>> = cx.recorded(&mark, || hooked).await;
    if let Some(error) = failed {
        return Err(error);
    }
    match hooked {
        None => {}
        Some(Ok(acting)) => {
            if (&acting.tool, &acting.args) != (&original.tool, &original.args) {
                call.name.clone_from(&acting.tool);
                call.checked = round.deps.tools.check(&acting.tool, &acting.args.to_string());
            }
            call.acting = Some(acting);
        }
        Some(Err(failure)) => {
            round.fail(failure);
            call.refused = Some((prompts::HOOK_FAILED.to_owned(), "hook_error"));
        }
    }
    Ok(call)
}

/// Runs the pre hooks on edited arguments and returns the reason if they deny the call. Other changes by
/// them are ignored, because an approved call runs exactly as approved or not at all.
pub(super) async fn recheck(
    round: &Round,
    call: &mut Pending,
    args: &Value,
) -> Result<Option<CallResult>, NodeError> {
    if call.acting.is_none() {
        return Ok(None);
    }
    let (cx, mark) = (&round.cx, format!("edited.{}", call.position));
    let original = Acting::new(&call.call.id, &call.name, args.clone());
    let hooked = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => return Ok(Some(CallResult::not_executed(prompts::INTERRUPTED))),
        hooked = cx.once(&mark, async |_| Ok::<_, NodeError>(checked(round, original.clone()).await)) => hooked?,
    };
    let refused = match hooked {
        Ok(acting) => acting.denied.map(|reason| CallResult::not_executed(prompts::denied(&reason))),
        Err(failure) => {
            let done = CallResult::not_executed(prompts::HOOK_FAILED);
            Some(CallResult { hook_error: Some(failure), ..done })
        }
    };
    call.acting = Some(original);
    Ok(refused)
}

/// Returns the call after the pre hooks, including a denial.
async fn checked(round: &Round, original: Acting) -> Result<Acting, HookFailure> {
    let deps = &round.deps;
    let acting = deps.hooks.acting.before("acting", original).await?;
    if acting.denied.is_some() {
        return Ok(acting);
    }
    let checked = deps.tools.check(&acting.tool, &acting.args.to_string());
    let (Some(tool), Some(Ok(args))) = (round.tool(&acting.tool), checked) else { return Ok(acting) };
    for guard in tool_guards(round) {
        let view = View::of(&round.state, GuardAt::Tool, &args.to_string());
        let denial = guard.denial(View { tool: Some(acting.tool.clone()), ..view }).await;
        if let Some((text, failure)) = denial {
            let (guard, action) = (guard.name().to_owned(), "block".to_owned());
            emit(&round.cx, || AgentEvent::Guardrail { guard, at: GuardAt::Tool, action, reason: failure });
            return Ok(acting.denied(text));
        }
    }
    let Some(on_tool_check) = &deps.check else { return Ok(acting) };
    let check = ToolCheck { name: acting.tool.clone(), tool: tool.clone(), args };
    match caught(|| on_tool_check(check)).await {
        Ok(Ok(())) => Ok(acting),
        Ok(Err(reason)) => Ok(acting.denied(reason)),
        Err(panic) => Err(HookFailure { hook: "pre_acting".to_owned(), message: panic.to_string() }),
    }
}

fn tool_guards(round: &Round) -> impl Iterator<Item = &Guard> {
    round.deps.guards.at(GuardAt::Tool)
}

/// Returns the result after the post hooks. A failure leaves it unchanged; a cancellation replaces it, because
/// the model must not receive a result that they have not processed.
pub(super) async fn acted(round: &Round, acting: Option<&Acting>, done: CallResult) -> CallResult {
    let hooks = &round.deps.hooks.acting;
    let Some(acting) = acting.filter(|_| hooks.has_post()) else { return done };
    let hooked = tokio::select! {
        biased;
        () = round.cx.cancel().cancelled() => return done.interrupted(),
        hooked = hooks.after("acting", acting, done.result.clone()) => hooked,
    };
    match hooked {
        Ok(result) => CallResult { result, ..done },
        Err(failure) => CallResult { hook_error: done.hook_error.or(Some(failure)), ..done },
    }
}
