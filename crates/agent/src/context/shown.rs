//! The messages of a view.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use superstep_llm::{Message, MessageData, Role, convert::DerivedFrom};

use super::summary;
use crate::{
    config::{Truncate, prompts},
    state::{ContextView, Messages},
};

/// A conversation under a view. Messages are referenced by their positions.
pub(crate) struct Shown<'a> {
    pub(super) messages: &'a Messages,
    pub(super) summary: Option<Cow<'a, str>>,
    /// The texts that stay of the messages before the sent part.
    carried: Option<&'a str>,
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
    /// Tool calls and results before this position are not sent.
    without_rounds: usize,
    /// The origins of messages before this position are not sent.
    without_origin: usize,
    micro: Option<&'a Truncate>,
}

/// Maximum number of characters of the line that describes a result.
const MAX_TITLE: usize = 80;

impl<'a> Shown<'a> {
    pub(crate) fn new(messages: &'a Messages, view: &'a ContextView, micro: Option<&'a Truncate>) -> Self {
        let place = |id: &str| if id.is_empty() { None } else { messages.position(id) };
        let behind = |id: &str| place(id).map_or(0, |at| at + 1);
        let start = place(&view.start);
        let kept = start.and_then(|start| place(&view.kept).filter(|kept| *kept < start));
        let summary = view.summary.as_deref().filter(|_| start.is_some()).map(Cow::Borrowed);
        let carried = view.carried.as_deref().filter(|_| start.is_some());
        let (shortened, pruned) = (behind(&view.shortened), behind(&view.pruned));
        let (without_media, without_origin) = (behind(&view.without_media), behind(&view.bare_until));
        let without_rounds = behind(&view.without_rounds);
        let start = start.unwrap_or(0);
        Self {
            messages,
            summary,
            carried,
            start,
            kept,
            shortened,
            pruned,
            without_media,
            without_rounds,
            without_origin,
            micro,
        }
    }

    /// Returns the sent messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Message> {
        let summary = self.summary.as_deref().map(summary::message);
        let newest = self.kept.map(|kept| self.messages[kept].clone());
        let rest = self.messages.iter().enumerate().skip(self.start);
        let (pruned, shortened, bare, micro) = (self.pruned, self.shortened, self.without_media, self.micro);
        let (without_origin, without_rounds) = (self.without_origin, self.without_rounds);
        let whole = pruned.max(shortened).max(bare).max(without_origin).max(without_rounds);
        let rest = rest.filter_map(move |(at, message)| {
            if at >= whole {
                return Some(message.clone());
            }
            let said = without_calls(message, at < without_rounds)?;
            let message = said.as_ref();
            let shown = as_shown(message, at < pruned, micro.filter(|_| at < shortened), at < bare);
            let is_bare = at < without_origin && shown.origin.is_some();
            Some(if is_bare { shown.with(|message| message.origin = None) } else { shown })
        });
        let carried = self.carried.map(summary::carried);
        carried.into_iter().chain(summary).chain(newest).chain(rest)
    }

    /// Returns the message at a position, as it is sent.
    pub(super) fn at(&self, place: usize) -> Message {
        self.with(place, place < self.pruned, place < self.shortened, place < self.without_media)
    }

    fn with(&self, place: usize, pruned: bool, cut: bool, bare: bool) -> Message {
        match without_calls(&self.messages[place], place < self.without_rounds) {
            Some(message) => as_shown(&message, pruned, self.micro.filter(|_| cut), bare),
            None => Message::assistant(""),
        }
    }

    /// Returns the message without its media.
    pub(super) fn bare(&self, place: usize) -> Message {
        self.with(place, place < self.pruned, place < self.shortened, true)
    }

    /// Returns the message truncated.
    pub(super) fn cut(&self, place: usize) -> Message {
        self.with(place, place < self.pruned, true, place < self.without_media)
    }

    /// Returns the message reduced to its first line.
    pub(super) fn stub(&self, place: usize) -> Message {
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

/// Returns a message without its tool calls, if it `is_without` them; `None` if nothing is left.
fn without_calls(message: &Message, is_without: bool) -> Option<Cow<'_, Message>> {
    let calls = !message.tool_calls.is_empty();
    match message.role {
        _ if !is_without => Some(Cow::Borrowed(message)),
        Role::Tool => None,
        Role::Assistant if calls && message.content.trim().is_empty() => None,
        Role::Assistant if calls => {
            Some(Cow::Owned(message.clone().with(|message| message.tool_calls.clear())))
        }
        _ => Some(Cow::Borrowed(message)),
    }
}

