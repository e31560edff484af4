//! HTTP: clients, keys, and errors of servers.

pub(crate) mod api_key;
#[cfg(feature = "http")]
mod client;
pub(crate) mod error;

#[cfg(feature = "http")]
pub use self::client::{ClientError, base_url, client, client_builder, is_loopback, root_cause};

/// The names of events and messages without content.
pub(crate) const KEEP_ALIVE: [&str; 5] = ["ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"];
