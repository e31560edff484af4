//! The recorded result of a model call, which a replay reads instead of calling the model.

use serde::{Deserialize, Serialize};
use superstep_graph::{
    Cx,
    state::{Fingerprint, fingerprint},
};
use superstep_llm::{ChatModel, FinishReason, Message, ModelError, Request, Response, Usage};

use super::{attempts::ModelTokens, model_call::ModelCall};
use crate::state::{HookFailure, ModelFailure, request_frame::Part};

/// The result of one call of the models.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedResponse {
    pub(super) end: End,
    /// Number of sent requests.
    pub(super) requests: u32,
    /// Something was streamed that is discarded if it does not become a message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) streamed: bool,
    #[serde(flatten)]
    pub(super) tokens: ModelTokens,
    /// The last attempt was stopped before its tokens were reported, so that they are estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unreported: bool,
    /// The estimated tokens of its text, if that is not stored because of the hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<u64>,
    /// The provider refused the reasoning of earlier answers, and the request was sent without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) bare: bool,
    /// The time of the turn was nearly over, and the warning about it was emitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) warned: bool,
}

/// The end of the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Answered(StoredResponse),
    Failed {
        error: ModelFailure,
        partial: Message,
    },
    Cancelled {
        partial: Message,
    },
    /// The time of the turn was over.
    OutOfTime {
        partial: Message,
    },
    /// A hook prevented the request.
    #[serde(rename = "unasked")]
    NotSent(HookFailure),
    /// A hook rejected the response, which has this number of tool calls.
    #[serde(rename = "unheard")]
    Rejected {
        failure: HookFailure,
        calls: usize,
    },
}

/// A response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    message: Message,
    /// The tokens of the last attempt, if reported: its input is the size of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    finish: FinishReason,
    /// Number of its tool calls before the hooks.
    calls: usize,
}

impl StoredResponse {
    /// Creates it without its tokens, which the call of the models adds.
    pub(super) fn new(response: Response, calls: usize) -> Self {
        let Response { message, finish, .. } = response;
        Self { message, usage: None, finish, calls }
    }

    pub(super) fn into_response(self, attempts: u32) -> Response {
        let Self { message, usage, finish, .. } = self;
        Response { message, usage, finish, attempts }
    }
}

impl End {
    /// Returns the number of the response's tool calls, before the hooks.
    pub(super) fn calls(&self) -> usize {
        match self {
            Self::NotSent(_) => 0,
            Self::Answered(StoredResponse { calls, .. }) | Self::Rejected { calls, .. } => *calls,
            Self::Failed { partial, .. } | Self::Cancelled { partial } | Self::OutOfTime { partial } => {
                partial.tool_calls.len()
            }
        }
    }

    /// Takes the result; a cancelled one is left behind.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Cancelled { partial: Message::assistant("") })
    }
}

impl RecordedResponse {
    pub(super) fn new(call: ModelCall, mut end: End, called: &dyn ChatModel, streamed: bool) -> Self {
        let requests = call.sent();
        let is_stopped = matches!(end, End::Cancelled { .. } | End::OutOfTime { .. });
        let unreported = is_stopped && call.asked && call.attempts.current.is_none() && !call.is_waiting();
        if let End::Answered(answered) = &mut end {
            answered.usage = call.attempts.current;
        }
        let bare = call.is_bare;
        let tokens = call.attempts.into_tokens(called);
        Self { end, requests, streamed, tokens, unreported, withheld: None, bare, warned: false }
    }

    pub(super) fn not_sent(failure: HookFailure) -> Self {
        Self {
            end: End::NotSent(failure),
            requests: 0,
            streamed: false,
            tokens: ModelTokens::default(),
            unreported: false,
            withheld: None,
            bare: false,
            warned: false,
        }
    }
}

/// Converts an error to its stored form.
pub(super) fn failure(error: ModelError, cx: &Cx) -> ModelFailure {
    let retry_after_ms = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let retry_at_ms = retry_after_ms.map(|wait| cx.now_ms().saturating_add_unsigned(wait));
    ModelFailure {
        kind: error.kind,
        status: error.status,
        message: error.message,
        retry_after_ms,
        retry_at_ms,
    }
}

/// A fingerprint of a request.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Print {
    pub(super) messages: usize,
    /// The first message, which is the system prompt if there is one; those between; and the last ones, each
    /// by itself.
    pub(super) first: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between: Option<String>,
    pub(super) last: Vec<String>,
    pub(super) tools: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u32>,
}

/// Number of last messages with their own fingerprints.
const APART: usize = 4;

impl Print {
    pub(super) fn of(request: &Request) -> Self {
        let Request { messages, tools, output_schema, temperature, max_tokens, .. } = request;
        let rest = messages.get(1..).unwrap_or_default();
        let (between, last) = rest.split_at(rest.len().saturating_sub(APART));
        Self {
            messages: messages.len(),
            first: messages.first().map(print_of).unwrap_or_default(),
            between: (!between.is_empty())
                .then(|| Fingerprint::of_list(between.iter().map(of_message)).to_string()),
            last: last.iter().map(print_of).collect(),
            tools: format!("{}:{}", tools.len(), tools.derived::<Part>().0),
            output_schema: output_schema.as_ref().map(|schema| fingerprint(schema).expect(SENT)),
            temperature: *temperature,
            max_tokens: *max_tokens,
        }
    }

    pub(super) fn has_prompt(&self) -> bool {
        self.first.starts_with("system:")
    }

    /// Returns the last messages behind the prompt that are known one by one.
    pub(super) fn rest(&self) -> Vec<&String> {
        let is_one = !self.has_prompt() && !self.first.is_empty() && self.between.is_none();
        is_one.then_some(&self.first).into_iter().chain(&self.last).collect()
    }
}

const SENT: &str = "what is sent has a JSON form";

/// Returns the role and the fingerprint of a message.
pub(super) fn print_of(message: &Message) -> String {
    format!("{}:{}", message.role, of_message(message))
}

fn of_message(message: &Message) -> Fingerprint {
    message.derived::<Part>().0
}

#[cfg(test)]
mod tests {
    use superstep_llm::ToolSpec;

    use super::*;

    // Stored threads have these fingerprints.
    #[test]
    fn the_fingerprint_of_a_request_is_that_of_its_values() {
        let spec =
            |name: &str| ToolSpec { name: name.into(), description: "".into(), parameters: true.into() };
        let texts = ["s", "a", "b", "c", "d", "e", "f"];
        for n in 0..=texts.len() {
            let messages: Vec<_> = texts[..n].iter().map(|text| Message::user(*text)).collect();
            let tools = [spec("a"), spec("b")];
            let each: Vec<_> =
                messages.iter().map(|message| format!("user:{}", fingerprint(message).unwrap())).collect();
            let apart = n.saturating_sub(APART).max(1).min(n);
            let between = messages.get(1..apart).filter(|between| !between.is_empty());
            let print = Print::of(&Request {
                messages: messages.clone(),
                tools: tools.clone().into(),
                ..Request::default()
            });
            assert_eq!(print.first, each.first().cloned().unwrap_or_default());
            assert_eq!(print.between, between.map(|between| fingerprint(between).unwrap()));
            assert_eq!(print.last, each[apart..]);
            assert_eq!(print.tools, format!("2:{}", fingerprint(&tools).unwrap()));
        }
    }
}
