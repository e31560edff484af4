//! Detection of repeated calls.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use superstep_llm::Role;

use crate::{
    AgentEvent, AgentState,
    config::{LoopAction, LoopRule, Repeat, prompts},
    deps::AgentDeps,
    repair::repaired_call,
    state::ToolCallRecord,
};

/// A loop that a rule detected.
#[derive(Clone, Debug)]
pub(super) struct DetectedLoop {
    pub(super) rule: &'static str,
    pub(super) tool: String,
    /// Number of repetitions.
    pub(super) n: usize,
    /// The equal parts of the repeated calls.
    pub(super) same: &'static str,
}

impl DetectedLoop {
    /// Returns the event that reports it.
    pub(super) fn event(&self) -> AgentEvent {
        AgentEvent::Loop { rule: self.rule.to_owned(), tool: self.tool.clone(), n: self.n }
    }
}

/// Maximum length of compared texts: longer ones are similar only if equal, because the comparison is
/// quadratic.
const MAX_COMPARED_LENGTH: usize = 2_000;

/// The calls of a turn and their results.
struct Calls<'a> {
    deps: &'a AgentDeps,
    state: &'a AgentState,
    /// Calls that are about to be executed, after those of the state: they have no results yet.
    coming: Vec<&'a ToolCallRecord>,
    /// The first call whose result the model has not read. Of equal calls from there on only the first
    /// counts.
    unread: usize,
}

impl<'a> Calls<'a> {
    /// Returns all calls, counted individually.
    fn all(deps: &'a AgentDeps, state: &'a AgentState) -> Self {
        Self { deps, state, coming: Vec::new(), unread: usize::MAX }
    }

    /// Returns the calls whose results the model has read: the newest round counts as one attempt.
    fn read(deps: &'a AgentDeps, state: &'a AgentState) -> Self {
        let round = state.messages.iter().rev().find(|message| !message.tool_calls.is_empty());
        let round = round.map_or(0, |message| message.tool_calls.len());
        let unread = state.tool_call_history.len().saturating_sub(round);
        Self { unread, ..Self::all(deps, state) }
    }

    fn len(&self) -> usize {
        self.state.tool_call_history.len() + self.coming.len()
    }

