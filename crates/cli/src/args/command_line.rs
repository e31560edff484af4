//! The command line.

use std::{env, io::Write, path::PathBuf, time::Duration};

use clap::{
    Arg, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    builder::NonEmptyStringValueParser,
};
use superstep::{agent::config::PinKind, llm::ApiKey};
use superstep_session::config::names::{new_thread_name, thread_name, user_name};

use crate::{
    args::{
        decisions::DecisionArgs,
        export::{ExportArgs, ImportArgs},
        jobs::{AgentJobsCommand, AgentWorkerArgs, on_server},
        memory::MemoryCommand,
        new::NewArgs,
        serve::ServeArgs,
        service::ServiceArgs,
        shared::{
            AgentArgs, DatabaseArgs, DbArgs, DiffArgs, Format, HistoryArgs, KeepArgs, LocationArgs, LogArgs,
            ReplayedArgs, SkillsArgs, StateArgs, ThreadArgs, ThreadsArgs, TurnArgs,
        },
        storage::DbCommand,
        values::{Stdin, age, checkpoint, stdin},
    },
    output::{exit::Exit, note::report, table::written},
};

const EXAMPLES: &str = "\
Examples:
  superstep run \"Where is the retry policy defined?\"
  git diff | superstep run \"Review this.\" - --quiet > review.txt
  superstep run --base-url http://127.0.0.1:11434/v1 --model llama3.2 \"What is 37*91+5?\"
  superstep resume t-20261121-223015-3f2a91c4
  superstep threads
  superstep prune t-20261121-223015-3f2a91c4 --older-than 30d
  superstep draw --format mermaid

Environment:
  OPENAI_BASE_URL, OPENAI_MODEL   the server and the model
  OPENAI_API_KEY                  the key; it is never stored
  ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, GEMINI_BASE_URL, GEMINI_API_KEY
                                  those of models named `anthropic/NAME` and `gemini/NAME`
  GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION, GOOGLE_ACCESS_TOKEN, GOOGLE_ACCESS_TOKEN_COMMAND
                                  the project and the tokens of models named `vertex/NAME`
  SUPERSTEP_LOCAL_SERVERS         the servers to discover, as `NAME=URL,...`; empty for none
  SUPERSTEP_DB                    the database of commands without `--db`
  SUPERSTEP_KEY                   the key that encrypts threads and memories
  SUPERSTEP_SERVER_KEY            the key that clients of `serve` send
  SUPERSTEP_OLD_KEY               keys that only decrypt, separated by commas
  SUPERSTEP_REQUIRE_ENCRYPTION    `true` refuses what is not encrypted
  SUPERSTEP_STATE_DIR             the folder with your decisions on threads
  RUST_LOG                        as `--log`
  OTEL_EXPORTER_OTLP_ENDPOINT     the collector of OpenTelemetry for traces and metrics
  OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT
                                  `SPAN_ONLY` exports prompts, replies, arguments and results
  NO_COLOR                        no colours

Exit codes:
    0  done; even if a limit, a budget, a loop or a denial ended the turn, with an explanation
    1  the run, a fatal tool, an MCP server, the output or `--strict` failed; a reply is not valid
    2  wrong command line, prompt or setting
    3  the model is unavailable
    4  the database, or the memory, cannot be opened, read or written
    5  the thread is unknown, busy, unfinished or not suitable
    6  calls wait for a decision; the message shows the command
    7  a replay diverged from the stored thread
   70  a bug in superstep
  130  interrupted; the message shows how to resume";

/// A ReAct agent in the terminal: it replies with the help of tools, and every step is stored and can be
/// resumed.
#[derive(Parser, Debug)]
#[command(name = "superstep", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Reply to a prompt.
    #[command(mut_arg("restate", |arg| arg.conflicts_with_all(OF_THE_WORKER).conflicts_with_all(["user", "new", "discard", "last", "attach"])), after_help = "\
Without a model server and a key, superstep discovers one on this machine (Ollama, LM Studio, llama.cpp). If there is \
none, it uses the demonstration `--model offline`, which is not a language model: it plans tool calls by rules and quotes their results.

