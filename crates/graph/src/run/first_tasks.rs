//! The tasks with which a run begins: an accepted input, or those of a checkpoint with the answers available now.

use std::{collections::BTreeMap, sync::Arc};

use superstep_checkpoint::{Commit, Source, TaskRecord};
use superstep_engine::{Control, NodeName, Records, Report, RestoreError, START, TaskId};
use superstep_state::RawJson;

use super::{
    commit::checkpoint,
    execution::Execution,
    fail::lost_handler,
    finish::{finish, stored_form},
    questions::context_of,
    record::{mark_recorded, record_of},
    superstep::{FinishedTask, Stop},
    targets::recorded_targets,
};
use crate::{
    Answers, Event, Question, RunError, RunOptions, State,
    journal::{
        interrupts::{PendingQuestion, Resolved, StoredAnswer, answer_key, into_pending, waiting_record},
        task_origin::planned_names,
    },
    node::routing::Targets,
    run::restore::RestoredTask,
};

/// The start of a run: the data from which the engine is restored.
pub(super) struct Begin {
    pub(super) control: Control,
    /// The first checkpoint of a fork or of an external command, stored after the engine has accepted the
    /// rest.
    pub(super) first: Option<Box<Commit>>,
    pub(super) records: Records,
    /// The records of tasks with new answers, stored likewise.
    pub(super) answered: Vec<(u32, TaskRecord)>,
}

impl Begin {
    fn new(control: Control) -> Self {
        Self { control, first: None, records: Records::default(), answered: Vec::new() }
    }
}

/// A waiting task, from its record.
struct WaitingTask {
    slot: u32,
    /// The name of its node when it began.
    asks: NodeName,
    questions: Vec<Question>,
    answers: BTreeMap<String, RawJson>,
    /// The questions of the answers.
    asked: BTreeMap<String, Question>,
}

/// Accepts an input as the finished task of [`START`], in the superstep after `last`.
pub(super) fn accept<S: State>(
    exec: &mut Execution<S>,
    input: S::Update,
    control: Control,
) -> Result<Begin, RunError> {
    let (node, step) = (exec.graph.topology.start(), control.step + 1);
    let stored = stored_form(exec, &input, node, step)?;
    // An input that cannot be folded or has no target is rejected here, before it is stored.
    let report = finish(exec, TaskId { step, slot: 0 }, node, input, stored, Targets::default(), true)?;
    let led = exec.graph.topology.check(node, &report.targets);
    led.map_err(|error| RunError::Route { step, error })?;
    let mut begin = Begin::new(control);
    begin.records.finished.push((0, report));
    Ok(begin)
}

/// Accepts an input in the superstep after `last`, and stores it.
pub(super) async fn accept_and_store<S: State>(
    exec: &mut Execution<S>,
    input: S::Update,
    last: Option<i64>,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let begin = accept(exec, input, Control::input(last))?;
    let writer = exec.writer.as_ref().expect("an input is stored on a thread");
    let mut new = writer.new_commit(Source::Input, begin.control.clone(), config.metadata.clone());
    let records = begin.records.finished.iter();
    new.records = records.map(|(slot, report)| (*slot, record_of(exec, *slot, report))).collect();
    mark_recorded(exec, 0);
    checkpoint(exec, new, None).await?;
    Ok(begin)
}

/// Accepts an input in place of the tasks of these nodes, and reports them.
pub(super) async fn accept_instead<S: State>(
    exec: &mut Execution<S>,
    discarded: Vec<NodeName>,
    input: S::Update,
    last: Option<i64>,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let begin = accept_and_store(exec, input, last, config).await?;
    if !discarded.is_empty() {
        exec.emit.emit(Event::Discarded { nodes: discarded });
    }
    Ok(begin)
}

