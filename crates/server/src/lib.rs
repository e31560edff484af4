//! Graphs of superstep behind the HTTP API that clients of LangGraph speak: its SDKs for Python and JavaScript, `useStream`,
//! `RemoteGraph`, and chat pages.
//!
//! Start at [`Server`].

mod access;
mod agui;
mod api;
mod door;
mod error;
mod events;
mod limits;
mod listener;
mod metrics;
mod rows;
mod runs;
mod server;
mod signal;
mod thread;
mod wire;

#[cfg(feature = "jwt")]
pub use access::jwt::{Jwt, JwtError};
pub use access::{
    Authenticate, Denied, Role, User,
    keys::{Keys, KeysError},
};
pub use error::ServerError;
pub use limits::Limits;
pub use server::Server;
pub use signal::stop_signal;
