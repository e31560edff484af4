//! Streamed output of a running tool.

use std::sync::{Arc, Mutex, PoisonError};

use superstep_graph::Cx;

use crate::{AgentEvent, events::emit};

/// Limits of the output of one call, in bytes and in chunks.
const MAX_BYTES: usize = 256 << 10;
const MAX_CHUNKS: usize = 4_096;

/// Emits the output of one call up to a limit, and nothing after the call is answered.
#[derive(Clone)]
pub(super) struct Output(Arc<Mutex<OutputSink>>);

struct OutputSink {
    cx: Cx,
    id: String,
    tool: String,
    bytes: usize,
    chunks: usize,
}

impl Output {
    pub(super) fn new(cx: &Cx, id: &str, tool: &str) -> Self {
        let (cx, id, tool) = (cx.clone(), id.to_owned(), tool.to_owned());
        Self(Arc::new(Mutex::new(OutputSink { cx, id, tool, bytes: MAX_BYTES, chunks: MAX_CHUNKS })))
    }

    pub(super) fn emit(&self, chunk: &str) {
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

    pub(super) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks = 0;
    }
}
