//! Reasoning in the text of an answer, in `<think>` tags.

use futures::{StreamExt, stream};

use crate::{Delta, ResponseStream};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The tags before and after reasoning. Only the first ones are split off.
pub(crate) const THOUGHTS: [(&str, &str); 3] =
    [(OPEN, CLOSE), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")];

/// Converts text between `<think>` and `</think>` to reasoning; white space after it is dropped.
///
/// For servers that do not separate their models' reasoning, see
/// [`WireConfig::think_tags`](crate::wire::WireConfig::think_tags). A tag that is never closed extends to the end
/// of the text. If the first tag is a closing one, the template of the model has the opening one, and the text before it is
/// reasoning: the beginning of a text is therefore held back until a tag or the end arrives.
pub fn split_thinking(deltas: ResponseStream<'_>) -> ResponseStream<'_> {
    let begun = (deltas, Splitter::default());
    let split = stream::unfold(begun, |(mut deltas, mut splitter)| async move {
        let mut out = Vec::new();
        match deltas.next().await? {
            Ok(Delta::Text(text)) => splitter.take(&text, &mut out),
            Ok(delta) => {
                match &delta {
                    Delta::AttemptDiscarded { .. } => splitter = Splitter::default(),
                    // The text has ended, so that the start of a tag is ordinary text.
                    Delta::Finish(_) | Delta::ToolCall { .. } => splitter.flush(&mut out),
                    _ => {}
                }
                out.push(delta);
            }
            Err(error) => return Some((vec![Err(error)], (deltas, splitter))),
        }
        Some((out.into_iter().map(Ok).collect(), (deltas, splitter)))
    });
    split.flat_map(stream::iter).boxed()
}

/// Returns the text behind the reasoning at its beginning, in `<think>`, `<thinking>` or `[THINK]` tags; the opening one may be missing.
/// Returns the whole text without a closing tag.
///
/// ```
/// use superstep_llm::wire::behind_thinking;
///
/// assert_eq!(behind_thinking("<think>hm</think>\n42"), "42");
/// assert_eq!(behind_thinking("42"), "42");
/// ```
pub fn behind_thinking(text: &str) -> &str {
    let ends = THOUGHTS.iter().filter_map(|(_, close)| Some(text.find(close)? + close.len()));
    ends.min().map_or(text, |end| text[end..].trim_start())
}

#[derive(Default)]
struct Splitter {
    place: Place,
    /// `true` if white space is to be skipped.
    skips: bool,
    /// The end of the text so far, if it may be the start of a tag.
    pending: String,
}

/// The place in the text so far.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The text before any tag, which is reasoning if the first tag closes it.
    Unknown(String),
    Reasoning,
    Text,
}

impl Default for Place {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl Splitter {
    fn take(&mut self, text: &str, out: &mut Vec<Delta>) {
        let text = std::mem::take(&mut self.pending) + text;
        let mut rest = text.as_str();
        while let Some((at, tag)) = self.tags().iter().filter_map(|tag| Some((rest.find(tag)?, *tag))).min() {
            self.emit(&rest[..at], out);
            self.pass(tag, out);
            rest = &rest[at + tag.len()..];
        }
        let begins = |at: &usize| self.tags().iter().any(|tag| tag.starts_with(&rest[*at..]));
        let at = rest.char_indices().map(|(at, _)| at).find(begins).unwrap_or(rest.len());
        self.emit(&rest[..at], out);
        self.pending = rest[at..].to_owned();
    }

    /// Returns the tags to search for.
    fn tags(&self) -> &'static [&'static str] {
        match self.place {
            Place::Unknown(_) => &[OPEN, CLOSE],
            Place::Reasoning => &[CLOSE],
            Place::Text => &[OPEN],
        }
    }

    /// Continues behind a tag.
    fn pass(&mut self, tag: &str, out: &mut Vec<Delta>) {
        let (now, next) =
            if tag == OPEN { (Place::Text, Place::Reasoning) } else { (Place::Reasoning, Place::Text) };
        self.settle(now, out);
        self.place = next;
        self.skips = tag == CLOSE;
    }

    /// Emits the text before the first tag, now that its kind is known.
    fn settle(&mut self, place: Place, out: &mut Vec<Delta>) {
        if let Place::Unknown(text) = std::mem::replace(&mut self.place, place) {
            self.emit(&text, out);
        }
    }

    fn flush(&mut self, out: &mut Vec<Delta>) {
        let text = std::mem::take(&mut self.pending);
        self.emit(&text, out);
        if let Place::Unknown(_) = self.place {
            self.settle(Place::Text, out);
        }
    }

    fn emit(&mut self, text: &str, out: &mut Vec<Delta>) {
        let text = if self.skips { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.skips = false;
        match &mut self.place {
            Place::Unknown(begun) => begun.push_str(text),
            Place::Reasoning => out.push(Delta::Reasoning(text.into())),
            Place::Text => out.push(Delta::Text(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FinishReason;

    /// Returns the reasoning and the text of a stream of these pieces.
    fn split(pieces: &[&str]) -> (String, String) {
        let deltas = pieces.iter().map(|piece| Ok(Delta::Text((*piece).into())));
        let end = [Ok(Delta::Finish(FinishReason::Stop))];
        let deltas: Vec<_> = deltas.chain(end).collect();
        let split = split_thinking(stream::iter(deltas).boxed());
        let (mut reasoning, mut text) = (String::new(), String::new());
        for delta in futures_executor::block_on(split.collect::<Vec<_>>()) {
            match delta.unwrap() {
                Delta::Reasoning(piece) => reasoning.push_str(&piece),
                Delta::Text(piece) => text.push_str(&piece),
                other => assert_eq!(other, Delta::Finish(FinishReason::Stop)),
            }
        }
        (reasoning, text)
    }

    #[test]
    fn text_in_think_tags_is_reasoning() {
        let of = |text: &str| split(&[text]);
        assert_eq!(of("<think>hm</think>\n\nyes\n"), ("hm".into(), "yes\n".into()));
        assert_eq!(of("a <think>b</think> c <think>d</think>e"), ("bd".into(), "a c e".into()));
        assert_eq!(of("<think>cut off"), ("cut off".into(), "".into()));
        assert_eq!(of("a < b <thin"), ("".into(), "a < b <thin".into()));
        assert_eq!(of("I should</think>\nyes </think>"), ("I should".into(), "yes </think>".into()));
        assert_eq!(of("</think>yes"), ("".into(), "yes".into()));
        assert_eq!(of("<think></think>x"), ("".into(), "x".into()));
    }

    #[test]
    fn a_tag_may_be_cut_anywhere() {
        let text = "a<<think>hé<x</think>\n\n b</think>";
        let whole = split(&[text]);
        assert_eq!(whole, ("hé<x".into(), "a<b</think>".into()));
        for (at, _) in text.char_indices() {
            assert_eq!(split(&[&text[..at], &text[at..]]), whole, "cut at {at}");
        }
        let chars: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(split(&chars.iter().map(String::as_str).collect::<Vec<_>>()), whole);
    }
}
