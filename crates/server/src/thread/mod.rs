//! The thread protocol: one log of events for each thread, which any number of clients follow.
//!
//! ```text
//! RunEvent ──▶ Projection ──▶ Draft ──▶ ThreadLog ──▶ Reader + Filter ──▶ one client
//! ```
//!
//! A log is made when a client first uses the protocol on a thread. It receives the events of every run of the thread, also of
//! those that the runs API began.
//!
//! Start at [`log::ThreadLog`].

pub(crate) mod blocks;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod log;
pub(crate) mod logs;
pub(crate) mod projection;
