//! Graphs of superstep behind the HTTP API that clients of LangGraph speak: its SDKs for Python and JavaScript, `useStream`,
//! `RemoteGraph`, and chat pages; and a page of its own for threads and graphs, the studio.
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
mod studio;
mod thread;
mod thread_actions;
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
pub use thread_actions::ThreadActions;
