//! Everything that goes through the public API of the server, by HTTP.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod a2a;
mod additions;
mod agui;
mod assistants;
mod clients;
#[cfg(all(unix, feature = "crons"))]
mod crons;
mod door;
mod graphs;
mod hidden;
mod hostile;
mod kills;
mod many;
mod mcp;
#[cfg(all(unix, feature = "crons"))]
#[allow(dead_code, reason = "the tests of the checkpointer use more of it")]
#[path = "../../../postgres/tests/it/server.rs"]
mod postgres;
mod protocol;
mod recorded;
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
