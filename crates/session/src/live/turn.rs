//! The turns of a session, one after the other.
//!
//! Start at [`turns`].

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use superstep::{
    Answers, Event, OnUnfinished, Outcome, RunError, RunStream, Status, StreamMode, Streaming,
    agent::{AgentOutcome, AgentState, Approval},
    clock::{Clock as _, SystemClock},
    llm::Message,
    node::NodeName,
};
use tokio::time::Instant;

use crate::{
    config::notes::{self, Note},
    error::{ErrorKind, SessionError},
    live::{
        calls::CallStatus,
        elsewhere,
        event::{AnsweredBy, Ended, Level, SessionEvent, TurnEnd, UsageView},
        notices::Notice,
        projection::Projection,
        session::{Input, Job, Question, Shared},
    },
    text::{indented, printable_line},
    turn::{
        dreams,
        setup::{Purpose, Setup},
        waiting::Waiting,
    },
};

/// The kinds of notes: for every user, and for those who want hints.
const NOTE: &str = "note";
const HINT: &str = "hint";

/// Runs a turn, and those that wait for its end.
pub(super) async fn turns(session: Arc<Shared>, job: Job) {
    let mut next = Some(job);
    while let Some(mut job) = next {
        let log = &session.log;
        let mut projection = Projection::new(session.take_calls(), log.clone(), session.raw_events);
        let prompt = job.input.text().map(str::to_owned);
        log.push(SessionEvent::TurnStarted { turn: job.turn, prompt });
        let began = Instant::now();
        let mut setup = None;
        let ran = AssertUnwindSafe(run(&session, &mut job, &mut projection, &mut setup)).catch_unwind().await;
        let result = ran.unwrap_or_else(|_| {
            Err(SessionError::new(
                ErrorKind::Internal,
                "the turn failed by a fault of the program; see its log",
            ))
        });
        // A thread that was refused stays refused.
        if setup.is_some() {
            session.location.anchor(&*session.store, &session.thread, &result).await;
        }
        // Calls that wait keep their keys.
        if !matches!(&result, Ok(ended) if ended.outcome == AgentOutcome::AwaitingApproval) {
            let failed = projection.calls.fail_open("the turn has ended");
            failed.into_iter().for_each(|call| log.push(SessionEvent::Call(call)));
        }
        let end = SessionEvent::TurnEnded(TurnEnd { turn: job.turn, took: began.elapsed(), result });
        let dreams =
            matches!(&end, SessionEvent::TurnEnded(TurnEnd { result: Ok(ended), .. }) if ended.is_success());
        let setup = setup.filter(|_| dreams);
        session.dreams(setup.as_ref().map(|setup| setup.cancel.clone()));
        next = session.end(projection.calls, end);
        if let Some(setup) = setup {
            session.tasks().spawn(dream(session.clone(), setup));
        }
    }
}

/// Consolidates the memory after a turn, if due.
async fn dream(session: Arc<Shared>, setup: Setup) {
    if let Some(text) = dreams::after_turn(&setup).await {
        session.log.push(SessionEvent::Notice(Notice::new(Level::Info, "dream", text)));
    }
}

