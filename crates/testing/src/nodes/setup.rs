//! The surroundings of a node under test.
//!
//! Start at [`Setup`].

use std::{collections::BTreeMap, fmt::Display};

use serde::Serialize;
use serde_json::Value;
use superstep_graph::{
    CompiledGraph, RunOptions, State,
    probe::{Probe, Probed},
};

use super::NodeTestError;
use crate::clock::{FixedClock, NOW_MS};

/// The surroundings of a node.
pub(super) struct Setup {
    pub(super) answers: Vec<(String, Value)>,
    pub(super) effects: BTreeMap<String, Value>,
    pub(super) step: i64,
    pub(super) options: RunOptions,
    /// A value without a JSON form.
    pub(super) unstorable: Option<NodeTestError>,
}

impl Default for Setup {
    fn default() -> Self {
        let (answers, effects, unstorable) = (Vec::new(), BTreeMap::new(), None);
        Self { answers, effects, step: 1, options: RunOptions::new().clock(FixedClock(NOW_MS)), unstorable }
    }
}

impl Setup {
    /// Converts a value to JSON; the first that has none is reported when the test runs.
    pub(super) fn json(&mut self, what: impl Display, value: impl Serialize) -> Value {
        serde_json::to_value(value).unwrap_or_else(|source| {
            let what = what.to_string();
            self.unstorable.get_or_insert(NodeTestError::Unstorable { what, source });
            Value::Null
        })
    }

    pub(super) fn now(&mut self, now_ms: i64) {
        self.options = self.options.clone().clock(FixedClock(now_ms));
    }

    /// Runs a probe of `node` in these surroundings, and checks that it used all that was given.
    pub(super) async fn probe<S: State>(
        self,
        graph: &CompiledGraph<S>,
        probe: Probe<S>,
    ) -> Result<Probed<S>, NodeTestError> {
        let Self { answers, effects, step, options, unstorable } = self;
        if let Some(unstorable) = unstorable {
            return Err(unstorable);
        }
        let given: Vec<String> = effects.keys().cloned().collect();
        let probed = graph.probe(Probe { answers, effects, step, options, ..probe }).await?;
        // A node that failed or waits may not have reached its other questions and effects.
        if probed.end.is_ok() {
            if !probed.unused_answers.is_empty() {
                let names = probed.unused_answers;
                return Err(NodeTestError::NotAsked { names, asked: probed.asked });
            }
            let waits = probed.tasks.iter().any(|task| !task.questions.is_empty());
            if !probed.unused_effects.is_empty() && !waits {
                let used = probed.tasks.iter().flat_map(|task| task.results.keys().chain(task.errors.keys()));
                let used = used.filter(|name| !given.contains(name)).cloned().collect();
                return Err(NodeTestError::UnusedEffects { names: probed.unused_effects, used });
            }
        }
        Ok(probed)
    }
}

/// Defines the methods of a builder that has a [`Setup`] in its field `setup`.
macro_rules! setup_methods {
    () => {
        /// Answers a question, by its key or its id. Several answers under one key are for questions that follow each other.
        ///
        /// As on any thread, a node that asks runs until its question, and again from its beginning with the answer.
        pub fn answer(mut self, question: impl Into<String>, value: impl serde::Serialize) -> Self {
            let question = question.into();
            let value = self.setup.json(format_args!("the answer `{question}`"), value);
            self.setup.answers.push((question, value));
            self
        }

        /// Gives the result of an effect, which then does not run: of `Cx::once`, `Cx::recorded` or `Cx::noted` under this
        /// name. The second use of a name by a task is `name#2`. Effects without a given result run, and so do those of a graph
        /// that the node calls.
        pub fn effect(mut self, name: impl Into<String>, result: impl serde::Serialize) -> Self {
            let name = name.into();
            let result = self.setup.json(format_args!("the result of `{name}`"), result);
            self.setup.effects.insert(name, result);
            self
        }

        /// Sets the time, in UTC milliseconds since 1970. It stands still; by default at 2023-11-14, 22:13:20.
        pub fn now(mut self, now_ms: i64) -> Self {
            self.setup.now(now_ms);
            self
        }

        /// Sets the seed of `Cx::rng`; 0 by default.
        pub fn seed(mut self, seed: u64) -> Self {
            self.setup.options = self.setup.options.seed(seed);
            self
        }

        /// Sets the superstep, from which ids are derived; 1 by default.
        pub fn step(mut self, step: i64) -> Self {
            self.setup.step = step;
            self
        }

        /// Sets the thread; `test` by default.
        pub fn thread(mut self, thread: impl Into<superstep_graph::ThreadId>) -> Self {
            self.setup.options = self.setup.options.thread(thread);
            self
        }

        /// Sets the value that nodes read with `Cx::context`.
        pub fn context(mut self, context: impl serde::Serialize) -> Self {
            let context = self.setup.json("the context", context);
            self.setup.options = self.setup.options.context(context);
            self
        }
    };
}

pub(super) use setup_methods;
