//! The driver of a called graph: its start and its end.

use std::sync::Arc;

use superstep_checkpoint::{CheckpointMeta, internal::own::TASK};
use superstep_engine::Control;
use superstep_state::internal::Made;

use super::{
    driver::{Begin, Driver, limits},
    nested_call::{Call, Called, NestedContext, OwnThread, Seen},
    stop::Stop,
};
use crate::{
    CheckpointId, Checkpointer, Question, RunError, RunOptions, State, Status, ThreadId,
    journal::{
        interrupts::{PendingQuestion, Refusal, Resolved, StoredAnswer},
        memories::{self, Bound, SubgraphPosition, last_input},
        task_origin::Origins,
    },
    run::{
        restore::{Restored, RestoredTask, left_by, load, load_seeded, require},
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
    let mut driver: Driver<T> =
        Driver::new(graph, scope, events.map(|(below, path)| Events::inside(below, path)));
    let made = seed.is_some().then(Made::default);
    driver.inside = Some(NestedContext { answers, made, watch });
    let begin = match place {
        Some((checkpointer, thread)) => {
            driver.begin_inside(checkpointer, thread, own, input, seed, &config).await
        }
        None => driver.begin_nowhere(input, seed).map_err(Stop::from),
    };
    let ended = match begin {
        Ok(begin) => driver.drive(begin, limits, &config).await,
        Err(error) => Err(error),
    };
    let at = driver.writer.as_ref().and_then(ThreadWriter::at);
    (driver.called(ended), at)
}

impl<S: State> Driver<S> {
    async fn begin_inside(
        &mut self,
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
        own: Option<OwnThread>,
        input: S::Update,
        seed: Option<S>,
        config: &RunOptions,
    ) -> Result<Begin, Stop> {
        let written = self.state.written(&input);
        if let Some(OwnThread::At(place)) = own {
            return self.begin_own(checkpointer, thread, place, input, config).await;
        }
        let restored = match &seed {
            Some(seed) => load_seeded(&self.graph, seed, &checkpointer, &thread).await?,
            None => load(&self.graph, &checkpointer, &thread, None, written).await?,
        };
        // This run uses the lease of its root.
        let (clock, mark) = (config.clock.clone(), self.graph.mark(None));
        let mut writer = ThreadWriter::new(checkpointer.clone(), thread.clone(), None, clock, mark);
        writer.snapshot_every = config.snapshot_every;
        let Some(Restored { meta, head, state, tasks, since_snapshot, unknown, made, .. }) = restored else {
            self.writer = Some(writer);
            match seed {
                Some(seed) => self.state = seed,
                None => require(&self.state, written, None)?,
            }
            return self.accept_and_store(input, None, config).await;
        };
        writer.stand_at(head, &meta, since_snapshot, unknown);
        (self.writer, self.state) = (Some(writer), state);
        self.show_place();
        if own.is_some() {
            return self.accept_and_store(input, Some(meta.control.step), config).await;
        }
        self.stand_at(&*checkpointer, &thread, &meta, &tasks).await?;
        if let Some(inside) = &mut self.inside {
            inside.made = made;
        }
        self.show_state();
        self.origins = Origins::of(&meta).carried;
        Ok(self.continue_run(meta.control, tasks, config)?)
    }

    /// Continues a graph with a persistent thread if it was started for this task. Otherwise passes the input
    /// at the checkpoint that the caller's checkpoint references.
    async fn begin_own(
        &mut self,
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
        place: SubgraphPosition,
        input: S::Update,
        config: &RunOptions,
    ) -> Result<Begin, Stop> {
        let written = self.state.written(&input);
        let mut writer = ThreadWriter::new(
            checkpointer.clone(),
            thread.clone(),
            None,
            config.clock.clone(),
            self.graph.mark(None),
        );
        writer.snapshot_every = config.snapshot_every;
        let last = last_input(&*checkpointer, &thread).await?;
        let goes_on = last.is_some_and(|input| input.metadata.get(TASK) == config.metadata.get(TASK));
        let (mut at, mut discarded) = (None, Vec::new());
        if !goes_on && let Some(head) = memories::head(&*checkpointer, &thread).await? {
            at = memories::found(&*checkpointer, &thread, head.id, place).await?;
            writer.stand_before(head.id);
            discarded = head.control.next;
        }
        if !goes_on && at.is_none() {
            self.writer = Some(writer);
            require(&self.state, written, None)?;
            return self.accept_instead(discarded, input, None, config).await;
        }
        let restored = load(&self.graph, &checkpointer, &thread, at, written).await?;
        let restored = restored.ok_or_else(|| RunError::EmptyThread { thread: thread.clone() })?;
        let Restored { meta, head, state, tasks, since_snapshot, unknown, .. } = restored;
        writer.stand_at(head, &meta, since_snapshot, unknown);
        (self.writer, self.state) = (Some(writer), state);
        self.show_place();
        if goes_on {
            self.stand_at(&*checkpointer, &thread, &meta, &tasks).await?;
            self.show_state();
            self.origins = Origins::of(&meta).carried;
            return Ok(self.continue_run(meta.control, tasks, config)?);
        }
        self.cx.memories.stand_at(&meta, Bound::new());
        self.accept_instead(discarded, input, Some(meta.control.step), config).await
    }

    /// Reads the positions of the called graphs with persistent threads.
    async fn stand_at(
        &self,
        checkpointer: &dyn Checkpointer,
        thread: &ThreadId,
        meta: &CheckpointMeta,
        tasks: &[RestoredTask<S>],
    ) -> Result<(), RunError> {
        let left = left_by(checkpointer, thread, &self.graph.topology, (meta, tasks), |_| true).await?;
        self.cx.memories.stand_at(meta, left);
        Ok(())
    }

    fn begin_nowhere(&mut self, input: S::Update, seed: Option<S>) -> Result<Begin, RunError> {
        match seed {
            Some(seed) => self.state = seed,
            None => require(&self.state, self.state.written(&input), None)?,
        }
        if let Some(inside) = &mut self.inside {
            inside.answers.drain(..).for_each(|answer| self.cx.interrupts.put_answer(answer));
        }
        self.accept(input, Control::input(None))
    }

    /// Returns the caller's answers that a task still waits for.
    pub(super) fn callers_answers(&self, step: i64, pending: &[(u32, PendingQuestion)]) -> Option<Resolved> {
        let mut fresh = Resolved::new();
        for answer in &self.inside.as_ref()?.answers {
            let waits = |(slot, question): &&(u32, PendingQuestion)| {
                *slot == answer.slot && question.key == answer.key
            };
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

    /// Passes the state to the caller's observer, if there is one.
    pub(super) fn show_state(&self) {
        if let Some(watch) = self.inside.as_ref().and_then(|inside| inside.watch.as_ref()) {
            watch(Seen::State(&self.state));
        }
    }

    /// Returns whether it started with the state of its caller.
    pub(super) fn is_seeded(&self) -> bool {
        self.inside.as_ref().is_some_and(|inside| inside.made.is_some())
    }

    fn called(self, ended: Result<Status, Stop>) -> Called<S> {
        let step = self.last_step;
        let pending: Vec<_> = self
            .waiting
            .into_iter()
            .flat_map(|(slot, questions)| questions.into_iter().map(move |question| (slot, question)))
            .collect();
        if let Some(command) = self.exit_command {
            return Called::Left(command);
        }
        let ended = match ended {
            Ok(status) => Ok(status),
            Err(Stop::Refused(refused)) => Err(refused.error),
            Err(Stop::Halted) => return Called::Halted,
        };
        match ended {
            Ok(Status::Completed) => {
                let made = self.inside.and_then(|inside| inside.made);
                let made = made.map_or_else(Vec::new, |made| made.into_updates(&self.state));
                Called::Completed { state: self.state, made }
            }
            Ok(Status::Cancelled) if pending.is_empty() => Called::Cancelled,
            Ok(Status::Drained) => Called::Drained,
            Ok(Status::Interrupted) if pending.is_empty() => Called::Suspended,
            Ok(Status::Interrupted | Status::Cancelled) => Called::Asks { step, pending, refused: None },
            Err(RunError::BadAnswer { source, .. }) if self.rejected.is_some() => Called::Asks {
                step,
                pending,
                refused: self.rejected.map(|id| (id, Refusal::BadType(source))),
            },
            Err(RunError::ChangedQuestion { .. }) if self.rejected.is_some() => {
                Called::Asks { step, pending, refused: self.rejected.map(|id| (id, Refusal::Changed)) }
            }
            Err(error) => {
                let fatal = match &error {
                    RunError::Node { .. } => self.fatal,
                    RunError::StepTimeout { .. } | RunError::Checkpoint(_) => false,
                    _ => true,
                };
                let refusal = self.refusal && matches!(error, RunError::Node { .. });
                Called::Failed { error, fatal, refusal }
            }
        }
    }
}
