//! The connection with an editor and sessions that are both made up. Each line of the agent is validated by the schema of the
//! protocol.

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
