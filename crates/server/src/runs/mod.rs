//! Runs: their requests, the queue of each thread, their execution, and their logs.
//!
//! ```text
//! a request ─▶ RunRequest ─▶ the lane of its thread ─▶ execution ─▶ the end: rows, then the log's end
//!                  (stored before it is acknowledged)      └─▶ RunLog ─▶ any number of readers
//! ```
//!
//! Start at [`Hub`](hub::Hub).

pub(crate) mod execute;
pub(crate) mod hub;
pub(crate) mod lanes;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod request;
pub(crate) mod threads;
