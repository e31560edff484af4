//! The life of a thread under a seed: processes that crash, and a last one that finishes.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use futures::StreamExt;
use superstep_graph::{
    Answers, Checkpointer, CompiledGraph, Durability, History, Outcome, RunStream, State, Status, StreamMode,
    Streaming, ThreadId,
    checkpoint::{CheckpointMeta, Source},
    error::chain,
};
use tokio::{runtime::Builder, task::coop::unconstrained, time::timeout};

use super::{
    CrashPoint, Failure, Options, Report, Sim,
    course::Course,
    process::SeedDecisions,
    store::{CrashingCheckpointer, at_once},
};
use crate::{
    clock::{FixedClock, NOW_MS},
    wrapped::Wrapped,
};

/// The time limit of a process on the simulated clock. It is reached only if no other timer is left.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

pub(super) struct Simulation<'a, S: State, M> {
    pub(super) options: Options,
    pub(super) make: &'a M,
    pub(super) inputs: Vec<S::Update>,
}

/// The end of a process.
enum End {
    Crashed(CrashPoint),
    Finished(Course),
}

/// A finished thread.
struct FinishedRun {
    course: Result<Course, String>,
    crashes: Vec<CrashPoint>,
    fate: SeedDecisions,
}

impl<S: State, M: Fn(&Sim) -> CompiledGraph<S>> Simulation<'_, S, M> {
    pub(super) fn run(self) -> Report {
        let mut report = Report::default();
        // The same name for all, because the RNG seed depends on the name of the thread.
        let thread = ThreadId::from("sim");
        let plain = self.live(SeedDecisions::plain(), &thread, &mut report.graph);
        let course = plain.course.unwrap_or_else(|what| panic!("graph `{}`: {what}", report.graph));
        let places = plain.fate.places.values().map(|passes| passes.passed).sum();
        report.plain_executions = plain.fate.ledger.executions;
        for seed in self.options.seeds.clone() {
            let life = self.live(SeedDecisions::of(seed, places), &thread, &mut report.graph);
            report.seeds += 1;
            report.crashes += life.crashes.len() as u64;
            report.executions += life.fate.ledger.executions;
            for (place, passes) in life.fate.places {
                let known = report.places.entry(place).or_default();
                known.passed += passes.passed;
                known.crashed += passes.crashed;
            }
            let different = match life.course {
                Ok(ended) if life.fate.has_faults => {
                    let same_faults =
                        self.live(SeedDecisions::with_faults_of(seed), &thread, &mut report.graph);
                    same_faults.course.map_or_else(Some, |course| ended.difference(&course))
                }
                Ok(ended) => ended.difference(&course),
                Err(what) => Some(what),
            };
            report.failures.extend(different.map(|what| Failure { seed, crashes: life.crashes, what }));
        }
        report
    }

    /// Runs one process after the other until the thread is finished.
    fn live(&self, mut fate: SeedDecisions, thread: &ThreadId, name: &mut String) -> FinishedRun {
        let mut crashes = Vec::new();
        let course = loop {
            let store = (self.options.store)();
            let sim = Sim::new(fate);
            let graph = (self.make)(&sim);
            graph.name().clone_into(name);
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
            let runtime = runtime.expect("a runtime without IO needs nothing that could be missing");
            let end = runtime.block_on(self.process(&sim, graph, &store, thread));
            // Tasks that the run left behind end with its process.
            drop(runtime);
            fate = sim.end();
            match end {
                Ok(End::Crashed(place)) => crashes.push(place),
                Ok(End::Finished(course)) => break Ok(course),
                Err(what) => break Err(what),
            }
        };
        let forgotten = at_once((self.options.store)().delete(thread));
        let course = course.and_then(|course| forgotten.map(|()| course).map_err(|error| chain(&error)));
        FinishedRun { course, crashes, fate }
    }

    /// Continues the thread to its end or to the next crash.
    async fn process(
        &self,
        sim: &Sim,
        graph: CompiledGraph<S>,
        store: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
    ) -> Result<End, String> {
        let observer = graph.clone().with_checkpointer(store.clone());
        let crashing = Wrapped(CrashingCheckpointer { store: store.clone(), sim: sim.clone() });
        let graph = graph.with_checkpointer(Arc::new(crashing));
        let mut left = None;
        while let Some(run) = self.next_run(sim, &graph, &observer, &**store, thread).await? {
            sim.fate().ledger.begin_run();
            let ended = timeout(FOR_EVER, drive(sim, run)).await;
            let ended = ended.map_err(|_| "a run waits for something that never happens".to_owned())?;
            // Otherwise tasks run before the checkpoint that plans them is stored.
            let known = self.options.run.get_durability() == Durability::Sync;
            if let Some(overrun) = sim.fate().ledger.overrun().filter(|_| known) {
                return Err(overrun);
            }
            // The run is dropped; the next one must find the thread free.
            at_once(store.lease(thread)).map_err(|error| chain(&error))?;
            let failed = sim.fate().failed.take();
            match (ended, failed) {
                (Err(_), Some(place)) => return Ok(End::Crashed(place)),
                (ended, _) => match ended? {
                    None => {
                        let stopped = sim.fate().stopped.clone();
                        return Ok(End::Crashed(
                            stopped.expect("a run is dropped only when its process stopped"),
                        ));
                    }
                    Some(end) => left = (end.status == Status::Completed).then_some(end.state),
                },
            }
        }
        Course::read(&observer, &**store, thread, left.as_ref()).await.map(End::Finished)
    }

    /// Starts the next run of the thread: continues, with answers if it is interrupted, or passes the next
    /// input. `None` if it is finished.
    async fn next_run(
        &self,
        sim: &Sim,
        graph: &CompiledGraph<S>,
        observer: &CompiledGraph<S>,
        store: &dyn Checkpointer,
        thread: &ThreadId,
    ) -> Result<Option<RunStream<S>>, String> {
        let history = |source: Option<Source>, limit: Option<usize>| {
            let range = History { source, limit, ..History::default() };
            at_once(store.history(thread, range)).map_err(|error| chain(&error))
        };
        let options = self.options.run.clone().thread(thread.clone()).clock(FixedClock(NOW_MS));
        let options = options.observe_calls(Arc::new(sim.clone()));
        // Every execution counts, for any number of them between two reads.
        let tasks = || Streaming::from(StreamMode::Tasks).buffer(usize::MAX);
        let unfinished = |head: &CheckpointMeta| !head.control.is_finished();
        if history(None, Some(1))?.first().is_some_and(unfinished) {
            let mut asked = Vec::new();
            if sim.fate().ledger.asks() {
                let head = observer.thread(thread).state().await.map_err(|error| chain(&error))?;
                asked = head.tasks.into_iter().flat_map(|task| task.interrupts).collect();
            }
            let mut answers = Answers::new();
            for asked in sim.fate().some_of(asked) {
                let answer = (self.options.answer)(&asked);
                let answer =
                    answer.ok_or_else(|| format!("no answer to `{}`; use `Options::answer`", asked.id))?;
                answers = answers.answer(asked.id, answer);
            }
            return Ok(Some(graph.configured(options.answers(answers)).resume_stream(tasks())));
        }
        let accepted = history(Some(Source::Input), None)?.len();
        Ok(self.inputs.get(accepted).map(|input| graph.configured(options).stream(input.clone(), tasks())))
    }
}

/// Drives a run to its end, or drops it when its process crashes: `None`.
async fn drive<S: State>(sim: &Sim, mut run: RunStream<S>) -> Result<Option<Outcome<S>>, String> {
    let crashed = poll_fn(|context| {
        loop {
            match run.poll_next_unpin(context) {
                Poll::Ready(Some(event)) => sim.fate().ledger.watch(event),
                Poll::Ready(None) => return Poll::Ready(false),
                // All emitted events are read, so that the executions are counted although the run is
                // dropped.
                Poll::Pending if sim.has_stopped(context) => return Poll::Ready(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    // Otherwise it would sometimes be pending although there are more events.
    if unconstrained(crashed).await {
        return Ok(None);
    }
    run.outcome().await.map(Some).map_err(|error| chain(&error))
}
