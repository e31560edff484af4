//! Interrupted tasks.

use superstep_engine::{Input, Run, Task};

use super::{
    execution::Execution,
    fail::fail_task,
    questions::{check_questions, compared, context_of, store_questions},
    record::{store_record, store_stopped},
    superstep::Refused,
};
use crate::{
    Interrupt, RunError, State,
    changed_question::ChangedQuestion,
    journal::interrupts::{Refusal, WaitReason, answer_key, call_of, into_interrupt, replacing},
};

/// Suspends an interrupted task until it is answered.
pub(super) async fn interrupt<S: State>(
    exec: &mut Execution<S>,
    plan: &mut Run,
    task: Task,
    reasons: Vec<WaitReason>,
) -> Result<(), Refused> {
    let reasons = match check_questions(exec, task, reasons) {
        Ok(reasons) => reasons,
        Err(error) => return Ok(fail_task(exec, plan, task, error).await?),
    };
    let (step, slot) = (task.id.step, task.id.slot);
    let topology = exec.graph.topology.clone();
    let node = topology.name(task.node).clone();
    let asks = exec.superstep.name_at_begin(&topology, slot, task.node);
    let mut answers = exec.cx.interrupts.answers_of(task.id);
    let (mut questions, mut refused, mut stopped) = (Vec::new(), None, Input::Stopped(task.id));
    for reason in reasons {
        questions.push(match reason {
            WaitReason::Question(question) => compared(exec, task, question),
            WaitReason::Refused { mut question, why } => {
                let context = context_of(exec, task.id);
                let answered = answers.remove(&answer_key(&question)).and_then(|it| it.question);
                if let Some(answered) = &answered {
                    replacing(&mut question, answered, context, (&asks, &topology));
                }
                let Interrupt { id, node, key, .. } =
                    into_interrupt(question.clone(), context, &asks, &topology);
                if let Some(nested) = &mut exec.nested {
                    nested.rejected = Some(id.clone());
                }
                refused = Some(match why {
                    Refusal::BadType(source) => RunError::BadAnswer { node, step, key, source },
                    Refusal::Changed => {
                        let (asks, answered) = (question.question.clone(), answered.map(|it| it.question));
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
                let blamed = if exec.nested.is_some() { Vec::new() } else { vec![slot] };
                // A failure of an earlier attempt is not its end.
                let once = exec.cx.effects.results(task.id);
                let left = exec.superstep.started_record(&exec.cx, task.id, task.attempt - 1, once);
                store_record(exec, slot, left).await?;
                if let Some(nested) = &mut exec.nested {
                    nested.exit_command = Some(command);
                }
                return Err(Refused { error, blamed });
            }
            WaitReason::Breakpoint => {
                stopped = Input::Interrupted(task.id);
                continue;
            }
            WaitReason::Drained => {
                plan.handle(Input::Drain).expect("the run is not over");
                continue;
            }
            WaitReason::Cancelled | WaitReason::Unstorable(_) | WaitReason::Deviated(_) => continue,
        });
    }
    if questions.is_empty() {
        store_stopped(exec, task).await?;
        plan.handle(stopped).expect("the task was running");
        return Ok(());
    }
    // The caller of this graph decides where the question is stored.
    if exec.writer.is_none() && exec.nested.is_none() {
        let first = questions.iter().min_by_key(|question| call_of(question));
        let key = first.map(|question| question.key.clone()).unwrap_or_default();
        return Err(RunError::NowhereToWait { node, step, key }.into());
    }
    let interrupts = store_questions(exec, task, questions, &answers).await?;
    if let Some(refused) = refused {
        return Err(refused.into());
    }
    exec.emit.interrupts(task, &interrupts);
    plan.handle(Input::Interrupted(task.id)).expect("the task was running");
    Ok(())
}
