//! Questions that tasks ask, and the answers with which a run begins.

use std::collections::BTreeMap;

use superstep_engine::{Breakpoints, Control, Input, NodeIndex, NodeName, Run, Task, TaskId};

use super::{Begin, Driver, Refused};
use crate::{
    Answers, Interrupt, Question, RunError, State, TaskRecord,
    compiled::Inner,
    config,
    interrupt::{Asked, Resolved},
};

/// A task as its record says it waits.
pub(super) struct Waiting {
    pub(super) slot: u32,
    pub(super) node: NodeName,
    pub(super) questions: Vec<Question>,
    pub(super) answers: BTreeMap<String, String>,
}

impl<S: State> Driver<S> {
    /// Puts a task that asked aside until it is answered.
    pub(super) async fn interrupt(
        &mut self,
        run: &mut Run,
        task: Task,
        asked: Vec<Asked>,
    ) -> Result<(), Refused> {
        let (step, slot) = (task.id.step, task.id.slot);
        let node = self.graph.topology.name(task.node).clone();
        let mut answers = self.cx.desk.answers_of(task.id);
        let (mut questions, mut refused) = (Vec::new(), None);
        for asked in asked {
            questions.push(match asked {
                Asked::Question(question) => question,
                Asked::BadAnswer { question, error: source } => {
                    answers.remove(&question.key);
                    let (node, key) = (node.clone(), question.key.clone());
                    refused = Some(RunError::BadAnswer { node, step, key, source });
                    question
                }
            });
        }
        if self.hold.is_none() {
            let key = questions.first().map(|question| question.key.clone()).unwrap_or_default();
            return Err(RunError::NowhereToWait { node, step, key }.into());
        }
        let attempts = task.attempt - 1;
        let (questions, error, once) = (questions, None, self.cx.ledger.results(task.id));
        let record = TaskRecord::Interrupted { questions: questions.clone(), answers, attempts, error, once };
        self.store_record(slot, record).await?;
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        let ask = |question: Question| question.into_interrupt(slot, node.clone());
        let interrupts: Vec<Interrupt> = questions.into_iter().map(ask).collect();
        self.tell_interrupts(task, &interrupts);
        self.waiting.insert(slot, interrupts);
        run.handle(Input::Interrupted(task.id)).expect("the task was running");
        Ok(())
    }

    /// Hands the answers of the caller to the tasks that wait for them. Without any, every task asks again.
    pub(super) fn answer(
        &mut self,
        begin: &mut Begin,
        waiting: Vec<Waiting>,
        given: &Answers,
    ) -> Result<(), RunError> {
        let mut asked = Vec::new();
        for task in &waiting {
            let ask = |question: &Question| {
                (task.slot, question.clone().into_interrupt(task.slot, task.node.clone()))
            };
            asked.extend(task.questions.iter().map(ask));
        }
        let mut fresh = given.resolve(&asked)?;
        let (mut desk, step) = (Resolved::new(), begin.control.step + 1);
        for Waiting { slot, node, mut questions, mut answers } in waiting {
            let new = fresh.remove(&slot).unwrap_or_default();
            if new.is_empty() && !given.is_empty() && !questions.is_empty() {
                begin.records.interrupted.push(slot);
                let still = asked.iter().filter(|(of, _)| *of == slot).map(|(_, asked)| asked.clone());
                self.waiting.insert(slot, still.collect());
                continue;
            }
            questions.retain(|question| !new.contains_key(&question.key));
            let known = answers.iter().map(|(key, json)| Ok((key.clone(), serde_json::from_str(json)?)));
            let known: serde_json::Result<BTreeMap<_, _>> = known.collect();
            let mut known = known.map_err(|error| self.unreadable_answers(&node, error))?;
            if !new.is_empty() {
                answers.extend(new.iter().map(|(key, value)| (key.clone(), value.to_string())));
                let once = self.cx.ledger.results(TaskId { step, slot });
                let record = TaskRecord::Interrupted { questions, answers, attempts: 0, error: None, once };
                begin.answered.push((slot, record));
            }
            known.extend(new);
            desk.insert(slot, known);
        }
        self.cx.desk.put_answers(step, desk);
        Ok(())
    }

    fn unreadable_answers(&self, node: &NodeName, error: serde_json::Error) -> RunError {
        let hold = self.hold.as_ref().expect("only stored tasks have stored answers");
        let what = format!("the answers of node `{node}`");
        hold.unreadable(what, error.into())
    }
}

/// The nodes at which the caller wants the run to stop.
pub(super) fn breakpoints<S: State>(
    graph: &Inner<S>,
    wanted: &config::Breakpoints,
) -> Result<Breakpoints, RunError> {
    let topology = &graph.topology;
    let find = |names: &[String]| -> Result<Vec<NodeIndex>, RunError> {
        if names.iter().any(|name| name == "*") {
            return Ok(topology.names().filter_map(|name| topology.find(name.as_str())).collect());
        }
        let unknown = |name: &String| RunError::UnknownNode { graph: graph.name.clone(), node: name.clone() };
        names.iter().map(|name| topology.find(name).ok_or_else(|| unknown(name))).collect()
    };
    Ok(Breakpoints { before: find(&wanted.before)?, after: find(&wanted.after)? })
}

/// Where a run begins from `control` alone.
pub(super) fn fresh(control: Control) -> Begin {
    Begin { control, first: None, records: Default::default(), answered: Vec::new() }
}
