//! The command line of a program with graphs of its own.

use clap::{Args, Parser, Subcommand};
use superstep_session::config::names::{new_thread_name, thread_name};

use crate::args::{
    command_line::ConversationArgs,
    export::{ExportArgs, ImportArgs},
    jobs::{JobsCommand, WorkerArgs},
    serve::ListenArgs,
    service::ServiceArgs,
    shared::{
        DatabaseArgs, DbArgs, DiffArgs, Format, HistoryArgs, LogArgs, ReplayedArgs, StateArgs, ThreadArgs,
        ThreadsArgs,
    },
    storage::DbCommand,
    values::checkpoint,
};

/// The end of the help of such a program.
pub(crate) const EXIT_CODES: &str = "\
Inputs and updates are JSON objects with an entry for each written channel of the state.

Environment:
  SUPERSTEP_DB                    the database of commands without `--db`
  SUPERSTEP_KEY                   the key that encrypts threads
  SUPERSTEP_SERVER_KEY            the key that clients of `serve` send
  SUPERSTEP_OLD_KEY               keys that only decrypt, separated by commas
  SUPERSTEP_REQUIRE_ENCRYPTION    `true` refuses what is not encrypted
  SUPERSTEP_STATE_DIR             the folder that records your own databases
  RUST_LOG                        as `--log`
  OTEL_EXPORTER_OTLP_ENDPOINT     the collector of OpenTelemetry for traces and metrics
  OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT
                                  `SPAN_ONLY` exports prompts, replies, arguments and results of agents
  NO_COLOR                        no colours

Exit codes:
    0  done
    1  the run, the output or `--strict` failed
    2  wrong command line, input or answer
    4  the database cannot be opened, read or written
    5  the thread or the checkpoint is unknown; the thread is busy, unfinished or not suitable
    6  the run waits for an answer; the message shows the command
    7  a replay diverged from the stored thread
   70  a bug
  130  interrupted; the message shows how to resume";

/// Run graphs, and inspect, change and replay their threads
#[derive(Parser, Debug)]
#[command(after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct OwnCli {
    #[command(subcommand)]
    pub(crate) command: OwnCommand,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum OwnCommand {
    /// Run a graph on an input.
    #[command(mut_arg("restate", |arg| arg.conflicts_with_all(["trust", "from", "new", "discard"])))]
    Run(OwnRunArgs),
    /// Resume a run that was stopped, killed or failed.
    #[command(mut_arg("restate", |arg| arg.conflicts_with_all(["trust", "from"])))]
    Resume(OwnResumeArgs),
    /// Answer a question of a thread, and resume it.
    #[command(mut_arg("restate", |arg| arg.conflicts_with("trust")))]
    Answer(AnswerArgs),
    /// Send, list, retry and cancel jobs: runs that `worker` takes from a PostgreSQL database.
    #[command(
        subcommand,
        after_help = "\
Examples:
  jobs run orders --input @order.json --thread order-7 --key ada
  jobs answer order-7 approve true
  jobs list --dead
  jobs retry 17"
    )]
    Jobs(JobsCommand),
    /// Take jobs from a PostgreSQL database, or runs from a Restate cluster, beside any number of other workers.
    #[command(after_help = "\
With the first Ctrl-C or SIGTERM, no more jobs are taken, and runs stop after their superstep; their jobs go to other \
workers. A second signal ends the worker at once, and others take its jobs over after 15 seconds.")]
    Worker(WorkerArgs),
    /// Chat with the agent of the program in the terminal.
    Chat(OwnChatArgs),
    /// Serve the agent of the program to an editor, by the Agent Client Protocol on stdin and stdout.
    Acp(OwnAcpArgs),
    /// Serve the graphs over HTTP to clients of LangGraph and AG-UI.
    #[command(after_help = "\
Clients call a graph by its name. Another address than that of this machine needs a key, which the variable SUPERSTEP_SERVER_KEY \
has, or a file of keys of users; clients send it as `x-api-key`.")]
    Serve(OwnServeArgs),
    /// List the threads, the newest first.
    Threads(ThreadsArgs<DbArgs>),
    /// Show the state of a thread.
    State(StateArgs<DbArgs>),
    /// Show the checkpoints of a thread as a tree, with the writes of each superstep.
    History(HistoryArgs<DbArgs>),
    /// Compare two states by channel: checkpoints of a thread, or two threads.
    #[command(after_help = "\
