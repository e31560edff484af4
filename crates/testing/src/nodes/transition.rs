//! The report of one run of a node.
//!
//! Start at [`Transition`].

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use serde_json::Value;
use superstep_graph::{
    Event, Interrupt, RunError, State,
    checkpoint::RecordedTarget,
    error::chain,
    node::NodeName,
    probe::{AfterFailure, ProbedTask},
    state::reduce,
    stream::CustomEvent,
    topology::Control,
};

use super::{
    diff::state_diff,
    text::{event, line, named, next_lines},
};

/// The report of one run of a node, from the state that it received to the nodes that run next.
///
/// Its text has one line per fact, depends only on the node and what it was given, and is meant for snapshots: see
/// [`assert_transition!`](crate::assert_transition). Parts that are empty are left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Transition<S: State> {
    /// The node.
    pub node: NodeName,
    /// The superstep.
    pub step: i64,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The item, if it is a worker.
    pub item: Option<Value>,
    /// The state that it received.
    pub before: S,
    /// The state with its update applied; `before` if it did not finish or its update was refused.
    pub after: S,
    /// The update of the node; `None` if it did not finish.
    pub update: Option<S::Update>,
    /// The routes and sends that its conditional edges, its fan-outs and its command chose; the targets of plain edges are not
    /// among them.
    pub chosen: Vec<RecordedTarget>,
    /// The nodes that run next with their items, and the joins and deferred nodes that it reached and that wait for others;
    /// `None` if it did not finish.
    pub next: Option<Control>,
    /// The custom events of the node and messages, and those of graphs that it called.
    pub events: Vec<Event<S>>,
    /// The results of its effects, by name, whether they ran or were given.
    pub effects: BTreeMap<String, Value>,
    /// The errors of its effects after which it continued, by name.
    pub failed_effects: BTreeMap<String, String>,
    /// The questions that have no answer.
    pub questions: Vec<Interrupt>,
    /// The error of the node, or the reason why its update was refused.
    pub error: Option<RunError>,
    /// The retries and the error handler that a run would use after the failure.
    pub after_failure: Option<AfterFailure>,
}

impl<S: State> Transition<S> {
    pub(super) fn of(task: ProbedTask<S>, error: Option<RunError>) -> Self {
        let accepted = task.update.clone().filter(|_| error.is_none());
        // A reducer that fails is the error of the run.
        let after = accepted.and_then(|update| reduce(&task.state, [update]).ok());
        let after = after.unwrap_or_else(|| task.state.clone());
        Self {
            node: task.node,
            step: task.step,
            attempt: task.attempt,
            item: task.item,
            before: task.state,
            after,
            update: task.update,
            chosen: task.chosen,
            next: task.next,
            events: task.events,
            effects: task.results,
            failed_effects: task.errors,
            questions: task.questions,
            error,
            after_failure: task.failure,
        }
    }

    /// Returns the update as the JSON object that is stored; `null` if there is none.
    pub fn update_json(&self) -> Value {
        let update = self.update.as_ref().map(|update| self.before.stored(update));
        let json = update.map(|update| serde_json::to_value(&*update));
        json.map_or(Value::Null, |json| {
            json.unwrap_or_else(|error| format!("has no JSON form: {error}").into())
        })
    }

    /// Returns the nodes that run next, as [`route`](crate::route) does; empty if the node did not finish.
    pub fn route(&self) -> Vec<String> {
        self.next.as_ref().map_or_else(Vec::new, next_lines)
    }

    /// Returns the workers that run next, each with its item.
    pub fn sends(&self) -> Vec<(&str, Value)> {
        let next = self.next.iter().flat_map(|next| next.items.iter().map(move |item| (next, item)));
        let sends = next.filter_map(|(next, (slot, item))| {
            Some((next.next.get(*slot as usize)?.as_str(), serde_json::from_str(item).ok()?))
        });
        sends.collect()
    }

    /// Returns its custom events, and those of graphs that it called.
    pub fn custom(&self) -> impl Iterator<Item = CustomEvent<'_>> {
        self.events.iter().filter_map(Event::custom)
    }

    /// Returns the error with its causes in one line.
    pub fn error_text(&self) -> Option<String> {
        self.error.as_ref().map(|error| chain(error))
    }

    /// Returns the difference of the states: see [`state_diff`].
    pub fn diff(&self) -> String {
        state_diff(&self.before, &self.after)
    }
}

