//! The content of requests and calls on exported spans, which is off by default.
//!
//! It is set as attributes of OpenTelemetry and not as fields of `tracing`, so that no log has it.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for GenAI client spans: capturing instructions, inputs, and outputs.

use std::sync::OnceLock;

use serde_json::{Value, json};
use tracing::Span;

use crate::{Assembler, Delta, FinishReason, Message, Request, Role};

/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// The shortest secret that is searched for: a shorter text may be a word of the conversation.
const MIN_SECRET_LENGTH: usize = 8;

static CAPTURE: OnceLock<ContentCapture> = OnceLock::new();

/// The content of spans: system prompts, messages, replies, arguments and results of tools.
pub struct ContentCapture {
    /// The maximum size of an attribute in bytes. Of messages, the newest that fit are captured.
    pub limit: usize,
    /// Texts that are replaced, such as keys, also as they are written in JSON. Those of fewer than eight bytes are not.
    pub secrets: Vec<String>,
}

/// Captures the content of all spans of this process that are exported by OpenTelemetry. Returns `false`, and changes nothing, if the
/// capture is on already.
pub fn capture_content(mut capture: ContentCapture) -> bool {
    capture.secrets = searched(&capture.secrets);
    CAPTURE.set(capture).is_ok()
}

/// Returns the texts to search for.
fn searched(secrets: &[String]) -> Vec<String> {
    let mut searched = Vec::new();
    for secret in
        secrets.iter().map(|secret| secret.trim()).filter(|secret| secret.len() >= MIN_SECRET_LENGTH)
    {
        // Arguments of tools are JSON.
        let escaped = json!(secret).to_string();
        searched.extend([secret.to_owned(), escaped[1..escaped.len() - 1].to_owned()]);
    }
    // A secret may contain another one.
    searched.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    searched.dedup();
    searched
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
            message["finish_reason"] = capture.reason(reason);
            set(span, "gen_ai.output.messages", capture.newest([message]));
        }
    }
}

impl ContentCapture {
    /// Replaces the secrets of a text.
    fn redacted(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.as_str()) { text.replace(secret.as_str(), REDACTED) } else { text }
        })
    }

    /// Shortens a text so that it fits with a note about the rest, or without one if not even that fits.
    fn cut(&self, text: &str, limit: usize) -> String {
        if text.len() <= limit {
            return text.to_owned();
        }
        let note = |shown: usize| format!("… [{} more bytes]", text.len() - shown);
        // The note is longest where nothing is shown.
        let Some(size) = limit.checked_sub(note(0).len()) else {
            return text[..text.floor_char_boundary(limit)].to_owned();
        };
        let shown = text.floor_char_boundary(size);
        format!("{}{}", &text[..shown], note(shown))
    }

    /// Returns the reason of an end, which may be any text of the server.
    fn reason(&self, reason: &FinishReason) -> Value {
        match reason {
            FinishReason::Other(text) => json!(self.name(text)),
            reason => json!(reason),
        }
    }

    /// Returns a short text of the server, such as the name of a tool.
    fn name(&self, text: &str) -> String {
        self.cut(&self.redacted(text), self.limit / 16)
    }

    fn text(&self, kind: &str, text: &str) -> Value {
        // Several fit, also with their keys and their escapes.
        json!({"type": kind, "content": self.cut(&self.redacted(text), self.limit / 4)})
    }

    /// Returns a message in the form of the conventions, without its media.
    fn message(&self, message: &Message) -> Value {
        let (mut parts, cut) = (Vec::new(), |text: &str| self.cut(&self.redacted(text), self.limit / 4));
        if message.role == Role::Tool {
            let (id, response) = (self.name(&message.tool_call_id), cut(&message.content));
            parts.push(json!({"type": "tool_call_response", "id": id, "response": response}));
        } else {
            for (kind, text) in [("reasoning", &message.reasoning), ("text", &message.content)] {
                if !text.is_empty() {
                    parts.push(self.text(kind, text));
                }
            }
        }
        for call in &message.tool_calls {
            let (id, name) = (self.name(&call.id), self.name(&call.name));
            let arguments = cut(&call.arguments);
            parts.push(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments}));
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
    fn no_part_of_a_message_has_a_secret() {
        let secret = r#"pass"word\1"#;
        let capture =
            ContentCapture { limit: 4096, secrets: searched(&[format!(" {secret}\n"), "short".to_owned()]) };
        assert_eq!(capture.secrets, [r#"pass\"word\\1"#, secret]);
        let arguments = json!({"command": secret}).to_string();
        let asked = Message::assistant("").with_tool_calls([ToolCall::new(secret, secret, arguments)]);
        let answered = Message::tool(secret, "short");
        let mut text = capture.newest([capture.message(&answered), capture.message(&asked)]);
        text += &capture.reason(&FinishReason::Other(secret.to_owned())).to_string();
        assert_eq!(text.matches(REDACTED).count(), 5, "{text}");
        assert!(!text.contains("word") && text.contains("short"), "{text}");
        assert_eq!(capture.reason(&FinishReason::ToolCalls), json!("tool_calls"));
        assert!(capture.name(&"x".repeat(5000)).len() <= 256);
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
        let cut = |limit| capture(100).cut(&"é".repeat(100), limit);
        assert_eq!(cut(29), "éééé… [192 more bytes]");
        assert_eq!(cut(7), "ééé");
        for limit in 0..202 {
            assert!(cut(limit).len() <= limit, "{limit}");
        }
    }
}