Examples:
  diff order-7@3 @5             two checkpoints of a thread
  diff order-7 order-8          the newest states of two threads")]
    Diff(DiffArgs<DbArgs>),
    /// Continue from an older checkpoint: make a copy of it the newest one, of the thread or of a copy of it.
    Fork(ForkArgs),
    /// Change the state of a thread, in the name of one of its nodes.
    Edit(EditArgs),
    /// Follow a thread that another process runs, until it is finished or waits for an answer.
    Watch(ThreadArgs<DbArgs>),
    /// Replay a thread, or all of them, from the recorded inputs and report the first divergence.
    Replay(OwnReplayArgs),
    /// Write a thread as text, one line of JSON for each checkpoint, update and record.
    #[command(after_help = "\
The text can be reviewed, compared and stored in a repository, for example as a test; `import` stores it in a database \
again. It has everything that the thread has.

Examples:
  export order-7 > order-7.thread.jsonl
  export order-7 --redact email --redact-env API_KEY")]
    Export(ExportArgs<DbArgs>),
    /// Store the thread of a file that `export` wrote; it must not exist yet.
    #[command(after_help = "\
The thread may come from someone else, so it runs only with `--trust`.

Examples:
  import order-7.thread.jsonl
  import order-7.thread.jsonl --as case")]
    Import(ImportArgs<DbArgs>),
    /// Check, measure, prune, shrink or rekey a whole database.
    #[command(subcommand)]
    Db(DbCommand<DbArgs>),
    /// Draw a graph, or a thread's path through it.
    Draw(OwnDrawArgs),
    /// Print the JSON Schema of a graph's inputs and updates, or of its states.
    Schema(SchemaArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct OwnChatArgs {
    #[command(flatten)]
    pub(crate) conversation: ConversationArgs,
    /// Run calls that require approval, except those that a rule denies.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OwnServeArgs {
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) database: DbArgs,
    /// Run the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OwnAcpArgs {
    #[command(flatten)]
    pub(crate) database: DbArgs,
    /// Begin sessions in the mode `auto`: run calls that require approval, except those that a rule denies.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The output of a run, and the confirmation for a database of someone else.
#[derive(Args, Clone, Debug)]
pub(crate) struct OwnTurnArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
    /// Print only the final state and errors.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Run the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OwnRunArgs {
    /// The graph; may be omitted if the program has only one.
    pub(crate) graph: Option<String>,
    /// The input: JSON, `@FILE`, or `-` for stdin [default: `{}`].
    #[arg(long, short, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The thread to continue, or a name for a new one [default: a new name].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    /// Start from this checkpoint of the thread, on a new branch, instead of from its newest one.
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint, requires = "thread")]
    pub(crate) from: Option<u64>,
    /// Refuse if the thread exists already, also a finished one.
    #[arg(long, requires = "thread", conflicts_with_all = ["from", "discard"])]
    pub(crate) new: bool,
    /// Discard the pending tasks of an unfinished thread instead of refusing.
    #[arg(long)]
    pub(crate) discard: bool,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) turn: OwnTurnArgs,
}

#[derive(Args, Debug)]
pub(crate) struct OwnResumeArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    /// Resume from this checkpoint, on a new branch, instead of from the newest one.
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) from: Option<u64>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) turn: OwnTurnArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AnswerArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    /// The key of the question, or its id.
    pub(crate) key: String,
    /// The answer: JSON, `@FILE`, or `-` for stdin. A text is in quotes: '"yes"'.
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) turn: OwnTurnArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ForkArgs {
    /// The checkpoint.
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) at: u64,
    /// Leave the thread as it is, and fork a copy of this name.
    #[arg(long = "as", value_name = "NEW", value_parser = new_thread_name)]
    pub(crate) new: Option<String>,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<DbArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct EditArgs {
    /// The update: JSON, `@FILE`, or `-` for stdin.
    #[arg(long, short, value_name = "JSON")]
    pub(crate) update: String,
    /// The node in whose name it is stored, and whose successors run next; `__start__` is an input, `__end__` ends the
    /// thread [default: the node that ran last].
    #[arg(long = "as", value_name = "NODE")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<DbArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct OwnReplayArgs {
    #[command(flatten)]
    pub(crate) cases: ReplayedArgs,
    /// Run this node live, on a fork.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["all", "review", "accept"])]
    pub(crate) live: Vec<String>,
    /// Replay files, and the threads of this database although this program did not create it on this machine.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<DbArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// The graph; may be omitted if the program has only one.
    pub(crate) graph: Option<String>,
    /// Print the schema of the states instead.
    #[arg(long)]
    pub(crate) output: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OwnDrawArgs {
    /// The graph; may be omitted if the program has only one, or with `--thread`.
    #[arg(conflicts_with = "thread")]
    pub(crate) graph: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Draw the graph of this thread, with its path and its next tasks.
    #[arg(long, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) location: DbArgs,
}
