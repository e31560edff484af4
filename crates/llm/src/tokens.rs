//! Token counts, known before a request is sent.
//!
//! Start at [`TokenCounter`].

#[cfg(feature = "tiktoken")]
mod tiktoken;

use crate::{
    Message, ToolSpec,
    messages::media::{Media, MediaType},
    shared::into_shared,
};

#[cfg(feature = "tiktoken")]
pub use self::tiktoken::Tiktoken;

/// The provider's overhead for each message, tool call and tool.
const FRAME: u64 = 4;

/// The tokens of an image: the number for a large one at the large providers.
const IMAGE: u64 = 1_500;

/// The bytes of audio per token: speech at a low rate has no more tokens.
const SOUND: usize = 250;

/// The bytes of a file per token: a page of text is some 50 kB and 2,000 tokens, with its image.
const FILE: usize = 25;

/// A counter of a request's tokens.
///
/// A count is exact for one family of models at most. To estimate the size of a request, start from the
/// provider's count of the last one, and count only the additions.
pub trait TokenCounter: Send + Sync {
    /// Returns the tokens of a text.
    fn text(&self, text: &str) -> u64;

    /// Returns the tokens of an image, an audio clip or a file: 1,500 for an image of any size, one for each
    /// 250 bytes of audio, and one for each 25 bytes of a PDF file, but at least as many as for an image.
    fn media(&self, media: &Media) -> u64 {
        match media.mime {
            MediaType::Pdf => wide(media.bytes().div_ceil(FILE)).max(IMAGE),
            mime if mime.is_audio() => wide(media.bytes().div_ceil(SOUND)),
            _ => IMAGE,
        }
    }

    /// Returns the tokens of a message in a request. Its reasoning is not counted: most providers do not
    /// receive it. Nor are its media, which not every model receives: see [`TokenCounter::media`].
    fn message(&self, message: &Message) -> u64 {
        let calls = message.tool_calls.iter();
        let calls = calls.map(|call| FRAME + self.text(&call.name) + self.text(&call.arguments));
        FRAME + self.text(&message.content) + calls.sum::<u64>()
    }

    /// Returns the tokens of an offered tool.
    fn tool(&self, tool: &ToolSpec) -> u64 {
        let parameters = self.text(&tool.parameters.to_string());
        FRAME + self.text(&tool.name) + self.text(&tool.description) + parameters
    }

    /// Returns an upper bound of a message's tokens, without the cost of counting them.
    fn message_at_most(&self, message: &Message) -> u64 {
        self.message(message)
    }

    /// Returns an upper bound of a tool's tokens.
    fn tool_at_most(&self, tool: &ToolSpec) -> u64 {
        self.tool(tool)
    }
}

/// Returns the default counter: [`Tiktoken`] with the feature `tiktoken`, otherwise
/// [`Estimate`].
pub fn default_counter() -> std::sync::Arc<dyn TokenCounter> {
    #[cfg(feature = "tiktoken")]
    return std::sync::Arc::new(Tiktoken::o200k());
    #[cfg(not(feature = "tiktoken"))]
    std::sync::Arc::new(Estimate)
}

/// An estimate without a vocabulary: a token for four ASCII characters, and one for each other character.
///
/// English prose has fewer tokens, numbers and minified code have more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate;

impl TokenCounter for Estimate {
    fn text(&self, text: &str) -> u64 {
        let ascii = text.bytes().filter(u8::is_ascii).count();
        let others = text.chars().count() - ascii;
        wide(ascii.div_ceil(4) + others)
    }
}

/// A counter of bytes: no byte-based vocabulary has more tokens.
#[cfg(feature = "tiktoken")]
pub(crate) struct Bytes;

#[cfg(feature = "tiktoken")]
impl TokenCounter for Bytes {
    fn text(&self, text: &str) -> u64 {
        wide(text.len())
    }
}

pub(crate) fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

into_shared!(TokenCounter);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn an_estimate_counts_every_character_that_is_not_ascii() {
        assert_eq!([Estimate.text(""), Estimate.text("hi"), Estimate.text("hello")], [0, 1, 2]);
        assert_eq!(Estimate.text("请记住我喜欢茶"), 7);
    }

    #[test]
    fn calls_and_schemas_are_counted() {
        let plain = Message::assistant("hello");
        let calls = plain.clone().with_tool_calls([ToolCall::new("c1", "echo", r#"{"x":"1"}"#)]);
        assert_eq!((Estimate.message(&plain), Estimate.message(&calls)), (6, 6 + 4 + 1 + 3));
        let tool = |parameters| ToolSpec { name: "echo".into(), description: "Says it.".into(), parameters };
        assert_eq!(Estimate.tool(&tool(serde_json::json!({}))), 4 + 1 + 2 + 1);
        assert!(Estimate.tool(&tool(serde_json::json!({"type": "object"}))) > 8);
    }
}
