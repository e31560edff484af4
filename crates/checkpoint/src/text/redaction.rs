//! Values that an export replaces.

use std::{cell::RefCell, collections::BTreeSet, fmt, sync::Arc};

use serde_json::{Value, json, value::to_raw_value};
use superstep_state::internal::keys;

use super::lines::{Line, Mark, QuestionLine, Raw, Target, Task};
use crate::{
    NodeFailure, ThreadId,
    commit::own::{ITEM, STATE, inbox_of},
};

/// The entry of an object in place of a redacted value. Its value is the rule.
const MARKER: &str = "$redacted";

/// The text in place of a redacted one.
const TEXT: &str = "[redacted]";

/// The maximum number of JSON texts within each other in which a secret is found.
const MAX_ESCAPED: usize = 2;

/// The values that an [`export`](super::export) replaces, by rules.
///
/// A value is replaced by `{"$redacted":"rule"}`, and a part of a text by `[redacted]`; neither depends on the replaced value.
/// The rules are named in the text, and stored with the imported thread. Names, of threads, nodes, channels and keys, are not
/// replaced.
///
/// A redacted thread can be read, compared and listed. Its other channels are as before; a typed state with a replaced value
/// cannot be loaded, and a replay is rejected (SS199), because the values that it would compare are missing.
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
    secrets: Vec<String>,
    texts: Vec<(String, Replace)>,
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

    /// Replaces a text wherever a stored value or error contains it, also as a part of a JSON text, such as the arguments of a call, or
    /// of one in another. An empty text has no effect.
    #[must_use]
    pub fn secret(mut self, text: impl Into<String>) -> Self {
        let mut forms = BTreeSet::from([text.into()]);
        for _ in 0..MAX_ESCAPED {
            let escaped: Vec<_> =
                forms.iter().flat_map(|form| [escaped(form), escaped_as_ascii(form)]).collect();
            forms.extend(escaped);
        }
        self.secrets.extend(forms.into_iter().filter(|text| !text.is_empty()));
        // Longer ones first: a shorter one may be a part of them.
        self.secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.secrets.dedup();
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

    /// Returns whether all that tasks recorded is replaced.
    fn hides_records(&self) -> bool {
        !self.channels.is_empty() || !self.paths.is_empty()
    }

    /// Returns the names of the rules.
    fn rules(&self) -> impl Iterator<Item = String> {
        let secrets = (!self.secrets.is_empty()).then(|| "secrets".to_owned());
        let texts = self.texts.iter().map(|(name, _)| format!("texts {name}"));
        self.channel_rules().chain(secrets).chain(texts)
    }

    /// Returns the names of the rules about channels and their parts.
    fn channel_rules(&self) -> impl Iterator<Item = String> {
        let channels = self.channels.iter().map(|channel| format!("channel {channel}"));
        channels.chain(self.paths.iter().map(|path| format!("path {}", path.join("."))))
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

/// Returns a text as a part of a JSON text.
fn escaped(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// Does the same as some programs do, with only the characters of ASCII.
fn escaped_as_ascii(text: &str) -> String {
    let mut ascii = String::new();
    for char in escaped(text).chars() {
        match char {
            '\u{7f}'.. => char
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
            char => ascii.push(char),
        }
    }
    ascii
}

/// The redaction of one export.
pub(super) struct Redacting<'a> {
    rules: &'a Redaction,
    /// The rules about channels that have replaced a value.
    used: RefCell<BTreeSet<String>>,
}

impl<'a> Redacting<'a> {
    pub(super) fn new(rules: &'a Redaction) -> Self {
        Self { rules, used: RefCell::default() }
    }

    /// Returns the rules about channels that have replaced no value.
    pub(super) fn unused(self) -> Vec<String> {
        let used = self.used.into_inner();
        self.rules.channel_rules().filter(|rule| !used.contains(rule)).collect()
    }

    /// Returns the entry in place of a value that a rule replaces.
    fn used(&self, rule: String) -> Value {
        let entry = marker(&rule);
        self.used.borrow_mut().insert(rule);
        entry
    }

    /// Replaces values of a line of a thread.
    pub(super) fn apply(&self, thread: &ThreadId, line: &mut Line) -> serde_json::Result<()> {
        if self.rules.is_empty() {
            return Ok(());
        }
        match line {
            Line::Header(_) | Line::Subgraph(_) | Line::Total(_) => {}
            Line::Checkpoint(line) => {
                // Fingerprints of replaced values.
                line.metadata.remove(STATE);
                line.metadata.values_mut().for_each(|value| self.strings(value));
                if self.rules.hides_records()
                    && *thread == inbox_of(&thread.root())
                    && let Some(item) = line.metadata.get_mut(ITEM)
                {
                    *item = marker("item");
                }
                for item in line.items.values_mut() {
                    self.record(item, "item")?;
                }
            }
            Line::Applied(line) => {
                if let Some(update) = &mut line.update {
                    self.parsed(update, |update| self.update(update))?;
                }
            }
            Line::Channel(line) => {
                let name = line.channel.clone();
                self.parsed(&mut line.value, |value| match name.as_str() {
                    keys::VERSIONS => {}
                    keys::KEPT => self.channels_of(value),
                    name => self.value(name, value),
                })?;
            }
            Line::Task(task) => self.task(task)?,
        }
        Ok(())
    }

    fn task(&self, task: &mut Task) -> serde_json::Result<()> {
        if let Some(update) = &mut task.update {
            self.parsed(update, |update| self.update(update))?;
        }
        for target in task.targets.iter_mut().flatten() {
            if let Target::Worker(worker) = target {
                self.record(&mut worker.item, "item")?;
            }
        }
        for asked in task.questions.iter_mut().flatten().chain(task.asked.values_mut()) {
            self.question(asked)?;
        }
        for answer in task.answers.iter_mut().flat_map(|answers| answers.values_mut()) {
            self.record(answer, "answer")?;
        }
        for result in task.once.values_mut() {
            self.record(result, "effect")?;
        }
        task.error.iter_mut().for_each(|error| self.error(error));
        if let Some(failure) = &mut task.failure {
            let NodeFailure { message, causes, data, item, .. } = &mut **failure;
            self.error(message);
            causes.iter_mut().for_each(|cause| self.error(cause));
            for (value, what) in [(data, "data"), (item, "item")] {
                if let Some(value) = value {
                    match self.rules.hides_records() {
                        true => *value = marker(what),
                        false => self.strings(value),
                    }
                }
            }
        }
        Ok(())
    }

    fn question(&self, asked: &mut QuestionLine) -> serde_json::Result<()> {
        self.record(&mut asked.question, "question")?;
        asked.replaces.as_mut().map_or(Ok(()), |earlier| self.record(&mut earlier.question, "question"))
    }

    /// Replaces in a stored update.
    fn update(&self, update: &mut Value) {
        match update {
            Value::Object(entries) => {
                if let Some(Value::Array(then)) = entries.get_mut(keys::THEN) {
                    then.iter_mut().for_each(|update| self.update(update));
                }
                if let Some(recorded) = entries.get_mut(keys::RECORDED) {
                    match self.rules.hides_records() {
                        true => *recorded = marker("recorded"),
                        false => self.strings(recorded),
                    }
                }
                let is_channel = |name: &str| !keys::is_reserved(name);
                let channels = entries.iter_mut().filter(|(name, _)| is_channel(name));
                channels.for_each(|(name, value)| self.value(name, value));
            }
            other if self.rules.hides_records() => *other = marker("update"),
            other => self.strings(other),
        }
    }

    /// Replaces in an object with values of channels.
    fn channels_of(&self, channels: &mut Value) {
        if let Some(channels) = channels.as_object_mut() {
            channels.iter_mut().for_each(|(name, value)| self.value(name, value));
        }
    }

    /// Replaces in a value of a channel, or a write to it.
    fn value(&self, channel: &str, value: &mut Value) {
        if self.rules.channels.contains(channel) {
            // Parts of it are replaced with it.
            let paths = self.rules.paths.iter().filter(|path| path[0] == channel);
            paths.for_each(|path| drop(self.used(format!("path {}", path.join(".")))));
            *value = self.used(format!("channel {channel}"));
            return;
        }
        for path in self.rules.paths.iter().filter(|path| path[0] == channel) {
            let rule = format!("path {}", path.join("."));
            replace_at(value, &path[1..], &|| self.used(rule.clone()));
        }
        self.strings(value);
    }

    fn record(&self, json: &mut Raw, what: &str) -> serde_json::Result<()> {
        self.parsed(json, |value| match self.rules.hides_records() {
            true => *value = marker(what),
            false => self.strings(value),
        })
    }

    fn error(&self, text: &mut String) {
        match self.rules.hides_records() {
            true => *text = TEXT.to_owned(),
            false => self.text(text),
        }
    }

    fn parsed(&self, json: &mut Raw, change: impl FnOnce(&mut Value)) -> serde_json::Result<()> {
        let mut value = serde_json::from_str(json.get())?;
        change(&mut value);
        *json = to_raw_value(&value)?;
        Ok(())
    }

    /// Replaces in all texts of a value.
    fn strings(&self, value: &mut Value) {
        if self.rules.secrets.is_empty() && self.rules.texts.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.strings(value)),
            Value::Object(entries) => entries.values_mut().for_each(|value| self.strings(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &mut String) {
        for secret in &self.rules.secrets {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), TEXT);
            }
        }
        for (_, replace) in &self.rules.texts {
            if let Some(replaced) = replace(text) {
                *text = replaced;
            }
        }
    }
}