/// Continues from the head of the thread, or on a fork from an older checkpoint.
pub(super) fn continue_run<S: State>(
    exec: &mut Execution<S>,
    mut control: Control,
    mut tasks: Vec<RestoredTask<S>>,
    config: &RunOptions,
) -> Result<Begin, RunError> {
    let mut first = None;
    if config.checkpoint.is_some() {
        // The parent of the copy is the checkpoint that it copies, and not that one's parent: a checkpoint
        // contains the changes since its parent, and a copy has none.
        // A fork runs its tasks afresh, except an input, which cannot run again.
        exec.superstep.origins.clear();
        tasks.retain(|task| control.next.get(task.slot as usize).is_some_and(|node| node.as_str() == START));
        control.step += 1;
        let writer = exec.writer.as_ref().expect("a fork is stored on a thread");
        let mut fork = writer.new_commit(Source::Fork, control.clone(), config.metadata.clone());
        fork.records = tasks.iter().map(|task| (task.slot, task.record.clone())).collect();
        first = Some(fork);
    }
    let begin = restore_tasks(exec, control, tasks, &config.answers)?;
    Ok(Begin { first, ..begin })
}

/// Restores the tasks of a checkpoint from their records, with the answers that are available now.
pub(super) fn restore_tasks<S: State>(
    exec: &mut Execution<S>,
    control: Control,
    tasks: Vec<RestoredTask<S>>,
    answers: &Answers,
) -> Result<Begin, RunError> {
    exec.superstep.items.clone_from(&control.items);
    exec.superstep.planned = planned_names(&exec.graph.topology, &control);
    let mut begin = Begin::new(control);
    let (mut waiting, mut lost) = (Vec::new(), Vec::new());
    for RestoredTask { slot, record, update } in tasks {
        let Some(name) = begin.control.next.get(slot as usize).cloned() else { continue };
        let id = TaskId { step: begin.control.step + 1, slot };
        let (failure, record) = record.into_parts();
        let mut node = exec.graph.topology.find(name.as_str());
        if let Some(failure) = failure {
            // Without its handler a task's node is retried, because a failure must not disappear. If the
            // handler had already written, continuing would fold its update and follow the wrong edges,
            // so that is rejected.
            match failure.handler(&exec.graph.topology) {
                Some(handler) => {
                    node = Some(handler);
                    begin.records.handled.push((slot, handler));
                    exec.superstep.failures.insert(slot, Arc::from(failure));
                }
                None if update.is_some() => {
                    return Err(lost_handler(&failure, &exec.graph.name, begin.control.step, slot));
                }
                None => continue,
            }
        }
        match (record, update) {
            (TaskRecord::Finished { update: stored, targets, .. }, Some(update)) => {
                // The engine reports nodes that the graph no longer has.
                let Some(node) = node else { continue };
                let (Targets { ends, items }, gone) = recorded_targets(&exec.graph.topology, targets);
                lost.extend(gone);
                let (written, exclusive) = (exec.state.written(&update), exec.state.exclusive(&update));
                exec.superstep.written = exec.superstep.written.union(written);
                begin.records.finished.push((slot, Report { written, exclusive, targets: ends }));
                let (stored, update) = (Some(stored), Some(update));
                exec.superstep.put(slot, FinishedTask { node, update, stored, items, recorded: true });
            }
            (TaskRecord::Started { attempts, once } | TaskRecord::Failed { attempts, once, .. }, _) => {
                begin.records.failed.push((slot, attempts));
                exec.cx.effects.restore(id, once);
            }
            (TaskRecord::Interrupted { questions, answers, asked, attempts, once, .. }, _) => {
                begin.records.failed.push((slot, attempts));
                exec.cx.effects.restore(id, once);
                let topology = &exec.graph.topology;
                let asks = node.map_or(name, |node| exec.superstep.name_at_begin(topology, slot, node));
                waiting.push(WaitingTask { slot, asks, questions, answers, asked });
            }
            (TaskRecord::Cancelled { once }, _) => exec.cx.effects.restore(id, once),
            (TaskRecord::Finished { .. } | TaskRecord::Handled { .. }, _) => {}
        }
    }
    if !lost.is_empty() {
        return Err(lost_targets(&exec.graph.name, begin.control.step, lost));
    }
    answer(exec, &mut begin, waiting, answers)?;
    Ok(begin)
}

