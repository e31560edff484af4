//! The questions of tasks, and their storage.

use std::collections::BTreeMap;

use superstep_engine::{Task, TaskId};

use super::{execution::Execution, record::store_record};
use crate::{
    CheckpointId, Interrupt, NodeError, Question, RunError, State,
    journal::{
        interrupts::{
            PendingQuestion, RepeatedQuestion, StoredAnswer, WaitReason, answer_key, call_of, into_pending,
            replacing, waiting_record,
        },
        task_origin::{Origin, QuestionContext},
    },
    run::thread_writer::ThreadWriter,
};

/// Removes repeated messages of an interrupted task.
///
/// # Errors
/// The failure of a task whose messages are not valid.
pub(super) fn check_questions<S: State>(
    exec: &Execution<S>,
    task: Task,
    mut reasons: Vec<WaitReason>,
) -> Result<Vec<WaitReason>, NodeError> {
    if let Some(first) = reasons.iter().position(|reason| matches!(reason, WaitReason::Unstorable(_)))
        && let WaitReason::Unstorable(error) = reasons.swap_remove(first)
    {
        return Err(NodeError::new(error).fatal());
    }
    let checked = RepeatedQuestion::check(exec.graph.topology.name(task.node), reasons);
    checked.map_err(|twice| NodeError::new(twice).fatal())
}

/// Returns a question of a task with the different question that it replaces.
pub(super) fn compared<S: State>(exec: &Execution<S>, task: Task, mut question: Question) -> Question {
    let key = answer_key(&question);
    let open = exec.superstep.open_questions.get(&task.id.slot).into_iter().flatten();
    if let Some(before) = open.into_iter().find(|before| answer_key(before) == key) {
        let topology = &exec.graph.topology;
        let asks = exec.superstep.name_at_begin(topology, task.id.slot, task.node);
        replacing(&mut question, before, context_of(exec, task.id), (&asks, topology));
    }
    question
}

/// Stores the questions of a task, which now waits for their answers.
pub(super) async fn store_questions<S: State>(
    exec: &mut Execution<S>,
    task: Task,
    mut questions: Vec<Question>,
    answers: &BTreeMap<String, StoredAnswer>,
) -> Result<Vec<Interrupt>, RunError> {
    let slot = task.id.slot;
    exec.superstep.open_questions.remove(&slot);
    // Concurrent calls ask in arbitrary order, which must not be visible.
    questions.sort_by(|one, other| call_of(one).cmp(&call_of(other)));
    let (error, once) = (None, exec.cx.effects.results(task.id));
    let record = waiting_record(questions.clone(), answers, task.attempt - 1, error, once);
    store_record(exec, slot, record.handled(exec.superstep.failure_of(slot))).await?;
    let (context, topology) = (context_of(exec, task.id), &exec.graph.topology);
    let asks = exec.superstep.name_at_begin(topology, slot, task.node);
    let ask = |question: Question| into_pending(question, context, &asks, topology);
    let pending: Vec<PendingQuestion> = questions.into_iter().map(ask).collect();
    let interrupts = pending.iter().map(|question| question.interrupt.clone()).collect();
    exec.superstep.waiting.insert(slot, pending);
    Ok(interrupts)
}

/// Returns the context in which a task of this superstep asks: its questions are named after its origin.
pub(super) fn context_of<S: State>(exec: &Execution<S>, task: TaskId) -> QuestionContext<'_> {
    let current = exec.writer.as_ref().and_then(ThreadWriter::current_checkpoint);
    let (checkpoint, since_ms) = current.unwrap_or((CheckpointId(0), 0));
    let TaskId { step, slot } = task;
    let origin = exec.superstep.origins.get(&slot).copied();
    question_context(exec, origin.unwrap_or(Origin { checkpoint, since_ms, step, slot }))
}

/// Returns the context in which a task with this origin asks.
pub(super) fn question_context<S: State>(exec: &Execution<S>, origin: Origin) -> QuestionContext<'_> {
    let (nonce, thread) = match &exec.writer {
        Some(writer) => (writer.nonce(), Some(writer.stored_in().1)),
        None => (None, None),
    };
    QuestionContext { origin, nonce, thread }
}
