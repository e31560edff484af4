//! Questions of tasks, and the answers at the start of a run.

use std::collections::BTreeMap;

use superstep_engine::{Control, Input, NodeIndex, NodeName, Run, Task, TaskId};
use superstep_state::RawJson;

use super::{
    driver::{Begin, Driver},
    stop::Refused,
};
use crate::{
    Answers, CheckpointId, Event, Interrupt, NodeError, Question, RunError, State,
    changed_question::ChangedQuestion,
    journal::{
        interrupts::{
            PendingQuestion, Refusal, RepeatedQuestion, Resolved, StoredAnswer, WaitReason, answer_key,
            call_of, into_interrupt, into_pending, replacing, waiting_record,
        },
        task_origin::{Origin, QuestionContext, name_at_begin},
    },
    run::thread_writer::ThreadWriter,
};

/// A waiting task, from its record.
pub(super) struct WaitingTask {
    pub(super) slot: u32,
    /// The name of its node when it began.
    pub(super) asks: NodeName,
    pub(super) questions: Vec<Question>,
    pub(super) answers: BTreeMap<String, RawJson>,
    /// The questions of the answers.
    pub(super) asked: BTreeMap<String, Question>,
}

impl<S: State> Driver<S> {
    /// Suspends an interrupted task until it is answered.
    pub(super) async fn interrupt(
        &mut self,
        run: &mut Run,
        task: Task,
        reasons: Vec<WaitReason>,
    ) -> Result<(), Refused> {
        let reasons = match self.check_questions(task, reasons) {
            Ok(reasons) => reasons,
            Err(error) => return Ok(self.fail_task(run, task, error).await?),
        };
        let (step, slot) = (task.id.step, task.id.slot);
        let topology = self.graph.topology.clone();
        let (node, asks) = (topology.name(task.node).clone(), self.asks(slot, task.node));
        let mut answers = self.cx.interrupts.answers_of(task.id);
        let (mut questions, mut refused, mut stopped) = (Vec::new(), None, Input::Stopped(task.id));
        for reason in reasons {
            questions.push(match reason {
                WaitReason::Question(question) => self.compared(task, question),
                WaitReason::Refused { mut question, why } => {
                    let began = self.occasion(self.began(task.id));
                    let answered = answers.remove(&answer_key(&question)).and_then(|it| it.question);
                    if let Some(answered) = &answered {
                        replacing(&mut question, answered, began, (&asks, &topology));
                    }
                    let Interrupt { id, node, key, .. } =
                        into_interrupt(question.clone(), began, &asks, &topology);
                    self.rejected = Some(id.clone());
                    refused = Some(match why {
                        Refusal::BadType(source) => RunError::BadAnswer { node, step, key, source },
                        Refusal::Changed => {
                            let (asks, answered) =
                                (question.question.clone(), answered.map(|it| it.question));
                            RunError::ChangedQuestion(Box::new(ChangedQuestion {
                                name: key,
                                node,
                                answered,
                                asks,
                                id,
                            }))
                        }
                    });
                    question
                }
                WaitReason::Left(command) => {
                    let error = RunError::NoCaller { node, step };
                    let blamed = if self.inside.is_some() { Vec::new() } else { vec![slot] };
                    // A failure of an earlier attempt is not its end.
                    let once = self.cx.effects.results(task.id);
                    let left = self.started_record(task.id, task.attempt - 1, once);
                    self.store_record(slot, left).await?;
                    self.exit_command = Some(command);
                    return Err(Refused { error, blamed });
                }
                WaitReason::Breakpoint => {
                    stopped = Input::Interrupted(task.id);
                    continue;
                }
                WaitReason::Drained => {
                    run.handle(Input::Drain).expect("the run is not over");
                    continue;
                }
                WaitReason::Cancelled | WaitReason::Unstorable(_) | WaitReason::Deviated(_) => continue,
            });
        }
        if questions.is_empty() {
            self.record_stopped(task).await?;
            run.handle(stopped).expect("the task was running");
            return Ok(());
        }
        // The caller of this graph decides where the question is stored.
        if self.writer.is_none() && self.inside.is_none() {
            let first = questions.iter().min_by_key(|question| call_of(question));
            let key = first.map(|question| question.key.clone()).unwrap_or_default();
            return Err(RunError::NowhereToWait { node, step, key }.into());
        }
        let interrupts = self.store_questions(task, questions, &answers).await?;
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        self.emit_interrupts(task, &interrupts);
        run.handle(Input::Interrupted(task.id)).expect("the task was running");
        Ok(())
    }

    /// Removes repeated messages of an interrupted task.
    ///
    /// # Errors
    /// The failure of a task whose messages are not valid.
    pub(super) fn check_questions(
        &self,
        task: Task,
        mut reasons: Vec<WaitReason>,
    ) -> Result<Vec<WaitReason>, NodeError> {
        if let Some(first) = reasons.iter().position(|reason| matches!(reason, WaitReason::Unstorable(_)))
            && let WaitReason::Unstorable(error) = reasons.swap_remove(first)
        {
            return Err(NodeError::new(error).fatal());
        }
        let checked = RepeatedQuestion::check(self.graph.topology.name(task.node), reasons);
        checked.map_err(|twice| NodeError::new(twice).fatal())
    }

