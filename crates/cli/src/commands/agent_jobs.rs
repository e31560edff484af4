//! `superstep jobs`: sends turns of the agent as jobs.
//!
//! Start at [`jobs`].

use serde_json::json;
use superstep::{Checkpointer, ThreadId, worker::Jobs};
use superstep_session::{
    config::location::Location,
    error::SessionError,
    turn::{dream_thread, hosted::Prompt, randomness::fresh_thread, stored_graph, waiting::Waiting},
};

use crate::{
    args::{
        jobs::{
            AgentJobAnswerArgs, AgentJobResumeArgs, AgentJobRunArgs, AgentJobsCommand, AgentScheduleAddArgs,
            ScheduleCommand,
        },
        shared::{AGENT, Locate},
    },
    commands::{jobs, run::read_prompt, schedules},
    output::exit::Exit,
};

pub(crate) async fn jobs(command: AgentJobsCommand) -> Result<Exit, SessionError> {
    match command {
        AgentJobsCommand::Run(args) => run(args).await,
        AgentJobsCommand::Resume(args) => resume(args).await,
        AgentJobsCommand::Answer(args) => answer(args).await,
        AgentJobsCommand::List(args) => jobs::list(args, AGENT).await,
        AgentJobsCommand::Retry(args) => jobs::retry(args, AGENT).await,
        AgentJobsCommand::Cancel(args) => jobs::cancel(args, AGENT).await,
        AgentJobsCommand::Schedule(ScheduleCommand::Add(args)) => add(args).await,
        AgentJobsCommand::Schedule(ScheduleCommand::Stored(command)) => {
            schedules::change(command, AGENT).await
        }
    }
}

async fn run(args: AgentJobRunArgs) -> Result<Exit, SessionError> {
    let AgentJobRunArgs { prompt, stdin, thread, order } = args;
    let prompt = Prompt { prompt: read_prompt(prompt, stdin)? };
    let location = order.database.location.clone().locate(AGENT)?;
    let options = location.queue_of_inputs()?;
    let thread = match thread {
        Some(name) => name.into(),
        None => fresh_thread(&*location.open()?).await?,
    };
    dream_thread::refuse(&location, &thread)?;
    let queue = Jobs::open(options).await?;
    jobs::send(queue.run(&stored_graph::graph()?, &thread, &prompt), &thread, &order).await
}

async fn resume(args: AgentJobResumeArgs) -> Result<Exit, SessionError> {
    let AgentJobResumeArgs { thread, order } = args;
    let location = order.database.location.clone().locate(AGENT)?;
    let options = location.queue()?;
    let (thread, store) = existing(&location, &thread).await?;
    drop(store);
    let queue = Jobs::open(options).await?;
    jobs::send(queue.resume(&stored_graph::graph()?, &thread), &thread, &order).await
}

/// Records decisions of the user, and sends a job for each of them.
async fn answer(args: AgentJobAnswerArgs) -> Result<Exit, SessionError> {
    let AgentJobAnswerArgs { thread, due, database, decisions } = args;
    if decisions.is_empty() {
        return Err(SessionError::usage(
            "nothing is decided; use `--approve`, `--deny-all REASON` or another flag",
        ));
    }
    let location = database.location.locate(AGENT)?;
    let options = location.queue_of_inputs()?;
    let (thread, store) = existing(&location, &thread).await?;
    let graph = stored_graph::graph()?.with_checkpointer(store);
    let head = graph.thread(&thread).state().await?;
    let waiting = Waiting::of(head.tasks.iter().flat_map(|task| &task.interrupts))?;
    let answers = decisions.answers(thread.as_str(), &waiting)?;
    let decided: Vec<_> =
        waiting.iter().filter_map(|call| Some((call, answers.get(&call.interrupt)?.clone()))).collect();
    let queue = Jobs::open(options).await?;
    // Before the jobs are there: a worker may take one at once.
    let known = location.decided(&thread)?;
    known.answered(decided.iter().filter_map(|(call, decision)| {
        Some((&*call.interrupt, &call.request, serde_json::from_value(decision.clone()).ok()?))
    }));
    known.begins_run()?;
    let mut numbers = Vec::new();
    for (call, decision) in decided {
        let job = queue.answer(&graph, &thread, &call.interrupt, decision);
        numbers.push(jobs::due(job, &due).send().await?);
    }
    jobs::sent(&numbers, &thread, database.json)
}

async fn add(args: AgentScheduleAddArgs) -> Result<Exit, SessionError> {
    let AgentScheduleAddArgs { times, prompt } = args;
    let location = times.database.location.clone().locate(AGENT)?;
    dream_thread::refuse(&location, &schedules::thread_of(&times))?;
    let graph = stored_graph::graph()?;
    schedules::add(times, graph.name(), &json!(Prompt { prompt }), &location).await
}

/// Returns a thread of the agent, which must exist, and its database.
async fn existing(
    location: &Location,
    name: &str,
) -> Result<(ThreadId, std::sync::Arc<dyn Checkpointer>), SessionError> {
    let thread = ThreadId::from(name);
    dream_thread::refuse(location, &thread)?;
    let store = location.existing(name)?;
    match store.load(&thread, None).await? {
        Some(_) => Ok((thread, store)),
        None => Err(location.unknown(name)),
    }
}
