//! The Agent Client Protocol, version 1: an agent driven by an editor through stdin and stdout.
//!
//! ```text
//! client ─ lines ─> reader ─> Handler (sessions, turns)
//!        <─ lines ─ writer <─ Client  (updates, permissions, forms)
//! ```
//!
//! Start at [`serve`], which runs a [`Handler`] until the client leaves. [`wire`] has the types of the protocol; [`stream`] converts
//! pieces, outputs, prompts and decisions, and needs no session.

mod client;
mod connection;
mod handler;
mod message;
mod requests;
pub mod stream;
mod transport;
mod turns;
pub mod wire;

pub use client::{Client, ClientError};
pub use connection::serve;
pub use handler::{Handler, Prompt};
