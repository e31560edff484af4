//! External commands: an update and target nodes, in addition to the thread's pending tasks.

use superstep_checkpoint::{CheckpointMeta, Source, TaskRecord, internal::own::OUTSIDE};
use superstep_engine::{Control, END, NodeName, RestoreError, Target, Topology};

use super::{
    execution::Execution,
    first_tasks::{Begin, lost_targets, restore_tasks},
    questions::question_context,
    targets::recorded_targets,
};
use crate::{
    Answers, Command, Question, RunError, RunOptions, State, ThreadId,
    compiled::graph::Inner,
    journal::{
        interrupts::{PendingQuestion, into_pending},
        task_origin::{Origins, with_origins},
    },
    node::{output::Goto, routing::Targets},
    run::{
        conflicts::set_back_refused,
        external_update::{Change, Changed},
        restore::RestoredTask,
    },
};

/// Starts with a checkpoint of the command's update, with its additional tasks.
pub(super) fn follow<S: State>(
    exec: &mut Execution<S>,
    command: Command<S, NodeName>,
    meta: CheckpointMeta,
    mut tasks: Vec<RestoredTask<S>>,
    config: &RunOptions,
) -> Result<Begin, RunError> {
    let graph = exec.graph.clone();
    let fits = graph.topology.fits(&meta.control);
    fits.map_err(|error| RunError::Restore { graph: graph.name.clone(), error })?;
    let live = config.checkpoint.is_none();
    if live {
        set_back_refused(&graph.topology, &meta.control, &exec.state, &mut tasks);
    }
    check_led(&graph, &meta.control, tasks.iter().filter(|_| live))?;
    let also = destinations(&graph, command.goto)?;
    let thread = exec.writer.as_ref().expect("only a stored thread takes a command").stored_in().1;
    let mut answers = config.answers.resolve(&questions(
        &graph.topology,
        thread,
        &meta,
        // A fork's tasks ask anew.
        tasks.iter().filter(|_| live).map(|task| (task.slot, &task.record)),
    ))?;
    let before = (meta, exec.state.clone(), tasks);
    let mut change = Change::after(&graph, Some(before), live)?;
    change.fold_ended(&graph)?;
    let writes = command.update.is_some();
    if let Some(update) = command.update {
        change.add_from_outside(&graph, update)?;
    }
    let changed = change.into_changed(&graph, also);
    let records = changed.records();
    let Changed { state, control: after, applied, carried, origins } = changed;
    exec.state = state;
    // The tasks have new slots; their questions retain their ids.
    let mut translated = Answers::new();
    for (before, task) in &carried {
        let Some(stored) = answers.remove(before) else { continue };
        let (asks, questions) = task.record.questions(&after.next[task.slot as usize], &graph.topology);
        let Some(origin) = origins.get(&task.slot) else { continue };
        let context = question_context(exec, *origin);
        for pending in
            questions.iter().map(|question| into_pending(question.clone(), context, asks, &graph.topology))
        {
            if let Some(stored) = stored.get(&pending.key) {
                translated = translated.answer(pending.interrupt.id, stored.answer.clone());
            }
        }
    }
    debug_assert!(answers.is_empty(), "a task with a question has begun and remains pending");
    let carried = carried.into_iter().map(|(_, task)| task).collect();
    let (source, mut metadata) = (Source::Update, with_origins(config.metadata.clone(), &origins));
    metadata.insert(OUTSIDE.to_owned(), writes.into());
    exec.superstep.origins = origins;
    let writer = exec.writer.as_ref().expect("only a stored thread takes a command");
    let mut new = writer.new_commit(source, after.clone(), metadata);
    (new.applied, new.records) = (applied, records);
    let begin = restore_tasks(exec, after, carried, &translated)?;
    Ok(Begin { first: Some(new), ..begin })
}

/// Checks that the graph has the targets of finished tasks, which a command cannot leave out.
fn check_led<'a, S: State>(
    graph: &Inner<S>,
    control: &Control,
    tasks: impl Iterator<Item = &'a RestoredTask<S>>,
) -> Result<(), RunError> {
    let (topology, step) = (&graph.topology, control.step);
    for task in tasks {
        let TaskRecord::Finished { targets, failure, .. } = &task.record else { continue };
        let Some(name) = control.next.get(task.slot as usize) else { continue };
        let handler = failure.as_ref().map(|failure| failure.handler(topology));
        let Some(node) = handler.unwrap_or_else(|| topology.find(name.as_str())) else { continue };
        let (targets, lost) = recorded_targets(topology, targets.clone());
        if !lost.is_empty() {
            return Err(lost_targets(&graph.name, step, lost));
        }
        topology.check(node, &targets.ends).map_err(|error| {
            let error = RestoreError::BadRecord { step, slot: task.slot, detail: error.to_string() };
            RunError::Restore { graph: graph.name.clone(), error }
        })?;
    }
    Ok(())
}

/// Returns the nodes that an external command names, and its items.
fn destinations<S: State>(graph: &Inner<S>, goto: Vec<Goto<NodeName>>) -> Result<Targets, RunError> {
    let refuse =
        |node: &str, why| Err(RunError::NoWayIn { graph: graph.name.clone(), node: node.to_owned(), why });
    let mut targets = Targets::default();
    for goto in goto {
        targets.ends.push(match goto {
            Goto::Route(name) if name.as_str() == END => Target::End,
            Goto::Route(name) => match graph.topology.find(name.as_str()) {
                Some(node) if graph.topology.takes_item(node) => {
                    return refuse(name.as_str(), "it takes an item; send it one with `Command::send`");
                }
                Some(node) if graph.topology.is_handler(node) => {
                    return refuse(name.as_str(), "only a failure leads to an error handler");
                }
                Some(node) if node != graph.topology.start() => Target::Node(node),
                _ => {
                    let (graph, node) = (graph.name.clone(), name.to_string());
                    return Err(RunError::UnknownNode { graph, node });
                }
            },
            Goto::Send { worker, item } => {
                let Some(worker) = graph.find(worker) else {
                    return refuse("?", "the worker belongs to another graph");
                };
                let Ok(item) = item else {
                    let name = graph.topology.name(worker);
                    return refuse(name.as_str(), "the item that is sent to it has no JSON form");
                };
                targets.items.push(item);
                Target::Send(worker)
            }
        });
    }
    Ok(targets)
}

/// Returns the questions of a checkpoint's tasks, with their slots.
pub(super) fn questions<'a>(
    topology: &Topology,
    thread: &ThreadId,
    meta: &CheckpointMeta,
    records: impl Iterator<Item = (u32, &'a TaskRecord)>,
) -> Vec<(u32, PendingQuestion)> {
    let (mut pending, origins) = (Vec::new(), Origins::of(meta));
    for (slot, record) in records {
        let Some(node) = meta.control.next.get(slot as usize) else { continue };
        let (asks, questions) = record.questions(node, topology);
        let began = origins.occasion(slot, thread);
        let ask = |question: &Question| (slot, into_pending(question.clone(), began, asks, topology));
        pending.extend(questions.iter().map(ask));
    }
    pending
}
