//! The driver of a called graph: its start and its end.

use std::sync::Arc;

use superstep_checkpoint::{CheckpointMeta, internal::own::TASK};
use superstep_engine::Control;
use superstep_state::internal::Made;

use super::{
    breakpoints::limits,
    driver::{drive, new_execution},
    execution::Execution,
    first_tasks::{Begin, accept, accept_and_store, accept_instead, continue_run},
    nested_call::{Call, Called, NestedContext, OwnThread},
    superstep::Stop,
};
use crate::{
    CheckpointId, Checkpointer, RunError, RunOptions, State, Status, ThreadId,
    journal::{
        interrupts::Refusal,
        memories::{self, Bound, SubgraphPosition, last_input},
        task_origin::Origins,
    },
    run::{
        restore::{RestoredTask, left_by, load, load_seeded, require},
        thread_writer::ThreadWriter,
    },
    stream::emitter::Events,
};

/// Runs a called graph, see [`Cx::call`](crate::Cx::call). Returns also the graph's current checkpoint.
pub(crate) async fn call<T: State>(call: Call<T>) -> (Called<T>, Option<CheckpointId>) {
    let Call { graph, own, input, seed, answers, scope, events, watch } = call;
    let (config, place) = (scope.config.clone(), scope.place.clone());
    let limits = match limits(&graph, &config) {
        Ok(limits) => limits,
        Err(error) => return (Called::Failed { error, fatal: true, refusal: false }, None),
    };
    let mut exec = new_execution(graph, scope, events.map(|(below, path)| Events::inside(below, path)));
    exec.nested = Some(NestedContext::new(answers, seed.is_some().then(Made::default), watch));
    let begin = match place {
        Some((checkpointer, thread)) => {
            begin_inside(&mut exec, checkpointer, thread, own, input, seed, &config).await
        }
        None => begin_nowhere(&mut exec, input, seed).map_err(Stop::from),
    };
    let ended = match begin {
        Ok(begin) => drive(&mut exec, begin, limits, &config).await,
        Err(error) => Err(error),
    };
    let at = exec.writer.as_ref().and_then(ThreadWriter::at);
    (called(exec, ended), at)
}

async fn begin_inside<S: State>(
    exec: &mut Execution<S>,
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    own: Option<OwnThread>,
    input: S::Update,
    seed: Option<S>,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let written = exec.state.written(&input);
    if let Some(OwnThread::At(place)) = own {
        return begin_own(exec, checkpointer, thread, place, input, config).await;
    }
    let restored = match &seed {
        Some(seed) => load_seeded(&exec.graph, seed, &checkpointer, &thread).await?,
        None => load(&exec.graph, &checkpointer, &thread, None, written).await?,
    };
    // This run uses the lease of its root.
    let writer = ThreadWriter::new(&exec.graph, checkpointer.clone(), thread.clone(), None, config);
    let Some(mut restored) = restored else {
        exec.writer = Some(writer);
        match seed {
            Some(seed) => exec.state = seed,
            None => require(&exec.state, written, None)?,
        }
        return accept_and_store(exec, input, None, config).await;
    };
    let made = restored.made.take();
    let (meta, tasks) = exec.move_to(writer, restored);
    if own.is_some() {
        return accept_and_store(exec, input, Some(meta.control.step), config).await;
    }
    if let Some(nested) = &mut exec.nested {
        nested.made = made;
    }
    continue_call(exec, (&*checkpointer, &thread), (meta, tasks), config).await
}

