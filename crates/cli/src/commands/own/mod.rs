//! The commands of a program with graphs of its own.
//!
//! Start at [`run::run`].

pub(crate) mod agent;
pub(crate) mod change;
#[cfg(feature = "restate")]
pub(crate) mod endpoint;
#[cfg(feature = "postgres")]
pub(crate) mod jobs;
pub(crate) mod run;
#[cfg(feature = "restate")]
pub(crate) mod service;
pub(crate) mod show;
#[cfg(feature = "postgres")]
pub(crate) mod worker;