The reply is printed on stdout, everything else on stderr. Ctrl-C stops the turn and shows how to resume it.")]
    Run(RunArgs),
    /// Resume a turn that was stopped or killed, waits for a decision, or whose model was unavailable.
    #[command(mut_arg("restate", |arg| arg.conflicts_with_all(OF_THE_WORKER)), after_help = "\
Examples:
  superstep resume t-20261121-223015-3f2a91c4
  superstep resume t-20261121-223015-3f2a91c4 --approve
  superstep resume t-20261121-223015-3f2a91c4 --approve call_1 --deny \"call_2=not on a Friday\"")]
    Resume(ResumeArgs),
    /// Send a message to a running turn, for example in another terminal; the agent reads it before its next
    /// model call.
    Steer(SteerArgs),
    /// Pin what the model must not forget on a thread; without a text, list the pins.
    #[command(after_help = "\
A pin is in every request, word for word, also when earlier messages are left out.

Examples:
  superstep pin order \"Never push to main.\"
  superstep pin order --kind goal \"Release 2.0 by Friday.\" --id release
  superstep pin order --remove release")]
    Pin(PinArgs),
    /// Chat in the terminal, on one thread.
    #[command(after_help = "\
Enter sends; while a turn runs, Enter sends the message into it and Tab queues it. Esc cancels the turn. `/help` lists the \
commands and keys; see `docs/chat.md`. Without a terminal, and with `--plain`, each line of stdin is a prompt, and the exit \
codes are those of `run`.

Examples:
  superstep chat
  superstep chat --last
  superstep chat --thread rename \"Rename the module.\"")]
    Chat(ChatArgs),
    /// Serve an editor on stdin and stdout, by the Agent Client Protocol.
    #[command(after_help = "\
Editors start this command: see `docs/acp.md` for Zed, JetBrains and Neovim. A session is a thread: `superstep threads`, \
`state` and `resume` work beside the editor. Stdout carries only the protocol, and `--log` writes to stderr.

Examples:
  superstep acp --model anthropic/claude-sonnet-4-5
  superstep acp --config mine.toml --log info 2> acp.log")]
    Acp(AcpArgs),
    /// Serve the agent over HTTP to clients of LangGraph: its SDKs, `useStream`, and chat pages.
    #[command(after_help = "\
Clients call the agent by the name `agent`: see `docs/server.md`. Runs that were accepted continue after a restart. Another \
address than that of this machine needs a key, which the variable SUPERSTEP_SERVER_KEY has, or a file of keys of users; clients \
send it as `x-api-key`.

Examples:
  superstep serve
  superstep serve --model anthropic/claude-sonnet-4-5 --port 8080
  SUPERSTEP_SERVER_KEY=... superstep serve --host 0.0.0.0 --allow-origin https://chat.example.org
  superstep serve --keys users.keys --new-key alice
  superstep serve --keys users.keys --host 0.0.0.0 --rate 5")]
    Serve(ServeArgs),
    /// Send, list, retry and cancel jobs: turns that `worker` takes from a PostgreSQL database.
    #[command(
        subcommand,
        after_help = "\
Examples:
  superstep jobs run \"Where is my order?\" --thread support-17 --key support-17
  superstep jobs answer support-17 --approve
  superstep jobs list --dead
  superstep jobs schedule add digest \"0 9 * * MON-FRI\" \"What is new in this folder?\" --zone Europe/Berlin"
    )]
    Jobs(AgentJobsCommand),
    /// Take jobs from a PostgreSQL database, or turns from a Restate cluster, and run them, beside any number of other workers.
    #[command(mut_args = without_thread, after_help = "\
The model, the tools, the rules and the folder are those of this command, for every job: a job has a thread and a prompt or \
a decision. Settings of the job's thread are ignored. Calls that require approval wait; decide with `superstep jobs answer`.

With the first Ctrl-C or SIGTERM, no more jobs are taken, and runs stop after their superstep; their jobs go to other \
workers. A second signal ends the worker at once, and others take its jobs over after 15 seconds.

