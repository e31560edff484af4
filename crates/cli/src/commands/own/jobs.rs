//! `jobs run | resume | answer`: sends jobs.

use superstep::{
    Interrupt, ThreadId,
    worker::{Jobs, NewJob},
};

use crate::{
    args::jobs::{JobAnswerArgs, JobResumeArgs, JobRunArgs, JobsCommand, SendArgs},
    commands::{jobs, own::run::check_key},
    config::location::Location,
    graphs::graph_set::GraphSet,
    output::{
        exit::{Exit, Failure},
        table::{lines, print},
    },
    session::{randomness::fresh_thread, stdin::read_json},
};

/// Sends, lists and changes jobs.
pub(crate) async fn jobs(command: JobsCommand, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let of_program = |database| Location::of_program(program, database);
    match command {
        JobsCommand::Run(args) => run(args, program, graphs).await,
        JobsCommand::Resume(args) => resume(args, program, graphs).await,
        JobsCommand::Answer(args) => answer(args, program, graphs).await,
        JobsCommand::List(args) => jobs::list(args, of_program).await,
        JobsCommand::Retry(args) => jobs::retry(args, of_program).await,
        JobsCommand::Cancel(args) => jobs::cancel(args, of_program).await,
    }
}

async fn run(args: JobRunArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let JobRunArgs { graph, input, thread, send } = args;
    let graph = graphs.named(graph.as_deref())?;
    let input = read_json("input", input.as_deref().unwrap_or("{}"))?;
    graph.check("input", &input)?;
    let location = Location::of_program(program, send.database.db.clone())?;
    let options = location.queue()?;
    let named = thread.map(ThreadId::from);
    let store = location.open_to_run(named.as_ref(), send.trust).await?;
    let thread = match named {
        Some(thread) => thread,
        None => fresh_thread(&*store).await?,
    };
    let queue = Jobs::open(options).await?;
    store_job(queue.run(graph.name(), &thread, &input), &thread, &send).await
}

async fn resume(args: JobResumeArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let JobResumeArgs { thread: name, send } = args;
    let location = Location::of_program(program, send.database.db.clone())?;
    let options = location.queue()?;
    let owned = graphs.owned(location.existing(&name)?, &name, None, || location.unknown(&name)).await?;
    location.open_to_run(Some(&owned.name), send.trust).await?;
    let queue = Jobs::open(options).await?;
    store_job(queue.resume(owned.graph.name(), &owned.name), &owned.name, &send).await
}

async fn answer(args: JobAnswerArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let JobAnswerArgs { thread: name, question: key, value, send } = args;
    let value = read_json("answer", &value)?;
    let location = Location::of_program(program, send.database.db.clone())?;
    let options = location.queue()?;
    let owned = graphs.owned(location.existing(&name)?, &name, None, || location.unknown(&name)).await?;
    let snapshot = owned.open().state().await?;
    let interrupts: Vec<&Interrupt> = snapshot.interrupts().collect();
    check_key(&name, &key, &interrupts)?;
    // The worker takes the id only, which no later question has.
    let id =
        interrupts.iter().find(|asked| asked.id == key || asked.key == key).map(|asked| asked.id.clone());
    location.open_to_run(Some(&owned.name), send.trust).await?;
    let queue = Jobs::open(options).await?;
    let job = queue.answer(owned.graph.name(), &owned.name, id.unwrap_or(key), &value);
    store_job(job, &owned.name, &send).await
}

/// Stores a job, and prints its number and its thread.
async fn store_job(job: NewJob<'_>, thread: &ThreadId, send: &SendArgs) -> Result<Exit, Failure> {
    let mut job = job.priority(send.priority).attempts(send.attempts).delay(send.delay.unwrap_or_default());
    if let Some(key) = &send.key {
        job = job.key(key);
    }
    if let Some(id) = &send.id {
        job = job.id(id);
    }
    let number = job.send().await?;
    if send.database.json {
        return print(&lines([serde_json::json!({"job": number, "thread": thread})]));
    }
    print(&format!("job {number} for thread {thread}\n"))
}
