//! Values that an export replaces.
//!
//! Start at [`Redaction`].

mod redacting;
mod remains;
mod secret;

use std::{cmp::Reverse, collections::BTreeSet, fmt, sync::Arc};

use serde_json::Value;

pub(super) use self::redacting::Redacting;
use self::secret::Secret;
use super::lines::Mark;

/// The values that an [`export`](super::export) replaces, by rules.
///
/// A value is replaced by `{"$redacted":"rule"}`, and a part of a text by `[redacted]`; neither depends on the replaced value.
/// The rules are named in the text, and stored with the imported thread. Names, of threads, nodes, channels and keys, are not
/// replaced.
///
/// A redacted thread can be read, compared and listed. Channels without a replaced value are as before; a typed state with a
/// replaced value cannot be loaded, and a replay is rejected (SS199), because the values that it would compare are missing.
///
/// ```
/// use superstep_checkpoint::text::{ExportOptions, Redaction};
///
/// let redaction = Redaction::new().channel("email").path("messages.*.content").secret("hunter2");
/// let options = ExportOptions::new().redaction(redaction);
/// ```
#[derive(Clone, Default)]
pub struct Redaction {
    channels: BTreeSet<String>,
    paths: Vec<Vec<String>>,
    /// The names of each channel that was renamed.
    renamed: Vec<BTreeSet<String>>,
    /// The channels that repeat values of a channel.
    copies: Vec<(String, BTreeSet<String>)>,
    copied_parts: Vec<CopiedPart>,
    secrets: Vec<Secret>,
    texts: Vec<(String, Replace)>,
}

/// An entry that repeats others beside it.
#[derive(Clone)]
struct CopiedPart {
    channel: String,
    parts: BTreeSet<String>,
    copy: String,
}