Examples:
  superstep worker --config support.toml --cwd /srv/support --deny shell
  superstep worker --tools read --concurrency 16 --limit 32
  superstep worker --restate http://127.0.0.1:8080")]
    Worker(AgentWorkerArgs),
    /// List the threads, the newest first.
    Threads(ThreadsArgs<LocationArgs>),
    /// Delete threads with all of their checkpoints.
    Delete(DeleteArgs),
    /// Copy a thread; the copy is independent of the original.
    Copy(CopyArgs),
    /// Adopt a thread that another graph began, such as an agent of your own program.
    Adopt(ThreadArgs<LocationArgs>),
    /// Delete older checkpoints of a thread; its newest one always stays.
    Prune(PruneArgs),
    /// Check, measure, prune, shrink or rekey a whole database.
    #[command(
        subcommand,
        after_help = "\
Examples:
  superstep db check
  superstep db stats --json
  superstep db prune --older-than 30d && superstep db vacuum
  SUPERSTEP_OLD_KEY=$SUPERSTEP_KEY SUPERSTEP_KEY=$(cat new.key) superstep db rekey"
    )]
    Db(DbCommand<LocationArgs>),
    /// Restore files that tools changed after a checkpoint of a finished thread.
    #[command(after_help = "\
Restores the files that the thread's tools changed after the checkpoint. If another program changed one of them since, no \
file is restored, except with `--force`. `superstep history` lists the checkpoints. The thread itself stays at its \
checkpoint, and its model is informed.

Examples:
  superstep revert t-20261121-223015-3f2a91c4 --to 4")]
    Revert(RevertArgs),
    /// Inspect or change the long-term memory of a user.
    #[command(
        subcommand,
        after_help = "\
Without a configuration it is the memory of the user `me` in the state folder; see `docs/memory.md`.

Examples:
  superstep memory add \"I like tea\"
  superstep memory search tea
  superstep memory list --user ada --json"
    )]
    Memory(MemoryCommand),
    /// Consolidate memory ("dream"): update a user's MEMORY.md from new turns, if due.
    #[command(after_help = "\
Requires a configuration with `[dream]`, which records turns. `superstep run` dreams after a turn if due.

Examples:
  superstep dream --config mine.toml
  superstep dream --user ada --now")]
    Dream(DreamArgs),
    /// Show the state of a thread.
    State(StateArgs<LocationArgs>),
    /// Show the checkpoints of a thread as a tree, with the writes of each superstep.
    History(HistoryArgs<LocationArgs>),
    /// Compare two states by channel: checkpoints of a thread, or two threads.
    #[command(after_help = "\
Examples:
  superstep diff t-20261121-223015-3f2a91c4@4 @9
  superstep diff t-20261121-223015-3f2a91c4 t-20261121-230144-07c14fa8")]
    Diff(DiffArgs<LocationArgs>),
    /// Follow a thread that another process runs, until its turn ends or waits for a decision.
    Watch(ThreadArgs<LocationArgs>),
    /// Replay a thread, or all of them, from the recorded inputs and report the first divergence.
    #[command(after_help = "\
Neither the model nor tools run: their results come from the thread. Nothing is stored. With another `--config` or \
`--preset`, the replay shows the effect of the change on stored conversations.

`--live-model` and `--live-tools` run live on a fork of the thread. The replayed branch is unchanged, and the thread \
returns to its checkpoint, unless the program is killed. The thread must be finished.

Examples:
  superstep replay t-20261121-223015-3f2a91c4
  superstep replay t-20261121-223015-3f2a91c4 --config mine.toml --json
  superstep replay t-20261121-223015-3f2a91c4 --from 4 --live-model
  superstep replay --all tests/threads --json
  superstep replay --review tests/threads --config mine.toml")]
    Replay(ReplayArgs),
    /// Write a thread as text, one line of JSON for each checkpoint, update and record.
    #[command(after_help = "\
The text can be reviewed, compared and stored in a repository; `superstep import` stores it in a database again. It has \
everything that the thread has: conversations, results of tools, and your settings.

Examples:
  superstep export t-20261121-223015-3f2a91c4 > case.thread.jsonl
  superstep export t-20261121-223015-3f2a91c4 --redact messages --redact-env OPENAI_API_KEY")]
    Export(ExportArgs<LocationArgs>),
    /// Store the thread of a file that `superstep export` wrote; it must not exist yet.
    #[command(after_help = "\
