//! The ids of calls in a request, and the order of their results.
//!
//! Start at [`wire_ids`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use crate::{Message, Role, messages::extras::fnv};

/// Returns the ids of each message: those of its calls, or that of the call it answers.
///
/// A stored id is used if it has at most `most` bytes that all `fit`, and if no call before has it. Any other is replaced, in the
/// call and its result, by `c` and 15 digits. They depend on the messages so far only, so that a longer conversation begins with
/// the bytes of the shorter one.
pub(crate) fn wire_ids<'a>(
    messages: &'a [Message],
    fits: impl Fn(u8) -> bool,
    most: usize,
) -> Vec<Vec<Cow<'a, str>>> {
    let fits = |id: &str| !id.is_empty() && id.len() <= most && id.bytes().all(&fits);
    let mut used = BTreeSet::new();
    // The sent ids of the last message with calls of a stored id, without those that are answered.
    let mut open: BTreeMap<&str, VecDeque<Cow<'a, str>>> = BTreeMap::new();
    let ids = messages.iter().enumerate().map(|(at, message)| {
        if message.role == Role::Tool {
            let id = open.get_mut(&*message.tool_call_id).and_then(|ids| {
                let is_last = ids.len() == 1;
                if is_last { ids.front().cloned() } else { ids.pop_front() }
            });
            return vec![id.unwrap_or(Cow::Borrowed(&message.tool_call_id))];
        }
        message.tool_calls.iter().for_each(|call| drop(open.remove(&*call.id)));
        let ids = message.tool_calls.iter().enumerate().map(|(position, call)| {
            let is_kept = fits(&call.id) && !used.contains(&*call.id);
            let id = if is_kept {
                Cow::Borrowed(&*call.id)
            } else {
                Cow::Owned(replacement(message, at, position, &used))
            };
            used.insert(id.clone());
            open.entry(&call.id).or_default().push_back(id.clone());
            id
        });
        ids.collect()
    });
    ids.collect()
}

/// Gives the calls of a conversation, and their results, the ids of [`wire_ids`].
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) fn with_wire_ids(messages: &mut [Message], fits: impl Fn(u8) -> bool, most: usize) {
    let ids = wire_ids(messages, fits, most);
    let ids: Vec<Vec<String>> =
        ids.into_iter().map(|ids| ids.into_iter().map(Cow::into_owned).collect()).collect();
    for (message, ids) in messages.iter_mut().zip(ids) {
        let is_result = message.role == Role::Tool;
        let stored = message.tool_calls.iter().map(|call| &call.id);
        let stored = stored.chain(is_result.then_some(&message.tool_call_id));
        if stored.eq(&ids) {
            continue;
        }
        let message = message.to_mut();
        let stored = message.tool_calls.iter_mut().map(|call| &mut call.id);
        let stored = stored.chain(is_result.then_some(&mut message.tool_call_id));
        stored.zip(ids).for_each(|(stored, id)| *stored = id);
    }
}

/// Returns the messages, with the results of each round in the order of their calls.
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) fn in_call_order(messages: &[Message]) -> Vec<&Message> {
    let mut ordered: Vec<&Message> = messages.iter().collect();
    let mut at = 0;
    while at < ordered.len() {
        let is_result = |message: &&&Message| message.role == Role::Tool;
        let results = ordered[at + 1..].iter().take_while(is_result).count();
        let calls = &ordered[at].tool_calls;
        ordered[at + 1..=at + results]
            .sort_by_key(|result| calls.iter().position(|call| call.id == result.tool_call_id));
        at += results + 1;
    }
    ordered
}

/// Returns an id for a call that no call before has.
fn replacement(message: &Message, at: usize, position: usize, used: &BTreeSet<Cow<'_, str>>) -> String {
    // A message that is not stored has no id.
    let message = if message.id.is_empty() { at.to_string() } else { message.id.clone() };
    let hash = |times: u32| fnv(format!("{message}\n{position}\n{times}").bytes());
    let id = |times| format!("c{:015x}", hash(times) >> 4);
    (0..).map(id).find(|id| !used.contains(&**id)).expect("the used ids are finite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    fn sent(messages: &[Message]) -> Vec<Vec<String>> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let ids = wire_ids(messages, fits, 64);
        ids.into_iter().map(|ids| ids.into_iter().map(Cow::into_owned).collect()).collect()
    }

    fn calls(message: &str, ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "x", "{}"));
        Message::assistant("").with_id(message).with_tool_calls(calls)
    }

    #[test]
    fn ids_that_fit_and_differ_are_sent_as_they_are() {
        let messages = [
            Message::user("hi"),
            calls("m1", &["call_1", "b"]),
            Message::tool("b", ""),
            Message::tool("call_1", ""),
        ];
        assert_eq!(
            sent(&messages),
            [vec![], vec!["call_1".to_owned(), "b".into()], vec!["b".into()], vec!["call_1".into()]]
        );
    }

    #[test]
    fn other_ids_are_replaced_in_the_call_and_its_result() {
        let long = "a".repeat(65);
        for id in ["functions.add:0", "", &long, "ü"] {
            let messages = [calls("m1", &[id]), Message::tool(id, "")];
            let ids = sent(&messages);
            assert_eq!(ids[0], ids[1], "{id}");
            assert!(ids[0][0].len() == 16 && ids[0][0].starts_with('c'), "{ids:?}");
        }
        assert_eq!(sent(&[calls("m1", &[&long[..64]])])[0], [&long[..64]]);
    }

    #[test]
    fn a_repeated_id_is_that_of_its_first_call() {
        let round = |message| [calls(message, &["call_1"]), Message::tool("call_1", "")];
        let messages: Vec<_> = ["m1", "m2", "m3"].into_iter().flat_map(round).collect();
        let ids = sent(&messages);
        assert_eq!(ids[0], ["call_1"]);
        for n in [0, 2, 4] {
            assert_eq!(ids[n], ids[n + 1]);
        }
        assert_eq!(ids.iter().flatten().collect::<BTreeSet<_>>().len(), 3);
        // A longer conversation begins with the same ids, and a message has its own in every conversation.
        assert_eq!(sent(&messages[..4]), ids[..4]);
        let removed = [&messages[..1], &messages[4..]].concat();
        assert_eq!(sent(&removed)[1], ids[4]);
    }

    #[test]
    fn equal_ids_in_one_message_are_answered_in_their_order() {
        let messages = [calls("m1", &["a", "a"]), Message::tool("a", "1"), Message::tool("a", "2")];
        let ids = sent(&messages);
        assert_eq!([&ids[1], &ids[2]].map(|id| id[0].clone()), [ids[0][0].clone(), ids[0][1].clone()]);
        assert_ne!(ids[0][0], ids[0][1]);
    }

    #[test]
    fn messages_without_ids_have_different_ones() {
        let messages = [calls("", &[""]), Message::tool("", ""), calls("", &[""]), Message::tool("", "")];
        let ids = sent(&messages);
        assert_eq!((&ids[0], &ids[2]), (&ids[1], &ids[3]));
        assert_ne!(ids[0], ids[2]);
        // An unanswered call leaves its place to the next one.
        let ids = sent(&[calls("m1", &["a"]), calls("m2", &["a"]), Message::tool("a", "")]);
        assert_eq!(ids[1], ids[2]);
        // A result without a call stays as it is.
        assert_eq!(sent(&[Message::tool("x", "")]), [["x"]]);
    }
}
