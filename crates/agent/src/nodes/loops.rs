//! Whether the model repeats itself.

use std::collections::BTreeMap;

use serde_json::Value;
use superstep_llm::Role;

use super::repaired_call;
use crate::{AgentDeps, AgentState, LoopAction, LoopRule, Repeat, ToolCallRecord};

/// A loop that a rule found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rule: &'static str,
    pub(super) tool: String,
    /// How often.
    pub(super) n: usize,
}

/// Texts longer than this are alike only if they are equal: comparing takes the product of their lengths.
const LONGEST_COMPARED: usize = 2_000;

/// The calls of a turn and their results, oldest first; the newest may still have none.
struct Calls<'a> {
    calls: Vec<&'a ToolCallRecord>,
    results: Vec<&'a str>,
    /// Which of them are of tools that poll: they equal no other, and what comes after one is not in a row with what came before.
    polls: Vec<bool>,
}

impl<'a> Calls<'a> {
    fn of(state: &'a AgentState, deps: &AgentDeps) -> Self {
        let both = state.tool_call_history.iter().zip(state.tool_result_history.iter());
        let (calls, results): (Vec<_>, _) = both.map(|(call, result)| (call, result.as_str())).unzip();
        let polls = calls.iter().map(|call| polls(deps, &call.name)).collect();
        Self { calls, results, polls }
    }

    fn find(&self, when: Repeat) -> Option<Found> {
        match when {
            Repeat::Identical { n } => self.run(when, n, |a, b| self.calls[a].args == self.calls[b].args),
            Repeat::Similar { n, threshold } => self.run(when, n, |a, b| {
                alike_values(&self.calls[a].args, &self.calls[b].args, threshold)
                    && alike(self.result(a), self.result(b), threshold)
            }),
            Repeat::NoProgress { n } => self.run(when, n, |a, b| self.same(a, b)),
            Repeat::Period { max_period, repeats } => self.period(max_period, repeats.max(2)),
        }
    }

    /// The newest calls to one tool that are `equal` to the newest, if they are at least `n`.
    fn run(&self, when: Repeat, n: usize, equal: impl Fn(usize, usize) -> bool) -> Option<Found> {
        let last = self.calls.len().checked_sub(1).filter(|last| !self.polls[*last])?;
        let tool = &self.calls[last].name;
        let like = |at: &usize| !self.polls[*at] && self.calls[*at].name == *tool && equal(*at, last);
        let length = 1 + (0..last).rev().take_while(like).count();
        (length >= n.max(2)).then(|| Found { rule: when.name(), tool: tool.clone(), n: length })
    }

    fn period(&self, max_period: usize, repeats: usize) -> Option<Found> {
        let found = (2..=max_period).any(|period| {
            let Some(first) = self.calls.len().checked_sub(period * repeats) else { return false };
            let differs = (first..first + period - 1).any(|at| !self.same(at, at + 1));
            differs && (first + period..self.calls.len()).all(|at| self.same(at, at - period))
        });
        let last = self.calls.last().filter(|_| found)?;
        Some(Found {
            rule: Repeat::Period { max_period, repeats }.name(),
            tool: last.name.clone(),
            n: repeats,
        })
    }

    fn same(&self, a: usize, b: usize) -> bool {
        let (one, other) = (self.calls[a], self.calls[b]);
        let polls = self.polls[a] || self.polls[b];
        !polls && one.name == other.name && one.args == other.args && self.result(a) == self.result(b)
    }

    fn result(&self, at: usize) -> &str {
        self.results.get(at).copied().unwrap_or_default()
    }
}

/// Whether calling it again is no loop: it polls, or gives the reply, which has a bound of its own.
fn polls(deps: &AgentDeps, name: &str) -> bool {
    let meant = || repaired_call::name(&deps.tools, name).filter(|_| deps.config.repair);
    let tool = deps.tools.get(name).or_else(|| deps.tools.get(meant()?));
    name == deps.config.finish.tool || tool.is_some_and(|tool| tool.behaviour().poll)
}

/// A loop that is to end the turn before the model is asked again.
pub(super) fn stops(deps: &AgentDeps, state: &AgentState) -> Option<Found> {
    let calls = Calls::of(state, deps);
    deps.config
        .loops
        .iter()
        .filter(|rule| rule.then == LoopAction::Stop)
        .find_map(|rule| calls.find(rule.when))
}

/// A loop that the model is to be told of.
pub(super) fn warns(deps: &AgentDeps, state: &AgentState) -> Option<Found> {
    // A tool's result stands last in every round; anything else has been answered since.
    state.messages.last().filter(|last| last.role == Role::Tool)?;
    let calls = Calls::of(state, deps);
    let told = |rule: &&LoopRule| match rule.then {
        LoopAction::Warn => true,
        LoopAction::Refuse => !matches!(rule.when, Repeat::Identical { .. }),
        LoopAction::Stop => false,
    };
    deps.config.loops.iter().filter(told).find_map(|rule| calls.find(rule.when))
}

/// The calls that are not to be executed, because they were made before, by their position; and whether one of them ends
/// the turn.
pub(super) fn refused(
    deps: &AgentDeps,
    state: &AgentState,
    calls: &[ToolCallRecord],
) -> (BTreeMap<usize, Found>, bool) {
    let (mut refused, mut stop) = (BTreeMap::new(), false);
    let identical =
        |rule: &&LoopRule| matches!(rule.when, Repeat::Identical { .. }) && rule.then != LoopAction::Warn;
    let mut seen = Calls::of(state, deps);
    for (position, call) in calls.iter().enumerate() {
        seen.calls.push(call);
        seen.polls.push(polls(deps, &call.name));
        for rule in deps.config.loops.iter().filter(identical) {
            if let Some(found) = seen.find(rule.when) {
                stop |= rule.then == LoopAction::Stop;
                refused.entry(position).or_insert(found);
            }
        }
    }
    (refused, stop)
}

/// Whether two arguments are alike: the same fields, texts alike, everything else equal.
fn alike_values(a: &Value, b: &Value, threshold: f64) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => alike(a, b, threshold),
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
    let (a, b) = (normal(a), normal(b));
    if a == b {
        return true;
    }
    // A number that changes is progress, however little of the text it is.
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    a.len().max(b.len()) <= LONGEST_COMPARED
        && digits(&a) == digits(&b)
        && strsim::normalized_levenshtein(&a, &b) >= threshold
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
    fn arguments_are_alike_whatever_the_order_of_their_fields() {
        let value = |text| serde_json::from_str::<Value>(text).unwrap();
        assert!(alike_values(&value(r#"{"q":"Rust","n":1}"#), &value(r#"{"n":1,"q":"rust "}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust","n":1}"#), &value(r#"{"q":"rust","n":2}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust"}"#), &value(r#"{"q":"rust","n":1}"#), 0.9));
    }
}
