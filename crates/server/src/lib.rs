//! Graphs of superstep behind the HTTP API that clients of LangGraph speak: its SDKs for Python and JavaScript, `useStream`,
//! `RemoteGraph`, and chat pages; and a page of its own for threads and graphs, the studio.
//!
//! Start at [`Server`].

mod agui;
mod api;
mod door;
mod error;
mod events;
mod limits;
mod rows;
mod runs;
mod server;
mod studio;
mod wire;

pub use error::ServerError;
pub use limits::Limits;
pub use server::Server;