async fn run(
    session: &Shared,
    job: &mut Job,
    projection: &mut Projection,
    used: &mut Option<Setup>,
) -> Result<Ended, SessionError> {
    let Shared { location, store, thread, .. } = session;
    if let Some(trusted) = location.check_anchor(&**store, thread, session.trust).await? {
        show_new(session, &[trusted]);
    }
    let from = match &job.input {
        Input::Prompt(prompt) => prompt.from,
        Input::Continue { from, .. } => *from,
    };
    let mut notes = Vec::new();
    let purpose = Purpose::Turn { from, servers: session.servers.clone() };
    let given = session.given();
    let (at, store, cancel) = (location.clone(), store.clone(), job.cancel.clone());
    let setup = Setup::new(at, store, thread.clone(), purpose, &given, &mut notes, cancel).await;
    show_new(session, &notes);
    let setup = used.insert(setup?);
    session.repeat_flags(&setup.repeated_flags);
    // Nothing to note makes a later note a new one.
    if !session.is_quiet
        && notes::is_new(&["model"], setup.note.as_deref())
        && let Some(text) = &setup.note
    {
        session.log.push(SessionEvent::Notice(Notice::new(Level::Info, HINT, text)));
    }
    let (mut granted, mut compacts) = (Vec::new(), false);
    let stream = match &job.input {
        Input::Prompt(prompt) => {
            if prompt.on_unfinished == OnUnfinished::Discard {
                granted = setup.decided.discard();
            }
            let options =
                setup.options()?.on_unfinished(prompt.on_unfinished).on_existing(prompt.on_existing);
            let message = Message::user(&*prompt.text).with_media(prompt.media.iter().cloned());
            let mut input = setup.agent.input_of(message);
            if let Some(user) = &setup.settings.user {
                input = input.user_id(user.as_str());
            }
            compacts = session.take_compacts();
            if compacts {
                input = input.compact(true);
            }
            setup.agent.configured(options.at(from)).stream(input, streaming(session))
        }
        Input::Continue { from: Some(from), .. } => {
            if setup.agent.graph().thread(thread).at(*from).state().await?.next.is_empty() {
                let ask =
                    location.command("run", &["--thread", thread.as_str(), "--from", &from.to_string()]);
                let message = format!(
                    "no turn is in progress at checkpoint {from} of thread `{thread}`; start a new one from it with: {ask} \"...\""
                );
                return Err(SessionError::new(ErrorKind::Thread, message));
            }
            let options = setup.options()?.at(*from);
            setup.agent.configured(options).resume_point().await?.resume_stream(streaming(session))
        }
        Input::Continue { from: None, answers } => {
            let head = setup.agent.graph().thread(thread).state().await?;
            if !head.next.is_empty() {
                setup.check_folder()?;
            }
            let waiting = Waiting::of(head.tasks.iter().flat_map(|task| &task.interrupts))?;
            resume(session, setup, &waiting, answers.clone()).await?
        }
    };
    let ran = follow(session, setup, stream, projection).await;
    let kept = setup.forget_discarded(&granted).await;
    let mut outcome = match ran {
        Ok(outcome) => outcome,
        Err(error) => return Err(refused(session, setup, error).await),
    };
    kept?;
    let waiting = loop {
        show_new(session, &setup.decided.take_notes());
        let waiting = Waiting::of(&outcome.interrupts)?;
        if waiting.is_empty() || job.cancel.is_cancelled() {
            break waiting;
        }
        let ran = match decide(session, job, projection, &waiting).await {
            Decision::Open => break waiting,
            Decision::Made(answers) => {
                let stream = resume(session, setup, &waiting, answers).await?;
                match follow(session, setup, stream, projection).await {
                    // Another process was a moment faster.
                    Err(error) if error.is_busy() || error.is_rejected_answer() => None,
                    ran => Some(ran),
                }
            }
            Decision::Elsewhere => None,
        };
        outcome = match ran {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => return Err(refused(session, setup, error).await),
            None => {
                let ran = setup.agent.graph().thread(thread);
                let known = outcome.state.messages.len();
                let outcome = elsewhere::follow(&*session.store, ran, thread, &job.cancel).await?;
                projection.stored(outcome.state.messages.iter().skip(known));
                outcome
            }
        };
    };
    let end = match outcome.status {
        Status::Completed => outcome.state.outcome.unwrap_or(AgentOutcome::Completed),
        _ if job.cancel.is_cancelled() || waiting.is_empty() => AgentOutcome::Cancelled,
        _ => AgentOutcome::AwaitingApproval,
    };
    if compacts && !projection.is_compacted {
        let text = "the conversation was not summarized: it is too short, the summary failed, or the configuration has none";
        session.log.push(SessionEvent::Notice(Notice::new(Level::Warning, "compact", text)));
    }
    for server in &setup.servers {
        let logged = server.logged().into_iter();
        let texts =
            logged.map(|said| indented(&format!("MCP server `{}`: {}", server.name(), said.trim_end())));
        texts.for_each(|text| session.log.push(SessionEvent::Notice(Notice::new(Level::Info, "mcp", text))));
    }
    let state = Arc::new(outcome.state);
    projection.usage(usage(setup, &state));
    let (checkpoint, has_schema) = (outcome.checkpoint, setup.has_schema);
    Ok(Ended { outcome: end, state, checkpoint, waiting, has_schema })
}

