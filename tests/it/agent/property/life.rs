//! A case from its first to its last turn, over any number of processes.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use superstep::{
    Answers, CheckpointId, Checkpointer, Event, MemoryCheckpointer, RunError, RunOptions, Status, StreamMode,
    ThreadId,
    agent::{Agent, AgentState, SteerError, approval::ApprovalRequest, state::AgentStateUpdate},
    checkpoint::{CheckpointError, Commit, TaskKey, TaskRecord},
    clock::TokioClock,
};
use superstep_testing::{
    scripted::ScriptedModel,
    wrapped::{Wrapped, Wrapper},
};
use tokio::time::{Instant, timeout};

use super::{
    super::{Cancel, Kit, Turn, show::Told},
    case::{Case, Crash},
};
use crate::support::{Stuck, t};

/// The maximum time of a turn, including requested delays.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// The result of a case.
pub(super) struct Lived {
    pub(super) ends: Vec<End>,
    pub(super) model: ScriptedModel,
    pub(super) kit: Kit,
    /// Source, superstep, pending nodes and state of each checkpoint, oldest first.
    pub(super) history: Vec<String>,
    pub(super) crashed: bool,
}

/// The end of a turn.
pub(super) enum End {
    /// In one go.
    Whole(Turn),
    /// In several runs, whose events were not all received.
    InParts(AgentState),
    /// At a limit that fails the run.
    Failed(String, AgentState),
}

/// A store whose process stops at one of its writes, once.
pub(super) struct Stops {
    store: Arc<dyn Checkpointer>,
    crash: Option<Crash>,
    writes: AtomicUsize,
    stuck: Stuck,
}

impl Stops {
    pub(super) fn new(store: Arc<dyn Checkpointer>, crash: Option<Crash>, stuck: &Stuck) -> Wrapped<Self> {
        Wrapped(Self { store, crash, writes: AtomicUsize::new(0), stuck: stuck.clone() })
    }

    fn at<'a, T: Send + 'a>(&'a self, write: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        let nth = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let crash = self.crash.filter(|crash| crash.write == nth);
        Box::pin(async move {
            if crash.is_some_and(|crash| !crash.after) {
                self.stuck.here().await;
            }
            let written = write.await;
            if crash.is_some() {
                self.stuck.here().await;
            }
            written
        })
    }
}

impl Wrapper for Stops {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.at(self.store.record(task, record))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        self.at(self.store.commit(thread, expected, next))
    }
}

struct Life<'a> {
    case: &'a Case,
    model: ScriptedModel,
    kit: Kit,
    store: Arc<dyn Checkpointer>,
    agent: Agent,
    stuck: Stuck,
    crashed: bool,
}

pub(super) async fn live(case: &Case) -> Lived {
    let scenario = &case.scenario;
    let model =
        ScriptedModel::with_rules(scenario.script.clone(), superstep_testing::provider::Rules::default());
    let (kit, stuck) = (Kit::new(&scenario.found), Stuck::default());
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let stops = Stops::new(store.clone(), case.crash, &stuck);
    let agent = program(case, &model, &kit, Arc::new(stops));
    let mut life = Life { case, model, kit, store, agent, stuck, crashed: false };
    let mut ends = Vec::new();
    for (at, text) in scenario.turns.iter().enumerate() {
        let cancel = if at == 0 { scenario.cancel } else { Cancel::Never };
        let end = timeout(LONG, life.turn(at, text, cancel)).await.expect("a turn ends");
        let failed = matches!(end, End::Failed(..));
        ends.push(end);
        // A failed run is unfinished and would reject a new input.
        if failed {
            break;
        }
    }
    let history = life.agent.graph().thread("t").history().states().await.unwrap();
    let history = history.iter().rev().map(|snapshot| {
        let control = &snapshot.checkpoint.as_ref().unwrap().control;
        format!("{} {:?} {:?}", control.step, control.next, snapshot.values)
    });
    Lived { ends, history: history.collect(), model: life.model, kit: life.kit, crashed: life.crashed }
}

fn program(case: &Case, model: &ScriptedModel, kit: &Kit, store: Arc<dyn Checkpointer>) -> Agent {
    let agent = case.scenario.agent(Arc::new(model.clone()), kit).checkpointer(store);
    if case.outside { agent.approve_by_interrupt() } else { agent }.build().unwrap()
}

fn config() -> RunOptions {
    t().clock(TokioClock::starting_at(0))
}

