//! The execution of one run, from its rows to its rows.
//!
//! Start at [`Hub::execute`].

use serde_json::{Map, Value};
use superstep_graph::{
    CheckpointId, Durability, History, OnUnfinished, RunError, RunOptions, Status, StreamMode, Streaming,
    ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Retention},
    erased::{JsonOutcome, JsonRun, JsonThread},
    error::chain,
    thread::AsNode,
};

use crate::{
    error::ApiError,
    events::{
        event::{Kind, RunEvent},
        modes::{Mode, Modes},
    },
    rows::{
        run::{CommandPlan, DurabilityPlan, RunRow, RunStatus, Stop},
        thread::{RunFailure, ThreadRow, ThreadStatus},
    },
    runs::{
        hub::{Hub, run_key},
        live::{LiveRun, RunEnd},
        writer::{LogWriter, Writes},
    },
    wire::{state, time},
};

/// The number of checkpoints that a log may lack after a crash.
const MISSING: usize = 100;

/// The place where a run starts.
#[derive(Clone, Copy)]
struct From {
    head: Option<CheckpointId>,
    /// `true` if it has stored something, before the server ended.
    continues: bool,
    /// `true` if it was under way when the server ended.
    has_begun: bool,
}

/// The result of a run before it is stored.
enum Outcome {
    /// The run ended by itself.
    Ended(Box<JsonOutcome>),
    Failed(RunFailure),
    /// The run was cancelled. The outcome is missing if it never began.
    Stopped(Option<Box<JsonOutcome>>),
    /// The server stops: the run continues after the next start.
    Drained,
}

impl Hub {
    /// Executes the run of a row, and stores its end. A failure of the rows is the failure of the run.
    pub(super) async fn execute(&self, live: &LiveRun) -> RunEnd {
        match self.run_and_store(live).await {
            Ok(end) => end,
            Err(error) => {
                tracing::error!(
                    run = live.about.run,
                    error = error.detail,
                    "the end of a run cannot be stored"
                );
                let failure = RunFailure { name: "ServerError".to_owned(), message: error.detail };
                self.log_failure(live, &failure);
                RunEnd { failure: Some(failure), ..RunEnd::default() }
            }
        }
    }

    async fn run_and_store(&self, live: &LiveRun) -> Result<RunEnd, ApiError> {
        let about = &live.about;
        let row = self.run_row(&about.thread, &about.run)?;
        if live.stopped().is_some() && row.head.is_none() {
            return self.store_end(live, None, &row, Outcome::Stopped(None)).await;
        }
        let head = self.head(&about.thread).await?;
        if live.stopped().is_some() {
            // It was under way when the server ended, and may have a log.
            let mut log = LogWriter::begin(self, live, head).await?;
            return self.store_end(live, Some(&mut log), &row, Outcome::Stopped(None)).await;
        }
        let number = head.map_or(0, |head| head.0);
        // It was under way when the server ended, and has stored something since.
        let continues = row.head.is_some_and(|before| before != number);
        let key = run_key(&about.thread, &about.run);
        let start = |row: &mut RunRow| {
            row.status = RunStatus::Running;
            row.head = row.head.or(Some(number));
            row.updated_us = time::now_us();
        };
        let has_begun = row.head.is_some();
        let row = self.runs.change(&key, start).await?.unwrap_or(row);
        let mut log = LogWriter::begin(self, live, head).await?;
        let from = From { head, continues, has_begun };
        let outcome = match self.stream(live, &mut log, &row, from).await {
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Failed(failure),
        };
        self.store_end(live, Some(&mut log), &row, outcome).await
    }

