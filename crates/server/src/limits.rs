//! The bounds of a server.

use std::{num::NonZeroU32, time::Duration};

/// The bounds of a server. A bound that is exceeded is an error for one client, never for a run.
///
/// ```
/// # use superstep_server::Limits;
/// let limits = Limits { body: 100_000, ..Limits::default() };
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a request's body in bytes; 16 MiB by default.
    pub body: usize,
    /// The maximum number of runs that wait on a thread; 1,000 by default.
    pub queue: usize,
    /// The maximum number of crons of a user, or of a server without users; 1,000 by default.
    pub crons: usize,
    /// The maximum size of the events of a run, and of those of a thread, in memory, in bytes; 16 MiB by default. Older ones are
    /// dropped.
    pub log: usize,
    /// The maximum size of the events of ended resumable runs in memory, in bytes, and that of the events of threads; 256 MiB by
    /// default. The oldest runs are dropped, and can be joined, but not replayed; so are the threads whose runs ended first.
    pub retained: usize,
    /// The maximum number of connections; 10,000 by default. Others wait until one ends.
    pub connections: usize,
    /// The time within which the head of a request arrives, and then its body; 30 seconds by default. Without a request a connection
    /// ends after it.
    pub arrival: Duration,
    /// The time between two signs of life on a quiet stream; 5 seconds by default, which clients expect.
    pub heartbeat: Duration,
    /// The number of requests per second of a user, or of an address without users; ten times as many may come at once. No limit by
    /// default.
    pub rate: Option<NonZeroU32>,
    /// The time that runs have to end their supersteps when the server stops, and then clients to read what is sent; 30 seconds by
    /// default.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 16 << 20,
            queue: 1_000,
            crons: 1_000,
            log: 16 << 20,
            retained: 256 << 20,
            connections: 10_000,
            arrival: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            rate: None,
            drain: Duration::from_secs(30),
        }
    }
}
