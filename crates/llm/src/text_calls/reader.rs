//! A model whose tool calls arrive as text.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use futures::{StreamExt, stream};
use serde_json::Value;

use crate::{
    ChatModel, Delta, FinishReason, ModelError, Request, ResponseStream,
    messages::media::Accepts,
    models::ModelInfo,
    text_calls::{Forms, TextCalls, cut_off_calls, text_calls_of},
    tools::tool::ToolSpecs,
};

/// A model whose answers are searched for tool calls written as text; see [`text_calls`](crate::wire::text_calls).
///
/// The text is streamed as it arrives. If it contains calls, [`Delta::TextCalls`] declares it void; the
/// remaining text and the calls follow. In a truncated answer the last call may be incomplete; if its name is, it
/// is left out. An answer with regular tool calls is not changed.
/// In an answer that is to be JSON, an object is a call only in tags and the like: see [`Request::json_text`].
#[derive(Clone, Debug)]
// A wrapper of one model, because it is a property of its server: another model of the same agent may not need it.
pub struct ReadsTextCalls<M>(
    /// The model.
    pub M,
);

impl<M: ChatModel> ChatModel for ReadsTextCalls<M> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn names(&self) -> Vec<&str> {
        self.0.names()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.0.settings()
    }

    fn accepts(&self) -> Accepts {
        self.0.accepts()
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.0.info(name)
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let reader = Reader {
            offered: request.tools.clone(),
            forms: if request.json_text { Forms::Marked } else { Forms::All },
            deltas: self.0.stream(request),
            text: String::new(),
            has_calls: false,
            reads: 0,
            ready: VecDeque::new(),
        };
        stream::unfold(reader, |mut reader| async { reader.next().await.map(|delta| (delta, reader)) })
            .boxed()
    }
}

struct Reader<'a> {
    deltas: ResponseStream<'a>,
    offered: ToolSpecs,
    forms: Forms,
    /// The text of the current attempt.
    text: String,
    has_calls: bool,
    /// The number of times that the text was read.
    reads: usize,
    ready: VecDeque<Delta>,
}

/// The maximum number of times that a text is read, for a server that ends its answer again and again.
const MAX_READS: usize = 16;

impl Reader<'_> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(delta) = self.ready.pop_front() {
            return Some(Ok(delta));
        }
        let delta = match self.deltas.next().await? {
            Ok(delta) => delta,
            Err(error) => return Some(Err(error)),
        };
        match &delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::ToolCall { .. } => self.has_calls = true,
            Delta::AttemptDiscarded { .. } => {
                self.text.clear();
                (self.has_calls, self.reads) = (false, 0);
            }
            Delta::Finish(reason) => {
                if let Some((found, reason)) = self.calls(reason) {
                    self.announce(found, reason);
                    return self.ready.pop_front().map(Ok);
                }
            }
            _ => {}
        }
        Some(Ok(delta))
    }

    /// Returns the calls in the text, and the reason of the end with them. Only tools that were offered count, so
    /// that a request without tools has no calls.
    fn calls(&mut self, reason: &FinishReason) -> Option<(TextCalls, FinishReason)> {
        use FinishReason::{ContentFilter, Length, Refusal, ToolCalls};
        if self.has_calls || self.reads >= MAX_READS || matches!(reason, ContentFilter | Refusal) {
            return None;
        }
        self.reads += 1;
        let (text, offered, forms) = (&self.text, &self.offered, self.forms);
        match reason {
            Length => Some((cut_off_calls(text, offered, forms)?, Length)),
            _ => Some((text_calls_of(text, offered, forms)?, ToolCalls)),
        }
    }

    fn announce(&mut self, TextCalls { calls, text }: TextCalls, reason: FinishReason) {
        self.has_calls = true;
        self.ready.push_back(Delta::TextCalls { n: calls.len() });
        if !text.is_empty() {
            self.ready.push_back(Delta::Text(text));
        }
        let calls = calls.into_iter().enumerate().map(|(index, call)| Delta::ToolCall {
            index,
            id: Some(call.id),
            name: Some(call.name),
            arguments: call.arguments,
        });
        self.ready.extend(calls);
        self.ready.push_back(Delta::Finish(reason));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ToolSpec;

    /// Reads the text once more for a call behind this number of ends.
    fn finds_call_behind(ends: usize) -> bool {
        let parameters = json!({"type": "object"});
        let echo = ToolSpec { name: "echo".into(), description: String::new(), parameters };
        let end = || Delta::Finish(FinishReason::Stop);
        let mut deltas = vec![Delta::Text("So.\n".into())];
        deltas.extend((0..ends).map(|_| end()));
        deltas.push(Delta::Text(r#"<tool_call>{"name":"echo","arguments":{}}</tool_call>"#.into()));
        deltas.push(end());
        let mut reader = Reader {
            deltas: stream::iter(deltas.into_iter().map(Ok)).boxed(),
            offered: [echo].into_iter().collect(),
            forms: Forms::All,
            text: String::new(),
            has_calls: false,
            reads: 0,
            ready: VecDeque::new(),
        };
        let mut found = false;
        while let Some(delta) = futures_executor::block_on(reader.next()) {
            found |= matches!(delta, Ok(Delta::TextCalls { .. }));
        }
        found
    }

    #[test]
    fn a_text_is_read_a_limited_number_of_times() {
        assert!(finds_call_behind(0) && finds_call_behind(MAX_READS - 1));
        assert!(!finds_call_behind(MAX_READS));
    }
}
