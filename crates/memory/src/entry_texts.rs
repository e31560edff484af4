//! The texts of messages, as entries.

use superstep_agent::deps::MemoryError;
use superstep_llm::{Message, Role};

/// Maximum number of characters of one entry of a [`StoreMemory`](crate::StoreMemory) or [`MemoryFiles`](crate::MemoryFiles). Longer texts are
/// rejected.
pub const MAX_MEMORY_CHARS: usize = 8_000;

/// Returns the user's and the model's texts of these messages, each short enough for an entry.
pub(crate) fn entry_texts(messages: &[Message]) -> Result<Vec<String>, MemoryError> {
    let said = messages.iter().filter(|message| matches!(message.role, Role::User | Role::Assistant));
    let texts = said.map(|message| message.content.trim()).filter(|text| !text.is_empty());
    texts
        .map(|text| match text.chars().count() {
            0..=MAX_MEMORY_CHARS => Ok(text.to_owned()),
            chars => Err(MemoryError(format!(
                "a memory of {chars} characters is too long; use at most {MAX_MEMORY_CHARS}"
            ))),
        })
        .collect()
}
