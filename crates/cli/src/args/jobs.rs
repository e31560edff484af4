//! The command line of jobs and workers.

use std::time::Duration;

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use superstep::worker::JobId;

use crate::args::{
    shared::OwnDatabaseArgs,
    values::{age, new_thread_name, thread_name},
};

#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// The graphs whose jobs are taken [default: all].
    pub(crate) graphs: Vec<String>,
    /// The maximum number of runs at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// The time that runs have to finish their superstep after the first Ctrl-C or SIGTERM, such as `90s`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = age)]
    pub(crate) grace: Duration,
    /// Run the jobs that are due, and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Run the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) database: OwnDatabaseArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum JobsCommand {
    /// Send a job that runs a graph on an input.
    Run(JobRunArgs),
    /// Send a job that resumes a thread.
    Resume(JobResumeArgs),
    /// Send a job that answers a question of a thread, and resumes it.
    Answer(JobAnswerArgs),
    /// List the jobs, in the order in which they are due. Jobs that are done are not stored.
    List(JobListArgs),
    /// Make dead jobs, or those that wait for their time, due now, with all their attempts.
    Retry(JobIdsArgs),
    /// Remove jobs that are queued or dead, and stop those that run; their threads can be resumed.
    Cancel(JobIdsArgs),
}

#[derive(Args, Debug)]
pub(crate) struct JobRunArgs {
    /// The graph; may be omitted if the program has only one.
    pub(crate) graph: Option<String>,
    /// The input: JSON, `@FILE`, or `-` for stdin [default: `{}`].
    #[arg(long, short, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The thread to continue, or a name for a new one [default: a new name].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

#[derive(Args, Debug)]
pub(crate) struct JobResumeArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

#[derive(Args, Debug)]
pub(crate) struct JobAnswerArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    /// The key of the question, or its id.
    #[arg(value_name = "KEY")]
    pub(crate) question: String,
    /// The answer: JSON, `@FILE`, or `-` for stdin. A text is in quotes: '"yes"'.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

/// The order and the time of a job.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// The priority: jobs with smaller numbers run first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i16,
    /// The delay, such as `90s` or `2h`.
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) delay: Option<Duration>,
    /// Jobs with the same key run one after another.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,
    /// The id of the request: repeated jobs of one id do nothing.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,
    /// The number of attempts after which a job that fails is dead.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) attempts: u8,
    /// Accept the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) database: OwnDatabaseArgs,
}

#[derive(Args, Debug)]
pub(crate) struct JobListArgs {
    /// Only those of this thread.
    #[arg(long, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) thread: Option<String>,
    /// Only dead ones, whose attempts have all failed.
    #[arg(long, conflicts_with = "thread")]
    pub(crate) dead: bool,
    #[command(flatten)]
    pub(crate) database: OwnDatabaseArgs,
}

#[derive(Args, Debug)]
pub(crate) struct JobIdsArgs {
    /// The numbers of the jobs.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<JobId>,
    #[command(flatten)]
    pub(crate) database: OwnDatabaseArgs,
}
