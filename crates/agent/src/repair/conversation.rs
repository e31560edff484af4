//! Repair of a conversation to a form that every provider accepts.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hasher},
};

use superstep_llm::{Message, MessageData, Role, convert::DerivedFrom};

use crate::config::{ResultOrder, prompts};

// Only repairs that some provider requires.
/// Repairs a conversation so that each call has a unique id and exactly one result directly after it, in the
/// order of the calls or of the stored results.
///
/// The agent's own turns nearly comply already. Others come from elsewhere, or were stopped between a call
/// and its result and then discarded. A call without a result gets one that states this; results without a
/// call and empty assistant messages are omitted. Duplicate ids are made unique by a number: some servers
/// restart them in every response, and others reject duplicates. The result depends on the conversation only,
/// and a longer conversation extends a shorter one's result, as prompt caches require.
pub(crate) fn repaired(conversation: Vec<Message>, order: ResultOrder) -> Vec<Message> {
    if is_whole(&conversation, order) { conversation } else { rebuilt(conversation, order) }
}

fn rebuilt(conversation: Vec<Message>, order: ResultOrder) -> Vec<Message> {
    let mut repaired = Vec::new();
    let mut ids = Ids::default();
    let mut conversation = conversation.into_iter().peekable();
    while let Some(mut message) = conversation.next() {
        if message.role == Role::Tool || says_nothing(&message) {
            continue;
        }
        let mut results: BTreeMap<String, (usize, Message)> = BTreeMap::new();
        while let Some(result) = conversation.next_if(|next| next.role == Role::Tool) {
            let place = results.len();
            results.entry(result.tool_call_id.clone()).or_insert((place, result));
        }
        let mut answers = Vec::new();
        for at in 0..message.tool_calls.len() {
            let call = &message.tool_calls[at];
            let (place, mut answer) = match results.get(call.id.as_str()) {
                Some((place, result)) => (*place, result.clone()),
                None => (usize::MAX, Message::tool(&call.id, prompts::LOST)),
            };
            if let Some(id) = ids.take(&call.id) {
                answer.to_mut().tool_call_id.clone_from(&id);
                message.to_mut().tool_calls[at].id = id;
            }
            answers.push((place, answer));
        }
        if order == ResultOrder::Completion {
            answers.sort_by_key(|(place, _)| *place);
        }
        repaired.push(message);
        repaired.extend(answers.into_iter().map(|(_, answer)| answer));
    }
    repaired
}

/// Returns whether there is nothing to repair. The usual case, so that it copies and hashes nothing twice.
fn is_whole(conversation: &[Message], order: ResultOrder) -> bool {
    let mut ids = HashSet::<u64, BuildHasherDefault<Hashed>>::default();
    ids.reserve(conversation.len());
    let mut rest = conversation;
    while let Some((message, behind)) = rest.split_first() {
        let shape = message.derived::<Shape>();
        let n = behind.iter().position(|next| next.role != Role::Tool).unwrap_or(behind.len());
        let (results, next) = behind.split_at(n);
        let calls = &message.tool_calls;
        let answers = |result: &Message, id: &str| result.tool_call_id == id;
        let is_answered = match order {
            ResultOrder::Call => calls.iter().zip(results).all(|(call, result)| answers(result, &call.id)),
            ResultOrder::Completion => {
                calls.iter().all(|call| results.iter().any(|result| answers(result, &call.id)))
            }
        };
        // An id whose hash is not unique may be unique itself; the repair finds out.
        let is_whole = shape.is_whole
            && results.len() == calls.len()
            && is_answered
            && shape.ids.iter().all(|id| ids.insert(*id));
        if !is_whole {
            return false;
        }
        rest = next;
    }
    true
}

/// The properties of a message that its repair depends on.
struct Shape {
    /// `true` if the message may stand in a conversation, except between a call and its results.
    is_whole: bool,
    /// The hashes of its calls' ids.
    ids: Box<[u64]>,
}

impl DerivedFrom<MessageData> for Shape {
    fn derive(message: &MessageData) -> Self {
        let calls = &message.tool_calls;
        let is_whole = message.role != Role::Tool
            && !says_nothing(message)
            && calls.iter().all(|call| !call.id.is_empty());
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        Self { is_whole, ids: calls.iter().map(|call| hash.hash_one(call.id.as_str())).collect() }
    }
}

/// The hasher of values that are hashes.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

fn says_nothing(message: &MessageData) -> bool {
    message.role == Role::Assistant && message.tool_calls.is_empty() && message.content.trim().is_empty()
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
        repaired_of(conversation.to_vec(), ResultOrder::Call)
    }

    fn calls(ids: &[&str]) -> Message {
        Message::assistant("").with_tool_calls(ids.iter().map(|id| ToolCall::new(*id, "echo", "{}")))
    }

    fn user() -> Message {
        Message::user("u")
    }

    #[test]
    fn a_lost_result_is_marked_as_lost() {
        let lost = |id| Message::tool(id, "[Tool result unavailable — call was interrupted or lost]");
        assert_eq!(repaired(&[user(), calls(&["c1"]), user()]), [user(), calls(&["c1"]), lost("c1"), user()]);
        assert_eq!(
            repaired(&[calls(&["c1", "c2"]), Message::tool("c2", "2")]),
            [calls(&["c1", "c2"]), lost("c1"), Message::tool("c2", "2")]
        );
    }

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
        let as_stored = repaired_of(stored.to_vec(), ResultOrder::Completion);
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
        let nothing = Message::assistant(" \n").with(|message| message.reasoning = "hm".into());
        assert_eq!(repaired(&[user(), nothing, user()]), [user(), user()]);
    }
    #[test]
    fn exactly_the_conversations_that_a_repair_would_change_are_rebuilt() {
        let kinds = [
            user(),
            Message::assistant(" "),
            calls(&["c1"]),
            calls(&["c2", "c3"]),
            calls(&["", "c1"]),
            Message::tool("c1", "1"),
            Message::tool("c2", "2"),
            Message::tool("c3", "3"),
        ];
        let mut conversations = vec![Vec::new()];
        for _ in 0..4 {
            let longer = conversations.iter().flat_map(|conversation: &Vec<Message>| {
                kinds.iter().map(|kind| [&conversation[..], std::slice::from_ref(kind)].concat())
            });
            conversations = longer.collect();
            for (conversation, order) in conversations.iter().flat_map(|conversation| {
                [ResultOrder::Call, ResultOrder::Completion].map(|order| (conversation, order))
            }) {
                let rebuilt = rebuilt(conversation.clone(), order);
                assert_eq!(is_whole(conversation, order), rebuilt == *conversation, "{conversation:?}");
            }
        }
    }
}
