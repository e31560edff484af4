//! The seam between the agent and whatever completes its conversations.

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Accepts, Message, ModelError, ToolSpec};

/// What a model is asked: one request of the chat-completions kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The conversation, system message first.
    pub messages: Vec<Message>,
    /// The tools it may call; none forbids calls.
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema that the text of the answer is to have, for providers that can hold the model to it; `None` for any
    /// text.
    pub output_schema: Option<Value>,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f32>,
    /// Most tokens of the answer; `None` leaves it to the provider.
    pub max_tokens: Option<u32>,
    /// Where several models may answer, the name of the one that is asked first; `None` for the first of them. Not sent.
    pub ask_first: Option<String>,
}

/// A piece of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A piece of the text.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// A piece of a tool call. Providers send the id and the name first, late, or again, and the arguments in pieces.
    ToolCall {
        /// Which call of the answer; unreliable, some providers send 0 for every call.
        index: usize,
        /// The call's id, where this piece carries one.
        id: Option<String>,
        /// The tool's name, where this piece carries one.
        name: Option<String>,
        /// The next piece of the argument text.
        arguments: String,
    },
    /// The text of the answer so far is void: it held this many tool calls, which follow, behind the rest of the text.
    TextCalls {
        /// How many.
        n: usize,
    },
    /// Tokens spent so far. The last one counts.
    Usage(Usage),
    /// The model stopped. Usage may still follow.
    Finish(FinishReason),
    /// The wait before another attempt of the whole request.
    Retry {
        /// The attempt that starts after the wait, counted from 1.
        attempt: u32,
        /// The wait in milliseconds.
        delay_ms: u64,
        /// The HTTP status that caused it, if there was one.
        status: Option<u16>,
        /// What went wrong, in one line.
        reason: String,
    },
    /// Another model is asked instead, for this one cannot answer.
    Fallback {
        /// The name of the model that failed.
        from: String,
        /// The name of the model that is asked now.
        to: String,
        /// The HTTP status of the failure, if there was one.
        status: Option<u16>,
        /// What went wrong, in one line.
        reason: String,
    },
    /// Everything streamed by this attempt is void: the attempt failed half-way.
    AttemptDiscarded {
        /// The failed attempt, counted from 1.
        attempt: u32,
    },
}

/// Why a model stopped. A hint only: providers are wrong in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It had said everything.
    Stop,
    /// It wants tools called.
    ToolCalls,
    /// It ran into the output limit.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// The model refused; the text says so.
    Refusal,
    /// A reason this crate does not know, as the provider wrote it.
    Other(String),
}

/// Tokens of one request or of many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of everything that was sent.
    pub input_tokens: u64,
    /// Tokens of everything that came back.
    pub output_tokens: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }
}

/// One complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The assistant's message, without an id.
    pub message: Message,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it cost, if the provider said so.
    pub usage: Option<Usage>,
    /// How many requests were sent for it, retries included.
    pub attempts: u32,
}

/// The deltas of one answer. Ends with the first error.
pub type ResponseStream<'a> = BoxStream<'a, Result<Delta, ModelError>>;

/// A language model that completes conversations, one request at a time.
///
/// # Contract
/// The stream yields at least one [`Delta::Finish`] or ends with an error; a stream that simply stops is a fault that
/// the implementation reports as [`ModelErrorKind::TruncatedStream`](crate::ModelErrorKind::TruncatedStream).
/// Dropping the stream cancels the request. Implementations do not retry; wrap them in [`Retrying`](crate::Retrying).
pub trait ChatModel: Send + Sync {
    /// The model's name, for people.
    fn name(&self) -> &str;

    /// Sends `request` and streams the answer.
    fn stream(&self, request: Request) -> ResponseStream<'_>;

    /// The names of all models that may answer, in the order in which they are asked.
    fn names(&self) -> Vec<&str> {
        vec![self.name()]
    }

    /// The media that it takes, or that any of several models takes which may answer. Other media are not part of its requests;
    /// the text of their message describes them. None unless the implementation returns some.
    fn accepts(&self) -> Accepts {
        Accepts::NOTHING
    }
}

/// A model under another name, such as the second of two providers that call their models alike.
#[derive(Clone, Debug)]
pub struct Named<M> {
    name: String,
    model: M,
}

impl<M: ChatModel> Named<M> {
    /// Calls `model` `name`.
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

    fn accepts(&self) -> Accepts {
        self.model.accepts()
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

            fn accepts(&self) -> Accepts {
                (**self).accepts()
            }
        }
    )*};
}

chat_model_behind!(std::sync::Arc<M>, Box<M>, &M);
