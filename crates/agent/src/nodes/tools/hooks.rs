//! The hooks around calls and results.

use serde_json::Value;
use superstep_graph::NodeError;

use super::{answer::CallResult, executor::Executor, pending::Pending};
use crate::{
    config::prompts,
    hooks::{Acting, ToolCheck, around::caught},
    state::HookFailure,
};

impl Executor {
    /// Runs the pre hooks on a call; refuses it if one of them fails. The result is stored: if the node runs
    /// again, they are not called again.
    pub(super) async fn prepare(&self, position: usize, mut pending: Pending) -> Result<Pending, NodeError> {
        let hooks = &self.deps.hooks.acting;
        if (hooks.is_empty() && self.deps.check.is_none())
            || pending.refused.is_some()
            || pending.acting.is_some()
        {
            return Ok(pending);
        }
        let original = Acting::new(&pending.call.id, &pending.name, pending.args());
        let mark = format!("pre.{position}");
        let mut failed = None;
        let hooked = async {
            // A call with a result needs what the hooks made of it.
            let is_stored = self.cx.has_result(&mark);
            let hooked =
                self.cx.once(&mark, async |_| Ok::<_, NodeError>(self.checked(original.clone()).await));
            let hooked = tokio::select! {
                biased;
                () = self.cx.cancel().cancelled(), if !is_stored => return None,
                hooked = hooked => hooked,
            };
            hooked.map_err(|error| failed = Some(error)).ok()
        };
        let hooked: Option<Result<Acting, HookFailure>> = self.cx.recorded(&mark, || hooked).await;
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(hooked) = hooked else { return Ok(pending) };
        match hooked {
            Ok(acting) => {
                if (&acting.tool, &acting.args) != (&original.tool, &original.args) {
                    pending.name.clone_from(&acting.tool);
                    pending.checked = self.deps.tools.check(&acting.tool, &acting.args.to_string());
                }
                pending.acting = Some(acting);
            }
            Err(failure) => {
                self.fail(failure);
                pending.refused = Some((prompts::HOOK_FAILED.to_owned(), "hook_error"));
            }
        }
        Ok(pending)
    }

    /// Runs the pre hooks on edited arguments and returns the reason if they deny the call. Other changes by
    /// them are ignored, because an approved call runs exactly as approved or not at all.
    pub(super) async fn recheck(
        &self,
        position: usize,
        pending: &mut Pending,
        args: &Value,
    ) -> Result<Option<CallResult>, NodeError> {
        if pending.acting.is_none() {
            return Ok(None);
        }
        let original = Acting::new(&pending.call.id, &pending.name, args.clone());
        let mark = format!("edited.{position}");
        let hooked = tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => return Ok(Some(CallResult::not_executed(prompts::INTERRUPTED.to_owned()))),
            hooked = self.cx.once(&mark, async |_| Ok::<_, NodeError>(self.checked(original.clone()).await)) => hooked?,
        };
        let refused = match hooked {
            Ok(acting) => acting.denied.map(|reason| CallResult::not_executed(prompts::denied(&reason))),
            Err(failure) => Some(CallResult {
                hook_error: Some(failure),
                ..CallResult::not_executed(prompts::HOOK_FAILED.to_owned())
            }),
        };
        pending.acting = Some(original);
        Ok(refused)
    }

    /// Returns the call after the pre hooks, including a denial.
    async fn checked(&self, original: Acting) -> Result<Acting, HookFailure> {
        let acting = self.deps.hooks.acting.before("acting", original).await?;
        let Some(on_tool_check) = self.deps.check.as_ref().filter(|_| acting.denied.is_none()) else {
            return Ok(acting);
        };
        let checked = self.deps.tools.check(&acting.tool, &acting.args.to_string());
        let (Some(tool), Some(Ok(args))) = (self.deps.tools.get(&acting.tool), checked) else {
            return Ok(acting);
        };
        let check = ToolCheck { name: acting.tool.clone(), tool: tool.clone(), args };
        match caught(|| on_tool_check(check)).await {
            Ok(Ok(())) => Ok(acting),
            Ok(Err(reason)) => Ok(acting.denied(reason)),
            Err(panic) => Err(HookFailure { hook: "pre_acting".to_owned(), message: panic.to_string() }),
        }
    }

    /// Returns the result after the post hooks. A failure leaves it unchanged; a cancellation replaces it, because
    /// the model must not receive a result that they have not processed.
    pub(super) async fn acted(&self, acting: Option<&Acting>, done: CallResult) -> CallResult {
        let hooks = &self.deps.hooks.acting;
        let Some(acting) = acting.filter(|_| hooks.has_post()) else { return done };
        let hooked = tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => return done.interrupted(),
            hooked = hooks.after("acting", acting, done.result.clone()) => hooked,
        };
        match hooked {
            Ok(result) => CallResult { result, ..done },
            Err(failure) => CallResult { hook_error: done.hook_error.or(Some(failure)), ..done },
        }
    }

    /// Ends the turn after this round. The first failure is reported.
    pub(super) fn fail(&self, failure: HookFailure) {
        let _ = self.failed.set(failure);
    }
}
