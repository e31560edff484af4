//! The start of a run: from an input, from the head of its thread, or on a fork.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use superstep_checkpoint::{CheckpointError, Lease, Source, TaskRecord, internal::own::INPUT};
use superstep_engine::{ChannelSet, Control, NodeName};
use superstep_state::{FoldError, Panicked, Update};

use super::{
    execution::Execution,
    external_command::{follow, questions},
    failed_end::{last_pending, retried_node},
    first_tasks::{Begin, accept, accept_and_store, accept_instead, continue_run},
    superstep::Stop,
};
use crate::{
    CheckpointId, Checkpointer, Command, History, OnExisting, OnUnfinished, RunError, RunOptions, State,
    ThreadId,
    compiled::graph::Inner,
    journal::{
        memories::{Bound, head},
        task_origin::Origins,
    },
    node::discarded::Discarded,
    run::{
        restore::{RestoredTask, left_by, load_known, require},
        thread_writer::ThreadWriter,
    },
};

/// The number of checkpoints that are read in search of a question.
const SEARCHED: usize = 1_000;

/// The number of branches whose questions are read.
const BRANCHES: usize = 100;

/// The input of a run.
pub(crate) enum RunInput<S: State> {
    /// An input, which starts at `START`.
    Input(S::Update),
    /// The same, and the input is one that was stored: it has what the tasks before it left behind.
    Stored(S::Update),
    /// The run has no input and continues the pending tasks.
    Nothing,
    /// An external command, in addition to the pending tasks.
    Command(Command<S, NodeName>),
}

/// Begins a run without a thread.
pub(super) fn begin_without_store<S: State>(
    exec: &mut Execution<S>,
    run_input: RunInput<S>,
    config: &RunOptions,
) -> Result<Begin, RunError> {
    match run_input {
        RunInput::Input(input) if config.checkpoint.is_none() => {
            require(&exec.state, exec.state.written(&input), None)?;
            accept(exec, input, Control::input(None))
        }
        _ => Err(RunError::NoCheckpointer { graph: exec.graph.name.clone() }),
    }
}

/// Begins on the thread of the options, with its lease.
pub(super) async fn begin_with_store<S: State>(
    exec: &mut Execution<S>,
    checkpointer: Arc<dyn Checkpointer>,
    run_input: RunInput<S>,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    if matches!(run_input, RunInput::Input(_)) && !config.answers.is_empty() {
        return Err(RunError::InputAndAnswers.into());
    }
    let thread = config.thread.clone();
    let thread = thread.ok_or_else(|| RunError::NoThread { graph: exec.graph.name.clone() })?;
    // `OnExisting` is decided under the lease: a commit that expects no head would refuse a second beginning as
    // well, but could not return the outcome of the first. A thread that another process runs is busy, which the
    // caller can distinguish from finished.
    let lease = checkpointer.lease(&thread).await?;
    let run_input = match run_input {
        RunInput::Input(_)
            if config.on_existing != OnExisting::Accept && head(&*checkpointer, &thread).await?.is_some() =>
        {
            if config.on_existing == OnExisting::Refuse {
                return Err(RunError::from(CheckpointError::ThreadExists { thread }).into());
            }
            RunInput::Nothing
        }
        other => other,
    };
    let (Some(id), RunInput::Input(input)) = (&config.input_id, &run_input) else {
        return begin_leased(exec, checkpointer, thread, Some(lease), run_input, config).await;
    };
    // Of the caller's input only: graphs that its nodes call have inputs of their own.
    let mut config = config.clone();
    if config.checkpoint.is_some() {
        let head = head(&*checkpointer, &thread).await?;
        config.checkpoint = config.checkpoint.filter(|at| head.is_none_or(|head| head.id != *at));
    }
    let is_new = config.checkpoint.is_some() || !checkpointer.has_input(&thread, id).await?;
    let run_input = if is_new { RunInput::Input(input.clone()) } else { RunInput::Nothing };
    if config.checkpoint.is_none() {
        config.metadata.insert(INPUT.to_owned(), [id.as_str()].as_slice().into());
    }
    begin_leased(exec, checkpointer, thread, Some(lease), run_input, &config).await
}

