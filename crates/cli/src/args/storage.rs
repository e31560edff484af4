//! The arguments of `db`.

use clap::{Args, Subcommand};

use crate::args::shared::{DatabaseArgs, KeepArgs};

/// A command for a whole database.
#[derive(Subcommand, Debug)]
pub(crate) enum DbCommand<L: Args> {
    /// Read every thread whole and verify the file, and list what is damaged.
    Check(DbCheckArgs<L>),
    /// Show the size of the database, and the threads with the most checkpoints.
    Stats(DatabaseArgs<L>),
    /// Convert the tables of an older superstep; every command that writes does so, too.
    Migrate(DatabaseArgs<L>),
    /// Delete older checkpoints of all threads; the newest one of each always stays.
    Prune(DbPruneArgs<L>),
    /// Return the space of deleted threads and checkpoints to the disk.
    Vacuum(DatabaseArgs<L>),
    /// Print a new key for the encryption of databases.
    Key,
    /// Encrypt the data keys of all threads and items with the key in SUPERSTEP_KEY, in place of those in SUPERSTEP_OLD_KEY.
    Rekey(DatabaseArgs<L>),
}

#[derive(Args, Debug)]
pub(crate) struct DbCheckArgs<L: Args> {
    /// Accept the threads that were set back, replaced or deleted since your last runs as they are.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}

#[derive(Args, Debug)]
pub(crate) struct DbPruneArgs<L: Args> {
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Skip the confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs<L>,
}
