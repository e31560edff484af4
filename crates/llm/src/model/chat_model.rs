//! The interface between the agent and its chat models.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Message, ModelError, Usage,
    messages::{media::Accepts, origin::OriginItem},
    models::ModelInfo,
    tools::tool::ToolSpecs,
};

/// A request to a model, of the chat-completions kind. A clone shares the messages and the tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The conversation, system message first.
    pub messages: Vec<Message>,
    /// The tools it may call; an empty list forbids calls.
    pub tools: ToolSpecs,
    /// The tools of the earlier requests of the turn, if this one forbids calls. Protocols that cache or sign the tools send them,
    /// and forbid calls in another way.
    pub earlier_tools: ToolSpecs,
    /// The JSON Schema of the answer's text, for providers that can enforce it; `None` for any text.
    pub output_schema: Option<Value>,
    /// `true` if the text of the answer must be JSON, even if the provider cannot enforce it: then an object in it is not a
    /// tool call. Not sent.
    pub json_text: bool,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f32>,
    /// The maximum number of tokens of the answer; `None` leaves it to the provider.
    pub max_tokens: Option<u32>,
    /// The name of the model that is called first, if there are several; `None` for the first of them. Not
    /// sent.
    pub ask_first: Option<String>,
}

impl Request {
    /// Creates a request with these messages and neither tools nor limits.
    pub fn new<M: Into<Message>>(messages: impl IntoIterator<Item = M>) -> Self {
        Self { messages: messages.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

/// A piece of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A piece of the text.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// A piece of a tool call. Providers may send the id and the name first, late, or repeatedly, and the
    /// arguments in pieces.
    ToolCall {
        /// The index of the call in the answer; unreliable, since some providers send 0 for every call.
        index: usize,
        /// The call's id, if this piece has one.
        id: Option<String>,
        /// The tool's name, if this piece has one.
        name: Option<String>,
        /// The next piece of the argument text.
        arguments: String,
    },
    /// The place of the following [`Delta::Extra`] and [`Delta::Item`], which go back there only. Those before are void.
    Origin {
        /// The protocol, such as `chat`.
        wire: String,
        /// The server, as `scheme://host:port`.
        server: String,
        /// The model, as requested.
        model: String,
        /// A hash of everything before the answer, if the protocol signs it with the reasoning; else empty.
        prefix: String,
    },
    /// A complete part of the answer that the server wants back as it is. See [`MessageData::origin`](crate::MessageData::origin).
    Item {
        /// The index of the part in the answer, which orders the parts.
        index: usize,
        /// The part.
        item: OriginItem,
    },
    /// Reasoning of earlier answers did not reach the model. A notice: the answer follows.
    ReasoningDropped {
        /// The place in the request; empty for all of it.
        path: String,
        /// The reason of the server, in one line.
        reason: String,
        /// `true` if the server refused the request, which was sent again without the reasoning of all answers so far; later
        /// requests must leave it out too.
        all: bool,
    },
    /// Fields that the server added to the message or to a call, such as a signature, and that it wants back with them. See
    /// [`MessageData::origin`](crate::MessageData::origin).
    Extra {
        /// The index of the call; `None` for the message.
        call: Option<usize>,
        /// The fields, as a JSON object.
        fields: String,
    },
    /// The text of the answer so far is void: it contained this many tool calls, which follow after the
    /// remaining text. 0 if the only one was cut off before its name.
    TextCalls {
        /// The number of calls.
        n: usize,
    },
    /// Tokens spent so far. The last one counts.
    Usage(Usage),
    /// The model stopped. Usage may still follow.
    Finish(FinishReason),
    /// The delay before another attempt of the whole request.
    Retry {
        /// The attempt that starts after the delay, counted from 1.
        attempt: u32,
        /// The delay in milliseconds.
        delay_ms: u64,
        /// The HTTP status that caused it, if there was one.
        status: Option<u16>,
        /// The problem, in one line.
        reason: String,
    },
    /// Another model is called instead, because this one cannot answer.
    Fallback {
        /// The name of the model that failed.
        from: String,
        /// The name of the next model.
        to: String,
        /// The HTTP status of the failure, if there was one.
        status: Option<u16>,
        /// The problem, in one line.
        reason: String,
    },
    /// All deltas of this attempt are void: it failed after it had begun to stream.
    AttemptDiscarded {
        /// The failed attempt, counted from 1.
        attempt: u32,
    },
}

/// The reason why a model stopped. A hint only: providers are wrong in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer was complete.
    Stop,
    /// The model requests tool calls.
    ToolCalls,
    /// The answer reached the output limit.
    Length,
    /// The conversation and the answer fill the model's window.
    ContextFull,
    /// The provider withheld the rest.
    ContentFilter,
    /// The model refused; the text has its reason.
    Refusal,
    /// An unknown reason, as the provider wrote it.
    Other(String),
}

impl FinishReason {
    /// Returns the name that is stored, or the provider's own word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContextFull => "context_full",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Other(reason) => reason,
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The assistant's message, without an id.
    pub message: Message,
    /// Why it ended.
    pub finish: FinishReason,
    /// The token usage, if the provider reported it.
    pub usage: Option<Usage>,
    /// The number of requests sent for it, including retries.
    pub attempts: u32,
}

/// The deltas of one answer. The first error ends the stream.
pub type ResponseStream<'a> = BoxStream<'a, Result<Delta, ModelError>>;

/// A language model that completes conversations, one request at a time.
///
/// # Contract
/// The stream yields at least one [`Delta::Finish`] or ends with an error; the implementation reports a
/// stream without either as [`ModelErrorKind::TruncatedStream`](crate::ModelErrorKind::TruncatedStream).
/// Dropping the stream cancels the request. Implementations do not retry; wrap them in
/// [`Retrying`](crate::retries::Retrying).
pub trait ChatModel: Send + Sync {
    /// Returns the model's name, for people.
    fn name(&self) -> &str;

