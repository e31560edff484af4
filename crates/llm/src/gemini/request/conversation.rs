//! The conversation of a body.
//!
//! Start at [`Conversation`].

use std::{borrow::Cow, collections::BTreeMap, mem::take};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    Message, Role,
    gemini::parts::{CallResult, Part, parts},
    openai::message::WirePolicy,
};

/// Consecutive messages of one side.
#[derive(Serialize)]
pub(super) struct Content<'a> {
    role: &'static str,
    parts: Vec<Cow<'a, RawValue>>,
}

const USER: &str = "user";
const MODEL: &str = "model";

/// The contents of a conversation so far.
pub(super) struct Conversation<'a> {
    contents: Vec<Content<'a>>,
    /// The model signs its calls, and accepts images within results.
    signs_calls: bool,
    /// The names of the latest calls by their ids, and whether the ids are sent.
    calls: BTreeMap<&'a str, (Cow<'a, str>, bool)>,
    /// The images of the last results, which follow all of them.
    images: Vec<Cow<'a, RawValue>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(signs_calls: bool) -> Self {
        Self { contents: Vec::new(), signs_calls, calls: BTreeMap::new(), images: Vec::new() }
    }

    /// Adds a message, with the parts of its origin if that is valid.
    pub(super) fn add(&mut self, message: &'a Message, is_valid: bool) {
        if message.role != Role::Tool {
            self.end_results();
        }
        match message.role {
            Role::Assistant => self.answer(message, is_valid),
            Role::Tool => self.result(message),
            Role::System | Role::User => {
                parts(message, false).iter().for_each(|part| self.push(USER, Cow::Borrowed(&*part.json)));
            }
        }
    }

    fn answer(&mut self, message: &'a Message, is_valid: bool) {
        let parts = parts(message, is_valid);
        if self.contents.is_empty() && !parts.is_empty() {
            self.push(USER, Cow::Owned(Part::text("(earlier messages are left out)").json));
        }
        let mut is_first_call = true;
        for part in parts {
            // Of parallel calls, the first one has the signature.
            let is_foreign = self.signs_calls && !is_valid && part.call.is_some() && is_first_call;
            is_first_call &= part.call.is_none();
            self.push(MODEL, if is_foreign { part.signed() } else { Cow::Borrowed(&*part.json) });
        }
        let calls = parts.iter().filter_map(|part| part.call.as_ref());
        let calls = message.tool_calls.iter().zip(calls);
        self.calls
            .extend(calls.map(|(call, sent)| (&*call.id, (WirePolicy::Wrap.name(&call.name), sent.has_id))));
    }

    fn result(&mut self, message: &'a Message) {
        let id = &*message.tool_call_id;
        // A result without a call is refused in any form.
        let (name, has_id) = self.calls.get(id).cloned().unwrap_or((Cow::Borrowed("_"), false));
        let result = message.derived::<CallResult>();
        let (sent, images) = result.sent(&name, has_id.then_some(id), self.signs_calls);
        self.push(USER, Cow::Owned(sent));
        self.images.extend(images.iter().map(|image| Cow::Borrowed(&**image)));
    }

    fn end_results(&mut self) {
        take(&mut self.images).into_iter().for_each(|image| self.push(USER, image));
    }

    fn push(&mut self, role: &'static str, part: Cow<'a, RawValue>) {
        match self.contents.last_mut().filter(|content| content.role == role) {
            Some(content) => content.parts.push(part),
            None => self.contents.push(Content { role, parts: vec![part] }),
        }
    }

    /// Returns the contents. The last one is the user's.
    pub(super) fn end(mut self) -> Vec<Content<'a>> {
        self.end_results();
        if self.contents.last().is_none_or(|last| last.role == MODEL) {
            let text = if self.contents.is_empty() { "(empty)" } else { "(continue)" };
            self.push(USER, Cow::Owned(Part::text(text).json));
        }
        self.contents
    }
}