The thread is treated like one of a foreign database: rules that allow, answers and servers in the file have no effect \
until you name them yourself.

Examples:
  superstep import case.thread.jsonl
  superstep import case.thread.jsonl --as case-2")]
    Import(ImportArgs<LocationArgs>),
    /// Draw the agent's graph, or a thread's path through it.
    #[command(visible_alias = "graph")]
    Draw(DrawArgs),
    /// Show the settings of a new thread, each with its source: a flag, the environment, a file, or a default.
    #[command(after_help = "\
`superstep.toml` in the folder and in your configuration folder, $XDG_CONFIG_HOME/superstep or ~/.config/superstep, have the \
entries of `--config`. That of a folder counts once you have confirmed it; a changed file is to be confirmed again. The same holds \
for `AGENTS.md` and skills of the folder, which are listed as well.

Examples:
  superstep config
  superstep config --trust
  superstep config --json")]
    Config(ConfigArgs),
    /// Check what a turn needs: folder, database, model, MCP servers; exit with 1 if something is missing.
    #[command(after_help = "\
The list of models is requested from the server of the model; no tokens are spent.

Examples:
  superstep doctor
  superstep doctor --config mine.toml
  superstep doctor --model anthropic/claude-sonnet-4-5 --json")]
    Doctor(DoctorArgs),
    /// Sum the tokens and estimated costs of the turns, by day, model or thread.
    #[command(after_help = "\
Turns of all branches count. Costs are estimates, by the prices of the day of the turn; see `docs/models.md`.

Examples:
  superstep usage
  superstep usage --by model --since 7d
  superstep usage --by thread --json")]
    Usage(UsageArgs),
    /// List the known windows, abilities and prices of models, or learn them from a server.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "\
Without NAME the models of the configuration are listed, or all known ones if it names none. Prices are estimates, in $ per \
million tokens, of the day that is shown.

Examples:
  superstep models
  superstep models claude --json
  superstep models learn --base-url http://127.0.0.1:11434/v1 --model qwen3:8b"
    )]
    Models(ModelsArgs),
    /// List the agent's presets, or print one as a file to edit.
    #[command(after_help = "\
Examples:
  superstep presets
  superstep presets opencode > mine.toml
  superstep run --config mine.toml \"What is new here?\"")]
    Presets(PresetsArgs),
    /// List the skills of the folder and of yours.
    #[command(after_help = "\
A skill is a folder with a `SKILL.md` in `.superstep/skills` or `.agents/skills` of the folder, in `skills` of your configuration \
folder, or in `~/.agents/skills`. The model loads it by the tool `skill`, and you by its name in a prompt, `$NAME`. Those of the \
folder are used once you have confirmed them with `superstep config --trust`.

Examples:
  superstep skills
  superstep skills --json")]
    Skills(SkillsArgs),
    /// List the agent's tools by group.
    Tools(ToolsArgs),
    /// Create a project with a graph of your own: its program, its tests, and a stored thread that they replay.
    #[command(after_help = "\
The program of the project has `run`, `answer`, `history` and the other commands for its graph. The crates are not in a \
registry yet, so name a checkout of superstep with `--path`.

Examples:
  superstep new my-shop --path ../superstep")]
    New(NewArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Confirm `superstep.toml`, `AGENTS.md` and the skills of the folder, as they are now.
    #[arg(long, conflicts_with = "json")]
    pub(crate) trust: bool,
    /// Print JSON: one object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The folder [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The model [default: as for `run`].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The server [default: as for `run`].
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A TOML file, whose model and MCP servers are checked too.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) location: LocationArgs,
    /// Print JSON: one object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UsageArgs {
    /// The subject of a line.
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// Only turns that ended in this time, such as `7d`.
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub(crate) since: Option<Duration>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
}

/// The subject of a line of `usage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    Day,
    Model,
    Thread,
}

impl UsageBy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Thread => "thread",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) database: DbArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Use no long-term memory.
    #[arg(long)]
    pub(crate) no_memory: bool,
}