type Replace = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Redaction {
    /// Creates a redaction without rules, which replaces nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the values of a channel, in the threads of subgraphs as well.
    ///
    /// Replaces all data that tasks recorded beside their updates as well, because it may repeat such a value: recorded inputs,
    /// results of effects, questions and answers, items, also those of the inbox, and the texts of errors.
    #[must_use]
    pub fn channel(mut self, name: impl Into<String>) -> Self {
        self.channels.insert(name.into());
        self
    }

    /// Replaces parts of the values of a channel: `messages.*.content` is the entry `content` of each element, or of each
    /// entry, of channel `messages`. Recorded data of tasks is replaced as by [`channel`](Self::channel).
    #[must_use]
    pub fn path(mut self, path: impl AsRef<str>) -> Self {
        self.paths.push(path.as_ref().split('.').map(str::to_owned).collect());
        self
    }

    /// Sets the names of a channel that was renamed, with `was = "…"`: a rule for one of them applies to all, because values are
    /// stored under the name that the channel had at that time. A thread's handle adds those of its graph.
    #[must_use]
    pub fn renamed(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.renamed.push(names.into_iter().map(Into::into).collect());
        self
    }

    /// Names channels that repeat values of `channel`: a rule for that channel, or for a part of it, replaces their values as a whole.
    #[must_use]
    pub fn copied(
        mut self,
        channel: impl Into<String>,
        copies: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.copies.push((channel.into(), copies.into_iter().map(Into::into).collect()));
        self
    }

    /// Names an entry of the elements of `channel` that repeats other entries of an element: a path for one of `parts`, such as
    /// `messages.*.content`, replaces `copy` beside it as a whole, if it is there.
    #[must_use]
    pub fn copied_part(
        mut self,
        channel: impl Into<String>,
        parts: impl IntoIterator<Item = impl Into<String>>,
        copy: impl Into<String>,
    ) -> Self {
        let parts = parts.into_iter().map(Into::into).collect();
        self.copied_parts.push(CopiedPart { channel: channel.into(), parts, copy: copy.into() });
        self
    }

    /// Replaces a text wherever a stored value or error contains it, also with escaped characters, as a part of a JSON text such as the
    /// arguments of a call, or of one in another. An empty text has no effect.
    #[must_use]
    pub fn secret(mut self, text: impl AsRef<str>) -> Self {
        self.secrets.extend(Secret::new(text.as_ref()).filter(|secret| !self.secrets.contains(secret)));
        // Longer ones first: a shorter one may be a part of them.
        self.secrets.sort_by_key(|secret| Reverse(secret.len()));
        self
    }

    /// Replaces texts by a function, which receives each stored text and returns the one to write in its place, or `None` to
    /// leave it. `name` is the name of the rule. The function must not depend on anything but the text.
    #[must_use]
    pub fn texts(
        mut self,
        name: impl Into<String>,
        replace: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.texts.push((name.into(), Arc::new(replace)));
        self
    }

    /// Returns whether there are no rules, so that nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.paths.is_empty() && self.secrets.is_empty() && self.texts.is_empty()
    }

    /// Returns the first rule about a channel, or a part of it, that this channel repeats.
    fn rule_of_copy(&self, channel: &str) -> Option<String> {
        let copied = self.copies.iter().filter(|(_, copies)| copies.contains(channel));
        copied.flat_map(|(of, _)| self.rules_about(of)).next()
    }

    /// Returns the paths within a channel of what repeats the part at this path within it.
    fn copies_of_part<'r>(
        &'r self,
        channel: &'r str,
        path: &'r [String],
    ) -> impl Iterator<Item = [String; 2]> + 'r {
        let copied = self.copied_parts.iter().filter(move |copied| self.is_about(&copied.channel, channel));
        copied.filter_map(move |copied| match path {
            [element, part, ..] if copied.parts.contains(part) => {
                Some([element.clone(), copied.copy.clone()])
            }
            _ => None,
        })
    }

    /// Returns the names of the rules about a channel, or a part of it.
    fn rules_about<'r>(&'r self, channel: &'r str) -> impl Iterator<Item = String> + 'r {
        let channels = self.channels.iter().filter(move |rule| self.is_about(rule, channel));
        let paths = self.paths.iter().filter(move |path| self.is_about(&path[0], channel));
        channels.map(|rule| channel_rule(rule)).chain(paths.map(|path| path_rule(path)))
    }

    /// Returns whether a rule for one name is about a channel of another one.
    fn is_about(&self, rule: &str, channel: &str) -> bool {
        rule == channel || self.renamed.iter().any(|names| names.contains(rule) && names.contains(channel))
    }

    /// Returns whether all that tasks recorded is replaced.
    fn hides_records(&self) -> bool {
        !self.channels.is_empty() || !self.paths.is_empty()
    }

    /// Returns whether parts of texts are replaced.
    fn finds_texts(&self) -> bool {
        !self.secrets.is_empty() || !self.texts.is_empty()
    }

    /// Returns the names of the rules.
    fn rules(&self) -> impl Iterator<Item = String> {
        let secrets = (!self.secrets.is_empty()).then(|| "secrets".to_owned());
        let texts = self.texts.iter().map(|(name, _)| format!("texts {name}"));
        self.channel_rules().chain(secrets).chain(texts)
    }

    /// Returns the names of the rules about channels and their parts.
    fn channel_rules(&self) -> impl Iterator<Item = String> {
        let paths = self.paths.iter().map(|path| path_rule(path));
        self.channels.iter().map(|channel| channel_rule(channel)).chain(paths)
    }

    /// Adds the rules to the mark of a checkpoint.
    pub(super) fn mark(&self, mark: &mut Mark) {
        if self.is_empty() {
            return;
        }
        let mut rules = match mark.redacted.take() {
            Some(Value::Array(rules)) => rules,
            other => other.into_iter().collect(),
        };
        for rule in self.rules().map(Value::String) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        mark.redacted = Some(rules.into());
    }
}

fn channel_rule(channel: &str) -> String {
    format!("channel {channel}")
}

fn path_rule(path: &[String]) -> String {
    format!("path {}", path.join("."))
}

/// Shows the rules, not the secrets.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules()).finish()
    }
}
