//! Flags that several commands have.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use superstep::{agent::presets::PRESETS, llm::ApiKey};

use super::values::{ThreadAt, age, checkpoint, database, thread_at};
use superstep_session::{
    config::{
        configuration::{Configuration, Mode},
        instructions::TrustedFiles,
        location::Location,
        names::{DbName, VARIABLE, thread_name},
        settings::{Given, Settings},
    },
    error::SessionError,
};

use crate::output::log::LogFilter;

/// The name of the agent's program.
pub(crate) const AGENT: &str = "superstep";

/// The folder and the database.
#[derive(Args, Clone, Debug)]
pub(crate) struct LocationArgs {
    /// The database [default: SUPERSTEP_DB, then `.superstep/threads.db` in `--cwd`].
    #[arg(long, value_name = "FILE|URL", env = VARIABLE, hide_env = true, value_parser = database())]
    pub(crate) db: Option<DbName>,
    /// The folder of `.superstep` and the tools [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// The database of a program with graphs of its own.
#[derive(Args, Clone, Debug)]
pub(crate) struct DbArgs {
    /// The database [default: SUPERSTEP_DB, then `.superstep/threads.db` in the current folder].
    #[arg(long, value_name = "FILE|URL", env = VARIABLE, hide_env = true, value_parser = database())]
    pub(crate) db: Option<DbName>,
}

/// Arguments that name the database of a command.
pub(crate) trait Locate: Args {
    /// Resolves the folder and the database of a program.
    ///
    /// # Errors
    /// Those of [`Location::new`].
    fn locate(self, program: &str) -> Result<Location, SessionError>;
}

impl Locate for LocationArgs {
    fn locate(self, program: &str) -> Result<Location, SessionError> {
        Location::new(program, self.db, self.cwd)
    }
}

impl Locate for DbArgs {
    fn locate(self, program: &str) -> Result<Location, SessionError> {
        Location::new(program, self.db, None)
    }
}

/// The selection of what is logged.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// Log on stderr: `info`, `debug`, or `superstep=debug,rmcp=info`.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<LogFilter>,
}

/// The database, and the form of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseArgs<L: Args> {
    #[command(flatten)]
    pub(crate) location: L,
    /// Print JSON: one object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A thread of a database.
#[derive(Args, Clone, Debug)]
pub(crate) struct ThreadArgs<L: Args> {
    /// The thread.
    #[arg(index = 1, value_name = "THREAD", value_parser = thread_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}

#[derive(Args, Debug)]
pub(crate) struct StateArgs<L: Args> {
    /// The checkpoint [default: the newest].
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) at: Option<u64>,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<L>,
}

#[derive(Args, Debug)]
pub(crate) struct HistoryArgs<L: Args> {
    /// Maximum number of checkpoints.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs<L>,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs<L: Args> {
    /// The first state: a thread, or `THREAD@CHECKPOINT`.
    #[arg(value_parser = thread_at)]
    pub(crate) a: ThreadAt,
    /// The second state: a thread, `THREAD@CHECKPOINT`, or `@CHECKPOINT` for the same thread.
    #[arg(value_parser = thread_at)]
    pub(crate) b: ThreadAt,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}

/// The threads to list.
#[derive(Args, Debug)]
pub(crate) struct ThreadsArgs<L: Args> {
    /// List only the threads that this program cannot resume, with the reasons; exit with 5 if there are any.
    #[arg(long)]
    pub(crate) check: bool,
    /// List only threads with this text in their name, title or model.
    #[arg(long, value_name = "TEXT", conflicts_with = "check")]
    pub(crate) search: Option<String>,
    /// List only threads of this status.
    #[arg(long, value_enum, value_name = "STATUS", conflicts_with = "check")]
    pub(crate) status: Option<StatusFilter>,
    /// List only threads that changed in this time, such as `7d`.
    #[arg(long, value_name = "DURATION", conflicts_with = "check", value_parser = age)]
    pub(crate) since: Option<Duration>,
    /// Maximum number of threads.
    #[arg(long, value_name = "N", conflicts_with = "check")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}

/// The status of threads to list.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusFilter {
    /// The last turn has ended.
    Finished,
    /// A call or a question waits for the user.
    Waiting,
    /// A turn was stopped, and can be resumed.
    Stopped,
    /// The thread cannot be read or resumed here.
    Failed,
}

/// The checkpoints to retain: one of these.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct KeepArgs {
    /// Retain this number of newest checkpoints.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep_last: Option<u32>,
    /// Delete those older than this, such as `12h`, `30d` or `2w`.
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Retain the last one of each branch.
    #[arg(long)]
    pub(crate) leaves: bool,
}

