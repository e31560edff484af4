//! The command line of jobs and workers.

use std::time::Duration;

use clap::{Arg, Args, Command, Subcommand, builder::NonEmptyStringValueParser};
use superstep::agent::config::{PermissionRule, Permit};
#[cfg(feature = "postgres")]
use superstep::worker::JobId;
use superstep_session::config::names::{new_thread_name, schedule_name, thread_name};

use crate::args::{
    decisions::DecisionArgs,
    service::EndpointArgs,
    shared::{AgentArgs, DatabaseArgs, DbArgs, LocationArgs},
    values::{Stdin, age, stdin},
};

/// The number of a job, which a build without PostgreSQL only parses.
#[cfg(not(feature = "postgres"))]
type JobId = i64;

/// Describes `--db` of the commands that need a server, and of those below them.
pub(crate) fn on_server(command: Command) -> Command {
    let describe = |arg: Arg| {
        if arg.get_id() != "db" {
            return arg;
        }
        arg.value_name("URL").help("The PostgreSQL database, `postgres://...` [default: SUPERSTEP_DB]")
    };
    command.mut_args(describe).mut_subcommands(on_server)
}

/// The number of runs of a worker, and its end.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// The maximum number of runs at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// The time that runs have to finish their superstep after the first Ctrl-C or SIGTERM, such as `90s`.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = age)]
    pub(crate) grace: Duration,
    /// Run the jobs that are due, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// The graphs whose jobs are taken [default: all].
    pub(crate) graphs: Vec<String>,
    /// The maximum number of runs of a graph at the same time in all workers that have this flag.
    #[arg(long, value_name = "GRAPH=N", value_parser = limit)]
    pub(crate) limit: Vec<(String, u16)>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Run the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    /// Print only warnings and errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) location: DbArgs,
}

fn limit(text: &str) -> Result<(String, u16), String> {
    let (graph, runs) = text.rsplit_once('=').ok_or("write it like `orders=4`")?;
    match runs.parse() {
        Ok(runs) if runs > 0 => Ok((graph.to_owned(), runs)),
        _ => Err(format!("`{runs}` is not a number from 1 to {}", u16::MAX)),
    }
}

/// The worker of the agent.
#[derive(Args, Debug)]
pub(crate) struct AgentWorkerArgs {
    #[command(flatten)]
    pub(crate) location: LocationArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Let calls run without approval: of a tool, such as `shell`, or those with an argument, such as `shell:command=git *`.
    #[arg(long, value_name = "TOOL[:ARGUMENT=PATTERN]", value_parser = rule)]
    pub(crate) allow: Vec<PermissionRule>,
    /// Deny calls, in the same form; stronger than `--allow`.
    #[arg(long, value_name = "TOOL[:ARGUMENT=PATTERN]", value_parser = rule)]
    pub(crate) deny: Vec<PermissionRule>,
    /// Accept the approvals of everybody who can write to the database, not only those of the user of this worker on this machine.
    #[arg(long)]
    pub(crate) trust_answers: bool,
    /// The maximum number of runs at the same time in all workers that have this flag.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) limit: Option<u16>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

impl AgentWorkerArgs {
    /// Returns the rules of the flags. The last rule that matches a call applies.
    pub(crate) fn rules(&self) -> impl Iterator<Item = PermissionRule> {
        let of = |rules: &[PermissionRule], then| {
            rules.iter().cloned().map(|rule| PermissionRule { then, ..rule }).collect::<Vec<_>>()
        };
        of(&self.allow, Permit::Allow).into_iter().chain(of(&self.deny, Permit::Deny))
    }
}

/// Reads a rule, without its decision. The agent checks its patterns.
fn rule(text: &str) -> Result<PermissionRule, String> {
    let (tool, argument) = match text.split_once(':') {
        Some((tool, argument)) => (tool, Some(argument)),
        None => (text, None),
    };
    if tool.is_empty() {
        return Err("the name of a tool is missing".to_owned());
    }
    let mut rule = PermissionRule::new(tool, Permit::Ask);
    if let Some(argument) = argument {
        let (name, pattern) =
            argument.split_once('=').ok_or("write an argument like `shell:command=git *`")?;
        rule.arguments.insert(name.to_owned(), pattern.to_owned());
    }
    Ok(rule)
}

#[derive(Subcommand, Debug)]
pub(crate) enum AgentJobsCommand {
    /// Send a job that replies to a prompt.
    Run(AgentJobRunArgs),
    /// Send a job that resumes a thread.
    Resume(AgentJobResumeArgs),
    /// Send jobs that decide about waiting calls of a thread, and resume it.
    #[command(after_help = "\
A worker of the same user on this machine accepts these decisions; another one only with `--trust-answers`, and otherwise \
the call waits for approval again.

Examples:
  superstep jobs answer support-17 --approve
  superstep jobs answer support-17 --approve call_1 --deny \"call_2=not on a Friday\"")]
    Answer(AgentJobAnswerArgs),
    /// List the jobs, in the order in which they are due. Jobs that are done are not stored.
    List(JobListArgs),
    /// Make dead jobs, or those that wait for their time, due now, with all their attempts.
    Retry(JobIdsArgs),
    /// Remove jobs that are queued or dead, and stop those that run; their threads can be resumed.
    Cancel(JobIdsArgs),
    /// Reply to a prompt at recurring times.
    #[command(subcommand, after_help = SCHEDULES)]
    Schedule(ScheduleCommand<AgentScheduleAddArgs>),
}

