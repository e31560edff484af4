//! `jobs run | resume | answer`: sends jobs.

use superstep::{Interrupt, ThreadId, worker::Jobs};
use superstep_session::{error::SessionError, turn::randomness::fresh_thread};

use crate::{
    args::{
        jobs::{
            JobAnswerArgs, JobResumeArgs, JobRunArgs, JobsCommand, OwnScheduleAddArgs, ScheduleCommand,
            SendArgs,
        },
        shared::Locate,
    },
    commands::{jobs, own::run::check_key, schedules},
    graphs::{graph_set::GraphSet, input::check},
    output::exit::Exit,
    session::stdin::read_json,
};

pub(crate) async fn jobs(command: JobsCommand, graphs: &GraphSet) -> Result<Exit, SessionError> {
    match command {
        JobsCommand::Run(args) => run(args, graphs).await,
        JobsCommand::Resume(args) => resume(args, graphs).await,
        JobsCommand::Answer(args) => answer(args, graphs).await,
        JobsCommand::List(args) => jobs::list(args, &graphs.program).await,
        JobsCommand::Retry(args) => jobs::retry(args, &graphs.program).await,
        JobsCommand::Cancel(args) => jobs::cancel(args, &graphs.program).await,
        JobsCommand::Schedule(ScheduleCommand::Add(args)) => add(args, graphs).await,
        JobsCommand::Schedule(ScheduleCommand::Stored(command)) => {
            schedules::change(command, &graphs.program).await
        }
    }
}

async fn run(args: JobRunArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let JobRunArgs { graph, input, thread, send: SendArgs { order, trust } } = args;
    let graph = graphs.named(graph.as_deref())?;
    let input = read_json("input", input.as_deref().unwrap_or("{}"))?;
    check(&**graph, "input", &input)?;
    let location = order.database.location.clone().locate(&graphs.program)?;
    let options = location.queue_of_inputs()?;
    let named = thread.map(ThreadId::from);
    let store = location.open_own(named.as_ref(), trust).await?;
    let thread = match named {
        Some(thread) => thread,
        None => fresh_thread(&*store).await?,
    };
    let queue = Jobs::open(options).await?;
    jobs::send(queue.run(graph.name(), &thread, &input), &thread, &order).await
}

async fn resume(args: JobResumeArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let JobResumeArgs { thread: name, send: SendArgs { order, trust } } = args;
    let location = order.database.location.clone().locate(&graphs.program)?;
    let options = location.queue()?;
    let owned = graphs.find(&location, &name, None).await?;
    location.open_own(Some(&owned.name), trust).await?;
    let queue = Jobs::open(options).await?;
    jobs::send(queue.resume(owned.graph.name(), &owned.name), &owned.name, &order).await
}

async fn answer(args: JobAnswerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let JobAnswerArgs { thread: name, question: key, value, send: SendArgs { order, trust } } = args;
    let value = read_json("answer", &value)?;
    let location = order.database.location.clone().locate(&graphs.program)?;
    let options = location.queue_of_inputs()?;
    let owned = graphs.find(&location, &name, None).await?;
    let snapshot = owned.open().state().await?;
    let interrupts: Vec<&Interrupt> = snapshot.interrupts().collect();
    check_key(&name, &key, &interrupts)?;
    // The worker takes the id only, which no later question has.
    let id =
        interrupts.iter().find(|asked| asked.id == key || asked.key == key).map(|asked| asked.id.clone());
    location.open_own(Some(&owned.name), trust).await?;
    let queue = Jobs::open(options).await?;
    let job = queue.answer(owned.graph.name(), &owned.name, id.unwrap_or(key), &value);
    jobs::send(job, &owned.name, &order).await
}

async fn add(args: OwnScheduleAddArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnScheduleAddArgs { times, graph, input } = args;
    let graph = graphs.named(graph.as_deref())?;
    let input = read_json("input", input.as_deref().unwrap_or("{}"))?;
    check(&**graph, "input", &input)?;
    let location = times.database.location.clone().locate(&graphs.program)?;
    // The threads of its jobs are new ones of this database.
    location.open_own(None, false).await?;
    schedules::add(times, graph.name(), &input, &location).await
}
