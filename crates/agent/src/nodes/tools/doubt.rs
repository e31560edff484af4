//! Calls that had begun when their process stopped.

use std::sync::Arc;

use superstep_graph::NodeError;
use superstep_llm::{Behaviour, Tool, ToolCall, ToolError, ToolReply};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::{answer::CallResult, executor::Executor, keys::begun, pending::Pending};
use crate::{
    config::prompts,
    nodes::budget::{expired, until},
};

impl Executor {
    /// Returns whether the start of the call, after this number of questions, was recorded by a process that
    /// stopped while it ran.
    pub(super) fn was_begun(&self, position: usize, questions: usize, behaviour: Behaviour) -> bool {
        !behaviour.idempotent && self.cx.has_result(&begun(position, questions))
    }

    /// Records the start of the call, unless it is repeatable and changes no files. If it was recorded before,
    /// the outcome is unknown because the process stopped while it ran. Then returns the result for the model,
    /// unless the tool is repeatable or can report the outcome. Does the same if only the user's decisions have
    /// a record of the start.
    pub(super) async fn doubtful(
        &self,
        position: usize,
        questions: usize,
        tool: &Arc<dyn Tool>,
        pending: &Pending,
    ) -> Result<Option<CallResult>, NodeError> {
        let is_repeatable = tool.behaviour().idempotent;
        if is_repeatable && tool.changes_files() == Some(false) {
            return Ok(None);
        }
        let mut begins = false;
        let mark = begun(position, questions);
        let begun = self.cx.once(&mark, async |_| {
            begins = true;
            Ok::<_, NodeError>(())
        });
        begun.await?;
        if is_repeatable {
            // The record is for a message that discards the round.
            return Ok(None);
        }
        if begins {
            // The record must survive a power failure.
            self.cx.durable().await;
            let may_begin =
                pending.interrupt.as_ref().is_none_or(|interrupt| self.may_begin(interrupt, &mark));
            return Ok((!may_begin).then(|| CallResult::not_executed(prompts::USED_APPROVAL.to_owned())));
        }
        Ok(Some(match self.reconciled(tool, &pending.call).await {
            Some(result) => self.done(&tool.spec().name, Ok(result.map(ToolReply::from))),
            None => CallResult { executed: true, ..CallResult::not_executed(prompts::IN_DOUBT.to_owned()) },
        }))
    }

    /// Returns the outcome of the call, if its tool determines it in the time of a call.
    async fn reconciled(&self, tool: &Arc<dyn Tool>, call: &ToolCall) -> Option<Result<String, ToolError>> {
        let limit = tool.behaviour().timeout.or(self.deps.config.tool_timeout);
        let (tool, key) = (tool.clone(), self.key(call));
        // A separate task isolates its panics.
        let reconcile = async move { tool.reconcile(&key).await };
        let mut task = AbortOnDropHandle::new(tokio::spawn(reconcile.in_current_span()));
        tokio::select! {
            biased;
            known = &mut task => return known.ok().flatten(),
            () = self.cx.cancel().cancelled() => {}
            () = expired(limit) => {}
            () = until(self.out_of_time) => {}
        }
        // The time of the turn may have passed before the call was resumed.
        timeout(self.deps.config.cancel_grace, task).await.ok()?.ok()?
    }
}
