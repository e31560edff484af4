//! The redaction of one export.
//!
//! Start at [`Redacting`].

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Serialize, de::Error as _};
use serde_json::{Value, json, value::to_raw_value};
use superstep_state::internal::keys;

use super::{
    super::lines::{Channel, Line, QuestionLine, Raw, Target, Task},
    Redaction, channel_rule, path_rule,
    remains::Remains,
};
use crate::{
    NodeFailure, ThreadId,
    commit::own::{ITEM, STATE, inbox_of},
};

/// The entry of an object in place of a redacted value. Its value is the rule.
pub(super) const MARKER: &str = "$redacted";

/// The text in place of a redacted one.
const TEXT: &str = "[redacted]";

/// The maximum number of updates within each other, as of values in JSON.
const MAX_THEN: usize = 128;

/// The redaction of one export.
pub(in crate::text) struct Redacting<'a> {
    rules: &'a Redaction,
    /// The rules about channels that have replaced a value.
    used: RefCell<BTreeSet<String>>,
    remains: RefCell<Remains>,
    /// `true` once all replaced values are known.
    inspects: bool,
}

impl<'a> Redacting<'a> {
    pub(in crate::text) fn new(rules: &'a Redaction) -> Self {
        let (used, remains) = (RefCell::default(), RefCell::default());
        Self { rules, used, remains, inspects: !rules.hides_records() }
    }

    /// Returns whether the thread has to be read once before it is written, because a value may be replaced after a line that repeats
    /// it.
    pub(in crate::text) fn reads_first(&self) -> bool {
        !self.inspects
    }

    /// Returns the redaction after that.
    pub(in crate::text) fn read(self) -> Self {
        Self { inspects: true, ..self }
    }

    /// Looks for replaced values in a line as it is written.
    pub(in crate::text) fn inspect(&self, line: &Line, json: &[u8]) -> serde_json::Result<()> {
        if self.rules.is_empty() || !self.inspects {
            return Ok(());
        }
        self.remains.borrow_mut().inspect(self.rules, line, json)
    }

    /// Returns the rules about channels that have replaced no value, and the places that still have replaced ones.
    pub(in crate::text) fn into_problems(self) -> (Vec<String>, Vec<String>) {
        let used = self.used.into_inner();
        let unused = self.rules.channel_rules().filter(|rule| !used.contains(rule)).collect();
        (unused, self.remains.into_inner().into_places())
    }

    /// Returns the entry in place of a value that a rule replaces.
    fn used(&self, rule: String, value: &Value) -> Value {
        if !self.inspects {
            self.remains.borrow_mut().replaced(value);
        }
        let entry = marker(&rule);
        self.used.borrow_mut().insert(rule);
        entry
    }

