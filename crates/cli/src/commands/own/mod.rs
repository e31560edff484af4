//! The commands of a program with graphs of its own.
//!
//! Start at [`run::run`].

pub(crate) mod change;
pub(crate) mod export;
#[cfg(feature = "postgres")]
pub(crate) mod jobs;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod threads;
#[cfg(feature = "postgres")]
pub(crate) mod worker;