    /// Sends `request` and streams the answer.
    fn stream(&self, request: Request) -> ResponseStream<'_>;

    /// Returns the names of all models that may answer, in the order of calls.
    fn names(&self) -> Vec<&str> {
        vec![self.name()]
    }

    /// Returns the settings with which it sends a request that has none of its own, such as its `temperature`. A thread stores
    /// them, so that a replay reports a change; they contain no keys. None by default.
    fn settings(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Returns the media types that it, or any of several models, accepts. Other media are not part of its
    /// requests; the text of their message describes them. None by default.
    fn accepts(&self) -> Accepts {
        Accepts::NOTHING
    }

    /// Returns whether its reasoning is valid only behind the messages and tools before it, unchanged: the provider signs them.
    /// Then a hint stays in the conversation, and the tools stay the same within a turn.
    fn signs_prefix(&self) -> bool {
        false
    }

    /// Returns the known facts about the model that has this name among [its names](Self::names), such as its window and its
    /// prices. None by default.
    fn info(&self, _name: &str) -> Option<&Arc<ModelInfo>> {
        None
    }
}

/// A model with another name, for example if two providers use equal names.
#[derive(Clone, Debug)]
pub struct Named<M> {
    name: String,
    model: M,
}

impl<M: ChatModel> Named<M> {
    /// Sets the name of `model`.
    pub fn new(name: impl Into<String>, model: M) -> Self {
        Self { name: name.into(), model }
    }
}

impl<M: ChatModel> ChatModel for Named<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        self.model.stream(request)
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.model.settings()
    }

    fn accepts(&self) -> Accepts {
        self.model.accepts()
    }

    fn signs_prefix(&self) -> bool {
        self.model.signs_prefix()
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.model.info(if name == self.name { self.model.name() } else { name })
    }
}

macro_rules! chat_model_behind {
    ($($pointer:ty),*) => {$(
        impl<M: ChatModel + ?Sized> ChatModel for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }

            fn stream(&self, request: Request) -> ResponseStream<'_> {
                (**self).stream(request)
            }

            fn names(&self) -> Vec<&str> {
                (**self).names()
            }

            fn settings(&self) -> BTreeMap<String, Value> {
                (**self).settings()
            }

            fn accepts(&self) -> Accepts {
                (**self).accepts()
            }

            fn signs_prefix(&self) -> bool {
                (**self).signs_prefix()
            }

            fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
                (**self).info(name)
            }
        }
    )*};
}

chat_model_behind!(Arc<M>, Box<M>, &M);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_shown_by_its_stored_name() {
        use FinishReason::*;
        for reason in [Stop, ToolCalls, Length, ContextFull, ContentFilter, Refusal] {
            assert_eq!(serde_json::to_value(&reason).unwrap(), reason.to_string());
        }
        assert_eq!(Other("eos".to_owned()).to_string(), "eos");
    }

    #[test]
    fn parts_of_tokens_are_summed_and_left_out_if_zero() {
        let read: Usage = serde_json::from_str(r#"{"input_tokens":5,"output_tokens":2}"#).unwrap();
        assert_eq!(read, Usage::new(5, 2));
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"input_tokens":5,"output_tokens":2}"#);
        let parts = Usage { cached_tokens: 3, cache_write_tokens: 1, reasoning_tokens: 2, ..read };
        let sum = Usage { cached_tokens: 6, cache_write_tokens: 2, reasoning_tokens: 4, ..Usage::new(10, 4) };
        assert_eq!(parts + parts, sum);
    }

    #[test]
    fn a_request_has_the_messages_and_no_limits() {
        let request = Request::new([Message::user("Hello")]);
        assert_eq!(request, Request { messages: vec![Message::user("Hello")], ..Request::default() });
    }
}