    fn call(&self, at: usize) -> &'a ToolCallRecord {
        match at.checked_sub(self.state.tool_call_history.len()) {
            Some(coming) => self.coming[coming],
            None => &self.state.tool_call_history[at],
        }
    }

    /// Returns the name of the called tool, which the model may have written differently.
    fn tool(&self, at: usize) -> &'a str {
        meant(self.deps, &self.call(at).name)
    }

    fn equal(&self, a: usize, b: usize) -> bool {
        equal(self.deps, self.call(a), self.call(b))
    }

    /// Returns the result that the model read; `None` if the call is pending or was refused as a repetition.
    fn result(&self, at: usize) -> Option<&'a str> {
        let result = self.state.tool_result_history.get(at)?.as_str();
        (!prompts::is_loop_warning(result)).then_some(result)
    }

    /// Returns the positions of the counted calls, newest first.
    fn newest(&self) -> impl Iterator<Item = usize> {
        let counts = |at: &usize| !(self.unread..*at).any(|earlier| self.equal(earlier, *at));
        (0..self.len()).rev().filter(counts)
    }

    /// Returns whether a call may be repeated: its tool polls, or gives the reply, which has its own limit. It
    /// equals no other, and interrupts consecutive calls.
    fn polls(&self, at: usize) -> bool {
        let (tool, deps) = (self.tool(at), self.deps);
        tool == deps.config.finish.tool || deps.tools.get(tool).is_some_and(|tool| tool.behaviour().poll)
    }

    fn find(&self, when: Repeat) -> Option<DetectedLoop> {
        match when {
            Repeat::Identical { n } => self.row(when, n, |a, b| self.call(a).args == self.call(b).args),
            Repeat::Similar { n, threshold } => self.row(when, n, |a, b| self.similar(a, b, threshold)),
            Repeat::NoProgress { n } => self.no_progress(when, n),
            Repeat::Period { max_period, repeats } => self.period(max_period, repeats.max(2)),
        }
    }

    /// Returns the newest consecutive calls to one tool that are `equal`, if there are at least `n`.
    fn row(&self, when: Repeat, n: usize, equal: impl Fn(usize, usize) -> bool) -> Option<DetectedLoop> {
        let row = self.alike(equal);
        self.found(when, &row, row.len()).filter(|found| found.n >= n.max(2))
    }

    fn alike(&self, equal: impl Fn(usize, usize) -> bool) -> Vec<usize> {
        let Some(last) = self.newest().next().filter(|last| !self.polls(*last)) else { return Vec::new() };
        let tool = self.tool(last);
        let like =
            |at: &usize| *at == last || (self.tool(*at) == tool && !self.polls(*at) && equal(*at, last));
        self.newest().take_while(like).collect()
    }

    /// Returns the loop of `n` repetitions of the calls of a row.
    fn found(&self, when: Repeat, row: &[usize], n: usize) -> Option<DetectedLoop> {
        let last = self.newest().next()?;
        Some(DetectedLoop { rule: when.name(), tool: self.tool(last).to_owned(), n, same: self.same_in(row) })
    }

    /// Describes what is the same in the calls of a row. A result counts only if the model has read it.
    fn same_in(&self, row: &[usize]) -> &'static str {
        let args = row.windows(2).all(|pair| self.call(pair[0]).args == self.call(pair[1]).args);
        let results: Vec<_> = row.iter().filter_map(|at| self.result(*at)).collect();
        let result = results.len() > 1 && results.windows(2).all(|pair| pair[0] == pair[1]);
        match (args, result) {
            (true, true) => "with the same arguments and result",
            (true, false) => "with the same arguments",
            (false, true) => "with similar arguments and the same result",
            (false, false) => "with similar arguments",
        }
    }

    /// Returns the newest equal calls of which only the oldest gave a new text.
    fn no_progress(&self, when: Repeat, n: usize) -> Option<DetectedLoop> {
        let mut row = self.alike(|a, b| self.call(a).args == self.call(b).args);
        row.reverse();
        let (mut seen, mut length) = (BTreeSet::new(), 0);
        for at in &row {
            let is_new = self.result(*at).is_some_and(|result| seen.insert(result));
            length = if is_new { 1 } else { length + 1 };
        }
        self.found(when, &row[row.len() - length..], length).filter(|_| length >= n.max(2))
    }

    fn similar(&self, a: usize, b: usize, threshold: f64) -> bool {
        let (one, other) = (&self.call(a).args, &self.call(b).args);
        let results = [self.result(a), self.result(b)];
        // Another spelling of a failed call is another attempt.
        let failed = results.into_iter().flatten().any(prompts::is_failure);
        // The arguments first: they are shorter than the results.
        let like = if failed { one == other } else { alike_values(one, other, threshold) };
        like && match results {
            [Some(result), Some(like)] => alike(result, like, threshold),
            _ => true,
        }
    }

    fn period(&self, max_period: usize, repeats: usize) -> Option<DetectedLoop> {
        let mut calls: Vec<usize> = self.newest().take(max_period.saturating_mul(repeats)).collect();
        calls.reverse();
        let found = (2..=max_period).find(|period| {
            let period = *period;
            let Some(first) = calls.len().checked_sub(period * repeats) else { return false };
            let differs = (first..first + period - 1).any(|at| !self.same(calls[at], calls[at + 1]));
            differs && (first + period..calls.len()).all(|at| self.same(calls[at], calls[at - period]))
        });
        let row: Vec<usize> = calls.iter().rev().step_by(found?).take(repeats).copied().collect();
        self.found(Repeat::Period { max_period, repeats }, &row, repeats)
    }

    fn same(&self, a: usize, b: usize) -> bool {
        let results = match (self.result(a), self.result(b)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        results && self.equal(a, b) && !self.polls(a) && !self.polls(b)
    }
}

/// Returns the name of the tool that a name written by the model means.
fn meant<'a>(deps: &'a AgentDeps, written: &'a str) -> &'a str {
    repaired_call::resolved(&deps.tools, Some(&deps.config.finish.tool), deps.config.repair, written)
}

/// Returns whether two calls have the same tool and arguments.
fn equal(deps: &AgentDeps, a: &ToolCallRecord, b: &ToolCallRecord) -> bool {
    meant(deps, &a.name) == meant(deps, &b.name) && a.args == b.args
}

/// Returns a loop that ends the turn, and whether the model may reply first.
pub(super) fn ends(deps: &AgentDeps, state: &AgentState) -> Option<(DetectedLoop, bool)> {
    let calls = Calls::read(deps, state);
    let ends = deps.config.loops.iter().filter_map(|rule| match rule.then {
        LoopAction::Stop => Some((rule.when, false)),
        LoopAction::Answer => Some((rule.when, true)),
        LoopAction::Warn | LoopAction::Refuse => None,
    });
    let mut found = ends.filter_map(|(when, answers)| Some((calls.find(when)?, answers)));
    found.next()
}