/// Begins on a thread; without a `lease` if the caller has it, or nothing is written.
pub(super) async fn begin_leased<S: State>(
    exec: &mut Execution<S>,
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    lease: Option<Lease>,
    run_input: RunInput<S>,
    config: &RunOptions,
) -> Result<Begin, Stop> {
    let is_stored = matches!(run_input, RunInput::Stored(_));
    let (input, command) = match run_input {
        RunInput::Nothing => (None, None),
        RunInput::Input(input) | RunInput::Stored(input) => (Some(input), None),
        RunInput::Command(command) => (None, Some(command)),
    };
    let update = input.as_ref().or(command.as_ref().and_then(|command| command.update.as_ref()));
    let written = update.map_or(ChannelSet::EMPTY, |update| exec.state.written(update));
    let restored = load_known(&exec.graph, &checkpointer, &thread, config.checkpoint, written).await?;
    if let Some(restored) = restored.as_ref().filter(|_| input.is_none() && command.is_none())
        && let Some(again) = retried_node(&exec.graph, restored, config).filter(|_| lease.is_some())
        && let Some(from) = last_pending(&*checkpointer, &thread, Some(restored.head), &again).await?
    {
        let config = RunOptions { checkpoint: Some(from), ..config.clone() };
        return Box::pin(begin_leased(exec, checkpointer, thread, lease, RunInput::Nothing, &config)).await;
    }
    let mut writer = ThreadWriter::new(&exec.graph, checkpointer.clone(), thread.clone(), lease, config);
    let Some(restored) = restored else {
        let input = input.ok_or(RunError::EmptyThread { thread })?;
        require(&exec.state, written, None)?;
        writer.begin_thread().await?;
        exec.writer = Some(writer);
        exec.show_nonce();
        return accept_and_store(exec, input, None, config).await;
    };
    let head = restored.head;
    let (meta, tasks) = exec.move_to(writer, restored);
    exec.show_nonce();
    // The head's id stands for the head, except that a run with nothing else repeats its tasks on a fork.
    let with = input.is_some() && !is_stored || command.is_some() || !config.answers.is_empty();
    let named =
        (config.checkpoint == Some(head) && with).then(|| RunOptions { checkpoint: None, ..config.clone() });
    let config = named.as_ref().unwrap_or(config);
    // A discarded task leaves nothing in the memories of the graphs that it called, unless its result remains.
    let (discards, control) = (input.is_some(), &meta.control);
    let is_kept = |task: &RestoredTask<S>| {
        let node = control.next.get(task.slot as usize);
        let node = node.and_then(|name| exec.graph.topology.find(name.as_str()));
        !discards || node.is_some_and(|node| exec.graph.nodes[node.position()].on_discard.is_some())
    };
    let left = if config.checkpoint.is_none() {
        left_by(&*checkpointer, &thread, &exec.graph.topology, (&meta, &tasks), is_kept).await?
    } else {
        Bound::new()
    };
    exec.cx.memories.set_current(&meta, left);
    if let Some(command) = command {
        let begun = follow(exec, command, meta, tasks, config);
        return Ok(located(exec, begun, config.checkpoint).await?);
    }
    let Some(input) = input else {
        exec.superstep.origins = Origins::of(&meta).carried;
        if let (Some(writer), None) = (&mut exec.writer, config.checkpoint) {
            writer.resume_with(&config.metadata);
        }
        let begun = continue_run(exec, meta.control, tasks, config);
        return Ok(located(exec, begun, config.checkpoint).await?);
    };
    let discarded = if config.checkpoint.is_none() { meta.control.next.clone() } else { Vec::new() };
    if config.on_unfinished == OnUnfinished::Refuse && !discarded.is_empty() {
        return Err(RunError::Unfinished { thread, next: discarded }.into());
    }
    let left = if is_stored { None } else { left_behind(&exec.graph, &exec.state, &meta.control, tasks)? };
    let input = match left {
        Some(left) => Update::then(left, input),
        None => input,
    };
    accept_instead(exec, discarded, input, Some(meta.control.step), config).await
}