    async fn stream(
        &self,
        live: &LiveRun,
        log: &mut LogWriter<'_>,
        row: &RunRow,
        from: From,
    ) -> Result<Outcome, RunFailure> {
        let From { head, continues, has_begun } = from;
        let graph = self.graph(&row.graph).map_err(|error| failure("UnknownGraph", error.detail))?;
        let at = row.plan.checkpoint.map(CheckpointId).filter(|at| Some(*at) != head && !continues);
        // Clients of the thread receive all that there is, each state after its checkpoint.
        let is_followed = self.thread_logs.get(&live.about.key()).is_some();
        let modes = if is_followed { Modes::of_threads() } else { live.modes.clone() };
        let mut options = self.options(live, row).at(at);
        // Otherwise checkpoints come late, and the ids of tasks contain them.
        if modes.show_checkpoints() && row.plan.durability == DurabilityPlan::Async {
            options = options.durability(Durability::Sync);
        }
        let mut answered = Vec::new();
        let run = if continues {
            JsonRun::Resume
        } else {
            match &row.plan.command {
                None if row.plan.input.is_null() => JsonRun::Resume,
                None => JsonRun::Input(row.plan.input.clone()),
                Some(command) => {
                    let thread = graph.thread(options.clone());
                    if command.end {
                        return self.end_by_command(&modes, log, &*thread, command).await;
                    }
                    if let Some(answers) = &command.resume {
                        answered = answers_of(&*thread, answers, command.strict, has_begun).await?;
                        let interrupts = answered.iter().map(|(id, _)| id.clone()).collect();
                        log.add(Kind::Answered { interrupts }).await.map_err(of_rows)?;
                        for (id, answer) in &answered {
                            options = options.answer(id.clone(), answer.clone());
                        }
                    }
                    of_command(command)
                }
            }
        };
        if let Some(admit) = &self.admit {
            let admitted = admit(ThreadId::from(row.thread.as_str()), answered).await;
            admitted.map_err(|reason| failure("NotAdmitted", reason))?;
        }
        let (mut writes, before_write) = Writes::new();
        if live.resumable {
            options = options.before_writes(before_write);
        }
        let thread = graph.thread(options);
        if log.is_continued() && continues {
            self.log_checkpoints(&modes, log, &*thread).await?;
        } else if !matches!(run, JsonRun::Input(_)) {
            // Clients expect the state as it stands; a resumed run streams only what changes.
            self.log_state(&modes, log, &*thread).await?;
        }
        let mut streaming = Streaming::from(modes.of_graph());
        if live.subgraphs || is_followed {
            streaming = streaming.subgraphs();
        }
        let mut events =
            thread.stream(run, streaming).map_err(|error| failure("InputError", error.to_string()))?;
        log.follow(&mut *events, &mut writes).await?;
        let outcome = events.outcome().await.map_err(|error| of_run_error(&error))?;
        Ok(match outcome.status {
            Status::Drained => Outcome::Drained,
            Status::Cancelled if self.stopping.is_cancelled() && live.stopped().is_none() => Outcome::Drained,
            Status::Cancelled => Outcome::Stopped(Some(Box::new(outcome))),
            _ => Outcome::Ended(Box::new(outcome)),
        })
    }

    fn options(&self, live: &LiveRun, row: &RunRow) -> RunOptions {
        let plan = &row.plan;
        let durability = match plan.durability {
            DurabilityPlan::Sync => Durability::Sync,
            DurabilityPlan::Async => Durability::Async,
            DurabilityPlan::Exit => Durability::Exit,
        };
        let mut options = self
            .defaults
            .clone()
            .thread(row.thread.as_str())
            .on_unfinished(OnUnfinished::Discard)
            .cancel(live.cancel.clone())
            .drain(self.drain.clone())
            .break_before(&plan.break_before)
            .break_after(&plan.break_after)
            .durability(durability);
        if !plan.context.is_null() {
            options = options.context(plan.context.clone());
        }
        if let Some(limit) = plan.step_limit {
            options = options.step_limit(limit);
        }
        for (name, value) in live.about.full_metadata() {
            // Names with a dollar are the engine's own.
            if !name.starts_with('$') {
                options = options.metadata(name, value);
            }
        }
        match &self.options {
            Some(change) => change(options),
            None => options,
        }
    }