#[derive(Args, Debug)]
pub(crate) struct AgentJobRunArgs {
    /// The prompt; `-`, or nothing with a pipe, reads stdin. At most 1 MiB.
    pub(crate) prompt: Option<String>,
    /// `-` after a prompt appends stdin to it.
    #[arg(value_name = "-", value_parser = stdin)]
    pub(crate) stdin: Option<Stdin>,
    /// The thread to continue, or a name for a new one [default: a new name].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AgentJobResumeArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AgentJobAnswerArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
    #[command(flatten)]
    pub(crate) decisions: DecisionArgs,
}

/// The end of the help of schedules.
pub(crate) const SCHEDULES: &str = "\
TIMES are five fields: minute, hour, day of the month, month, day of the week; `*/5`, `1-5`, `MON-FRI` and `@daily` are \
known. A time makes one job, however many workers there are. Times without a worker are made up for once, by the latest.

Examples:
  jobs schedule add digest \"0 9 * * MON-FRI\" --zone Europe/Berlin ...
  jobs schedule pause digest
  jobs schedule remove digest";

/// Schedules, which `A` adds.
#[derive(Subcommand, Debug)]
pub(crate) enum ScheduleCommand<A: Args> {
    /// Store a schedule, which begins now.
    Add(A),
    #[command(flatten)]
    Stored(StoredSchedules),
}

/// Schedules that are stored.
#[derive(Subcommand, Debug)]
pub(crate) enum StoredSchedules {
    /// List the schedules.
    List(DatabaseArgs<DbArgs>),
    /// Remove a schedule. Its jobs remain.
    Remove(ScheduleArgs),
    /// Make no jobs until `resume`.
    Pause(ScheduleArgs),
    /// Begin again. The times of the pause are not made up for.
    Resume(ScheduleArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ScheduleArgs {
    /// The schedule.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

/// The times of a schedule, and its threads.
#[derive(Args, Debug)]
pub(crate) struct TimesArgs {
    /// A name for the schedule.
    #[arg(index = 1, value_parser = schedule_name)]
    pub(crate) name: String,
    /// The times, such as `0 9 * * MON-FRI`.
    #[arg(index = 2)]
    pub(crate) times: String,
    /// The time zone, such as `Europe/Berlin`.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) zone: String,
    /// The thread; `{time}` stands for the time in UTC, so that each time has a thread of its own [default: `NAME-{time}`].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct AgentScheduleAddArgs {
    #[command(flatten)]
    pub(crate) times: TimesArgs,
    /// The prompt.
    #[arg(index = 3, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) prompt: String,
}

#[derive(Args, Debug)]
pub(crate) struct OwnScheduleAddArgs {
    #[command(flatten)]
    pub(crate) times: TimesArgs,
    /// The graph; may be omitted if the program has only one.
    #[arg(index = 3)]
    pub(crate) graph: Option<String>,
    /// The input: JSON, `@FILE`, or `-` for stdin [default: `{}`].
    #[arg(long, short, value_name = "JSON")]
    pub(crate) input: Option<String>,
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
    /// Run a graph at recurring times.
    #[command(subcommand, after_help = SCHEDULES)]
    Schedule(ScheduleCommand<OwnScheduleAddArgs>),
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

/// The order and the time of a job, and the confirmation for a database of someone else.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    /// Accept the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
}

/// The order and the time of a job, and its request.
#[derive(Args, Debug)]
pub(crate) struct OrderArgs {
    #[command(flatten)]
    pub(crate) due: DueArgs,
    /// The id of the request: repeated jobs of one id do nothing.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

/// The order and the time of jobs.
#[derive(Args, Debug)]
pub(crate) struct DueArgs {
    /// The priority: jobs with smaller numbers run first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i16,
    /// The delay, such as `90s` or `2h`.
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) delay: Option<Duration>,
    /// Jobs with the same key run one after another.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,
    /// The number of attempts after which a job that fails is dead.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) attempts: u8,
}

#[derive(Args, Debug)]
pub(crate) struct JobListArgs {
    /// Only those of this thread.
    #[arg(long, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) thread: Option<String>,
    /// Only dead ones, whose attempts have all failed.
    #[arg(long, visible_alias = "failed", conflicts_with = "thread")]
    pub(crate) dead: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct JobIdsArgs {
    /// The numbers of the jobs.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<JobId>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_tool_and_possibly_an_argument() {
        assert_eq!(rule("shell"), Ok(PermissionRule::new("shell", Permit::Ask)));
        let git = rule("shell:command=git log --format=%s").unwrap();
        assert_eq!(git.arguments["command"], "git log --format=%s");
        for wrong in ["", ":a=b", "shell:command"] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_a_graph_and_a_number() {
        assert_eq!(limit("a=b=4"), Ok(("a=b".to_owned(), 4)));
        for wrong in ["orders", "orders=", "orders=0", "orders=-1", "orders=70000"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
