//! The forms of requests for servers that refuse the usual one.
//!
//! Start at [`Repairs`].

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    Delta, Message, ModelError, ModelErrorKind, Request, Role,
    messages::extras::{fnv, valid},
};

// Unknown fields are sent back: Gemini rejects a call without its signature, OpenRouter's models lose their reasoning
// without its details, and a list of known fields would always be behind. A strict server refuses its own fields, or
// accepts only ids of its own form. Neither is known in advance, so it is learned from the refusal, once in a
// process; at most three requests follow the first.
/// The protocol of the messages.
const WIRE: &str = "chat";

/// A change of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// The ids of calls have nine letters and digits, a form that every server accepts.
    PlainIds,
    /// The fields that the server added to its answers stay out.
    NoExtras,
    /// The field `stream_options` stays out.
    NoStreamOptions,
}

/// The repairs of one model's requests, learned from refused ones.
#[derive(Debug)]
pub(crate) struct Repairs {
    server: String,
    model: String,
    plain_ids: AtomicBool,
    no_extras: AtomicBool,
    no_stream_options: AtomicBool,
}

impl Repairs {
    pub(crate) fn new(server: String, model: &str) -> Self {
        let [plain_ids, no_extras, no_stream_options] = [(); 3].map(|()| AtomicBool::new(false));
        Self { server, model: model.to_owned(), plain_ids, no_extras, no_stream_options }
    }

    /// Returns the place where the fields of an answer are valid.
    pub(crate) fn origin(&self) -> Delta {
        let (server, model) = (self.server.clone(), self.model.clone());
        Delta::Origin { wire: WIRE.into(), server, model, prefix: String::new() }
    }

    /// Returns the request in the form of all learned repairs, and of these. It has only the origins that are valid here.
    pub(crate) fn form(&self, mut request: Request, tried: &[Repair]) -> Request {
        let no_extras = self.has(Repair::NoExtras, tried);
        for message in &mut request.messages {
            let is_valid = !no_extras && valid(message, (WIRE, &self.server, &self.model)).is_some();
            if message.origin.is_some() && !is_valid {
                message.to_mut().origin = None;
            }
        }
        if self.has(Repair::PlainIds, tried) {
            plain_ids(&mut request.messages);
        }
        request
    }

    /// Returns whether a repair is learned, or one of these.
    pub(crate) fn has(&self, repair: Repair, tried: &[Repair]) -> bool {
        tried.contains(&repair) || self.flag(repair).load(Ordering::Relaxed)
    }

    /// Returns another repair of a refused request; `None` if its form is not at fault.
    pub(crate) fn of(&self, error: &ModelError, sent: &Request, tried: &[Repair]) -> Option<Repair> {
        if error.kind != ModelErrorKind::BadRequest || error.status.is_none() {
            return None;
        }
        let message = error.message.to_lowercase();
        if message.contains("stream_options") && !self.has(Repair::NoStreamOptions, tried) {
            return Some(Repair::NoStreamOptions);
        }
        let mut words = message.split(|char: char| !char.is_alphanumeric());
        let names_ids = words.any(|word| matches!(word, "id" | "ids"));
        let has_extras = sent.messages.iter().any(|message| message.origin.is_some());
        let has_calls = sent.messages.iter().any(|message| !message.tool_calls.is_empty());
        let ids = names_ids && has_calls && !self.has(Repair::PlainIds, tried);
        ids.then_some(Repair::PlainIds).or(has_extras.then_some(Repair::NoExtras))
    }

    /// Applies repairs to all later requests.
    pub(crate) fn remember(&self, repairs: &[Repair]) {
        repairs.iter().for_each(|repair| self.flag(*repair).store(true, Ordering::Relaxed));
    }

    fn flag(&self, repair: Repair) -> &AtomicBool {
        match repair {
            Repair::PlainIds => &self.plain_ids,
            Repair::NoExtras => &self.no_extras,
            Repair::NoStreamOptions => &self.no_stream_options,
        }
    }
}

/// Replaces the ids of calls and their results, except for those of the form already. They depend on the ids and their order only,
/// so that a longer conversation begins with the bytes of the shorter one.
fn plain_ids(messages: &mut [Message]) {
    // The number of calls with an id so far, and the last replacement.
    let mut seen: BTreeMap<String, (u32, String)> = BTreeMap::new();
    for message in messages {
        if !message.tool_calls.is_empty() {
            for call in &mut message.to_mut().tool_calls {
                let (times, plain) = seen.entry(call.id.clone()).or_default();
                *plain = plain_id(&call.id, *times);
                *times += 1;
                call.id.clone_from(plain);
            }
        } else if message.role == Role::Tool
            && let Some((_, plain)) = seen.get(&message.tool_call_id)
        {
            message.to_mut().tool_call_id.clone_from(plain);
        }
    }
}

/// Returns an id in the strictest known form, that of Mistral: nine letters and digits.
fn plain_id(id: &str, times: u32) -> String {
    if times == 0 && id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut hash = fnv(id.bytes().chain(times.to_le_bytes()));
    let mut plain = String::new();
    for _ in 0..9 {
        let digit = u32::try_from(hash % 36).expect("less than 36");
        plain.extend(char::from_digit(digit, 36));
        hash /= 36;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn plain_ids_are_unique_and_belong_to_the_same_results() {
        let round = |id: &str| {
            let calls = Message::assistant("").with_tool_calls([ToolCall::new(id, "x", "{}")]);
            [calls, Message::tool(id, "y")]
        };
        let mut messages: Vec<_> =
            ["call_1", "call_1", "Abcdef123", ""].into_iter().flat_map(round).collect();
        let before = messages.clone();
        plain_ids(&mut messages);
        let ids: Vec<_> =
            messages.iter().flat_map(|message| &message.tool_calls).map(|call| &call.id).collect();
        let results: Vec<_> =
            messages.iter().map(|message| &message.tool_call_id).filter(|id| !id.is_empty()).collect();
        assert_eq!(ids, results);
        assert!(
            ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
            "{ids:?}"
        );
        assert_eq!((ids[2].as_str(), ids[0] == ids[1]), ("Abcdef123", false));
        // A longer conversation begins with the same ids.
        let mut shorter = before[..2].to_vec();
        plain_ids(&mut shorter);
        assert_eq!(shorter, messages[..2]);
    }

    #[test]
    fn only_a_refusal_of_the_form_is_repaired() {
        let repairs = Repairs::new("http://h".into(), "m");
        let calls = Message::assistant("").with_tool_calls([ToolCall::new("call_1", "x", "{}")]);
        let of = |kind, message: &str, request: &Request| {
            let error = ModelError { status: Some(400), ..ModelError::new(kind, message) };
            repairs.of(&error, request, &[])
        };
        let (plain, called) = (Request::new([Message::user("hi")]), Request::new([calls]));
        let refusal = "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.";
        assert_eq!(of(ModelErrorKind::BadRequest, refusal, &called), Some(Repair::PlainIds));
        assert_eq!(
            of(ModelErrorKind::BadRequest, "`messages[1].tool_calls[0].id` is too long", &called),
            Some(Repair::PlainIds)
        );
        assert_eq!(of(ModelErrorKind::BadRequest, refusal, &plain), None);
        assert_eq!(of(ModelErrorKind::BadRequest, "unknown parameter `seed`", &called), None);
        assert_eq!(of(ModelErrorKind::Server, refusal, &called), None);
        repairs.remember(&[Repair::PlainIds]);
        assert_eq!(of(ModelErrorKind::BadRequest, refusal, &called), None);
    }
}
