//! The arguments of `serve`.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    path::PathBuf,
};

use clap::Args;

use crate::args::shared::{AgentArgs, LocationArgs};

/// The place of a server.
#[derive(Args, Debug)]
pub(crate) struct ListenArgs {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) host: IpAddr,
    /// The port; 0 for a free one.
    #[arg(long, value_name = "PORT", default_value_t = 2024)]
    pub(crate) port: u16,
    /// An origin whose pages may use the server, such as `https://chat.example.org`, besides those of this machine.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// A file with a line `USER = HASH` for each key. Each user then has threads of their own.
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// Add a new key of a user to the file of `--keys`, print it, and end.
    #[arg(long, value_name = "USER", requires = "keys")]
    pub(crate) new_key: Option<String>,
    /// The role of the user of `--new-key`: an administrator finds the threads of all.
    #[arg(long, value_name = "ROLE", requires = "new_key", default_value = "write", value_parser = ["read", "write", "admin"])]
    pub(crate) role: String,
    /// Refuse all requests that write.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The number of requests per second of a user, or without users of an address; ten times as many may come at once
    /// [default: no limit].
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<NonZeroU32>,
    /// Let everyone read `/metrics`, without a key.
    #[arg(long)]
    pub(crate) metrics_open: bool,
    /// Open the studio, the page for threads, in the browser.
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) location: LocationArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}
