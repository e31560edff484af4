//! The part of a conversation that a model summarizes, as text.
//!
//! Start at [`conversation_text`].

use std::fmt::Write;

use superstep_llm::{Message, Role};

use super::{
    shown::Shown,
    summary::{closed, message},
};
use crate::config::{Truncate, TruncateSide};

/// Maximum number of characters of a message in a summary request.
const MAX_LENGTH: usize = 8_000;

/// Formats the sent conversation before `start` as text, without the retained message.
pub(super) fn conversation_text(shown: &Shown<'_>, start: usize, stays: Option<usize>) -> String {
    let mut text = String::new();
    if let Some(summary) = &shown.summary {
        text.push_str(&message(summary).content);
        text.push_str("\n\n");
    }
    text.push_str("<conversation>\n");
    let places = shown.kept.into_iter().chain(shown.start..start);
    for place in places.filter(|place| Some(*place) != stays) {
        write(&mut text, &shown.at(place));
    }
    text.push_str("</conversation>");
    text
}

fn write(text: &mut String, said: &Message) {
    let marker = "\n[… {omitted} characters …]\n".to_owned();
    let bound =
        Truncate { max_chars: Some(MAX_LENGTH), keep: TruncateSide::HeadTail, marker, ..Truncate::default() };
    let short = |text: &str| closed(&bound.apply(text.to_owned()));
    let who = match said.role {
        Role::Tool => format!("result of {}", said.tool_call_id),
        role => role.to_string(),
    };
    if !said.content.is_empty() || said.tool_calls.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{who}: {}", short(&said.content));
    }
    for call in &said.tool_calls {
        let _ = writeln!(text, "{who} calls {} ({}): {}", call.name, call.id, short(&call.arguments));
    }
}