    /// Returns a question of a task with the different question that it replaces.
    pub(super) fn compared(&self, task: Task, mut question: Question) -> Question {
        let key = answer_key(&question);
        let open = self.open_questions.get(&task.id.slot).into_iter().flatten();
        if let Some(before) = open.into_iter().find(|before| answer_key(before) == key) {
            let began = self.occasion(self.began(task.id));
            replacing(
                &mut question,
                before,
                began,
                (&self.asks(task.id.slot, task.node), &self.graph.topology),
            );
        }
        question
    }

    /// Stores the questions of a task, which now waits for their answers.
    pub(super) async fn store_questions(
        &mut self,
        task: Task,
        mut questions: Vec<Question>,
        answers: &BTreeMap<String, StoredAnswer>,
    ) -> Result<Vec<Interrupt>, RunError> {
        let slot = task.id.slot;
        self.open_questions.remove(&slot);
        // Concurrent calls ask in arbitrary order, which must not be visible.
        questions.sort_by(|one, other| call_of(one).cmp(&call_of(other)));
        let (error, once) = (None, self.cx.effects.results(task.id));
        let record = waiting_record(questions.clone(), answers, task.attempt - 1, error, once);
        self.store_record(slot, record.handled(self.failure_of(slot))).await?;
        let began = self.occasion(self.began(task.id));
        let (asks, topology) = (self.asks(slot, task.node), &self.graph.topology);
        let ask = |question: Question| into_pending(question, began, &asks, topology);
        let pending: Vec<PendingQuestion> = questions.into_iter().map(ask).collect();
        let interrupts = pending.iter().map(|question| question.interrupt.clone()).collect();
        self.waiting.insert(slot, pending);
        Ok(interrupts)
    }

    /// Passes the caller's answers to the waiting tasks. Without any, every task asks again.
    pub(super) fn answer(
        &mut self,
        begin: &mut Begin,
        waiting: Vec<WaitingTask>,
        answers: &Answers,
    ) -> Result<(), RunError> {
        let (step, mut pending) = (begin.control.step + 1, Vec::new());
        for task in &waiting {
            let began = self.occasion(self.began(TaskId { step, slot: task.slot }));
            let topology = &self.graph.topology;
            let ask = |question: &Question| {
                (task.slot, into_pending(question.clone(), began, &task.asks, topology))
            };
            pending.extend(task.questions.iter().map(ask));
        }
        let inside = self.callers_answers(step, &pending);
        let mut fresh = inside.map_or_else(|| answers.resolve(&pending), Ok)?;
        let (answered, mut interrupts) = (!fresh.is_empty(), Resolved::new());
        for WaitingTask { slot, asks, mut questions, answers, asked: mut answered_questions } in waiting {
            let new = fresh.remove(&slot).unwrap_or_default();
            if new.is_empty() && answered && !questions.is_empty() {
                begin.records.interrupted.push(slot);
                let still =
                    pending.iter().filter(|(of, _)| *of == slot).map(|(_, question)| question.clone());
                let still: Vec<_> = still.collect();
                // A stream of this run alone must contain its pending questions.
                still.iter().for_each(|asking| self.emit(Event::Interrupt(asking.interrupt.clone())));
                self.waiting.insert(slot, still);
                continue;
            }
            self.open_questions.insert(slot, questions.clone());
            questions.retain(|question| !new.contains_key(&answer_key(question)));
            let known = answers.into_iter().map(|(key, json)| {
                let answered = StoredAnswer {
                    answer: serde_json::from_str(&json)?,
                    question: answered_questions.remove(&key),
                };
                Ok((key, answered))
            });
            let known: serde_json::Result<BTreeMap<_, _>> = known.collect();
            let mut known = known.map_err(|error| self.unreadable_answers(&asks, error))?;
            let is_new = !new.is_empty();
            known.extend(new);
            if is_new {
                let once = self.cx.effects.results(TaskId { step, slot });
                let record = waiting_record(questions, &known, 0, None, once);
                begin.answered.push((slot, record.handled(self.failure_of(slot))));
            }
            interrupts.insert(slot, known);
        }
        self.cx.interrupts.put_answers(step, interrupts);
        Ok(())
    }

    /// Returns the origin of a task, which its questions are named after.
    fn began(&self, task: TaskId) -> Origin {
        let (checkpoint, since_ms) =
            self.writer.as_ref().and_then(ThreadWriter::place).unwrap_or((CheckpointId(0), 0));
        let TaskId { step, slot } = task;
        self.origins.get(&slot).copied().unwrap_or(Origin { checkpoint, since_ms, step, slot })
    }

    /// Returns the name that the questions of a task have: that of its node when it began.
    pub(super) fn asks(&self, slot: u32, node: NodeIndex) -> NodeName {
        name_at_begin(&self.graph.topology, self.planned.get(&slot), node).clone()
    }

    /// Returns the occasion of the questions of a task with this origin.
    pub(super) fn occasion(&self, origin: Origin) -> QuestionContext<'_> {
        let (nonce, thread) = match &self.writer {
            Some(writer) => (writer.nonce(), Some(writer.stored_in().1)),
            None => (None, None),
        };
        QuestionContext { origin, nonce, thread }
    }

    fn unreadable_answers(&self, node: &NodeName, error: serde_json::Error) -> RunError {
        let writer = self.writer.as_ref().expect("only stored tasks have stored answers");
        let what = format!("the answers of node `{node}`");
        writer.unreadable(what, error.into())
    }
}

/// Returns the start of a run from `control` alone.
pub(super) fn fresh(control: Control) -> Begin {
    Begin { control, first: None, records: Default::default(), answered: Vec::new() }
}
