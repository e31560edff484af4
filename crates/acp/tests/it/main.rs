//! The connection with an editor and sessions that are both made up. Each line of the agent is validated by the schema of the
//! protocol.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod editor;
mod exchange;
mod fake;
mod hostile;
mod lifecycle;
mod questions;
mod requests;
mod schema;
mod turns;
mod updates;
