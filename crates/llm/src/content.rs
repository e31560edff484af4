//! The content of requests and calls on exported spans, which is off by default.
//!
//! It is set as attributes of OpenTelemetry and not as fields of `tracing`, so that no log has it.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for GenAI client spans: capturing instructions, inputs, and outputs.

use std::sync::OnceLock;

use serde_json::{Value, json};
use tracing::Span;

use crate::{Assembler, Delta, Message, Request, Role};

/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// The shortest secret that is searched for: a shorter text may be a word of the conversation.
const SHORTEST: usize = 8;

static CAPTURE: OnceLock<ContentCapture> = OnceLock::new();

/// The content of spans: system prompts, messages, replies, arguments and results of tools.
pub struct ContentCapture {
    /// The maximum size of an attribute in bytes. Of messages, the newest that fit are captured.
    pub limit: usize,
    /// Texts that are replaced, such as keys. Those of fewer than eight bytes are not.
    pub secrets: Vec<String>,
}

/// Captures the content of all spans of this process that are exported by OpenTelemetry. Returns `false`, and changes nothing, if the
/// capture is on already.
pub fn capture_content(mut capture: ContentCapture) -> bool {
    capture.secrets.retain(|secret| secret.len() >= SHORTEST);
    // A secret may contain another one.
    capture.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    CAPTURE.set(capture).is_ok()
}

/// Sets a text as an attribute of a span, if content is captured.
pub fn captured(span: &Span, name: &'static str, text: impl FnOnce() -> String) {
    if let Some(capture) = wanted(span) {
        set(span, name, capture.cut(&capture.redacted(&text()), capture.limit));
    }
}

/// Returns the capture, if the content of this span is wanted.
fn wanted(span: &Span) -> Option<&'static ContentCapture> {
    if span.is_disabled() { None } else { CAPTURE.get() }
}

fn set(span: &Span, name: &'static str, value: String) {
    #[cfg(feature = "opentelemetry")]
    tracing_opentelemetry::OpenTelemetrySpanExt::set_attribute(span, name, value);
    #[cfg(not(feature = "opentelemetry"))]
    let _ = (span, name, value);
}

/// Captures the messages of a request.
pub(crate) fn request(span: &Span, request: &Request) {
    let Some(capture) = wanted(span) else { return };
    let (system, others): (Vec<_>, Vec<_>) =
        request.messages.iter().partition(|message| message.role == Role::System);
    if !system.is_empty() {
        let parts = system.iter().map(|message| capture.text("text", &message.content));
        set(span, "gen_ai.system_instructions", capture.newest(parts.rev()));
    }
    let messages = others.iter().rev().map(|message| capture.message(message));
    set(span, "gen_ai.input.messages", capture.newest(messages));
}

/// The reply to a request, as it arrives.
pub(crate) struct Reply(Option<Box<Assembler>>);

impl Reply {
    pub(crate) fn new(span: &Span) -> Self {
        Self(wanted(span).map(|_| Box::new(Assembler::new())))
    }

    /// Adds a piece, and captures the reply at its end.
    pub(crate) fn push(&mut self, span: &Span, delta: &Delta) {
        let Some(assembler) = &mut self.0 else { return };
        assembler.push(delta);
        if let (Delta::Finish(reason), Some(capture)) = (delta, wanted(span)) {
            let mut message = capture.message(&assembler.partial());
            message["finish_reason"] = json!(reason);
            set(span, "gen_ai.output.messages", capture.newest([message]));
        }
    }
}

impl ContentCapture {
    /// Replaces the secrets of a text.
    fn redacted(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), REDACTED),
            false => text,
        })
    }

    /// Shortens a text.
    fn cut(&self, text: &str, limit: usize) -> String {
        if text.len() <= limit {
            return text.to_owned();
        }
        let shown = &text[..text.floor_char_boundary(limit)];
        format!("{shown}… [{} more bytes]", text.len() - shown.len())
    }

    fn text(&self, kind: &str, text: &str) -> Value {
        // Several fit, also with their keys and their escapes.
        json!({"type": kind, "content": self.cut(&self.redacted(text), self.limit / 4)})
    }

    /// Returns a message in the form of the conventions, without its media.
    fn message(&self, message: &Message) -> Value {
        let (mut parts, cut) = (Vec::new(), |text: &str| self.cut(&self.redacted(text), self.limit / 4));
        if message.role == Role::Tool {
            let (id, response) = (&message.tool_call_id, cut(&message.content));
            parts.push(json!({"type": "tool_call_response", "id": id, "response": response}));
        } else {
            for (kind, text) in [("reasoning", &message.reasoning), ("text", &message.content)] {
                if !text.is_empty() {
                    parts.push(self.text(kind, text));
                }
            }
        }
        for call in &message.tool_calls {
            let arguments = cut(&call.arguments);
            parts
                .push(json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}));
        }
        json!({"role": message.role, "parts": parts})
    }

    /// Returns a list of those that fit, of which the newest comes first.
    fn newest(&self, newest_first: impl IntoIterator<Item = Value>) -> String {
        let (mut fitting, mut size) = (Vec::new(), 2);
        for value in newest_first {
            let text = value.to_string();
            size += text.len() + 1;
            if size > self.limit {
                break;
            }
            fitting.push(text);
        }
        fitting.reverse();
        format!("[{}]", fitting.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    fn capture(limit: usize) -> ContentCapture {
        ContentCapture { limit, secrets: vec!["sk-secret-1".to_owned()] }
    }

    #[test]
    fn a_message_has_the_form_of_the_conventions_without_secrets() {
        let call = ToolCall::new("c1", "shell", r#"{"command":"curl -H sk-secret-1"}"#);
        let asked = Message::assistant("look").with_tool_calls([call]);
        let answered = Message::tool("c1", "it says sk-secret-1");
        let capture = capture(4096);
        assert_eq!(
            capture.newest([capture.message(&answered), capture.message(&asked)]),
            concat!(
                r#"[{"parts":[{"content":"look","type":"text"},{"arguments":"{\"command\":\"curl -H [redacted]\"}","id":"c1","#,
                r#""name":"shell","type":"tool_call"}],"role":"assistant"},"#,
                r#"{"parts":[{"id":"c1","response":"it says [redacted]","type":"tool_call_response"}],"role":"tool"}]"#
            )
        );
    }

    #[test]
    fn an_attribute_is_bounded_and_remains_json() {
        for limit in [0, 1, 7, 100, 333, 1000] {
            let capture = capture(limit);
            let all: Vec<_> =
                (0..50).map(|nth| Message::user(format!("{nth} {}", "é\"\n".repeat(nth * 7)))).collect();
            let text = capture.newest(all.iter().rev().map(|message| capture.message(message)));
            assert!(text.len() <= limit.max(2), "{limit}: {}", text.len());
            let read: Vec<Value> = serde_json::from_str(&text).unwrap();
            if let Some(newest) = read.last() {
                assert!(newest.to_string().contains("49 "), "{text}");
            }
        }
        let long = capture(100).cut(&"é".repeat(100), 7);
        assert_eq!(long, "ééé… [194 more bytes]");
    }
}
