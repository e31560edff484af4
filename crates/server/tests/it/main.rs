//! Everything that goes through the public API of the server, by HTTP.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod a2a;
mod additions;
mod agui;
mod assistants;
mod clients;
mod door;
mod graphs;
mod hidden;
mod hostile;
mod kills;
mod many;
mod mcp;
mod protocol;
mod runs;
mod state;
mod store;
mod streams;
mod studio;
mod support;
mod survival;
mod threads;
mod users;
#[cfg(feature = "webhooks")]
mod webhooks;
