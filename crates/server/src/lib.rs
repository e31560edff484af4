//! Graphs of superstep behind the HTTP API that clients of LangGraph speak: its SDKs for Python and JavaScript, `useStream`,
//! `RemoteGraph`, and chat pages.
//!
//! Start at [`Server`].

mod agui;
mod api;
mod door;
mod error;
mod events;
mod limits;
mod listener;
mod rows;
mod runs;
mod server;
mod signal;
mod wire;

pub use error::ServerError;
pub use limits::Limits;
pub use server::Server;
pub use signal::stop_signal;