    /// Ends a thread: nothing is left to run.
    async fn end_by_command(
        &self,
        modes: &Modes,
        log: &mut LogWriter<'_>,
        thread: &dyn JsonThread,
        command: &CommandPlan,
    ) -> Result<Outcome, RunFailure> {
        let nothing = Value::Object(Map::new());
        let update = thread.update(AsNode::End, command.update.as_ref().unwrap_or(&nothing));
        let update = update.map_err(|error| failure("InputError", error.to_string()))?;
        update.await.map_err(|error| of_run_error(&error))?;
        self.log_state(modes, log, thread).await?;
        let ended = thread.run(JsonRun::Resume).map_err(|error| failure("InputError", error.to_string()))?;
        Ok(Outcome::Ended(Box::new(ended.await.map_err(|error| of_run_error(&error))?)))
    }

    async fn log_state(
        &self,
        modes: &Modes,
        log: &mut LogWriter<'_>,
        thread: &dyn JsonThread,
    ) -> Result<(), RunFailure> {
        if modes.has(Mode::Values) || modes.has(Mode::Events) {
            let snapshot = thread.state().await.map_err(|error| of_run_error(&error))?;
            let values = snapshot.state.values().map_err(|error| of_run_error(&error))?;
            let meta = snapshot.checkpoint.map(|meta| Box::new(meta.shown()));
            log.add(Kind::Standing { meta, values }).await.map_err(of_rows)?;
        }
        Ok(())
    }

    /// Adds the checkpoints that were stored before a crash and are not in the log, because their events follow them.
    async fn log_checkpoints(
        &self,
        modes: &Modes,
        log: &mut LogWriter<'_>,
        thread: &dyn JsonThread,
    ) -> Result<(), RunFailure> {
        if !modes.of_graph().contains(&StreamMode::Debug) {
            return Ok(());
        }
        let known = log.last_checkpoint();
        let newest = thread.history(History { limit: Some(MISSING), ..History::default() }).await;
        let newest = newest.map_err(|error| of_run_error(&error))?;
        let missing = newest.into_iter().take_while(|at| at.checkpoint.as_ref().map(|meta| meta.id) > known);
        for snapshot in missing.collect::<Vec<_>>().into_iter().rev() {
            let Some(meta) = snapshot.checkpoint else { continue };
            let values = snapshot.state.values().map_err(|error| of_run_error(&error))?;
            let kind = Kind::Checkpoint { at_ms: meta.created_ms, meta: Box::new(meta.shown()), values };
            log.add(kind).await.map_err(of_rows)?;
        }
        Ok(())
    }

    fn log_failure(&self, live: &LiveRun, failure: &RunFailure) {
        let RunFailure { name, message } = failure.clone();
        self.log(live, RunEvent::root(Kind::Failed { name, message }));
    }

    /// Stores the end of a run, on its thread and its own row, and adds the last event to its log.
    async fn store_end(
        &self,
        live: &LiveRun,
        log: Option<&mut LogWriter<'_>>,
        row: &RunRow,
        outcome: Outcome,
    ) -> Result<RunEnd, ApiError> {
        let mut end = RunEnd::default();
        let mut last = None;
        let (status, thread_status) = match outcome {
            // As it was: the next start takes it up.
            Outcome::Drained => return Ok(RunEnd::left()),
            Outcome::Stopped(_) if live.stopped() == Some(Stop::Rollback) => {
                self.roll_back(row).await?;
                return Ok(RunEnd { is_stopped: true, ..end });
            }
            Outcome::Stopped(outcome) => {
                end.is_stopped = true;
                end.state = outcome.map(|outcome| outcome.state);
                let message = "the run was cancelled by its user".to_owned();
                let error = Some(RunFailure { name: "UserInterrupt".to_owned(), message });
                (RunStatus::Interrupted, (ThreadStatus::Interrupted, error))
            }
            Outcome::Failed(failure) => {
                let RunFailure { name, message } = failure.clone();
                last = Some(Kind::Failed { name, message });
                end.failure = Some(failure.clone());
                (RunStatus::Error, (ThreadStatus::Error, Some(failure)))
            }
            Outcome::Ended(outcome) => {
                let JsonOutcome { status, interrupts, state, .. } = *outcome;
                end.interrupts = interrupts;
                end.state = Some(state);
                if status == Status::Interrupted {
                    let values = end.state.as_ref().map(|state| state.values()).transpose()?;
                    let interrupts = end.interrupts.clone();
                    last = Some(Kind::Paused { interrupts, values: values.unwrap_or_default() });
                    (RunStatus::Success, (ThreadStatus::Interrupted, None))
                } else {
                    (RunStatus::Success, (ThreadStatus::Idle, None))
                }
            }
        };
        let never_began = row.head.is_none();
        if !row.plan.temporary && !never_began {
            self.store_thread_end(&row.thread, thread_status).await?;
        }
        let (failure, mut log_bytes, mut shown) = (end.failure.clone(), None, Vec::new());
        let reason = end.is_stopped.then(|| live.reason()).flatten();
        if let Some(log) = log {
            // Stored before the run has ended, so that no crash loses it, and shown when its end is stored.
            shown = log.store(last.into_iter().map(RunEvent::root).collect(), None).await?;
            log_bytes = log.bytes();
        }
        let change = |row: &mut RunRow| {
            (row.status, row.failure, row.log_bytes) = (status, failure, log_bytes);
            (row.stop, row.cancel_reason) = (None, reason);
            row.updated_us = time::now_us();
        };
        self.runs.change(&run_key(&row.thread, &row.id), change).await?;
        if row.plan.temporary {
            self.delete_thread(&row.thread).await?;
        }
        shown.into_iter().for_each(|entry| self.push(live, entry));
        Ok(end)
    }

