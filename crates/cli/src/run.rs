//! `superstep run` and `superstep resume`.

use std::{
    io::{self, IsTerminal, Read, Write},
    path::PathBuf,
    sync::Arc,
};

use futures::StreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use superstep::{
    Checkpointer, Clock, Event, OnUnfinished, RunConfig, RunError, RunStream, Status, StreamMode, Streaming,
    SystemClock, ThreadId,
    agent::{Agent, AgentBuilder, AgentError, AgentOutcome, AgentState, workspace},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    approve::Approve,
    args::{ResumeArgs, RunArgs, TurnArgs},
    exit::{self, Exit, Failure},
    model::{Choice, Environment, OFFLINE, Remembered, Wish},
    output::{End, Human, Json, Output},
    place::Place,
    profile::Profiles,
    results,
    settings::{self, Chosen},
};

/// The longest prompt, in bytes.
const MOST_PROMPT: u64 = 1 << 20;

/// Answers a prompt.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, Failure> {
    let RunArgs { prompt, thread, discard, place, turn } = args;
    let prompt = read_prompt(prompt)?;
    let place = Place::new(place)?;
    let store = place.open()?;
    let is_fresh = thread.is_none();
    let thread: ThreadId = match thread {
        Some(name) => name.into(),
        None => fresh_thread(&*store).await?,
    };
    let setup = Setup { is_fresh, ..Setup::new(&place, store, thread, &turn).await? };
    let on_unfinished = if discard { OnUnfinished::Discard } else { OnUnfinished::Refuse };
    let config = RunConfig { on_unfinished, ..setup.config()? };
    setup.follow(setup.agent.process_message_stream(&prompt, config, streaming())).await
}

/// Goes on with a stopped turn.
pub(crate) async fn resume(args: ResumeArgs) -> Result<Exit, Failure> {
    let ResumeArgs { thread, place, turn } = args;
    let place = Place::new(place)?;
    let unknown = place.unknown(&thread);
    let thread: ThreadId = thread.into();
    // Looking first: a thread that is not there must not make a database.
    let Some(store) = place.look()? else { return Err(unknown) };
    if store.load(&thread, None).await?.is_none() {
        return Err(unknown);
    }
    drop(store);
    let setup = Setup::new(&place, place.open()?, thread, &turn).await?;
    let head = setup.agent.graph().get_state(&setup.thread, None).await?;
    if head.next.is_empty() && !is_unanswered(head.values.outcome) {
        setup.output().note(&format!("thread `{}` is finished, this is its last reply:", setup.thread));
    }
    let stream = setup.agent.resume_stream(setup.config()?, streaming()).await?;
    setup.follow(stream).await
}

/// The agent's events. Stdout may be a pager that nobody reads for a while.
fn streaming() -> Streaming {
    Streaming { buffer: 1 << 20, ..StreamMode::Custom.into() }
}

fn is_unanswered(outcome: Option<AgentOutcome>) -> bool {
    outcome.is_some_and(AgentOutcome::is_unanswered)
}

/// The prompt of the command line, or of stdin.
fn read_prompt(given: Option<String>) -> Result<String, Failure> {
    let prompt = match given {
        Some(prompt) if prompt != "-" => prompt,
        None if io::stdin().is_terminal() => {
            return Err(Failure::usage("there is no prompt; write it behind `run`, or pipe it in"));
        }
        _ => {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().take(MOST_PROMPT + 1).read_to_end(&mut bytes);
            read.map_err(|cause| Failure::usage(format!("cannot read the prompt from stdin: {cause}")))?;
            let not_text = |_| Failure::usage("the prompt on stdin is no UTF-8 text");
            if bytes.len() as u64 > MOST_PROMPT {
                return Err(too_long());
            }
            String::from_utf8(bytes).map_err(not_text)?
        }
    };
    if prompt.len() as u64 > MOST_PROMPT {
        return Err(too_long());
    }
    match prompt.trim() {
        "" => Err(Failure::usage("the prompt is empty; write what you want to know")),
        prompt => Ok(prompt.to_owned()),
    }
}

fn too_long() -> Failure {
    Failure::usage(format!(
        "the prompt is longer than {} MiB; put it into a file under `--cwd` and ask about that",
        MOST_PROMPT >> 20
    ))
}

/// A name that no thread has: the time, and a little chance.
async fn fresh_thread(store: &dyn Checkpointer) -> Result<ThreadId, Failure> {
    let mut chance = chance()?;
    loop {
        let thread = thread_name(SystemClock.now_ms(), chance.random()).into();
        if store.load(&thread, None).await?.is_none() {
            return Ok(thread);
        }
    }
}