pub(super) fn is_of_user(message: &Message) -> bool {
    message.role == Role::User && !message.synthetic
}

/// The reduction of a message.
#[derive(Clone, PartialEq)]
struct Reduction {
    /// A result is reduced to its first line.
    pruned: bool,
    /// A result is truncated.
    cut: Option<Truncate>,
    /// The media are left out.
    bare: bool,
}

/// The last reduction of a message and its result, which the next request needs again; `None` instead of the
/// message itself.
#[derive(Default)]
struct Reduced(Mutex<Option<(Reduction, Option<Message>)>>);

impl DerivedFrom<MessageData> for Reduced {
    fn derive(_: &MessageData) -> Self {
        Self::default()
    }
}

fn as_shown(message: &Message, pruned: bool, cut: Option<&Truncate>, bare: bool) -> Message {
    let (is_result, bare) = (message.role == Role::Tool, bare && !message.media.is_empty());
    if !(bare || (is_result && (pruned || cut.is_some()))) {
        return message.clone();
    }
    let mut last = message.derived::<Reduced>().0.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |how: &Reduction| how.pruned == pruned && how.bare == bare && how.cut.as_ref() == cut;
    if let Some((_, reduced)) = last.as_ref().filter(|(how, _)| is_same(how)) {
        return reduced.as_ref().unwrap_or(message).clone();
    }
    let shorter = if is_result { shortened(message, pruned, cut) } else { None };
    let reduced = match shorter {
        Some(shorter) if bare => Some(without_media(shorter)),
        None if bare => Some(without_media(message.clone())),
        shorter => shorter,
    };
    *last = Some((Reduction { pruned, cut: cut.cloned(), bare }, reduced.clone()));
    reduced.unwrap_or_else(|| message.clone())
}

/// Returns a shorter result, if it is worth it.
fn shortened(message: &Message, pruned: bool, cut: Option<&Truncate>) -> Option<Message> {
    let shorter = match cut {
        _ if pruned => stub(&message.content),
        Some(cut) => cut.apply(message.content.clone()),
        None => return None,
    };
    // Truncated text exceeds the limit by its marker only, and must not be truncated twice.
    let is_worth_it = shorter.len().saturating_mul(10) < message.content.len().saturating_mul(9);
    is_worth_it.then(|| message.clone().with(|message| message.content = shorter))
}

/// Returns the message without its media, described in its text.
fn without_media(message: Message) -> Message {
    let n = message.media.len();
    without_first_media(message, n)
}

/// Returns the message without its first `n` media, as stated in its text.
pub(crate) fn without_first_media(message: Message, n: usize) -> Message {
    message.with(|message| {
        message.media.drain(..n);
        message.content = format!("{}\n{}", message.content, prompts::media_left_out(n));
    })
}

/// Returns the stub of an old result. The call with its arguments precedes it.
fn stub(content: &str) -> String {
    let line = content.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let title = match line.char_indices().nth(MAX_TITLE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    format!("[Old tool result, {} bytes, not shown any more. It began: {title}]", content.len())
}

#[cfg(test)]
mod tests {
    use superstep_llm::media::Media;

    use super::*;

    #[test]
    fn a_reduced_result_is_shared_until_it_is_reduced_otherwise() {
        let result = Message::tool("c1", "a long line\n".repeat(100));
        let result = result.with(|result| result.media = vec![Media::new("image/gif", "R0lGODlh").unwrap()]);
        let cut = Truncate::chars(10, "…");
        let reductions =
            [(true, None, false), (false, Some(&cut), false), (false, None, true), (true, Some(&cut), true)];
        let reduced = |(pruned, cut, bare)| as_shown(&result, pruned, cut, bare);
        let texts = reductions.map(|reduction| {
            let first = reduced(reduction);
            assert!(first.is_same(&reduced(reduction)), "{reduction:?}");
            assert_eq!(first.media.is_empty(), reduction.2);
            first.content.clone()
        });
        assert_eq!(texts, reductions.map(|reduction| reduced(reduction).content.clone()));
        assert!(reduced((false, None, false)).is_same(&result));
        let short = Message::tool("c2", "short");
        assert!(as_shown(&short, true, None, true).is_same(&short));
    }
}