    /// Stores the status of a thread after a run or an update, with the questions that wait on it.
    pub(crate) async fn store_thread_end(
        &self,
        thread: &str,
        (status, error): (ThreadStatus, Option<RunFailure>),
    ) -> Result<(), ApiError> {
        let row = self.thread_row(thread)?;
        let mut interrupts = Map::new();
        let mut status = status;
        if status != ThreadStatus::Idle {
            let snapshot = self.thread(&row, RunOptions::new())?.state().await;
            match snapshot {
                Ok(snapshot) => {
                    interrupts = state::interrupts_by_task(&snapshot);
                    // A cancelled run may have ended just before.
                    if status == ThreadStatus::Interrupted && snapshot.next.is_empty() {
                        status = ThreadStatus::Idle;
                    }
                }
                // The run failed because the state cannot be read.
                Err(_) if status == ThreadStatus::Error => {}
                Err(error) => return Err(error.into()),
            }
        }
        let error = error.filter(|_| status != ThreadStatus::Idle);
        let change = |row: &mut ThreadRow| {
            let now_us = time::now_us();
            (row.status, row.error, row.interrupts) = (status, error, interrupts);
            (row.updated_us, row.state_us) = (now_us, Some(now_us));
        };
        self.threads.change(thread, change).await.map(drop)
    }

    /// Makes the thread as it was before a run, and deletes the run.
    async fn roll_back(&self, row: &RunRow) -> Result<(), ApiError> {
        let thread = ThreadId::from(row.thread.as_str());
        let head = self.head(&row.thread).await?.map_or(0, |head| head.0);
        match row.head {
            Some(0) => self.checkpointer.delete(&thread).await?,
            Some(before) if before != head => {
                let handle = self.graph(&row.graph)?.thread(RunOptions::new().thread(thread.clone()));
                let forked = handle.fork(Some(CheckpointId(before))).await?;
                let older = History { before: Some(CheckpointId(before + 1)), ..History::default() };
                let older = self.checkpointer.history(&thread, older).await?;
                let keep = older.iter().map(|meta| meta.id).chain([forked]).collect();
                handle.prune(Retention::Only(keep)).await?;
            }
            Some(_) | None => {}
        }
        self.delete_run(row).await?;
        if row.plan.temporary {
            return self.delete_thread(&row.thread).await;
        }
        if row.head.is_some() {
            let row = self.thread_row(&row.thread)?;
            let status = match row.status {
                ThreadStatus::Error | ThreadStatus::Interrupted => row.status,
                ThreadStatus::Idle | ThreadStatus::Busy => ThreadStatus::Idle,
            };
            self.store_thread_end(&row.id, (status, row.error)).await?;
        }
        Ok(())
    }

