//! The content of a message: a text, or a list of parts.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use super::halves::Wtf8;

/// The text of a content in any form. Parts of other kinds, such as images, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: Wtf8,
    pub(super) reasoning: Wtf8,
    pub(super) refusal: Wtf8,
}

/// The maximum nesting of parts. Each level is scanned once more.
const MAX_DEPTH: usize = 16;

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(content: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(content)?;
        let mut content = Self::default();
        content.read(&raw, 0).map_err(D::Error::custom)?;
        Ok(content)
    }
}

impl Content {
    fn read(&mut self, raw: &RawValue, depth: usize) -> Result<(), serde_json::Error> {
        let raw = raw.get();
        if depth > MAX_DEPTH {
            return Err(serde_json::Error::custom(format_args!("more than {MAX_DEPTH} levels of parts")));
        }
        match raw.as_bytes().first() {
            // Most pieces have no escapes, and are not scanned again.
            Some(b'"') if !raw.contains('\\') => self.text.push(&raw[1..raw.len() - 1].into()),
            Some(b'"') => self.text.push(&serde_json::from_str(raw)?),
            Some(b'[') => {
                for part in serde_json::from_str::<Vec<&RawValue>>(raw)? {
                    self.read(part, depth + 1)?;
                }
            }
            Some(b'{') => {
                let part: Part<'_> = serde_json::from_str(raw)?;
                for part in [part.text, part.content].into_iter().flatten() {
                    self.read(part, depth + 1)?;
                }
                let text = |part: Option<&RawValue>| {
                    let mut content = Self::default();
                    part.map_or(Ok(()), |part| content.read(part, depth + 1)).map(|()| content.text)
                };
                self.refusal.push(&text(part.refusal)?);
                self.reasoning.push(&text(part.thinking)?);
                self.reasoning.push(&text(part.reasoning)?);
            }
            Some(b'n') => {}
            _ => return Err(serde_json::Error::custom("expected a text or a list of parts")),
        }
        Ok(())
    }
}