fn usage(setup: &Setup, state: &AgentState) -> UsageView {
    let budget = state.budget_used(&setup.budget, SystemClock.now_ms());
    UsageView {
        used: Some(state.request_size.tokens).filter(|tokens| *tokens > 0),
        window: setup.window,
        // The cast saturates.
        budget: budget.map(|share| (share * 100.0) as u32),
        turn: state.usage,
        cost: state.cost().map(|cost| cost.nano_dollars),
    }
}

fn streaming(session: &Shared) -> Streaming {
    match session.raw_events {
        true => Streaming::from([StreamMode::Custom, StreamMode::Checkpoints]).buffer(1 << 20),
        false => {
            use StreamMode::{Checkpoints, Custom, Messages, Values};
            Streaming::from([Custom, Messages, Values, Checkpoints]).buffer(1 << 16)
        }
    }
}

/// Shows notes that no earlier turn or command showed.
fn show_new(session: &Shared, notes: &[Note]) {
    for note in notes.iter().filter(|note| note.is_new(session.is_quiet)) {
        let code = if note.is_hint() { HINT } else { NOTE };
        session.log.push(SessionEvent::Notice(Notice::new(Level::Info, code, &*note.text)));
    }
}

/// Converts the error of a run, with the command that resumes it, if possible.
async fn refused(session: &Shared, setup: &Setup, error: RunError) -> SessionError {
    let thread = session.thread.as_str();
    let resume = session.command("resume", &[thread]);
    let head = setup.agent.graph().thread(&session.thread).state().await;
    if let RunError::Unfinished { next, .. } = error {
        let asked = head.iter().flat_map(|head| &head.tasks).flat_map(|task| &task.interrupts);
        let message = match Waiting::of(asked) {
            Ok(waiting) if !waiting.is_empty() => {
                // The stored question is not the tool's own text, which `resume` shows.
                let calls = waiting.iter().map(|call| {
                    let (id, tool) = (printable_line(&call.id), printable_line(&call.request.tool));
                    format!("call `{id}` of {tool}")
                });
                let calls = calls.collect::<Vec<_>>().join(", ");
                format!("thread `{thread}` waits for a decision about {calls}; decide with: {resume}")
            }
            _ => {
                let shown = |node: &NodeName| format!("`{}`", printable_line(node.as_str()));
                let next = next.iter().map(shown).collect::<Vec<_>>().join(", ");
                format!("thread `{thread}` is not finished, {next} still to run; resume it with: {resume}")
            }
        };
        return SessionError::new(ErrorKind::Thread, format!("{message}\nor drop that with `--discard`"));
    }
    let SessionError { kind, mut message } = SessionError::from(error);
    if kind != ErrorKind::Thread && head.is_ok_and(|head| !head.next.is_empty()) {
        message.push_str(&format!("\nresume with: {resume}"));
    }
    SessionError { kind, message }
}

/// Continues a turn with decisions.
async fn resume(
    session: &Shared,
    setup: &Setup,
    waiting: &[Waiting],
    answers: Answers,
) -> Result<RunStream<AgentState>, SessionError> {
    let options = setup.answering(waiting, answers)?;
    Ok(setup.agent.configured(options).resume_point().await?.resume_stream(streaming(session)))
}

