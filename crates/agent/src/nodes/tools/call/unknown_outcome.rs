//! Calls whose outcome is unknown, because their process stopped while they ran.

use std::sync::Arc;

use superstep_graph::NodeError;
use superstep_llm::{Tool, ToolError, ToolReply};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::Call;
use crate::{
    config::prompts,
    nodes::{
        budget::{expired, until},
        tools::{answer::CallResult, decision::may_begin, keys::begun},
    },
};

impl Call<'_> {
    /// Returns the key that records the start of the call, after its questions so far.
    pub(super) fn begun_key(&self) -> String {
        begun(self.pending.position, self.questions.len())
    }

    /// Records the start of the call, unless it is repeatable and changes no files. If it was recorded before,
    /// the outcome is unknown because the process stopped while it ran. Then returns the result for the model,
    /// unless the tool is repeatable or can report the outcome. Does the same if only the user's decisions have
    /// a record of the start.
    pub(super) async fn unknown_outcome(
        &self,
        tool: &Arc<dyn Tool>,
    ) -> Result<Option<CallResult>, NodeError> {
        let (cx, key) = (&self.round.cx, self.begun_key());
        let is_repeatable = tool.behaviour().idempotent;
        if is_repeatable && tool.changes_files() == Some(false) {
            return Ok(None);
        }
        let mut begins = false;
        let begun = cx.once(&key, async |_| {
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
            cx.durable().await;
            let may_begin = may_begin(self.round, &self.pending, &key);
            return Ok((!may_begin).then(|| CallResult::not_executed(prompts::USED_APPROVAL)));
        }
        Ok(Some(match self.reconciled(tool).await {
            Some(result) => self.ended(&tool.spec().name, Ok(result.map(ToolReply::from))),
            None => CallResult::in_doubt(),
        }))
    }

    /// Returns the outcome of the call, if its tool determines it in the time of a call.
    async fn reconciled(&self, tool: &Arc<dyn Tool>) -> Option<Result<String, ToolError>> {
        let config = &self.round.deps.config;
        let limit = tool.behaviour().timeout.or(config.tool_timeout);
        let (tool, key) = (tool.clone(), self.idempotency_key());
        // A separate task isolates its panics.
        let reconcile = async move { tool.reconcile(&key).await };
        let mut task = AbortOnDropHandle::new(tokio::spawn(reconcile.in_current_span()));
        tokio::select! {
            biased;
            known = &mut task => return known.ok().flatten(),
            () = self.round.cx.cancel().cancelled() => {}
            () = expired(limit) => {}
            () = until(self.round.out_of_time) => {}
        }
        // The time of the turn may have passed before the call was resumed.
        timeout(config.cancel_grace, task).await.ok()?.ok()?
    }
}