/// Continues a graph with a persistent thread if it was started for this task. Otherwise passes the input
/// at the checkpoint that the caller's checkpoint references.
async fn begin_own<S: State>(
    exec: &mut Execution<S>,
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    place: SubgraphPosition,
    input: S::Update,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let written = exec.state.written(&input);
    let mut writer = ThreadWriter::new(&exec.graph, checkpointer.clone(), thread.clone(), None, config);
    let last = last_input(&*checkpointer, &thread).await?;
    let continues = last.is_some_and(|input| input.metadata.get(TASK) == config.metadata.get(TASK));
    // Pending tasks were for a task that no longer exists: the caller got a new input or continued from an older
    // checkpoint, and the choice was made there.
    let (mut at, mut discarded) = (None, Vec::new());
    if !continues && let Some(head) = memories::head(&*checkpointer, &thread).await? {
        at = memories::found(&*checkpointer, &thread, head.id, place).await?;
        writer.branch_before(head.id);
        discarded = head.control.next;
    }
    if !continues && at.is_none() {
        exec.writer = Some(writer);
        require(&exec.state, written, None)?;
        return accept_instead(exec, discarded, input, None, config).await;
    }
    let restored = load(&exec.graph, &checkpointer, &thread, at, written).await?;
    let restored = restored.ok_or_else(|| RunError::EmptyThread { thread: thread.clone() })?;
    let (meta, tasks) = exec.move_to(writer, restored);
    if continues {
        return continue_call(exec, (&*checkpointer, &thread), (meta, tasks), config).await;
    }
    exec.cx.memories.set_current(&meta, Bound::new());
    accept_instead(exec, discarded, input, Some(meta.control.step), config).await
}

/// Continues the tasks of a called graph, with the positions of the graphs that it called.
async fn continue_call<S: State>(
    exec: &mut Execution<S>,
    (checkpointer, thread): (&dyn Checkpointer, &ThreadId),
    (meta, tasks): (CheckpointMeta, Vec<RestoredTask<S>>),
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let left = left_by(checkpointer, thread, &exec.graph.topology, (&meta, &tasks), |_| true).await?;
    exec.cx.memories.set_current(&meta, left);
    exec.show_state();
    exec.superstep.origins = Origins::of(&meta).carried;
    Ok(continue_run(exec, meta.control, tasks, config)?)
}

fn begin_nowhere<S: State>(
    exec: &mut Execution<S>,
    input: S::Update,
    seed: Option<S>,
) -> Result<Begin, RunError> {
    match seed {
        Some(seed) => exec.state = seed,
        None => require(&exec.state, exec.state.written(&input), None)?,
    }
    if let Some(nested) = &mut exec.nested {
        nested.answers.drain(..).for_each(|answer| exec.cx.interrupts.put_answer(answer));
    }
    accept(exec, input, Control::input(None))
}

/// Returns the end of a called graph for its caller.
fn called<S: State>(exec: Execution<S>, ended: Result<Status, Stop>) -> Called<S> {
    let Execution { state, superstep, nested, .. } = exec;
    let nested = nested.expect("a called graph has a caller");
    let step = superstep.step;
    let waiting = superstep.waiting.into_iter();
    let pending: Vec<_> = waiting
        .flat_map(|(slot, questions)| questions.into_iter().map(move |question| (slot, question)))
        .collect();
    if let Some(command) = nested.exit_command {
        return Called::Left(command);
    }
    let error = match ended {
        Ok(Status::Completed) => {
            let made = nested.made.map_or_else(Vec::new, |made| made.into_updates(&state));
            return Called::Completed { state, made };
        }
        Ok(Status::Cancelled) if pending.is_empty() => return Called::Cancelled,
        Ok(Status::Drained) => return Called::Drained,
        Ok(Status::Interrupted) if pending.is_empty() => return Called::Suspended,
        Ok(Status::Interrupted | Status::Cancelled) => {
            return Called::Asks { step, pending, refused: None };
        }
        Err(Stop::Halted) => return Called::Halted,
        Err(Stop::Refused(refused)) => refused.error,
    };
    match (error, nested.rejected) {
        (RunError::BadAnswer { source, .. }, Some(id)) => {
            Called::Asks { step, pending, refused: Some((id, Refusal::BadType(source))) }
        }
        (RunError::ChangedQuestion { .. }, Some(id)) => {
            Called::Asks { step, pending, refused: Some((id, Refusal::Changed)) }
        }
        (error, _) => {
            let is_of_node = matches!(error, RunError::Node { .. });
            let fatal = match &error {
                RunError::Node { .. } => nested.fatal,
                RunError::StepTimeout { .. } | RunError::Checkpoint(_) => false,
                _ => true,
            };
            Called::Failed { error, fatal, refusal: nested.refusal && is_of_node }
        }
    }
}
