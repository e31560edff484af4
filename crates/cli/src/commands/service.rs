//! `worker`, `run` and `resume` on a Restate cluster, whose workers do the turns.

use std::io::{self, IsTerminal as _};

use superstep::{
    Status, ThreadId,
    agent::AgentOutcome,
    restate::{Ended, RestateThread},
};
use superstep_session::{
    config::{defaults::Defaults, location::Location},
    error::{ErrorKind, SessionError},
    turn::{
        dream_thread,
        hosted::{Hosted, Prompt},
        randomness::fresh_thread,
        stored_graph,
        waiting::Waiting,
    },
};
use tokio::time::Instant;

use crate::{
    args::{
        command_line::{ResumeArgs, RunArgs},
        jobs::AgentWorkerArgs,
        shared::{AGENT, TurnArgs},
    },
    commands::{
        own::{
            endpoint::{builder, only_jobs, serve},
            service::{cluster_of, location_of, until_end},
        },
        run::read_prompt,
    },
    output::{
        exit::{self, Exit},
        human::Human,
        json::Json,
        note::print_note,
        run_output::{End, Output},
    },
    session::{run_loop::waits, signals},
};

/// Serves the agent of the command line until a signal.
pub(crate) async fn worker(args: AgentWorkerArgs) -> Result<Exit, SessionError> {
    if args.limit.is_some() || args.runs.once {
        return Err(only_jobs());
    }
    let location = |args: &AgentWorkerArgs| {
        let given = args.location.clone();
        Location::new(AGENT, args.endpoint.db(given.db), given.cwd)
    };
    let place = location(&args)?;
    let given = args.agent.clone().given(Some(&place.cwd))?;
    let (stop, watch) = signals::watching();
    let hosted =
        Hosted::new(location(&args)?, &given, &Defaults::default(), args.rules(), args.trust_answers, &stop)
            .await?;
    drop(watch);
    hosted.notes.iter().for_each(|note| print_note(note));
    let cluster = cluster_of(&place);
    let endpoint = hosted.serve_by(builder(cluster, &place, &args.runs))?;
    let what = format!("running turns for `{}` with model {}", place.db(), hosted.model());
    let exit = serve(endpoint, cluster, &args.endpoint, &what, false).await;
    hosted.close().await;
    exit
}

/// Replies to a prompt.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, SessionError> {
    let prompt = Prompt { prompt: read_prompt(args.prompt, args.stdin)? };
    let location = location_of(AGENT, args.service, args.location.cwd)?;
    let thread: ThreadId = match args.thread {
        Some(name) => name.into(),
        None => fresh_thread(&*location.open()?).await?,
    };
    dream_thread::refuse(&location, &thread)?;
    let turn = Turn::of(&location, &thread, &args.turn)?;
    turn.output().note(&format!("thread {thread}"));
    let began = Instant::now();
    let ended = until_end(&turn.called, turn.called.run(prompt)).await?;
    turn.show(ended, began)
}

/// Resumes a stopped turn, after decisions of the user.
pub(crate) async fn resume(args: ResumeArgs) -> Result<Exit, SessionError> {
    let location = location_of(AGENT, args.service, args.location.cwd)?;
    let thread = ThreadId::from(args.thread);
    dream_thread::refuse(&location, &thread)?;
    let store = location.open()?;
    if store.load(&thread, None).await?.is_none() {
        return Err(location.unknown(thread.as_str()));
    }
    let stored = stored_graph::graph()?.with_checkpointer(store);
    let head = stored.thread(&thread).state().await?;
    let waiting = Waiting::of(head.tasks.iter().flat_map(|task| &task.interrupts))?;
    let answers = args.decisions.answers(thread.as_str(), &waiting)?;
    let turn = Turn::of(&location, &thread, &args.turn)?;
    let began = Instant::now();
    if args.decisions.is_empty() {
        let ended = until_end(&turn.called, turn.called.resume()).await?;
        return turn.show(ended, began);
    }
    let decided: Vec<_> =
        waiting.iter().filter_map(|call| Some((call, answers.get(&call.interrupt)?.clone()))).collect();
    // Before the worker reads them.
    let known = location.decided(&thread)?;
    known.answered(decided.iter().filter_map(|(call, decision)| {
        Some((&*call.interrupt, &call.request, serde_json::from_value(decision.clone()).ok()?))
    }));
    known.begins_run()?;
    let mut ended = None;
    for (call, decision) in decided {
        ended = Some(until_end(&turn.called, turn.called.answer(&call.interrupt, decision)).await?);
    }
    turn.show(ended.expect("a decision is one about a call that waits"), began)
}

/// A turn that a worker does.
struct Turn<'a> {
    location: &'a Location,
    thread: &'a ThreadId,
    called: RestateThread,
    json: bool,
    quiet: bool,
}

impl<'a> Turn<'a> {
    fn of(location: &'a Location, thread: &'a ThreadId, args: &TurnArgs) -> Result<Self, SessionError> {
        let called = cluster_of(location).restate.thread(stored_graph::graph()?.name(), thread);
        Ok(Self { location, thread, called, json: args.json, quiet: args.quiet })
    }

    fn output(&self) -> Box<dyn Output> {
        let out = io::stdout();
        if self.json {
            return Box::new(Json::new(out));
        }
        let on_terminal = out.is_terminal();
        Box::new(Human::new(out, on_terminal, self.quiet))
    }

    /// Shows the end, and returns the exit code.
    fn show(&self, ended: Ended, began: Instant) -> Result<Exit, SessionError> {
        let waiting = Waiting::of(&ended.interrupts)?;
        let ended = ended.outcome(&stored_graph::graph()?);
        let ended = ended.map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
        let outcome = match ended.status {
            Status::Completed => ended.state.outcome.unwrap_or(AgentOutcome::Completed),
            _ if waiting.is_empty() => AgentOutcome::Cancelled,
            _ => AgentOutcome::AwaitingApproval,
        };
        let thread = self.thread.as_str();
        let (mut output, took) = (self.output(), began.elapsed());
        let written = output.end(&End { thread, state: &ended.state, outcome, took });
        if let Some(failure) = written.err().and_then(|error| exit::unwritten(&error)) {
            return Err(failure);
        }
        Ok(match outcome {
            AgentOutcome::AwaitingApproval => {
                print_note(&waits(self.location, thread, &waiting, &[]));
                Exit::Waiting
            }
            AgentOutcome::Cancelled => {
                print_note(&format!(
                    "interrupted; resume with: {}",
                    self.location.command("resume", &[thread])
                ));
                Exit::Interrupted
            }
            AgentOutcome::ToolFailed | AgentOutcome::HookFailed => Exit::Failed,
            _ => {
                let more = self.location.command("run", &["--thread", thread]);
                output.note(&format!("ask more with: {more} \"...\""));
                Exit::Ok
            }
        })
    }
}