/// Adds to the error of an unknown answer the checkpoint where its question waits, if it is on another branch.
/// `at` is the checkpoint at which the run was to begin.
async fn located<S: State>(
    exec: &Execution<S>,
    begun: Result<Begin, RunError>,
    at: Option<CheckpointId>,
) -> Result<Begin, RunError> {
    match begun {
        // The thread of a graph that asks, and the keys of the task's effects, belong to the checkpoint at
        // which the task began. On another branch the work behind the question may be half done, and a second
        // branch would share it. So a fork asks again under its own id, and the error names the
        // checkpoint where the question waits.
        Err(RunError::UnknownInterrupt { name, waiting, .. }) => {
            let elsewhere = waits_at(exec, &name, at).await?;
            Err(RunError::UnknownInterrupt { name, waiting, elsewhere })
        }
        begun => begun,
    }
}

/// Returns the newest end of a branch, or else the checkpoint `at`, where a question with this id or key waits.
async fn waits_at<S: State>(
    exec: &Execution<S>,
    name: &str,
    at: Option<CheckpointId>,
) -> Result<Option<CheckpointId>, RunError> {
    let Some(writer) = &exec.writer else { return Ok(None) };
    let (checkpointer, thread) = writer.stored_in();
    let read = checkpointer.history(thread, History { limit: Some(SEARCHED), ..History::default() }).await?;
    // A fork asks anew, and leaves the question of its parent open.
    let next = read.iter().filter(|meta| meta.source != Source::Fork);
    let parents: BTreeSet<CheckpointId> = next.filter_map(|meta| meta.parent).collect();
    let ends = read.iter().filter(|meta| !meta.control.is_finished() && !parents.contains(&meta.id));
    for id in ends.map(|meta| meta.id).take(BRANCHES).chain(at) {
        let Some(loaded) = checkpointer.load(thread, Some(id)).await? else { continue };
        let records = loaded.tasks.iter().map(|(slot, record)| (*slot, record));
        let pending = questions(&exec.graph.topology, thread, &loaded.meta, records);
        if pending.iter().any(|(_, question)| question.interrupt.id == name || question.interrupt.key == name)
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Returns the remaining updates of a superstep's unfinished tasks, in slot order; `None` if there are none.
///
/// # Errors
/// [`RunError::Fold`] if a user's function panics.
fn left_behind<S: State>(
    graph: &Inner<S>,
    state: &S,
    control: &Control,
    tasks: Vec<RestoredTask<S>>,
) -> Result<Option<S::Update>, RunError> {
    let mut tasks: BTreeMap<u32, RestoredTask<S>> = tasks.into_iter().map(|task| (task.slot, task)).collect();
    let mut left = None;
    for (slot, name) in (0..).zip(&control.next) {
        let node = graph.topology.find(name.as_str()).map(|node| &graph.nodes[node.position()]);
        let Some(keep) = node.and_then(|node| node.on_discard.as_ref()) else { continue };
        let (record, update) = match tasks.remove(&slot) {
            Some(RestoredTask { record, update, .. }) => (Some(record), update),
            None => (None, None),
        };
        let update = match update {
            Some(update) => update,
            None => {
                let once = record.map(TaskRecord::into_once).unwrap_or_default();
                let update = catch_unwind(AssertUnwindSafe(|| keep(state, &Discarded { once: &once })));
                update.map_err(|panic| RunError::Fold {
                    node: name.clone(),
                    step: control.step + 1,
                    source: FoldError {
                        channel: "(the update of its discarded task)".into(),
                        source: Box::new(Panicked::from_payload(&*panic)),
                    },
                })?
            }
        };
        left = Some(match left {
            Some(all) => Update::then(all, update),
            None => update,
        });
    }
    Ok(left)
}
