//! The commands of `superstep memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use superstep_session::config::names::user_name;

use crate::args::shared::{DatabaseArgs, LocationArgs};

#[derive(Subcommand, Debug)]
pub(crate) enum MemoryCommand {
    /// List the entries of a user's memory.
    List {
        /// Maximum number of entries.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Search a user's memory, the best matches first.
    Search {
        /// The query.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        query: String,
        /// Maximum number of entries.
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Add an entry to a user's memory.
    Add {
        /// The text of the entry.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        text: String,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Delete entries by the ids that `list` and `search` show.
    Forget {
        /// The entries.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Encrypt the data keys of a memory in a database with the key in SUPERSTEP_KEY, in place of those in SUPERSTEP_OLD_KEY.
    Rekey(MemoryRekeyArgs),
}

/// The memory of all users.
#[derive(Args, Debug)]
pub(crate) struct MemoryRekeyArgs {
    /// A TOML file whose table `memory` configures it [default: the user's own].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
}

/// The memory and its user.
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// The user [default: that of the configuration, or `me`].
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    pub(crate) user: Option<String>,
    /// A TOML file whose table `memory` configures it [default: the user's own].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<LocationArgs>,
}