fn thread_name(now_ms: i64, chance: u16) -> String {
    let now = jiff::Timestamp::from_millisecond(now_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("t-{}-{chance:04x}", now.strftime("%Y%m%d-%H%M%S"))
}

fn chance() -> Result<StdRng, Failure> {
    StdRng::try_from_rng(&mut rand::rngs::SysRng)
        .map_err(|cause| Failure::new(Exit::Failed, format!("the system has no random numbers: {cause}")))
}

/// Everything a run needs.
struct Setup<'a> {
    place: &'a Place,
    thread: ThreadId,
    /// Whether the user has not heard of the thread's name yet.
    is_fresh: bool,
    turn: &'a TurnArgs,
    choice: Choice,
    chosen: Chosen,
    cwd: PathBuf,
    agent: Agent,
    cancel: CancellationToken,
}

impl<'a> Setup<'a> {
    async fn new(
        place: &'a Place,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        turn: &'a TurnArgs,
    ) -> Result<Self, Failure> {
        let remembered = Remembered::load(&*store, &thread).await?;
        let cwd = place.cwd_of(&remembered)?;
        let chosen = settings::chosen(turn, remembered.chosen())?;
        let misfit = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("thread `{thread}` remembers a configuration that does not fit: {error}"))
        };
        let wish = Wish {
            flags: turn,
            thread: remembered,
            environment: Environment::read(),
            profiles: Profiles::of(&chosen).map_err(|error| misfit(&error))?,
            text_calls: chosen.get("text_calls").and_then(serde_json::Value::as_bool),
        };
        let choice = wish.settle().await?;
        let config = settings::config(&chosen, choice.name == OFFLINE).map_err(|error| misfit(&error))?;
        let tools = workspace::tools(&cwd, || SystemClock.now_ms())
            .map_err(|cause| Failure::usage(format!("cannot work in `{}`: {cause}", cwd.display())))?;
        let models = choice.fallbacks.iter().cloned();
        let models = models.fold(Agent::builder(choice.model.clone()), AgentBuilder::fallback);
        let models = choice.compaction.iter().cloned().fold(models, AgentBuilder::compaction_model);
        let agent = models
            .tools(tools)
            .spill(Arc::new(results::kept(&cwd)?))
            .approver(Arc::new(Approve::new(turn)))
            .config(config)
            .jitter(superstep::llm::seeded_jitter(chance()?.random()))
            .checkpointer(store)
            .build()
            .map_err(|error| Failure::caused(exit_of(&error), &error))?;
        let (is_fresh, cancel) = (false, CancellationToken::new());
        Ok(Self { place, thread, is_fresh, turn, choice, chosen, cwd, agent, cancel })
    }

    fn config(&self) -> Result<RunConfig, Failure> {
        let cwd = self.cwd.to_str().map(str::to_owned);
        let remembered = Remembered::new(&self.choice, self.chosen.clone(), cwd);
        Ok(RunConfig {
            cancel: self.cancel.clone(),
            seed: chance()?.random(),
            metadata: remembered.into_metadata(),
            ..RunConfig::thread(self.thread.as_str())
        })
    }

    fn output(&self) -> Box<dyn Output> {
        let out = io::stdout();
        if self.turn.json {
            Box::new(Json::new(out))
        } else {
            let on_terminal = out.is_terminal();
            Box::new(Human::new(out, on_terminal, self.turn.quiet))
        }
    }

    /// Shows the run to its end.
    async fn follow(&self, mut stream: RunStream<AgentState>) -> Result<Exit, Failure> {
        let began = Instant::now();
        let mut output = self.output();
        if let Some(note) = &self.choice.note {
            output.note(note);
        }
        let watch = tokio::spawn(watch_signals(self.cancel.clone()));
        // Once stdout is closed the run is cancelled and what it still tells is dropped.
        let mut written = Ok(());
        let mut untold = self.is_fresh;
        while let Some(event) = stream.next().await {
            if std::mem::take(&mut untold) {
                // From here on there is something to resume, should the program be killed.
                output.note(&format!("thread {}", self.thread));
            }
            if written.is_ok() {
                written = match &event {
                    Event::Custom { name, data, .. } => output.event(name, data),
                    Event::Discarded { nodes } => output.discarded(nodes),
                    Event::Lagged { skipped } => output.lagged(*skipped),
                    _ => Ok(()),
                };
                if written.is_err() {
                    self.cancel.cancel();
                }
            }
        }
        watch.abort();
        let outcome = match stream.outcome().await {
            Ok(outcome) => outcome,
            Err(error) => return Err(self.refused(error).await),
        };
        let end = match outcome.status {
            Status::Completed => outcome.state.outcome.unwrap_or(AgentOutcome::Completed),
            _ => AgentOutcome::Cancelled,
        };
        let took = began.elapsed();
        let shown = End { thread: self.thread.as_str(), state: &outcome.state, outcome: end, took };
        let written = written.and_then(|()| output.end(&shown));
        self.conclude(&mut *output, &outcome.state, end, written)
    }

    /// Says how to go on, and with which code to exit.
    fn conclude(
        &self,
        output: &mut dyn Output,
        state: &AgentState,
        end: AgentOutcome,
        written: io::Result<()>,
    ) -> Result<Exit, Failure> {
        let resume = format!("resume with: {}", self.command("resume", &[self.thread.as_str()]));
        match (end, &written) {
            (AgentOutcome::LlmError, Ok(())) => {
                let error =
                    state.error.as_ref().map_or("no reason was stored", |error| error.message.as_str());
                return Err(Failure::new(
                    Exit::Model,
                    format!("the model could not be asked: {error}\n{resume}"),
                ));
            }
            (AgentOutcome::Cancelled | AgentOutcome::LlmError, _) => {
                // Said even to those who want to hear nothing but the reply.
                let _ = writeln!(anstream::stderr(), "interrupted; {resume}");
            }
            (_, Ok(())) => {
                let more = self.command("run", &["--thread", self.thread.as_str()]);
                output.note(&format!("ask more with: {more} \"...\""));
            }
            (_, Err(_)) => {}
        }
        match (written, end) {
            (Err(error), end) => match exit::unwritten(&error) {
                Some(failure) => Err(failure),
                None if end == AgentOutcome::Cancelled => Ok(Exit::Interrupted),
                None => Ok(Exit::Ok),
            },
            (Ok(()), AgentOutcome::Cancelled) => Ok(Exit::Interrupted),
            (Ok(()), _) => Ok(Exit::Ok),
        }
    }

    /// A command on this thread, with what cannot be remembered.
    fn command(&self, command: &str, words: &[&str]) -> String {
        let mut words = words.to_vec();
        words.extend(self.choice.again.iter().map(String::as_str));
        self.place.command(command, &words)
    }

    /// What became of a run that failed, and how to go on if there is something to go on with.
    async fn refused(&self, error: RunError) -> Failure {
        let thread = self.thread.as_str();
        let resume = self.command("resume", &[thread]);
        if let RunError::Unfinished { next, .. } = error {
            let next: Vec<_> = next.iter().map(|node| format!("`{node}`")).collect();
            let next = next.join(", ");
            let message = format!(
                "thread `{thread}` is not finished, {next} still to run; go on with: {resume}\n\
                 or drop that with `--discard`"
            );
            return Failure::new(Exit::Thread, message);
        }
        let Failure { exit, mut message } = Failure::from(error);
        let head = self.agent.graph().get_state(&self.thread, None).await;
        if exit != Exit::Thread && head.is_ok_and(|head| !head.next.is_empty()) {
            message.push_str(&format!("\nresume with: {resume}"));
        }
        Failure { exit, message }
    }
}

