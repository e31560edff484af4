//! The messages of a view.

use std::borrow::Cow;

use superstep_llm::{Message, Role};

use super::summary;
use crate::{
    config::{Truncate, prompts},
    state::{ContextView, Messages},
};

/// A conversation under a view. Messages are referenced by their positions.
pub(crate) struct Shown<'a> {
    pub(super) messages: &'a Messages,
    pub(super) summary: Option<Cow<'a, str>>,
    /// The start of the sent part.
    pub(super) start: usize,
    /// An earlier message that is sent as well.
    pub(super) kept: Option<usize>,
    /// Tool results before this position are truncated.
    pub(super) shortened: usize,
    /// Tool results before this position are reduced to their first line.
    pub(super) pruned: usize,
    /// The media of tool results before this position are not sent.
    pub(super) without_media: usize,
    micro: Option<&'a Truncate>,
}

/// Maximum number of characters of the line that describes a result.
const TITLE: usize = 80;

impl<'a> Shown<'a> {
    pub(crate) fn new(messages: &'a Messages, view: &'a ContextView, micro: Option<&'a Truncate>) -> Self {
        let place = |id: &str| if id.is_empty() { None } else { messages.position(id) };
        let behind = |id: &str| place(id).map_or(0, |at| at + 1);
        let start = place(&view.start);
        let kept = start.and_then(|start| place(&view.kept).filter(|kept| *kept < start));
        let summary = view.summary.as_deref().filter(|_| start.is_some()).map(Cow::Borrowed);
        let (shortened, pruned) = (behind(&view.shortened), behind(&view.pruned));
        let without_media = behind(&view.without_media);
        Self { messages, summary, start: start.unwrap_or(0), kept, shortened, pruned, without_media, micro }
    }

    /// Returns the sent messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Cow<'a, Message>> {
        let summary = self.summary.as_deref().map(|summary| Cow::Owned(summary::message(summary)));
        let kept = self.kept.map(|kept| Cow::Borrowed(&self.messages[kept]));
        let rest = self.messages.iter().enumerate().skip(self.start);
        let (pruned, shortened, bare, micro) = (self.pruned, self.shortened, self.without_media, self.micro);
        let rest = rest.map(move |(at, message)| {
            let message = as_shown(message, at < pruned, at < shortened, micro);
            if at < bare { without_media(message) } else { message }
        });
        summary.into_iter().chain(kept).chain(rest)
    }

    /// Returns the message at a position, as it is sent.
    pub(super) fn at(&self, place: usize) -> Cow<'a, Message> {
        self.with(place, place < self.pruned, place < self.shortened, place < self.without_media)
    }

    fn with(&self, place: usize, pruned: bool, cut: bool, bare: bool) -> Cow<'a, Message> {
        let message = as_shown(&self.messages[place], pruned, cut, self.micro);
        if bare { without_media(message) } else { message }
    }

    /// Returns the message without its media.
    pub(super) fn bare(&self, place: usize) -> Cow<'a, Message> {
        self.with(place, place < self.pruned, place < self.shortened, true)
    }

    /// Returns the message truncated.
    pub(super) fn cut(&self, place: usize) -> Cow<'a, Message> {
        self.with(place, place < self.pruned, true, place < self.without_media)
    }

    /// Returns the message reduced to its first line.
    pub(super) fn stub(&self, place: usize) -> Cow<'a, Message> {
        self.with(place, true, true, place < self.without_media)
    }

    /// Returns the start of the last group: a response with its results, or another message.
    pub(super) fn last_group(&self) -> usize {
        let last = self.messages.iter().rposition(|message| message.role != Role::Tool);
        last.unwrap_or(0).max(self.start)
    }

    /// Returns the position of the newest user message.
    pub(super) fn newest_of_user(&self) -> Option<usize> {
        self.messages.iter().rposition(is_of_user)
    }

    /// Returns whether the sent part may start here: not between a call and its result, nor at a synthetic
    /// message about what precedes it.
    pub(super) fn may_begin(&self, place: usize) -> bool {
        let message = &self.messages[place];
        message.role != Role::Tool && !message.synthetic
    }
}

pub(super) fn is_of_user(message: &Message) -> bool {
    message.role == Role::User && !message.synthetic
}

fn as_shown<'a>(message: &'a Message, pruned: bool, cut: bool, micro: Option<&Truncate>) -> Cow<'a, Message> {
    if message.role != Role::Tool {
        return Cow::Borrowed(message);
    }
    let shorter = match micro {
        _ if pruned => Some(stub(&message.content)),
        Some(micro) if cut => Some(micro.apply(message.content.clone())),
        _ => None,
    };
    // Truncated text exceeds the limit by its marker only, and must not be truncated twice.
    let is_worth_it =
        |shorter: &String| shorter.len().saturating_mul(10) < message.content.len().saturating_mul(9);
    match shorter.filter(is_worth_it) {
        Some(content) => Cow::Owned(Message { content, ..message.clone() }),
        None => Cow::Borrowed(message),
    }
}

/// Returns the message without its media, described in its text.
fn without_media(message: Cow<'_, Message>) -> Cow<'_, Message> {
    match message.media.len() {
        0 => message,
        n => Cow::Owned(without_first_media(message.into_owned(), n)),
    }
}

/// Returns the message without its first `n` media, as stated in its text.
pub(crate) fn without_first_media(mut message: Message, n: usize) -> Message {
    message.media.drain(..n);
    message.content = format!("{}\n{}", message.content, prompts::media_left_out(n));
    message
}

/// Returns the stub of an old result. The call with its arguments precedes it.
fn stub(content: &str) -> String {
    let line = content.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let title = match line.char_indices().nth(TITLE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    format!("[Old tool result, {} bytes, not shown any more. It began: {title}]", content.len())
}
