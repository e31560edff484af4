//! The instructions that a process has read itself.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;

use crate::{
    AgentState,
    state::{AddedText, GuidanceData},
};

/// The instructions and skills that this process has read, in any thread; see
/// [`reread_instructions`](crate::AgentBuilder::reread_instructions).
#[derive(Default)]
pub struct Vouched(Mutex<BTreeSet<String>>);

impl Vouched {
    /// Adds what a thread stores of texts that were just read.
    pub(crate) fn add(&self, read: &GuidanceData) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(read.files.iter().map(json));
        known.extend(read.skills.iter().map(json));
        known.extend(read.added.iter().map(without_id));
    }

    /// Returns whether the thread has stored known texts only.
    pub(crate) fn has_all(&self, state: &AgentState) -> bool {
        let GuidanceData { files, skills, added } = &*state.guidance;
        let of_prompt: Vec<_> = files.iter().map(json).chain(skills.iter().map(json)).collect();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_prompt = of_prompt.iter().all(|text| known.contains(text));
        drop(known);
        has_prompt && added.iter().all(|added| self.has(added, state))
    }

    /// Returns whether a text that was added to the conversation is known.
    pub(crate) fn has(&self, added: &AddedText, state: &AgentState) -> bool {
        let message = state.messages.get(&added.id).filter(|_| added.text.is_empty());
        let text = message.map_or(&added.text, |message| &message.content).clone();
        let whole = without_id(&AddedText { text, ..added.clone() });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&whole)
    }
}

/// Returns the form of a text that is the same in all threads.
fn without_id(added: &AddedText) -> String {
    json(&AddedText { id: String::new(), ..added.clone() })
}

fn json(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("texts have a JSON form")
}