/// A conversation in the terminal.
#[derive(Args, Debug)]
pub(crate) struct ConversationArgs {
    /// The first message.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) prompt: Option<String>,
    /// The thread to continue, or a name for a new one [default: a new name].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    /// Continue the newest thread of the folder.
    #[arg(long, conflicts_with = "thread")]
    pub(crate) last: bool,
    /// Print lines, without colours and movement: for screen readers, and the default for `TERM=dumb`.
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) location: LocationArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) conversation: ConversationArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Use no long-term memory.
    #[arg(long)]
    pub(crate) no_memory: bool,
}

/// The arguments of a turn that are those of the worker, if one does it.
const OF_THE_WORKER: [&str; 12] = [
    "model",
    "base_url",
    "api_key",
    "preset",
    "config",
    "mode",
    "max_steps",
    "tools",
    "yes",
    "no_memory",
    "trust",
    "from",
];

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The prompt; `-`, or nothing with a pipe, reads stdin. At most 1 MiB.
    pub(crate) prompt: Option<String>,
    /// `-` after a prompt appends stdin to it.
    #[arg(value_name = "-", value_parser = stdin)]
    pub(crate) stdin: Option<Stdin>,
    /// The thread to continue, or a name for a new one [default: a new name].
    #[arg(long, value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) thread: Option<String>,
    /// Continue the newest thread of the folder.
    #[arg(long, visible_alias = "continue", conflicts_with_all = ["thread", "new"])]
    pub(crate) last: bool,
    /// An image, audio or a PDF file that goes with the prompt: PNG, JPEG, GIF, WebP, WAV, MP3 or PDF.
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// The user of the memory; see `superstep memory` [default: the thread's, then that of the configuration,
    /// or `me`].
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    pub(crate) user: Option<String>,
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
    pub(crate) location: LocationArgs,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    /// Resume from this checkpoint, on a new branch, instead of from the newest one.
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) from: Option<u64>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) location: LocationArgs,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    #[command(flatten)]
    pub(crate) decisions: DecisionArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SteerArgs {
    /// The message.
    #[arg(index = 2, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// The text to keep.
    #[arg(index = 2, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: Option<String>,
    /// The kind of text; rules are the most important.
    #[arg(long, value_parser = pin_kind, default_value = "rule", value_name = "rule|goal|preference|fact")]
    pub(crate) kind: PinKind,
    /// The name of the pin; a pin with the same one is replaced. Made of the text if absent.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,
    /// Remove the pin with this name; can be repeated.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["text", "id", "kind"])]
    pub(crate) remove: Vec<String>,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<LocationArgs>,
}

