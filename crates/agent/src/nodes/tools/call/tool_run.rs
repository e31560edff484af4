//! One run of a tool, as a task of its own.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use superstep_graph::Cx;
use superstep_llm::{ToolCx, ToolError, ToolReply, calls::ToolQuestion};
use tokio::{task::JoinError, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument as _;

use super::{Call, questions::AnsweredQuestion};
use crate::{
    AgentEvent,
    config::prompts,
    deps::folder,
    events::emit,
    nodes::{
        budget::{expired, until},
        tools::{
            answer::CallResult,
            decision::{Approved, permits},
        },
    },
};

/// Limits of the output of one call, in bytes and in chunks.
const MAX_BYTES: usize = 256 << 10;
const MAX_CHUNKS: usize = 4_096;

impl Call<'_> {
    /// Runs the tool once, with answers to its questions.
    ///
    /// # Errors
    /// An unanswered question of the tool, with which the call ended.
    pub(super) async fn run_tool(
        &self,
        approved: &Approved,
        answers: Vec<AnsweredQuestion>,
    ) -> Result<CallResult, ToolQuestion> {
        let Approved { tool, args, asked, .. } = approved;
        let (round, call_id, name) = (self.round, &self.pending.call.id, &tool.spec().name);
        let config = &round.deps.config;
        let cancel = CancellationToken::new();
        let output = Output::new(&round.cx, call_id, name);
        let (answering, mut questions) = self.asking(answers);
        let tool_cx = self.tool_cx(&cancel, &output);
        let mut tool_cx = tool_cx.with_permits(permits(round, tool, args, *asked)).with_asks(answering);
        if let Some(sent) = round.order.sent(self.pending.position) {
            tool_cx = tool_cx.with_sent(move || sent.cancel());
        }
        // A separate task isolates its panics, and tools that compute do not block each other.
        let (steps, args, called) = (round.deps.steps.clone(), args.clone(), tool.clone());
        let called = async move {
            match steps {
                Some(steps) => steps.acting(args, tool_cx, &*called).await,
                None => called.call(args, tool_cx).await,
            }
        };
        let mut task = AbortOnDropHandle::new(tokio::spawn(called.in_current_span()));
        let limit = tool.behaviour().timeout.or(config.tool_timeout);
        let (text, failed) = tokio::select! {
            biased;
            ended = &mut task => {
                output.close();
                return Ok(self.ended(name, ended));
            }
            Some(question) = questions.recv() => {
                cancel.cancel();
                // It may have ended nevertheless.
                let ended = timeout(config.cancel_grace, &mut task).await;
                output.close();
                return match ended {
                    Ok(ended @ Ok(Ok(_))) => Ok(self.ended(name, ended)),
                    _ => Err(question),
                };
            }
            () = round.cx.cancel().cancelled() => (prompts::INTERRUPTED.to_owned(), false),
            () = expired(limit) => (prompts::timed_out(name, limit.unwrap_or_default().as_millis()), true),
            () = until(round.out_of_time) => (prompts::BUDGET_STOPPED.to_owned(), false),
        };
        cancel.cancel();
        if let Ok(Ok(Ok(_))) = timeout(config.cancel_grace, &mut task).await {
            emit(&round.cx, || AgentEvent::LateResult { tool: name.clone(), id: call_id.clone() });
        }
        output.close();
        Ok(CallResult { executed: true, failed, ..CallResult::not_executed(text) })
    }

    fn tool_cx(&self, cancel: &CancellationToken, output: &Output) -> ToolCx {
        let (round, output) = (self.round, output.clone());
        let tool_cx = ToolCx::new(&self.pending.call.id).with_output(move |chunk| output.emit(chunk));
        let mut tool_cx = round.outer.clone().give(tool_cx).with_shared(round.state.clone());
        if let Some(thread) = round.cx.thread() {
            tool_cx = tool_cx.with_extension(thread.clone());
        }
        if let Ok(store) = round.cx.shared_store() {
            tool_cx = tool_cx.with_extension(store);
        }
        let mut context = round.cx.context::<Map<String, Value>>().ok();
        if let Some(folder) = &round.state.cwd {
            let folder = folder.to_string_lossy().into();
            context.get_or_insert_default().insert(folder::KEY.to_owned(), folder);
        }
        if let Some(context) = context {
            tool_cx = tool_cx.with_extension(Value::Object(context));
        }
        tool_cx.idempotency_key = self.idempotency_key();
        tool_cx.cancel = cancel.clone();
        tool_cx
    }

    /// Returns the result of a call whose tool ran.
    pub(super) fn ended(
        &self,
        name: &str,
        ended: Result<Result<ToolReply, ToolError>, JoinError>,
    ) -> CallResult {
        let done = |result| CallResult { executed: true, ..CallResult::not_executed(result) };
        // A denial by a tool is not a failure.
        let failed = !matches!(ended, Ok(Err(ToolError::Denied(_) | ToolError::InvalidArguments(_))));
        let ToolReply { text, media, update } = match reply(name, ended) {
            Ok(reply) => reply,
            Err(text) => return CallResult { failed, ..done(text) },
        };
        // A missing update is `null`; nothing else is stored as `null`.
        let update = update.filter(|update| !update.is_null());
        match update.as_ref().map(|update| self.round.outer.check(update)) {
            Some(Err(problem)) => CallResult { failed: true, ..done(prompts::failed(name, &problem)) },
            Some(Ok(())) | None => CallResult { update, media, returned: true, ..done(text) },
        }
    }
}

/// Returns the tool's reply, or the error for the model.
fn reply(name: &str, ended: Result<Result<ToolReply, ToolError>, JoinError>) -> Result<ToolReply, String> {
    match ended {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(ToolError::Denied(reason))) => Err(prompts::denied(&reason)),
        Ok(Err(ToolError::InvalidArguments(detail))) => Err(prompts::bad_args(name, &detail)),
        Ok(Err(error)) => Err(prompts::failed(name, &error.to_string())),
        Err(ended) => {
            let why = match ended.try_into_panic() {
                Ok(panic) => prompts::tool_panicked(&*panic),
                // The task is not aborted while its result is awaited, except by a runtime that shuts down.
                Err(_) => "the program is shutting down".to_owned(),
            };
            Err(prompts::failed(name, &why))
        }
    }
}

/// Emits the output of one call up to a limit, and nothing after the call is answered.
#[derive(Clone)]
struct Output(Arc<Mutex<OutputSink>>);

struct OutputSink {
    cx: Cx,
    id: String,
    tool: String,
    bytes: usize,
    chunks: usize,
}

impl Output {
    fn new(cx: &Cx, id: &str, tool: &str) -> Self {
        let (cx, id, tool) = (cx.clone(), id.to_owned(), tool.to_owned());
        Self(Arc::new(Mutex::new(OutputSink { cx, id, tool, bytes: MAX_BYTES, chunks: MAX_CHUNKS })))
    }

    fn emit(&self, chunk: &str) {
        // Held during the emission: output after the answer would belong to no call.
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sink.chunks == 0 {
            return;
        }
        let part = &chunk[..chunk.floor_char_boundary(sink.bytes)];
        let is_last = part.len() < chunk.len() || sink.chunks == 1;
        sink.bytes -= part.len();
        sink.chunks = if is_last { 0 } else { sink.chunks - 1 };
        emit(&sink.cx, || AgentEvent::ToolOutput {
            id: sink.id.clone(),
            tool: sink.tool.clone(),
            chunk: part.to_owned(),
            truncated: is_last,
        });
    }

    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks = 0;
    }
}
