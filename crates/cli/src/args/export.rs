//! The arguments of `export` and `import`.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use superstep_session::config::names::{new_thread_name, thread_name};

use crate::args::shared::DatabaseArgs;

/// The contents of a text.
#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    /// Replace the values of this channel, or of a part of it such as `messages.*.content`, and everything that tasks
    /// recorded; `conversation` is the agent's `messages`. A rule for these covers the channels that repeat them.
    #[arg(long, value_name = "CHANNEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) redact: Vec<String>,
    /// Replace the text in this environment variable, such as a key, wherever it is stored.
    #[arg(long, value_name = "VARIABLE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) redact_env: Vec<String>,
    /// Include all snapshots, so that the imported thread loads as fast as this one.
    #[arg(long)]
    pub(crate) snapshots: bool,
}

/// A text to import.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// The file, as `export` writes it; `-` for stdin.
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    /// The name of the thread, which must not exist [default: the name in the file].
    #[arg(long = "as", value_name = "THREAD", value_parser = new_thread_name)]
    pub(crate) name: Option<String>,
    /// Import the thread even if its states fold to other values than were stored with them.
    #[arg(long)]
    pub(crate) accept: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs<L: Args> {
    /// The thread.
    #[arg(value_parser = thread_name)]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) location: L,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs<L: Args> {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}