fn pin_kind(name: &str) -> Result<PinKind, String> {
    let kind = PinKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    kind.ok_or_else(|| "is `rule`, `goal`, `preference` or `fact`".to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The threads. None is deleted if one is unknown.
    #[arg(required = true, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) threads: Vec<String>,
    /// Skip the confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// The name of the new thread, which must not exist.
    #[arg(index = 2, value_parser = new_thread_name)]
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Skip the confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct RevertArgs {
    /// The checkpoint.
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) to: u64,
    /// Also restore files that another program changed since.
    #[arg(long)]
    pub(crate) force: bool,
    /// Skip the confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct DreamArgs {
    /// The user [default: the user of the file that `--config` names, or `me`].
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    pub(crate) user: Option<String>,
    /// Run even if no dream is due.
    #[arg(long)]
    pub(crate) now: bool,
    /// The model [default: that of the last dream, then OPENAI_MODEL].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The server [default: that of the last dream, then OPENAI_BASE_URL].
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The key [default: OPENAI_API_KEY, which is safer: other programs can see command lines].
    #[arg(long, value_name = "KEY", value_parser = |key: &str| Ok::<_, String>(ApiKey::new(key.trim())))]
    pub(crate) api_key: Option<ApiKey>,
    /// A TOML file with the tables `dream` and `memory` [default: that of the last dream].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) cases: ReplayedArgs,
    /// Call the model live, on a fork.
    #[arg(long, conflicts_with_all = ["all", "review", "accept"])]
    pub(crate) live_model: bool,
    /// Run the tools live, on a fork.
    #[arg(long, conflicts_with_all = ["all", "review", "accept"])]
    pub(crate) live_tools: bool,
    /// Use the current tools of MCP servers instead of the recorded ones, and end where they differ.
    #[arg(long)]
    pub(crate) current_tools: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Do not use a long-term memory.
    #[arg(long)]
    pub(crate) no_memory: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DrawArgs {
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Mark the path of this thread and its next tasks.
    #[arg(long, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) location: LocationArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ModelsCommand>,
    /// List the known models whose names contain this text.
    pub(crate) name: Option<String>,
    /// A TOML file that names models.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object per model.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ModelsCommand {
    /// Query the server of a model for its window, abilities and prices, and print them as an entry of the table.
    #[command(after_help = "\
No run sends such a request. Review the entry, and add it to `superstep/models.toml` in your configuration folder, \
$XDG_CONFIG_HOME or ~/.config.

Examples:
  superstep models learn --model claude-opus-5-5 --base-url https://api.anthropic.com/v1
  superstep models learn --config mine.toml >> ~/.config/superstep/models.toml")]
    Learn(LearnArgs),
}

#[derive(Args, Debug)]
pub(crate) struct LearnArgs {
    /// The model [default: that of `--config`, then OPENAI_MODEL].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The server [default: that of `--config`, then OPENAI_BASE_URL].
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A TOML file that names the model.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print a JSON object instead of TOML.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PresetsArgs {
    /// The preset to print as TOML.
    pub(crate) name: Option<String>,
    /// Print one JSON object per preset.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ToolsArgs {
    /// A TOML file whose MCP servers are started to list their tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object per tool.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes the settings of a thread from the defaults that the help of an argument names.
fn without_thread(arg: Arg) -> Arg {
    match arg.get_help().map(ToString::to_string) {
        Some(help) => {
            arg.help(help.replace(" [default: the thread's]", "").replace("the thread's, then ", ""))
        }
        None => arg,
    }
}

/// Returns the commands and their arguments.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("jobs", on_server).mut_subcommand("worker", on_server)
}

/// Parses the command line, and returns the command with its name; an `Err` has been reported already. If `chats`, an empty command
/// line is that of a chat.
pub(crate) fn parse(chats: bool) -> Result<(Command, String, LogArgs), Exit> {
    let mut words: Vec<_> = env::args_os().collect();
    if chats && words.len() == 1 {
        words.push("chat".into());
    }
    let parsed = command().try_get_matches_from(words).and_then(|found| {
        let name = found.subcommand_name().unwrap_or_default().to_owned();
        Ok((Cli::from_arg_matches(&found)?, name))
    });
    match parsed {
        Ok((cli, name)) => Ok((cli.command, name, cli.log)),
        Err(error) => Err(explained(&error)),
    }
}

/// Prints help or the version on stdout, and an error of the command line on stderr.
pub(crate) fn explained(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        // If stderr is closed, only the exit code remains.
        return Exit::Usage;
    }
    written(printed).unwrap_or_else(|error| report(&error))
}

/// Writes the completion script.
pub(crate) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> std::io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "superstep", &mut script);
    out.write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::own::OwnCli;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// The help is wrapped at the width of the terminal, so that a paragraph is one line.
    #[track_caller]
    fn assert_paragraphs(command: &clap::Command) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let is_prose = |line: &&str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        let lines: Vec<_> = text.lines().collect();
        let broken = lines.windows(2).find(|pair| pair.iter().all(is_prose));
        assert_eq!(broken, None, "a paragraph of `{}`", command.get_name());
        command.get_subcommands().for_each(assert_paragraphs);
    }

    #[test]
    fn paragraphs_of_the_help_are_single_lines() {
        assert_paragraphs(&command());
        assert_paragraphs(&OwnCli::command());
    }

    #[test]
    fn a_key_is_not_in_debug_output() {
        let cli = Cli::try_parse_from(["superstep", "run", "x", "--api-key", "sk-secret"]).unwrap();
        assert!(!format!("{cli:?}").contains("sk-secret"), "{cli:?}");
    }
}
