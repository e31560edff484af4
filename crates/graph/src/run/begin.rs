//! The start of a run: from an input, from the head of its thread, or on a fork.

use std::sync::Arc;

use superstep_checkpoint::{CheckpointError, Lease, Source, TaskRecord, internal::own::INPUT};
use superstep_engine::{ChannelSet, Control, NodeName, Report, RestoreError, START, TaskId};
use superstep_state::Update;

use super::{
    driver::{Begin, Driver, RunInput},
    fail::lost_handler,
    interrupts::{WaitingTask, fresh},
    stop::Stop,
    task_result::FinishedTask,
};
use crate::{
    Answers, Checkpointer, Event, OnExisting, OnUnfinished, RunError, RunOptions, State, ThreadId,
    journal::{
        memories::{Bound, head},
        task_origin::{Origins, planned_names},
    },
    node::routing::Targets,
    run::{
        failed_end::last_pending,
        left_behind::left_behind,
        restore::{Restored, RestoredTask, left_by, load_known, require},
        targets::recorded_targets,
        thread_writer::{NewCheckpoint, ThreadWriter},
    },
};

impl<S: State> Driver<S> {
    pub(super) fn begin_without_store(
        &mut self,
        run_input: RunInput<S>,
        config: &RunOptions,
    ) -> Result<Begin, RunError> {
        match run_input {
            RunInput::Input(input) if config.checkpoint.is_none() => {
                require(&self.state, self.state.written(&input), None)?;
                self.accept(input, Control::input(None))
            }
            _ => Err(RunError::NoCheckpointer { graph: self.graph.name.clone() }),
        }
    }

