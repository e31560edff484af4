//! The content of a message: a text, or a list of parts.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The text of a content in any form. Parts of other kinds, such as images, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) refusal: String,
}

impl Content {
    fn add(&mut self, other: &Self) {
        self.text.push_str(&other.text);
        self.reasoning.push_str(&other.reasoning);
        self.refusal.push_str(&other.refusal);
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(content: D) -> Result<Self, D::Error> {
        content.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
        Ok(Content { text: text.to_owned(), ..Content::default() })
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Content, E> {
        Ok(Content { text, ..Content::default() })
    }

    fn visit_unit<E: Error>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
        let mut content = Content::default();
        while let Some(part) = parts.next_element::<Content>()? {
            content.add(&part);
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Content, A::Error> {
        let mut content = Content::default();
        while let Some(field) = part.next_key::<String>()? {
            match field.as_str() {
                "text" | "content" => content.add(&part.next_value()?),
                "refusal" => content.refusal.push_str(&part.next_value::<Content>()?.text),
                "thinking" | "reasoning" => content.reasoning.push_str(&part.next_value::<Content>()?.text),
                _ => drop(part.next_value::<IgnoredAny>()?),
            }
        }
        Ok(content)
    }
}
