//! The content of a message: a text, or a list of parts.

use serde_json::value::RawValue;

use super::fields::each_field;
use crate::texts::halves::Wtf8;

/// The text of a content in any form. Parts of other kinds, such as images, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: Wtf8,
    pub(super) reasoning: Wtf8,
    pub(super) refusal: Wtf8,
}

/// The maximum nesting of parts. Each level is scanned once more.
const MAX_DEPTH: usize = 16;

impl Content {
    /// Reads the content of a message. A boolean or null has none, and the text of a number is the number.
    pub(super) fn read(raw: &RawValue) -> Result<Self, String> {
        let mut content = Self::default();
        content.add(raw, 0)?;
        Ok(content)
    }

    fn add(&mut self, raw: &RawValue, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of parts"));
        }
        let json = raw.get();
        match json.as_bytes().first() {
            // Most pieces have no escapes, and are not scanned again.
            Some(b'"') if !json.contains('\\') => self.text.push(&json[1..json.len() - 1].into()),
            Some(b'"') => self.text.push(&serde_json::from_str(json).unwrap_or_default()),
            Some(b'[') => {
                for part in serde_json::from_str::<Vec<&RawValue>>(json).unwrap_or_default() {
                    self.add(part, depth + 1)?;
                }
            }
            Some(b'{') => {
                let mut parts: [Option<&RawValue>; 5] = [None; 5];
                each_field(json, |name, value| {
                    let at = ["text", "content", "refusal", "thinking", "reasoning"]
                        .iter()
                        .position(|at| *at == name);
                    if let Some(at) = at {
                        parts[at] = Some(value);
                    }
                });
                let [text, content, refusal, thinking, reasoning] = parts;
                for part in [text, content].into_iter().flatten() {
                    self.add(part, depth + 1)?;
                }
                let text = |part: Option<&RawValue>| {
                    let mut content = Self::default();
                    part.map_or(Ok(()), |part| content.add(part, depth + 1)).map(|()| content.text)
                };
                self.refusal.push(&text(refusal)?);
                self.reasoning.push(&text(thinking)?);
                self.reasoning.push(&text(reasoning)?);
            }
            Some(b'-' | b'0'..=b'9') => self.text.push(&json.into()),
            _ => {}
        }
        Ok(())
    }
}
