//! Models whose answers depend on their requests only, so that a request may be repeated after a crash.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use superstep::llm::{
    ChatModel, Delta, FinishReason, ModelError, ModelErrorKind, Request, ResponseStream, Usage,
};

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Text(&'static str),
    /// Calls of tools with their arguments, in one message.
    Calls(&'static [(&'static str, &'static str)]),
    /// A failure that leads to the fallback.
    Fails,
}

/// A model that answers by a function of the request.
#[derive(Clone)]
pub(crate) struct Says {
    name: &'static str,
    answer: fn(&Request) -> Say,
    signs: bool,
    requests: Arc<Mutex<Vec<Request>>>,
}

pub(crate) fn says(name: &'static str, answer: fn(&Request) -> Say) -> Says {
    Says { name, answer, signs: false, requests: Arc::default() }
}

impl Says {
    /// Returns the same model, whose reasoning is valid with the same tools only.
    pub(crate) fn signing(&self) -> Self {
        Self { signs: true, ..self.clone() }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl ChatModel for Says {
    fn name(&self) -> &str {
        self.name
    }

    fn signs_prefix(&self) -> bool {
        self.signs
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let said = (self.answer)(&request);
        let round = request.messages.len();
        self.requests.lock().unwrap().push(request);
        let usage = Delta::Usage(Usage::new(40, 10));
        let deltas = match said {
            Say::Fails => {
                let error = ModelError::new(ModelErrorKind::Auth, "no key");
                return stream::iter([Err(error)]).boxed();
            }
            Say::Text(text) => {
                // Several pieces, so that a part of a text could be streamed.
                let pieces = text.split_inclusive(' ').map(|piece| Delta::Text(piece.to_owned()));
                pieces.chain([usage, Delta::Finish(FinishReason::Stop)]).collect::<Vec<_>>()
            }
            Say::Calls(calls) => {
                let call = |(n, (name, arguments)): (usize, &(&str, &str))| Delta::ToolCall {
                    index: n,
                    id: Some(format!("{}{round}.{n}", self.name)),
                    name: Some((*name).to_owned()),
                    arguments: (*arguments).to_owned(),
                };
                let calls = calls.iter().enumerate().map(call);
                calls.chain([usage, Delta::Finish(FinishReason::ToolCalls)]).collect()
            }
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}