/// What is wrong with an agent is wrong with its configuration, unless it is ours.
fn exit_of(error: &AgentError) -> Exit {
    match error {
        AgentError::Tools(_) | AgentError::Graph(_) => Exit::Failed,
        _ => Exit::Usage,
    }
}

/// The first signal cancels the run, which then ends by itself; the second ends the program at once.
#[cfg(unix)]
async fn watch_signals(cancel: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // Without a handler, which takes no more than a free file, the system ends the program as usual.
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
    let mut stopped = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    stopped().await;
    stop(&cancel);
    stopped().await;
    std::process::exit(Exit::Interrupted as i32);
}

/// See above; there is only Ctrl-C.
#[cfg(not(unix))]
async fn watch_signals(cancel: CancellationToken) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop(&cancel);
        let _ = tokio::signal::ctrl_c().await;
        std::process::exit(Exit::Interrupted as i32);
    }
}

fn stop(cancel: &CancellationToken) {
    let _ = writeln!(anstream::stderr(), "\nstopping; once more to stop at once");
    cancel.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_named_by_time_and_chance() {
        assert_eq!(thread_name(1_795_300_215_000, 0x3f2a), "t-20261121-223015-3f2a");
    }

    #[test]
    fn a_prompt_is_trimmed_and_must_say_something() {
        assert_eq!(read_prompt(Some(" hi \n".into())).unwrap(), "hi");
        assert_eq!(read_prompt(Some(" \n".into())).unwrap_err().exit, Exit::Usage);
        assert_eq!(read_prompt(Some("x".repeat((1 << 20) + 1))).unwrap_err().exit, Exit::Usage);
    }
}