    /// Replaces values of a line of a thread.
    pub(in crate::text) fn apply(&self, thread: &ThreadId, line: &mut Line) -> serde_json::Result<()> {
        if self.rules.is_empty() {
            return Ok(());
        }
        match line {
            Line::Header(_) | Line::Subgraph(_) | Line::Total(_) => {}
            Line::Checkpoint(line) => {
                // Fingerprints of replaced values.
                line.metadata.remove(STATE);
                in_all(line.metadata.values_mut(), |value| self.strings(value));
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
                    self.update(update, 0)?;
                }
            }
            Line::Channel(Channel { channel, value }) => match channel.as_str() {
                keys::VERSIONS => {}
                keys::KEPT => {
                    self.kept(value)?;
                }
                name => {
                    self.value(name, value)?;
                }
            },
            Line::Task(task) => self.task(task)?,
        }
        Ok(())
    }

    fn task(&self, task: &mut Task) -> serde_json::Result<()> {
        if let Some(update) = &mut task.update {
            self.update(update, 0)?;
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
                    if self.rules.hides_records() { *value = marker(what) } else { _ = self.strings(value) }
                }
            }
        }
        Ok(())
    }

    fn question(&self, asked: &mut QuestionLine) -> serde_json::Result<()> {
        self.record(&mut asked.question, "question")?;
        if let Some(earlier) = &mut asked.replaces {
            self.record(&mut earlier.question, "question")?;
        }
        Ok(())
    }

    /// Replaces in a stored update, which has `depth` others around it. Like the others below, returns whether something was
    /// replaced: what has no replaced part stays as it is stored, because a reader of JSON may change it, such as long numbers.
    fn update(&self, update: &mut Raw, depth: usize) -> serde_json::Result<bool> {
        if !update.get().starts_with('{') {
            return self.record(update, "update");
        }
        if depth > MAX_THEN {
            return Err(serde_json::Error::custom("too many updates are within each other"));
        }
        let mut entries: BTreeMap<String, Raw> = serde_json::from_str(update.get())?;
        let mut is_changed = false;
        for (name, entry) in &mut entries {
            is_changed |= match name.as_str() {
                keys::THEN if entry.get().starts_with('[') => self.updates(entry, depth + 1)?,
                keys::THEN | keys::RECORDED => self.record(entry, "recorded")?,
                name if keys::is_reserved(name) => false,
                name => self.value(name, entry)?,
            };
        }
        replace_if(is_changed, update, &entries)
    }

    /// Replaces in a list of stored updates.
    fn updates(&self, updates: &mut Raw, depth: usize) -> serde_json::Result<bool> {
        let mut list: Vec<Raw> = serde_json::from_str(updates.get())?;
        let mut is_changed = false;
        for update in &mut list {
            is_changed |= self.update(update, depth)?;
        }
        replace_if(is_changed, updates, &list)
    }

    /// Replaces in the parts of channels that a program did not know: their `values` and `updates`.
    fn kept(&self, kept: &mut Raw) -> serde_json::Result<bool> {
        let mut parts: BTreeMap<String, Raw> = serde_json::from_str(kept.get())?;
        let mut is_changed = false;
        for part in parts.values_mut() {
            is_changed |=
                if part.get().starts_with('[') { self.updates(part, 0)? } else { self.update(part, 0)? };
        }
        replace_if(is_changed, kept, &parts)
    }

    /// Replaces in a value of a channel, or a write to it.
    fn value(&self, channel: &str, value: &mut Raw) -> serde_json::Result<bool> {
        let paths = || self.rules.paths.iter().filter(|path| self.rules.is_about(&path[0], channel));
        let mut rules = self.rules.channels.iter().filter(|rule| self.rules.is_about(rule, channel));
        if let Some(first) = rules.next() {
            let parsed = serde_json::from_str(value.get())?;
            let entry = self.used(channel_rule(first), &parsed);
            // Another name of the channel, and parts of it, are replaced with it.
            rules.for_each(|rule| drop(self.used(channel_rule(rule), &Value::Null)));
            paths().for_each(|path| drop(self.used(path_rule(path), &Value::Null)));
            return replace_if(true, value, &entry);
        }
        if let Some(rule) = self.rules.rule_of_copy(channel) {
            return replace_if(true, value, &marker(&rule));
        }
        if paths().next().is_none() && !self.rules.finds_texts() {
            return Ok(false);
        }
        let mut parsed = serde_json::from_str(value.get())?;
        let mut is_changed = false;
        for path in paths() {
            is_changed |= replace_at(&mut parsed, &path[1..], &|value| self.used(path_rule(path), value));
            for copy in self.rules.copies_of_part(channel, &path[1..]) {
                // Names in it, such as that of a server, may be elsewhere.
                is_changed |= replace_at(&mut parsed, &copy, &|_| marker(&path_rule(path)));
            }
        }
        is_changed |= self.strings(&mut parsed);
        replace_if(is_changed, value, &parsed)
    }

    /// Replaces in something that a task recorded.
    fn record(&self, json: &mut Raw, what: &str) -> serde_json::Result<bool> {
        if self.rules.hides_records() {
            return replace_if(true, json, &marker(what));
        }
        if !self.rules.finds_texts() {
            return Ok(false);
        }
        let mut value = serde_json::from_str(json.get())?;
        let is_changed = self.strings(&mut value);
        replace_if(is_changed, json, &value)
    }

    fn error(&self, text: &mut String) {
        if self.rules.hides_records() { *text = TEXT.to_owned() } else { _ = self.text(text) }
    }

    /// Replaces in all texts of a value.
    fn strings(&self, value: &mut Value) -> bool {
        if !self.rules.finds_texts() {
            return false;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(values) => in_all(values.iter_mut(), |value| self.strings(value)),
            Value::Object(entries) => in_all(entries.values_mut(), |value| self.strings(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn text(&self, text: &mut String) -> bool {
        let mut is_changed = false;
        for secret in &self.rules.secrets {
            if let Some(replaced) = secret.replaced(text, TEXT) {
                *text = replaced;
                is_changed = true;
            }
        }
        for (_, replace) in &self.rules.texts {
            if let Some(replaced) = replace(text) {
                *text = replaced;
                is_changed = true;
            }
        }
        is_changed
    }
}

/// Writes a value in the place of its text if it has changed, and returns that.
fn replace_if(is_changed: bool, json: &mut Raw, value: &impl Serialize) -> serde_json::Result<bool> {
    if is_changed {
        *json = to_raw_value(value)?;
    }
    Ok(is_changed)
}

/// Replaces in all of these values, and returns whether one has changed.
fn in_all<'v>(
    values: impl Iterator<Item = &'v mut Value>,
    mut replace: impl FnMut(&mut Value) -> bool,
) -> bool {
    values.fold(false, |is_changed, value| replace(value) | is_changed)
}

fn marker(rule: &str) -> Value {
    json!({ MARKER: rule })
}

/// Replaces what `path` names in a value. `entry` returns the entry in place of it.
fn replace_at(value: &mut Value, path: &[String], entry: &dyn Fn(&Value) -> Value) -> bool {
    let Some((step, rest)) = path.split_first() else {
        *value = entry(value);
        return true;
    };
    match value {
        Value::Array(values) if step == "*" => {
            in_all(values.iter_mut(), |value| replace_at(value, rest, entry))
        }
        Value::Object(entries) if step == "*" => {
            in_all(entries.values_mut(), |value| replace_at(value, rest, entry))
        }
        Value::Object(entries) => entries.get_mut(step).is_some_and(|value| replace_at(value, rest, entry)),
        Value::Array(values) => {
            let value = step.parse().ok().and_then(|nth: usize| values.get_mut(nth));
            value.is_some_and(|value| replace_at(value, rest, entry))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(rules: &Redaction, json: &str) -> String {
        let mut update = raw(json);
        Redacting::new(rules).update(&mut update, 0).unwrap();
        update.get().to_owned()
    }

    fn raw(json: &str) -> Raw {
        Raw::from(serde_json::value::RawValue::from_string(json.to_owned()).unwrap())
    }

    /// Numbers that a reader of JSON would round, and the form in which values are stored.
    #[test]
    fn what_no_rule_replaces_stays_as_it_is_stored() {
        let total = "340282366920938463463374607431768211455";
        let rules = Redaction::new().channel("email").secret("ada");
        let before =
            format!(r#"{{"total":{total},"$then":[{{"z": 1e2,"email":"a"}},{{"y":[ {total} ]}}],"x": 1.0}}"#);
        let after = format!(
            r#"{{"$then":[{{"email":{{"$redacted":"channel email"}},"z":1e2}},{{"y":[ {total} ]}}],"total":{total},"x":1.0}}"#
        );
        assert_eq!(update(&rules, &before), after);
        let before = format!(r#"{{"total":{total},"name":["bob"]}}"#);
        assert_eq!(update(&rules, &before), before);
        let after = format!(r#"{{"name":["[redacted]"],"total":{total}}}"#);
        assert_eq!(update(&rules, &before.replace("bob", "ada")), after);
    }

    #[test]
    fn what_repeats_a_part_of_an_element_is_replaced_with_it() {
        let rules = |path: &str| {
            Redaction::new().copied_part("messages", ["content", "reasoning"], "origin").path(path)
        };
        let before = r#"{"messages":[{"content":"a","origin":{"items":["a"]}},{"content":"b"}],"other":[{"origin":1}]}"#;
        let marked = |rule: &str| format!(r#"{{"$redacted":"path {rule}"}}"#);
        let mark = marked("messages.*.content");
        assert_eq!(
            update(&rules("messages.*.content"), before),
            format!(
                r#"{{"messages":[{{"content":{mark},"origin":{mark}}},{{"content":{mark}}}],"other":[{{"origin":1}}]}}"#
            )
        );
        let other = r#"{"messages":[{"id":"x","origin":{"items":["a"]}}]}"#;
        let id = marked("messages.*.id");
        assert_eq!(
            update(&rules("messages.*.id"), other),
            format!(r#"{{"messages":[{{"id":{id},"origin":{{"items":["a"]}}}}]}}"#)
        );
    }

    #[test]
    fn parts_of_channels_that_a_program_did_not_know_are_replaced_like_others() {
        let rules = Redaction::new().channel("email").path("log.*.to").channel("values");
        let redacting = Redacting::new(&rules);
        let kept =
            r#"{"values":{"$v":{"log":2},"email":"a","log":[{"to":"b"}]},"updates":[{"email":"c","n":1}]}"#;
        let mut line = Line::Channel(Channel { channel: keys::KEPT.to_owned(), value: raw(kept) });
        redacting.apply(&"t".into(), &mut line).unwrap();
        let mut text = Vec::new();
        line.write(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"channel":"$kept","value":{"updates":[{"email":{"$redacted":"channel email"},"n":1}],"values":{"$v":{"log":2},"email":{"$redacted":"channel email"},"log":[{"to":{"$redacted":"path log.*.to"}}]}}}"#
        );
        assert_eq!(redacting.into_problems().0, ["channel values"]);
    }

    #[test]
    fn a_rule_for_one_name_of_a_channel_is_about_all() {
        let rules =
            Redaction::new().channel("mail").path("to.0").renamed(["mail", "email"]).renamed(["to", "cc"]);
        let before = r#"{"cc":["b"],"email":"a","mail":"a","other":["b"],"to":["b"]}"#;
        let (mail, to) = (r#"{"$redacted":"channel mail"}"#, r#"[{"$redacted":"path to.0"}]"#);
        let after = format!(r#"{{"cc":{to},"email":{mail},"mail":{mail},"other":["b"],"to":{to}}}"#);
        assert_eq!(update(&rules, before), after);
    }

    #[test]
    fn updates_within_each_other_are_limited() {
        let nested = |depth: usize| r#"{"$then":["#.repeat(depth) + "{}" + &"]}".repeat(depth);
        let rules = Redaction::new().channel("email");
        assert_eq!(update(&rules, &nested(MAX_THEN)), nested(MAX_THEN));
        let error = Redacting::new(&rules).update(&mut raw(&nested(100_000)), 0).unwrap_err();
        assert_eq!(error.to_string(), "too many updates are within each other");
    }
}
