//! HTTP: clients, keys, and errors of servers.

pub(crate) mod api_key;
#[cfg(feature = "http")]
mod client;
pub(crate) mod error;
#[cfg(feature = "openai")]
pub(crate) mod events;
#[cfg(feature = "openai")]
pub(crate) mod server;

#[cfg(feature = "http")]
pub use self::client::{ClientError, base_url, client, client_builder, is_loopback, root_cause};
