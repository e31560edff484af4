//! A conversation as every provider takes it.

use std::collections::BTreeMap;

use superstep_llm::{Message, Role};

use crate::texts;

/// Copies a conversation so that each call has exactly one result, right behind it and in call order.
///
/// The agent's own turns are like that already. Others come from elsewhere, or were stopped between a call and its result
/// and then discarded. A call without a result gets one that says so; a result without a call is left out. Depends on the
/// conversation only, so that a longer one begins with what a shorter one became, as prompt caches want it.
pub(super) fn repaired<'a>(conversation: impl IntoIterator<Item = &'a Message>) -> Vec<Message> {
    let mut repaired = Vec::new();
    let mut conversation = conversation.into_iter().peekable();
    while let Some(message) = conversation.next() {
        if message.role == Role::Tool {
            continue;
        }
        repaired.push(message.clone());
        let mut results: BTreeMap<&str, &Message> = BTreeMap::new();
        while let Some(result) = conversation.next_if(|next| next.role == Role::Tool) {
            results.entry(&result.tool_call_id).or_insert(result);
        }
        let answer = |id: &str| match results.get(id) {
            Some(&result) => result.clone(),
            None => Message::tool(id, texts::LOST),
        };
        repaired.extend(message.tool_calls.iter().map(|call| answer(&call.id)));
    }
    repaired
}

#[cfg(test)]
mod tests {
    use superstep_llm::ToolCall;

    use super::*;

    fn calls(ids: &[&str]) -> Message {
        Message::assistant("").with_tool_calls(ids.iter().map(|id| ToolCall::new(*id, "echo", "{}")))
    }

    fn user() -> Message {
        Message::user("u")
    }

    #[test]
    fn x7_a_lost_result_is_said_to_be_lost() {
        let lost = |id| Message::tool(id, "[Tool result unavailable — call was interrupted or lost]");
        assert_eq!(repaired(&[user(), calls(&["c1"]), user()]), [user(), calls(&["c1"]), lost("c1"), user()]);
        assert_eq!(
            repaired(&[calls(&["c1", "c2"]), Message::tool("c2", "2")]),
            [calls(&["c1", "c2"]), lost("c1"), Message::tool("c2", "2")]
        );
    }

    #[test]
    fn x7_a_result_of_nothing_is_left_out() {
        assert_eq!(repaired(&[user(), Message::tool("zz", "?"), user()]), [user(), user()]);
        let one = Message::tool("c1", "1");
        assert_eq!(
            repaired(&[calls(&["c1"]), one.clone(), one.clone(), user(), one.clone()]),
            [calls(&["c1"]), one, user()]
        );
    }

    #[test]
    fn results_stand_in_the_order_of_their_calls() {
        let (one, two) = (Message::tool("c1", "1"), Message::tool("c2", "2"));
        let wanted = [calls(&["c1", "c2"]), one.clone(), two.clone()];
        assert_eq!(repaired(&[calls(&["c1", "c2"]), two, one]), wanted);
        assert_eq!(repaired(&wanted), wanted);
    }
}
