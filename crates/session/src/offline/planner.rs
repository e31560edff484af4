//! The [`ChatModel`] of the demonstration, without a language model: it plans tool calls by rules and quotes the results.
//!
//! Deterministic and without network. The rules are in `plan`.

use futures::{StreamExt, stream};
use serde_json::Value;
use superstep::llm::{ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, Usage};

use super::plan::{self, FinishedCall, Move};

/// The name of the model without a server.
pub const OFFLINE: &str = "offline";

/// Without a model there are no tokens to count.
const NO_TOKENS: Delta = Delta::Usage(Usage::new(0, 0));

/// The offline model; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offline;

impl ChatModel for Offline {
    fn name(&self) -> &str {
        OFFLINE
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = answer(&request.messages, !request.tools.is_empty());
        stream::iter(deltas.into_iter().map(Ok)).boxed()
    }
}

fn answer(messages: &[Message], may_call: bool) -> Vec<Delta> {
    let asked = messages.iter().rposition(|message| message.role == Role::User);
    let (before, turn) = messages.split_at(asked.unwrap_or(messages.len()));
    let (prompt, after) = turn.split_first().map_or(("", turn), |(user, rest)| (user.content.as_str(), rest));
    match plan::next_move(prompt, &done(after), may_call) {
        Move::Call(calls) => {
            // Ids must be unique in the conversation.
            let used = before.iter().chain(after).map(|message| message.tool_calls.len()).sum::<usize>();
            let calls = calls.into_iter().enumerate().map(|(index, (tool, args))| Delta::ToolCall {
                index,
                id: Some(format!("offline-{}", used + index + 1)),
                name: Some(tool.to_owned()),
                arguments: args.to_string(),
            });
            calls.chain([NO_TOKENS, Delta::Finish(FinishReason::ToolCalls)]).collect()
        }
        Move::Say(text) => {
            let words = text.split_inclusive([' ', '\n']).map(|word| Delta::Text(word.to_owned()));
            words.chain([NO_TOKENS, Delta::Finish(FinishReason::Stop)]).collect()
        }
    }
}

/// Returns the calls of the turn so far with their results.
fn done(turn: &[Message]) -> Vec<FinishedCall<'_>> {
    let calls = turn.iter().flat_map(|message| &message.tool_calls);
    calls
        .filter_map(|call| {
            let result = turn.iter().find(|message| message.tool_call_id == call.id)?;
            let args: Value = serde_json::from_str(&call.arguments).ok()?;
            Some(FinishedCall { tool: &call.name, args, result: &result.content })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use superstep::llm::ToolCall;

    use super::*;

    fn text(deltas: Vec<Delta>) -> String {
        let texts = deltas.into_iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn calls_are_numbered_through_the_conversation() {
        let call = ToolCall::new("offline-1", "calculate", r#"{"expression":"1 + 1"}"#);
        let messages = [
            Message::user("1 + 1"),
            Message::assistant("").with_tool_calls([call]),
            Message::tool("offline-1", "2"),
            Message::assistant("1 + 1 = 2"),
            Message::user("What is 2 + 3?"),
        ];
        let deltas = answer(&messages, true);
        assert_eq!(
            deltas[0],
            Delta::ToolCall {
                index: 0,
                id: Some("offline-2".into()),
                name: Some("calculate".into()),
                arguments: r#"{"expression":"2 + 3"}"#.into(),
            }
        );
        assert_eq!(deltas[1..], [NO_TOKENS, Delta::Finish(FinishReason::ToolCalls)]);
        assert!(text(answer(&messages[..3], true)).starts_with("1 + 1 = 2\n"));
    }

    #[test]
    fn without_tools_it_only_talks() {
        let deltas = answer(&[Message::user("What is 2 + 3?")], false);
        assert_eq!(deltas.last(), Some(&Delta::Finish(FinishReason::Stop)));
        assert!(!deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. })));
    }
}
