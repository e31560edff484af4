//! The answers to a task's questions, and the names that identify a question.

use std::sync::{Arc, atomic::Ordering};

use serde::{Serialize, de::DeserializeOwned};
use superstep_engine::{NodeName, TaskId};
use superstep_state::internal::encode;

use super::Cx;
use crate::{
    ThreadId,
    journal::{
        interrupts::id::{QuestionName, marked},
        recorder::ReplayMode,
        task_origin::{Origin, QuestionContext},
    },
};

/// A task that calls a graph, as a part of the names of the graph's questions and positions.
pub(crate) struct CallingTask {
    /// The key of the call.
    call: String,
    node: NodeName,
    origin: Origin,
    nonce: Option<String>,
    thread: Option<ThreadId>,
    position: String,
    above: Option<Arc<CallingTask>>,
}

impl Cx {
    /// Returns whether there is an answer under this key. [`interrupt`](Self::interrupt) returns it if the
    /// question is the same as when the answer was given.
    pub fn is_answered(&self, key: &str) -> bool {
        let recorded = match self.0.run.recorder.mode(self.0.task) {
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) | ReplayMode::Adopted(recorded) => {
                recorded.answers.contains_key(key)
            }
            ReplayMode::Nothing | ReplayMode::Unknown => false,
        };
        recorded || self.0.run.interrupts.answers_of(self.0.task).contains_key(key)
    }

    /// Returns the question of the answer under this key, if there is one that can be read as a `Q`.
    ///
    /// For a question with a part that may change when the node runs again although the question is
    /// equivalent: take that part from here, and pass it through [`Cx::noted`], because there are no questions in a replay.
    pub fn answered_question<Q: DeserializeOwned>(&self, key: &str) -> Option<Q> {
        serde_json::from_str(&self.0.run.interrupts.answered(self.0.task, key)?).ok()
    }

    /// Like [`answered_question`](Self::answered_question), only if the answer can be read as an `A`. Another answer is rejected,
    /// and its question is shown again.
    pub fn validly_answered_question<Q: DeserializeOwned, A: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Option<Q> {
        let answers = self.0.run.interrupts.answers_of(self.0.task);
        A::deserialize(&answers.get(key)?.answer).ok()?;
        self.answered_question(key)
    }

    /// Returns the [`Interrupt::id`](crate::Interrupt::id) of a question of this task under a key, as the outermost graph has it.
    ///
    /// For decisions that are recorded elsewhere by this id: it is computed from the task and this question, not from data
    /// that is stored with an answer. A question that has no JSON form has an id like the question `null`.
    pub fn interrupt_id(&self, key: &str, question: impl Serialize) -> String {
        let content = encode::to_value(&question).unwrap_or_default();
        let nonce = self.0.run.nonce.get().map(String::as_str);
        let began = QuestionContext { origin: self.origin(), nonce, thread: self.stored_in() };
        let mut id = marked(QuestionName::Key(key), &content, began, self.node_at_begin());
        let mut above = self.0.run.scope.caller.as_deref();
        while let Some(caller) = above {
            let (nonce, thread) = (caller.nonce.as_deref(), caller.thread.as_ref());
            let began = QuestionContext { origin: caller.origin, nonce, thread };
            id = marked(QuestionName::Within { call: &caller.call, id: &id }, &content, began, &caller.node);
            above = caller.above.as_deref();
        }
        id
    }

    /// Returns the position of this task on its thread: its checkpoint, superstep and slot, after those of the tasks that called
    /// its graph.
    ///
    /// It is the same for every attempt and after a crash. Unlike [`key`](Self::key), it is another one after an external update
    /// that leaves the task pending, and no two tasks share it, even if a database states that they have one origin.
    pub fn position(&self) -> String {
        let checkpoint = self.0.run.checkpoint.load(Ordering::Relaxed);
        let TaskId { step, slot } = self.0.task;
        let before = match &self.0.run.scope.caller {
            Some(caller) => format!("{}:{}", caller.position, caller.call),
            None => self.thread().map_or("", ThreadId::as_str).to_owned(),
        };
        format!("{before}/{checkpoint}/{step}.{slot}{}", self.handler())
    }

    /// Returns the thread of this graph, if it is stored.
    fn stored_in(&self) -> Option<&ThreadId> {
        self.0.run.scope.place.as_ref().map(|(_, thread)| thread)
    }

    /// Returns the task as the caller of a graph.
    pub(crate) fn as_caller(&self, call: &str) -> CallingTask {
        CallingTask {
            call: call.to_owned(),
            node: self.node_at_begin().clone(),
            origin: self.origin(),
            nonce: self.0.run.nonce.get().cloned(),
            thread: self.stored_in().cloned(),
            position: self.position(),
            above: self.0.run.scope.caller.clone(),
        }
    }
}