    /// Deletes a thread with its checkpoints, runs, crons and row.
    pub(crate) async fn delete_thread(&self, thread: &str) -> Result<(), ApiError> {
        #[cfg(feature = "crons")]
        if let Some(crons) = &self.crons {
            crons.delete_of(thread).await?;
        }
        self.checkpointer.delete(&ThreadId::from(thread)).await?;
        if let Some(row) = self.threads.get(thread) {
            self.thread_logs.remove(&row.key());
        }
        for run in self.runs_of(thread) {
            self.delete_run(&run).await?;
        }
        self.threads.delete(thread).await?;
        Ok(())
    }

    /// Deletes a run, which has ended, with its log.
    pub(crate) async fn delete_run(&self, row: &RunRow) -> Result<(), ApiError> {
        if row.plan.resumable {
            self.journals.delete(&row.id).await?;
        }
        self.runs.delete(&run_key(&row.thread, &row.id)).await.map(drop)
    }

    /// Returns the newest checkpoint of a thread.
    pub(crate) async fn newest(&self, thread: &ThreadId) -> Result<Option<CheckpointMeta>, CheckpointError> {
        let newest = History { limit: Some(1), ..History::default() };
        Ok(self.checkpointer.history(thread, newest).await?.pop())
    }

    /// Returns the id of the newest checkpoint of a thread.
    pub(crate) async fn head(&self, thread: &str) -> Result<Option<CheckpointId>, ApiError> {
        Ok(self.newest(&ThreadId::from(thread)).await?.map(|meta| meta.id))
    }
}

fn of_command(command: &CommandPlan) -> JsonRun {
    let CommandPlan { update, goto, .. } = command;
    if update.is_none() && goto.is_empty() {
        return JsonRun::Resume;
    }
    JsonRun::Command { update: update.clone(), goto: goto.clone() }
}

/// Returns the answers of a `resume` by the ids of interrupts: an object whose keys all wait has one for each, anything else answers
/// the one that waits.
/// If it is `strict`, an object that names another question is an error. A run that `has_begun` may have stored its answers.
async fn answers_of(
    thread: &dyn JsonThread,
    resume: &Value,
    strict: bool,
    has_begun: bool,
) -> Result<Vec<(String, Value)>, RunFailure> {
    let snapshot = thread.state().await.map_err(|error| of_run_error(&error))?;
    let waiting: Vec<&str> = snapshot.interrupts().map(|interrupt| &*interrupt.id).collect();
    if let Value::Object(answers) = resume
        && !answers.is_empty()
        && answers.keys().all(|id| waiting.contains(&&**id))
    {
        return Ok(answers.clone().into_iter().collect());
    }
    if let Value::Object(answers) = resume
        && strict
        && let Some(unknown) = answers.keys().find(|id| !waiting.contains(&&***id))
    {
        let message = format!("no question `{unknown}` waits for an answer on this thread");
        return Err(failure("UnknownInterruptError", message));
    }
    match &*waiting {
        [only] => Ok(vec![((*only).to_owned(), resume.clone())]),
        // A process that was killed stored the answer.
        [] if has_begun => Ok(Vec::new()),
        [] => Err(failure(
            "InvalidCommand",
            "nothing waits for an answer on this thread; send an input instead",
        )),
        several => Err(failure(
            "InvalidCommand",
            format!(
                "{} questions wait, so `resume` has to be an object of answers by their ids",
                several.len()
            ),
        )),
    }
}

fn failure(name: &str, message: impl Into<String>) -> RunFailure {
    RunFailure { name: name.to_owned(), message: message.into() }
}

fn of_rows(error: ApiError) -> RunFailure {
    failure("ServerError", error.detail)
}

fn of_run_error(error: &RunError) -> RunFailure {
    let name = match error {
        RunError::Node { .. } => "NodeError",
        RunError::StepLimit { .. } => "GraphRecursionError",
        RunError::Conflict { .. } | RunError::Fold { .. } => "InvalidUpdateError",
        RunError::EmptyThread { .. } => "EmptyInputError",
        RunError::Checkpoint(_) => "CheckpointError",
        _ => "RunError",
    };
    failure(name, chain(error))
}