/// Creates the error of finished tasks with target nodes that the graph does not have.
pub(super) fn lost_targets(graph: &str, step: i64, nodes: Vec<NodeName>) -> RunError {
    RunError::Restore { graph: graph.to_owned(), error: RestoreError::UnknownNodes { step, nodes } }
}

/// Passes the caller's answers to the waiting tasks. Without any, every task asks again.
fn answer<S: State>(
    exec: &mut Execution<S>,
    begin: &mut Begin,
    waiting: Vec<WaitingTask>,
    answers: &Answers,
) -> Result<(), RunError> {
    let (step, mut pending) = (begin.control.step + 1, Vec::new());
    for task in &waiting {
        let context = context_of(exec, TaskId { step, slot: task.slot });
        let topology = &exec.graph.topology;
        let ask =
            |question: &Question| (task.slot, into_pending(question.clone(), context, &task.asks, topology));
        pending.extend(task.questions.iter().map(ask));
    }
    let inside = callers_answers(exec, step, &pending);
    let mut fresh = inside.map_or_else(|| answers.resolve(&pending), Ok)?;
    let (answered, mut interrupts) = (!fresh.is_empty(), Resolved::new());
    for WaitingTask { slot, asks, mut questions, answers, asked: mut answered_questions } in waiting {
        let new = fresh.remove(&slot).unwrap_or_default();
        if new.is_empty() && answered && !questions.is_empty() {
            begin.records.interrupted.push(slot);
            let still = pending.iter().filter(|(of, _)| *of == slot).map(|(_, question)| question.clone());
            let still: Vec<_> = still.collect();
            // A stream of this run alone must contain its pending questions.
            still.iter().for_each(|asking| exec.emit.emit(Event::Interrupt(asking.interrupt.clone())));
            exec.superstep.waiting.insert(slot, still);
            continue;
        }
        exec.superstep.open_questions.insert(slot, questions.clone());
        questions.retain(|question| !new.contains_key(&answer_key(question)));
        let known = answers.into_iter().map(|(key, json)| {
            let answered = StoredAnswer {
                answer: serde_json::from_str(&json)?,
                question: answered_questions.remove(&key),
            };
            Ok((key, answered))
        });
        let known: serde_json::Result<BTreeMap<_, _>> = known.collect();
        let mut known = known.map_err(|error| unreadable_answers(exec, &asks, error))?;
        let is_new = !new.is_empty();
        known.extend(new);
        if is_new {
            let once = exec.cx.effects.results(TaskId { step, slot });
            let record = waiting_record(questions, &known, 0, None, once);
            begin.answered.push((slot, record.handled(exec.superstep.failure_of(slot))));
        }
        interrupts.insert(slot, known);
    }
    exec.cx.interrupts.put_answers(step, interrupts);
    Ok(())
}

/// Returns the caller's answers that a task still waits for.
fn callers_answers<S: State>(
    exec: &Execution<S>,
    step: i64,
    pending: &[(u32, PendingQuestion)],
) -> Option<Resolved> {
    let mut fresh = Resolved::new();
    for answer in &exec.nested.as_ref()?.answers {
        let waits =
            |(slot, question): &&(u32, PendingQuestion)| *slot == answer.slot && question.key == answer.key;
        let Some((_, waiting)) = pending.iter().find(waits).filter(|_| answer.step == step) else {
            continue;
        };
        // The question that the caller showed; the task may wait for an answer to another one by now.
        let shown = answer.answered.question.as_ref().unwrap_or(&waiting.question).question.clone();
        let question = Some(Question { question: shown, ..waiting.question.clone() });
        let answered = StoredAnswer { answer: answer.answered.answer.clone(), question };
        fresh.entry(answer.slot).or_default().insert(answer.key.clone(), answered);
    }
    Some(fresh)
}

fn unreadable_answers<S: State>(exec: &Execution<S>, node: &NodeName, error: serde_json::Error) -> RunError {
    let writer = exec.writer.as_ref().expect("only stored tasks have stored answers");
    let what = format!("the answers of node `{node}`");
    writer.unreadable(what, error.into())
}