/// Emits the events of a run to its end.
async fn follow(
    session: &Shared,
    setup: &Setup,
    mut stream: RunStream<AgentState>,
    projection: &mut Projection,
) -> Result<Outcome<AgentState>, RunError> {
    while let Some(event) = stream.next().await {
        begins_run(session, setup);
        match &event {
            // The first one has the usage of the turn before.
            Event::Values { state, .. } if state.llm_calls > 0 && state.outcome.is_none() => {
                projection.usage(usage(setup, state));
            }
            event => projection.event(event),
        }
    }
    let outcome = stream.outcome().await?;
    begins_run(session, setup);
    Ok(outcome)
}

/// Stores the decisions of the user, because the run was not refused.
fn begins_run(session: &Shared, setup: &Setup) {
    if let Err(failure) = setup.decided.begins_run() {
        session.log.push(SessionEvent::Notice(Notice::new(Level::Warning, "decisions", failure.message)));
    }
}

/// The decisions about calls that wait.
enum Decision {
    /// All calls are decided.
    Made(Answers),
    /// Another process continues the turn.
    Elsewhere,
    /// The turn was cancelled before all calls were decided.
    Open,
}

/// Asks about calls that wait.
async fn decide(
    session: &Shared,
    job: &mut Job,
    projection: &mut Projection,
    waiting: &[Waiting],
) -> Decision {
    let mut open: Vec<Question> = Vec::new();
    for call in waiting {
        let request = &call.request;
        let shown =
            projection.calls.change(&request.call_id, &request.tool, &request.args, CallStatus::Pending);
        let question = Question { id: call.interrupt.clone(), call: shown.clone(), waiting: call.clone() };
        session.log.push(SessionEvent::Call(shown));
        open.push(question);
    }
    let mut answers = Answers::new();
    let mut asked = Vec::<String>::new();
    session.ask(open.clone());
    let mut modes = session.mode.subscribe();
    let mut continued = pin!(elsewhere::continued(&*session.store, &session.thread));
    while !open.is_empty() {
        let mode = *modes.borrow_and_update();
        let decided =
            open.iter().find_map(|question| Some((question.id.clone(), mode.decision(&question.waiting)?)));
        let (id, approval, by) = match decided {
            Some((id, approval)) => (id, approval, AnsweredBy::Mode),
            None => {
                for question in open.iter().filter(|question| !asked.contains(&question.id)) {
                    session.log.push(SessionEvent::Asked(Box::new(question.clone())));
                }
                asked = open.iter().map(|question| question.id.clone()).collect();
                let answer = tokio::select! {
                    () = job.cancel.cancelled() => Err(Decision::Open),
                    Ok(()) = modes.changed() => continue,
                    answer = job.answers.recv() => answer.ok_or(Decision::Open),
                    // A shell that prints raw events blocks on the terminal, and learns it from the run.
                    () = &mut continued, if !session.raw_events => Err(Decision::Elsewhere),
                };
                match answer {
                    Ok((id, approval)) => (id, approval, AnsweredBy::Here),
                    Err(end) => {
                        session.ask(Vec::new());
                        if matches!(end, Decision::Elsewhere) {
                            for Question { id, .. } in open {
                                let by = AnsweredBy::Elsewhere;
                                session.log.push(SessionEvent::Answered { id, decision: None, by });
                            }
                        }
                        return end;
                    }
                }
            }
        };
        let Some(at) = open.iter().position(|question| question.id == id) else { continue };
        let question = open.remove(at);
        let mut decided = vec![(question, approval.clone())];
        if approval == Approval::Always {
            // The rule is about the tool's other calls too.
            let tool = decided[0].0.waiting.request.tool.clone();
            let same = |question: &mut Question| {
                question.waiting.request.tool == tool && question.waiting.request.form.is_none()
            };
            decided.extend(open.extract_if(.., same).map(|question| (question, Approval::Approve)));
        }
        session.ask(open.clone());
        for (question, decision) in decided {
            answers = answers.answer(question.id.clone(), Value::from(decision.clone()));
            session.log.push(SessionEvent::Answered { id: question.id, decision: Some(decision), by });
        }
    }
    Decision::Made(answers)
}