impl<S: State> fmt::Display for Transition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node `{}` in superstep {}", self.node, self.step)?;
        match self.attempt {
            1 => writeln!(f)?,
            nth => writeln!(f, ", attempt {nth}")?,
        }
        if let Some(item) = &self.item {
            writeln!(f, "item {}", line(item))?;
        }
        part(f, "update", &self.update_text()?)?;
        let diff = self.diff();
        part(f, "state", &diff.lines().fold(String::new(), |text, line| text + "  " + line + "\n"))?;
        part(f, "next", &self.route().iter().fold(String::new(), |text, next| text + "  " + next + "\n"))?;
        let mut text = String::new();
        self.events.iter().try_for_each(|event_| event(&mut text, event_))?;
        part(f, "events", &text)?;
        let mut text = String::new();
        self.effects.iter().try_for_each(|(name, result)| named(&mut text, name, result))?;
        for (name, error) in &self.failed_effects {
            writeln!(text, "  {name} failed: {error}")?;
        }
        part(f, "effects", &text)?;
        let mut text = String::new();
        for asked in &self.questions {
            let within = if asked.node == self.node { String::new() } else { format!("{}: ", asked.node) };
            named(&mut text, &format!("{within}{}", asked.key), &asked.question)?;
        }
        part(f, "questions", &text)?;
        part(f, "error", &self.failure_text()?)
    }
}

impl<S: State> Transition<S> {
    /// Returns the writes of the update, in the order of the channels.
    fn update_text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let Value::Object(mut entries) = self.update_json() else { return Ok(text) };
        for channel in self.before.channels() {
            if let Some(write) = entries.remove(&*channel.name) {
                named(&mut text, &channel.name, &write)?;
            }
        }
        entries.into_iter().try_for_each(|(name, write)| named(&mut text, &name, &write))?;
        Ok(text)
    }

    fn failure_text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let Some(error) = self.error_text() else { return Ok(text) };
        writeln!(text, "  {}", error.replace('\n', "\n  "))?;
        let Some(after) = &self.after_failure else { return Ok(text) };
        if after.attempts > self.attempt {
            writeln!(text, "  a run makes {} attempts", after.attempts)?;
        }
        if let Some(handler) = &after.handler {
            writeln!(text, "  then `{handler}` runs")?;
        }
        if let Some(data) = &after.data {
            named(&mut text, "data", data)?;
        }
        Ok(text)
    }
}

fn part(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    if text.is_empty() { Ok(()) } else { write!(f, "{name}\n{text}") }
}

/// Compares a transition with its snapshot, which insta stores and reviews: in the source after `@`, or in a file.
///
/// ```text
/// assert_transition!(graph, "plan", state);             runs the node; in an async function
/// assert_transition!(graph, "plan", state, @r"..");     the same, with the snapshot in the source
/// assert_transition!(transition, @r"..");               of `node(..).run().await?`, or of a chain
/// ```
///
/// The calling crate needs a dependency on insta, which this crate does not have.
///
/// # Panics
/// If the snapshot differs, or the test does not fit the graph.
#[macro_export]
macro_rules! assert_transition {
    ($graph:expr, $node:expr, $state:expr, @$snapshot:literal $(,)?) => {{
        let transition = $crate::node(&$graph, $node).state($state).run().await;
        let transition = transition.unwrap_or_else(|error| ::std::panic!("{error:?}"));
        insta::assert_snapshot!(transition, @$snapshot)
    }};
    ($graph:expr, $node:expr, $state:expr $(,)?) => {{
        let transition = $crate::node(&$graph, $node).state($state).run().await;
        let transition = transition.unwrap_or_else(|error| ::std::panic!("{error:?}"));
        insta::assert_snapshot!(transition)
    }};
    ($transition:expr, @$snapshot:literal $(,)?) => {
        insta::assert_snapshot!($transition, @$snapshot)
    };
    ($transition:expr $(,)?) => {
        insta::assert_snapshot!($transition)
    };
}
