//! The arguments of `db`.

use clap::{Args, Subcommand};

use crate::args::shared::KeepArgs;

/// A command for a whole database, which the arguments `D` name.
#[derive(Subcommand, Debug)]
pub(crate) enum DbCommand<D: Args> {
    /// Read every thread whole and verify the file, and list what is damaged.
    Check(DbCheckArgs<D>),
    /// Show the size of the database, and the threads with the most checkpoints.
    Stats(D),
    /// Convert the tables of an older superstep; every command that writes does so, too.
    Migrate(D),
    /// Delete older checkpoints of all threads; the newest one of each always stays.
    Prune(DbPruneArgs<D>),
    /// Return the space of deleted threads and checkpoints to the disk.
    Vacuum(D),
    /// Print a new key for the encryption of databases.
    Key,
    /// Encrypt the data keys of all threads and items with the key in SUPERSTEP_KEY, in place of those in SUPERSTEP_OLD_KEY.
    Rekey(D),
}

#[derive(Args, Debug)]
pub(crate) struct DbCheckArgs<D: Args> {
    /// Accept the threads that were set back, replaced or deleted since your last runs as they are.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) database: D,
}

#[derive(Args, Debug)]
pub(crate) struct DbPruneArgs<D: Args> {
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Skip the confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) database: D,
}