impl Life<'_> {
    async fn turn(&mut self, at: usize, text: &'static str, cancel: Cancel) -> End {
        let (agent, began) = (self.agent.clone(), Instant::now());
        let (mut told, mut events, mut whole) = (Vec::new(), Vec::new(), true);
        let says = self.case.says.filter(|_| at == 0);
        let input = self.case.scenario.input(at == 0, text);
        let first = first(&agent, input, (cancel, says), &mut told, &mut events);
        let mut ended = crashes(&self.stuck.clone(), first).await;
        loop {
            ended = match ended {
                None => {
                    (self.crashed, whole) = (true, false);
                    self.agent = program(self.case, &self.model, &self.kit, self.store.clone());
                    Some(self.go_on(at, text).await)
                }
                Some(Err(error)) => {
                    let state = self.agent.graph().thread("t").state().await.unwrap().values;
                    return End::Failed(superstep::error::chain(&error), state);
                }
                Some(Ok((Status::Interrupted, questions))) => {
                    whole = false;
                    let decide = self.case.scenario.decide.expect("a case has somebody to ask");
                    let answers = questions.into_iter().fold(Answers::new(), |answers, (key, question)| {
                        let request: ApprovalRequest = serde_json::from_value(question).unwrap();
                        answers.answer(&key, decide(&request).expect("they always decide"))
                    });
                    crashes(&self.stuck, self.resumed(config().answers(answers))).await
                }
                Some(Ok((status, _))) => {
                    assert_eq!(status, Status::Completed);
                    break;
                }
            }
        }
        let state = self.agent.graph().thread("t").state().await.unwrap().values;
        let ended = u64::try_from(began.elapsed().as_millis()).unwrap();
        if whole { End::Whole(Turn { told, events, state, ended }) } else { End::InParts(state) }
    }

    /// Continues after a crash: resumes if the message was stored, else sends it again.
    async fn go_on(&self, at: usize, text: &str) -> Ended {
        let head = self.agent.graph().thread("t").state().await.unwrap();
        let of_the_user = head.values.messages.iter().filter(|said| super::super::begins_a_turn(said));
        if !head.next.is_empty() || of_the_user.count() > at {
            return self.resumed(config()).await;
        }
        let stream = self
            .agent
            .thread("t")
            .clock(TokioClock::starting_at(0))
            .stream(self.agent.input(text), [StreamMode::Custom]);
        let outcome = stream.outcome().await?;
        Ok((outcome.status, questions(outcome.interrupts)))
    }

    async fn resumed(&self, config: RunOptions) -> Ended {
        let stream = self.agent.graph().configured(config).resume_stream([StreamMode::Custom]);
        let outcome = stream.outcome().await?;
        Ok((outcome.status, questions(outcome.interrupts)))
    }
}

/// The end of a run, and its questions.
type Ended = Result<(Status, Vec<(String, serde_json::Value)>), RunError>;

fn questions(interrupts: Vec<superstep::Interrupt>) -> Vec<(String, serde_json::Value)> {
    interrupts.into_iter().map(|asked| (asked.key, asked.question)).collect()
}

/// Returns `None` if the process stops before the run ends, which is dropped then.
async fn crashes(stuck: &Stuck, run: impl Future<Output = Ended>) -> Option<Ended> {
    tokio::select! {
        biased;
        () = stuck.reached() => None,
        ended = run => Some(ended),
    }
}

async fn first(
    agent: &Agent,
    input: AgentStateUpdate,
    (cancel, says): (Cancel, Option<usize>),
    told: &mut Vec<Told>,
    events: &mut Vec<Event<AgentState>>,
) -> Ended {
    let (config, began) = (config(), Instant::now());
    let token = config.get_cancel().clone();
    if let Cancel::At(ms) = cancel {
        let token = token.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            token.cancel();
        });
    }
    let mut stream = agent.configured(config).stream(input, [StreamMode::Custom, StreamMode::Updates]);
    while let Some(event) = stream.next().await {
        if let Event::Custom { name, data, .. } = &event {
            let at = u64::try_from(began.elapsed().as_millis()).unwrap();
            if says == Some(told.len()) {
                match agent.thread("t").clock(TokioClock::starting_at(0)).steer("and be quick").await {
                    Ok(_) | Err(SteerError::NotRunning { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            told.push(Told { at, name, data: data.clone() });
            if let Cancel::On(cancels, id) = cancel
                && cancels == *name
                && data["id"] == id
            {
                token.cancel();
            }
        }
        events.push(event);
    }
    let outcome = stream.outcome().await?;
    Ok((outcome.status, questions(outcome.interrupts)))
}