/// Returns a loop that the model is warned of.
pub(super) fn warns(deps: &AgentDeps, state: &AgentState) -> Option<DetectedLoop> {
    // A tool's result is the last message after every round; anything else was answered since.
    let last = state.messages.last().filter(|last| last.role == Role::Tool)?;
    // The result of a refused call has reported it already.
    if prompts::is_loop_warning(&last.content) {
        return None;
    }
    let calls = Calls::all(deps, state);
    let mut warns = deps.config.loops.iter().filter(|rule| rule.then == LoopAction::Warn);
    warns.find_map(|rule| calls.find(rule.when))
}

/// Returns the positions of calls refused as repetitions, each with whether it leads to the end of the turn,
/// and whether one of them ends it. Equal calls of one response are one attempt: the model could not know the
/// result of the first.
pub(super) fn refused(
    deps: &AgentDeps,
    state: &AgentState,
    calls: &[ToolCallRecord],
) -> (BTreeMap<usize, (DetectedLoop, bool)>, bool) {
    let (mut refused, mut stop) = (BTreeMap::new(), false);
    let refuses = |rule: &&LoopRule| match rule.then {
        LoopAction::Refuse => true,
        // The compared values are known before the call.
        LoopAction::Stop | LoopAction::Answer => matches!(rule.when, Repeat::Identical { .. }),
        LoopAction::Warn => false,
    };
    let rules: Vec<&LoopRule> = deps.config.loops.iter().filter(refuses).collect();
    let mut seen = Calls::all(deps, state);
    for (position, call) in calls.iter().enumerate() {
        if let Some(earlier) = calls[..position].iter().position(|earlier| equal(deps, earlier, call)) {
            refused
                .extend(refused.get(&earlier).cloned().map(|found: (DetectedLoop, bool)| (position, found)));
            continue;
        }
        seen.coming.push(call);
        let answers = || deps.config.loops.iter().filter(|rule| rule.then == LoopAction::Answer);
        for rule in &rules {
            if let Some(found) = seen.find(rule.when) {
                stop |= rule.then == LoopAction::Stop;
                let ends = answers().any(|rule| seen.find(rule.when).is_some());
                refused.entry(position).or_insert((found, ends));
            }
        }
    }
    (refused, stop)
}

/// Returns whether two arguments are similar: the same fields, similar texts of the same words, everything
/// else equal. Another word may be another file.
fn alike_values(a: &Value, b: &Value, threshold: f64) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => words(a).eq(words(b)) && alike(a, b, threshold),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike_values(a, b, threshold))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike_values(a, b, threshold)))
        }
        (a, b) => a == b,
    }
}

fn alike(a: &str, b: &str, threshold: f64) -> bool {
    if a == b {
        return true;
    }
    let (a, b) = (normal(a), normal(b));
    if a == b {
        return true;
    }
    // A number that changes is progress, however short it is: "progress 10%" and "progress 55%" are 83 % equal.
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    a.len().max(b.len()) <= MAX_COMPARED_LENGTH
        && digits(&a) == digits(&b)
        && strsim::normalized_levenshtein(&a, &b) >= threshold
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_alike_but_for_case_white_space_and_trifles() {
        for (a, b) in [("rust  Async", "rust async"), ("10 hits: A,B", "10 hits: A,B."), ("", " ")] {
            assert!(alike(a, b, 0.9), "{a} / {b}");
        }
        for (a, b) in [
            ("progress 10%", "progress 55%"),
            ("rust async", "go channels"),
            ("page 1", "page 2"),
            ("a", "b"),
        ] {
            assert!(!alike(a, b, 0.9), "{a} / {b}");
        }
    }

    #[test]
    fn arguments_are_similar_in_any_order_of_fields() {
        let value = |text| serde_json::from_str::<Value>(text).unwrap();
        assert!(alike_values(&value(r#"{"q":"Rust","n":1}"#), &value(r#"{"n":1,"q":"rust "}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust","n":1}"#), &value(r#"{"q":"rust","n":2}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust"}"#), &value(r#"{"q":"rust","n":1}"#), 0.9));
        let path = |path: &str| serde_json::json!({ "path": path });
        assert!(alike_values(&path("docs/the first chapter"), &path("docs/the first chapter."), 0.9));
        assert!(!alike_values(&path("docs/guides/main.md"), &path("docs/guides/mail.md"), 0.9));
    }
}