/// Shows the rules, not the secrets.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules()).finish()
    }
}

fn marker(rule: &str) -> Value {
    json!({ MARKER: rule })
}

/// Replaces what `path` names in a value. `entry` returns the entry in place of it.
fn replace_at(value: &mut Value, path: &[String], entry: &dyn Fn() -> Value) {
    let Some((step, rest)) = path.split_first() else {
        *value = entry();
        return;
    };
    match value {
        Value::Array(values) if step == "*" => {
            values.iter_mut().for_each(|value| replace_at(value, rest, entry));
        }
        Value::Object(entries) if step == "*" => {
            entries.values_mut().for_each(|value| replace_at(value, rest, entry));
        }
        Value::Object(entries) => {
            if let Some(value) = entries.get_mut(step) {
                replace_at(value, rest, entry);
            }
        }
        Value::Array(values) => {
            if let Some(value) = step.parse().ok().and_then(|nth: usize| values.get_mut(nth)) {
                replace_at(value, rest, entry);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_replaced_in_json_texts_within_each_other() {
        let secret = "p\"w\\d\n\u{7f}é😀";
        let rules = Redaction::new().secret(secret);
        let redacted = |text: &str| {
            let mut value = Value::from(format!("a {text} b"));
            Redacting::new(&rules).strings(&mut value);
            value
        };
        let forms = |text: &str| [escaped(text), escaped_as_ascii(text)];
        let once = forms(secret);
        assert_eq!(once[1], r#"p\"w\\d\n\u007f\u00e9\ud83d\ude00"#);
        assert_eq!(serde_json::from_str::<String>(&format!("\"{}\"", once[1])).unwrap(), secret);
        for text in
            [&[secret.to_owned()][..], &once, &once.each_ref().map(|text| forms(text)).concat()].concat()
        {
            assert_eq!(redacted(&text), "a [redacted] b", "{text}");
        }
        assert_eq!(Redaction::new().secret("").secrets, Vec::<String>::new());
    }
}
