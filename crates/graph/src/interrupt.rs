//! Asking someone outside, and hearing the answer in another run.
//!
//! Start at [`Cx::interrupt`](crate::Cx::interrupt).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::{NodeName, TaskId};

use crate::RunError;

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Names the question among all that wait on the thread; the same when it is asked again.
    pub id: String,
    /// The node that asks.
    pub node: NodeName,
    /// The name under which it asks.
    pub key: String,
    /// What it asks.
    pub question: Value,
    /// The JSON Schema of an answer, if the node told it with [`Cx::ask`](crate::Cx::ask).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// Answers to interrupts, by the interrupt's id, or by its key if only one question has it.
///
/// ```
/// # use superstep_graph::{Answers, RunConfig};
/// let config = RunConfig { answers: Answers::new().answer("approve_refund", true), ..RunConfig::thread("order-7") };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<String, Value>);

impl Answers {
    /// No answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the answer to one interrupt. `null`, `false`, 0 and "" are answers like any other.
    #[must_use]
    pub fn answer(mut self, interrupt: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(interrupt.into(), value.into());
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the question of each answer: its task's slot and its key.
    ///
    /// # Errors
    /// [`RunError::UnknownInterrupt`] and [`RunError::AmbiguousAnswer`]; no answer is taken then.
    pub(crate) fn resolve(&self, waiting: &[(u32, Interrupt)]) -> Result<Resolved, RunError> {
        let mut resolved = Resolved::new();
        for (name, value) in &self.0 {
            let named = waiting.iter().filter(|(_, asked)| asked.id == *name || asked.key == *name);
            let ids = |asked: Vec<&(u32, Interrupt)>| {
                asked.into_iter().map(|(_, asked)| asked.id.clone()).collect()
            };
            let named: Vec<_> = named.collect();
            let (slot, asked) = match named[..] {
                [] => {
                    let waiting = ids(waiting.iter().collect());
                    return Err(RunError::UnknownInterrupt { name: name.clone(), waiting });
                }
                [one] => one,
                _ => return Err(RunError::AmbiguousAnswer { name: name.clone(), meant: ids(named) }),
            };
            if resolved.entry(*slot).or_default().insert(asked.key.clone(), value.clone()).is_some() {
                return Err(RunError::AmbiguousAnswer {
                    name: asked.key.clone(),
                    meant: vec![asked.id.clone()],
                });
            }
        }
        Ok(resolved)
    }
}

/// Answers by slot and key.
pub(crate) type Resolved = BTreeMap<u32, BTreeMap<String, Value>>;

/// A question as it is stored with its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name under which it is asked.
    pub key: String,
    /// What is asked, as JSON.
    pub question: String,
    /// The JSON Schema of an answer, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
}

impl Question {
    /// The question as it is shown.
    pub(crate) fn into_interrupt(self, slot: u32, node: NodeName) -> Interrupt {
        let Self { key, question, schema } = self;
        let read = |json: String| serde_json::from_str(&json).unwrap_or(Value::String(json));
        let (question, schema) = (read(question), schema.map(read));
        Interrupt { id: format!("{node}:{slot}:{key}"), node, key, question, schema }
    }
}

/// The questions that the tasks of a run ask, and the answers they get.
#[derive(Default)]
pub(crate) struct Desk {
    inner: Mutex<Papers>,
    /// Whether anybody ever asked anything, so that most tasks need not look.
    used: AtomicBool,
}

#[derive(Default)]
struct Papers {
    /// The superstep whose tasks the answers are for.
    step: i64,
    answers: Resolved,
    asked: BTreeMap<u32, Vec<Asked>>,
}

/// What a task said at the desk before it went to sleep.
pub(crate) enum Asked {
    /// A question without an answer.
    Question(Question),
    /// An answer that is not of the type the node wants.
    BadAnswer { question: Question, error: serde_json::Error },
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put_answers(&self, step: i64, answers: Resolved) {
        let mut papers = self.papers();
        (papers.step, papers.answers) = (step, answers);
    }

    pub(crate) fn answer(&self, task: TaskId, key: &str) -> Option<Value> {
        let papers = self.papers();
        if papers.step != task.step {
            return None;
        }
        papers.answers.get(&task.slot)?.get(key).cloned()
    }

    /// The answers of a task, as they are stored.
    pub(crate) fn answers_of(&self, task: TaskId) -> BTreeMap<String, String> {
        let papers = self.papers();
        let answers = papers.answers.get(&task.slot).filter(|_| papers.step == task.step);
        answers.into_iter().flatten().map(|(key, value)| (key.clone(), value.to_string())).collect()
    }

    pub(crate) fn ask(&self, task: TaskId, asked: Asked) {
        self.papers().asked.entry(task.slot).or_default().push(asked);
        self.used.store(true, Ordering::Release);
    }

    /// Takes what a task asked since it was looked at last.
    pub(crate) fn take(&self, task: TaskId) -> Option<Vec<Asked>> {
        self.used.load(Ordering::Acquire).then(|| self.papers().asked.remove(&task.slot))?
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}
