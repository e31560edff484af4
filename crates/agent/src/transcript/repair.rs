//! Repair of a conversation to a form that every provider accepts.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use superstep_llm::{Message, Role};

use crate::config::{ResultOrder, prompts};

/// Copies a conversation so that each call has a unique id and exactly one result directly after it, in the
/// order of the calls or of the stored results.
///
/// The agent's own turns nearly comply already. Others come from elsewhere, or were stopped between a call
/// and its result and then discarded. A call without a result gets one that states this; results without a
/// call and empty assistant messages are omitted. Duplicate ids are made unique by a number: some servers
/// restart them in every response, and others reject duplicates. The result depends on the conversation only,
/// and a longer conversation extends a shorter one's result, as prompt caches require.
pub(crate) fn repaired<'a>(
    conversation: impl IntoIterator<Item = Cow<'a, Message>>,
    order: ResultOrder,
) -> Vec<Message> {
    let mut repaired = Vec::new();
    let mut ids = Ids::default();
    let mut conversation = conversation.into_iter().peekable();
    while let Some(message) = conversation.next() {
        let says_nothing = message.tool_calls.is_empty() && message.content.trim().is_empty();
        if message.role == Role::Tool || (message.role == Role::Assistant && says_nothing) {
            continue;
        }
        let mut results: BTreeMap<String, (usize, Cow<'a, Message>)> = BTreeMap::new();
        while let Some(result) = conversation.next_if(|next| next.role == Role::Tool) {
            let place = results.len();
            results.entry(result.tool_call_id.clone()).or_insert((place, result));
        }
        let mut copy = message.into_owned();
        let mut answers = Vec::new();
        for call in &mut copy.tool_calls {
            let (place, mut answer) = match results.get(call.id.as_str()) {
                Some((place, result)) => (*place, result.clone().into_owned()),
                None => (usize::MAX, Message::tool(&call.id, prompts::LOST)),
            };
            if let Some(id) = ids.take(&call.id) {
                answer.tool_call_id.clone_from(&id);
                call.id = id;
            }
            answers.push((place, answer));
        }
        if order == ResultOrder::Completion {
            answers.sort_by_key(|(place, _)| *place);
        }
        repaired.push(copy);
        repaired.extend(answers.into_iter().map(|(_, answer)| answer));
    }
    repaired
}

/// The ids of all calls so far, each with the number of its next duplicate.
#[derive(Default)]
struct Ids(HashMap<String, u64>);

impl Ids {
    /// Returns a replacement for an id that is taken or empty.
    fn take(&mut self, id: &str) -> Option<String> {
        if !id.is_empty() && !self.0.contains_key(id) {
            self.0.insert(id.to_owned(), 2);
            return None;
        }
        let id = if id.is_empty() { "call" } else { id };
        let mut numbers = self.0.get(id).copied().unwrap_or(2)..;
        let (number, free) = numbers
            .by_ref()
            .map(|number| (number, format!("{id}_{number}")))
            .find(|(_, free)| !self.0.contains_key(free))?;
        self.0.insert(id.to_owned(), number + 1);
        self.0.insert(free.clone(), 2);
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use superstep_llm::ToolCall;

    use super::{repaired as repaired_of, *};

    fn repaired(conversation: &[Message]) -> Vec<Message> {
        repaired_of(conversation.iter().map(Cow::Borrowed), ResultOrder::Call)
    }

    fn calls(ids: &[&str]) -> Message {
        Message::assistant("").with_tool_calls(ids.iter().map(|id| ToolCall::new(*id, "echo", "{}")))
    }

    fn user() -> Message {
        Message::user("u")
    }

    // Case X7.
    #[test]
    fn a_lost_result_is_marked_as_lost() {
        let lost = |id| Message::tool(id, "[Tool result unavailable — call was interrupted or lost]");
        assert_eq!(repaired(&[user(), calls(&["c1"]), user()]), [user(), calls(&["c1"]), lost("c1"), user()]);
        assert_eq!(
            repaired(&[calls(&["c1", "c2"]), Message::tool("c2", "2")]),
            [calls(&["c1", "c2"]), lost("c1"), Message::tool("c2", "2")]
        );
    }

    // Case X7.
    #[test]
    fn a_result_of_nothing_is_left_out() {
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
        assert_eq!(repaired(&[calls(&["c1", "c2"]), two.clone(), one.clone()]), wanted);
        let stored = [calls(&["c1", "c2", "c3"]), two, one];
        let as_stored = repaired_of(stored.iter().map(Cow::Borrowed), ResultOrder::Completion);
        let lost = Message::tool("c3", prompts::LOST);
        assert_eq!(as_stored, [&stored[..], &[lost]].concat());
        assert_eq!(repaired(&wanted), wanted);
    }

    #[test]
    fn calls_of_two_rounds_with_one_id_are_distinguished() {
        let result = |id| Message::tool(id, "r");
        let round = [calls(&["c1"]), result("c1")];
        let stored = [&round[..], &round, &[calls(&["c1_2", ""]), result("c1_2")]].concat();
        assert_eq!(
            repaired(&stored),
            [
                calls(&["c1"]),
                result("c1"),
                calls(&["c1_2"]),
                result("c1_2"),
                calls(&["c1_2_2", "call_2"]),
                result("c1_2_2"),
                Message::tool("call_2", prompts::LOST),
            ]
        );
        let shorter = repaired(&stored[..4]);
        assert_eq!(repaired(&stored)[..4], shorter);
    }

    #[test]
    fn an_empty_assistant_message_is_omitted() {
        let nothing = Message { reasoning: "hm".into(), ..Message::assistant(" \n") };
        assert_eq!(repaired(&[user(), nothing, user()]), [user(), user()]);
    }
}