    pub(super) async fn begin_with_store(
        &mut self,
        checkpointer: Arc<dyn Checkpointer>,
        run_input: RunInput<S>,
        config: &RunOptions,
    ) -> Result<Begin, Stop> {
        if matches!(run_input, RunInput::Input(_)) && !config.answers.is_empty() {
            return Err(RunError::InputAndAnswers.into());
        }
        let thread = config.thread.clone();
        let thread = thread.ok_or_else(|| RunError::NoThread { graph: self.graph.name.clone() })?;
        let lease = checkpointer.lease(&thread).await?;
        let run_input = match run_input {
            RunInput::Input(_)
                if config.on_existing != OnExisting::Accept
                    && head(&*checkpointer, &thread).await?.is_some() =>
            {
                if config.on_existing == OnExisting::Refuse {
                    return Err(RunError::from(CheckpointError::ThreadExists { thread }).into());
                }
                RunInput::Nothing
            }
            other => other,
        };
        let (Some(id), RunInput::Input(input)) = (&config.input_id, &run_input) else {
            return self.begin_leased(checkpointer, thread, Some(lease), run_input, config).await;
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
        self.begin_leased(checkpointer, thread, Some(lease), run_input, &config).await
    }

    /// Begins on a thread; without a `lease` if the caller has it, or nothing is written.
    pub(super) async fn begin_leased(
        &mut self,
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
        let written = update.map_or(ChannelSet::EMPTY, |update| self.state.written(update));
        let restored = load_known(&self.graph, &checkpointer, &thread, config.checkpoint, written).await?;
        if let Some(restored) = restored.as_ref().filter(|_| input.is_none() && command.is_none())
            && let Some(again) = self.retried_node(restored, config).filter(|_| lease.is_some())
            && let Some(from) = last_pending(&*checkpointer, &thread, Some(restored.head), &again).await?
        {
            let config = RunOptions { checkpoint: Some(from), ..config.clone() };
            return Box::pin(self.begin_leased(checkpointer, thread, lease, RunInput::Nothing, &config))
                .await;
        }
        let (clock, mark) = (config.clock.clone(), self.graph.mark(None));
        let mut writer = ThreadWriter::new(checkpointer.clone(), thread.clone(), lease, clock, mark);
        writer.snapshot_every = config.snapshot_every;
        let Some(Restored { meta, head, state, tasks, since_snapshot, unknown, .. }) = restored else {
            let input = input.ok_or(RunError::EmptyThread { thread })?;
            require(&self.state, written, None)?;
            writer.begin_thread().await?;
            self.writer = Some(writer);
            self.show_nonce();
            return self.accept_and_store(input, None, config).await;
        };
        writer.stand_at(head, &meta, since_snapshot, unknown);
        (self.writer, self.state) = (Some(writer), state);
        self.show_place();
        self.show_nonce();
        // The head's id stands for the head, except that a run with nothing else repeats its tasks on a fork.
        let with = input.is_some() && !is_stored || command.is_some() || !config.answers.is_empty();
        let named = (config.checkpoint == Some(head) && with)
            .then(|| RunOptions { checkpoint: None, ..config.clone() });
        let config = named.as_ref().unwrap_or(config);
        // A discarded task leaves nothing in the memories of the graphs that it called, unless its result remains.
        let (discards, control) = (input.is_some(), &meta.control);
        let is_kept = |task: &RestoredTask<S>| {
            let node = control.next.get(task.slot as usize);
            let node = node.and_then(|name| self.graph.topology.find(name.as_str()));
            !discards || node.is_some_and(|node| self.graph.nodes[node.position()].on_discard.is_some())
        };
        let left = match config.checkpoint.is_none() {
            true => left_by(&*checkpointer, &thread, &self.graph.topology, (&meta, &tasks), is_kept).await?,
            false => Bound::new(),
        };
        self.cx.memories.stand_at(&meta, left);
        if let Some(command) = command {
            let begun = self.follow(command, meta, tasks, config);
            return Ok(self.located(begun, config.checkpoint).await?);
        }
        let Some(input) = input else {
            self.origins = Origins::of(&meta).carried;
            if let (Some(writer), None) = (&mut self.writer, config.checkpoint) {
                writer.resume_with(&config.metadata);
            }
            let begun = self.continue_run(meta.control, tasks, config);
            return Ok(self.located(begun, config.checkpoint).await?);
        };
        let discarded = if config.checkpoint.is_none() { meta.control.next.clone() } else { Vec::new() };
        if config.on_unfinished == OnUnfinished::Refuse && !discarded.is_empty() {
            return Err(RunError::Unfinished { thread, next: discarded }.into());
        }
        let left = match is_stored {
            true => None,
            false => left_behind(&self.graph, &self.state, &meta.control, tasks)?,
        };
        let input = match left {
            Some(left) => Update::then(left, input),
            None => input,
        };
        self.accept_instead(discarded, input, Some(meta.control.step), config).await
    }

    /// Accepts an input as the finished task of [`START`], in the superstep after `last`.
    pub(super) fn accept(&mut self, input: S::Update, control: Control) -> Result<Begin, RunError> {
        let (node, step) = (self.graph.topology.start(), control.step + 1);
        let stored = self.encode(&input, node, step)?;
        // An input that cannot be folded or has no target is rejected here, before it is stored.
        let report = self.finish(TaskId { step, slot: 0 }, node, input, stored, Targets::default(), true)?;
        let led = self.graph.topology.check(node, &report.targets);
        led.map_err(|error| RunError::Route { step, error })?;
        let mut begin = fresh(control);
        begin.records.finished.push((0, report));
        Ok(begin)
    }

    pub(super) async fn accept_and_store(
        &mut self,
        input: S::Update,
        last: Option<i64>,
        config: &RunOptions,
    ) -> Result<Begin, Stop> {
        let begin = self.accept(input, Control::input(last))?;
        let records =
            begin.records.finished.iter().map(|(slot, report)| (*slot, self.record_of(*slot, report)));
        let records = records.collect();
        self.mark_recorded(0);
        let (control, metadata) = (begin.control.clone(), config.metadata.clone());
        let mut new = NewCheckpoint::new(Source::Input, control, metadata);
        new.records = records;
        self.checkpoint(new, None).await?;
        Ok(begin)
    }

    /// Accepts an input in place of the tasks of these nodes, and reports them.
    pub(super) async fn accept_instead(
        &mut self,
        discarded: Vec<NodeName>,
        input: S::Update,
        last: Option<i64>,
        config: &RunOptions,
    ) -> Result<Begin, Stop> {
        let begin = self.accept_and_store(input, last, config).await?;
        if !discarded.is_empty() {
            self.emit(Event::Discarded { nodes: discarded });
        }
        Ok(begin)
    }

    /// Continues from the head of the thread, or on a fork from an older checkpoint.
    pub(super) fn continue_run(
        &mut self,
        mut control: Control,
        mut tasks: Vec<RestoredTask<S>>,
        config: &RunOptions,
    ) -> Result<Begin, RunError> {
        let fork = config.checkpoint.is_some().then(|| {
            // A fork runs its tasks afresh, except an input, which cannot run again.
            self.origins.clear();
            tasks.retain(|task| {
                control.next.get(task.slot as usize).is_some_and(|node| node.as_str() == START)
            });
            control.step += 1;
            let (control, metadata) = (control.clone(), config.metadata.clone());
            let mut fork = NewCheckpoint::new(Source::Fork, control, metadata);
            fork.records = tasks.iter().map(|task| (task.slot, task.record.clone())).collect();
            fork
        });
        let begin = self.restore_tasks(control, tasks, &config.answers)?;
        Ok(Begin { first: fork, ..begin })
    }

    /// Restores the tasks of a checkpoint from their records, with the answers that are available now.
    pub(super) fn restore_tasks(
        &mut self,
        control: Control,
        tasks: Vec<RestoredTask<S>>,
        answers: &Answers,
    ) -> Result<Begin, RunError> {
        self.items.clone_from(&control.items);
        self.planned = planned_names(&self.graph.topology, &control);
        let mut begin = fresh(control);
        let (mut waiting, mut lost) = (Vec::new(), Vec::new());
        for RestoredTask { slot, record, update } in tasks {
            let Some(name) = begin.control.next.get(slot as usize).cloned() else { continue };
            let id = TaskId { step: begin.control.step + 1, slot };
            let (failure, record) = record.into_parts();
            let mut node = self.graph.topology.find(name.as_str());
            if let Some(failure) = failure {
                match failure.handler(&self.graph.topology) {
                    Some(handler) => {
                        node = Some(handler);
                        begin.records.handled.push((slot, handler));
                        self.failures.insert(slot, Arc::from(failure));
                    }
                    None if update.is_some() => {
                        return Err(lost_handler(&failure, &self.graph.name, begin.control.step, slot));
                    }
                    // The program no longer has a handler, so that the node is retried.
                    None => continue,
                }
            }
            match (record, update) {
                (TaskRecord::Finished { update: stored, targets, .. }, Some(update)) => {
                    // The engine reports nodes that the graph no longer has.
                    let Some(node) = node else { continue };
                    let (Targets { ends, items }, gone) = recorded_targets(&self.graph.topology, targets);
                    lost.extend(gone);
                    let (written, exclusive) = (self.state.written(&update), self.state.exclusive(&update));
                    self.written = self.written.union(written);
                    begin.records.finished.push((slot, Report { written, exclusive, targets: ends }));
                    let (stored, update) = (Some(stored), Some(update));
                    self.put(slot, FinishedTask { node, update, stored, items, recorded: true });
                }
                (TaskRecord::Started { attempts, once } | TaskRecord::Failed { attempts, once, .. }, _) => {
                    begin.records.failed.push((slot, attempts));
                    self.cx.effects.restore(id, once);
                }
                (TaskRecord::Interrupted { questions, answers, asked, attempts, once, .. }, _) => {
                    begin.records.failed.push((slot, attempts));
                    self.cx.effects.restore(id, once);
                    let asks = node.map_or(name, |node| self.asks(slot, node));
                    waiting.push(WaitingTask { slot, asks, questions, answers, asked });
                }
                (TaskRecord::Cancelled { once }, _) => self.cx.effects.restore(id, once),
                (TaskRecord::Finished { .. } | TaskRecord::Handled { .. }, _) => {}
            }
        }
        if !lost.is_empty() {
            return Err(self.lost(begin.control.step, lost));
        }
        self.answer(&mut begin, waiting, answers)?;
        Ok(begin)
    }

    /// Creates the error of finished tasks with target nodes that the graph does not have.
    pub(super) fn lost(&self, step: i64, nodes: Vec<NodeName>) -> RunError {
        RunError::Restore {
            graph: self.graph.name.clone(),
            error: RestoreError::UnknownNodes { step, nodes },
        }
    }
}