/// The threads or files to replay.
#[derive(Args, Debug)]
pub(crate) struct ReplayedArgs {
    /// The thread; with `--all`, `--review` or `--accept` a folder of files `*.thread.jsonl`, or one such file.
    #[arg(value_name = "THREAD")]
    pub(crate) target: Option<String>,
    /// Replay all threads of the database, or of the folder.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) all: bool,
    /// Replay the files, and decide on each divergence: accept, which records the new result in the file, reject, or skip.
    #[arg(long, conflicts_with_all = ["all", "from", "to", "json"])]
    pub(crate) review: bool,
    /// Accept all divergences of the files, without a question.
    #[arg(long, conflicts_with_all = ["all", "from", "to", "json"])]
    pub(crate) accept: bool,
    /// The first checkpoint [default: the thread's first].
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) from: Option<u64>,
    /// The last checkpoint, which may be on another branch [default: the newest].
    #[arg(long, value_name = "CHECKPOINT", allow_negative_numbers = true, value_parser = checkpoint)]
    pub(crate) to: Option<u64>,
    /// Exit with 1 unless the whole thread was replayed.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Format {
    /// One line per edge.
    Text,
    /// A Mermaid flowchart.
    Mermaid,
    /// Graphviz DOT.
    Dot,
    /// An SVG picture.
    Svg,
    /// A PNG picture, if the program was built with the feature `png`.
    Png,
}

/// The options of an agent.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AgentArgs {
    /// The model, or `offline` [default: that of `--config`, then the thread's, then OPENAI_MODEL].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The server, such as `http://127.0.0.1:11434/v1` [default: that of `--config`, then the thread's, then OPENAI_BASE_URL].
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The key [default: OPENAI_API_KEY, which is safer: other programs can see command lines].
    #[arg(long, value_name = "KEY", value_parser = |key: &str| Ok::<_, String>(ApiKey::new(key.trim())))]
    pub(crate) api_key: Option<ApiKey>,
    /// The preset: see `superstep presets` [default: the thread's, then `default`].
    #[arg(long, value_name = "PRESET", conflicts_with = "config", value_parser = PossibleValuesParser::new(PRESETS.map(|preset| preset.name)))]
    pub(crate) preset: Option<String>,
    /// A TOML file with changes to a preset, which its entry `preset` names [default: the thread's].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run until the agent is done, or call its model at most twice [default: the thread's, then `react`;
    /// `single` with `--preset opencode` and no `--max-steps`].
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeFlag>,
    /// The step limit of a turn [default: the thread's, then the preset's].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) max_steps: Option<u32>,
    /// The agent's tools, by name or group, such as `read,shell`: see `superstep tools` [default: the
    /// thread's, then all].
    #[arg(long, value_name = "NAMES")]
    pub(crate) tools: Option<String>,
    /// Run every call that requires approval, as if a rule allowed it; calls that a rule denies are denied.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Read the `AGENTS.md` files and skills that the folder has now, although you have not confirmed them; see `superstep config`.
    #[arg(long)]
    pub(crate) trust_folder: bool,
}

/// The options of a turn.
#[derive(Args, Debug, Default)]
pub(crate) struct TurnArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Continue the thread although it was set back, replaced or deleted since your last run.
    #[arg(long)]
    pub(crate) trust: bool,
    /// Do not use a long-term memory; stored with the thread.
    #[arg(long)]
    pub(crate) no_memory: bool,
    /// Print one JSON object per line on stdout: the events, then `final`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the final reply and errors.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SkillsArgs {
    /// Print one JSON object per skill.
    #[arg(long)]
    pub(crate) json: bool,
    /// The folder [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ModeFlag {
    /// One round: the model may call tools, and then replies.
    Single,
    /// As many rounds as the preset allows.
    React,
}

impl AgentArgs {
    /// Returns the settings for a program whose folder is `cwd`, by default the current one.
    ///
    /// # Errors
    /// The files of the folder are to be trusted, and it cannot be used.
    pub(crate) fn given(self, cwd: Option<&Path>) -> Result<Given, SessionError> {
        let Self {
            model,
            base_url,
            api_key: key,
            preset,
            config: file,
            mode,
            max_steps,
            tools,
            yes,
            trust_folder,
        } = self;
        let mode = mode.map(|mode| match mode {
            ModeFlag::Single => Mode::Single,
            ModeFlag::React => Mode::React,
        });
        let tools = tools.map(|names| {
            let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        });
        let mut config = Configuration { preset, mode, tools, ..Configuration::default() };
        if let Some(max) = max_steps {
            config.set_max_steps(max);
        }
        let settings = Settings { model, base_url, config, ..Settings::default() };
        let trusted = if trust_folder { TrustedFiles::of(cwd)? } else { TrustedFiles::default() };
        Ok(Given { settings, file, key, approves_all: yes, trusted, ..Given::default() })
    }
}

impl TurnArgs {
    /// Returns the settings as [`AgentArgs::given`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn given(self, cwd: &Path) -> Result<Given, SessionError> {
        let given = self.agent.given(Some(cwd))?;
        Ok(if self.no_memory { given.without_memory() } else { given })
    }
}
