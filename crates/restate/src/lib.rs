//! Graphs of superstep as a service on a Restate cluster.
//!
//! Start at [`Endpoint`] for the service, and at [`Restate`] for its callers.

mod client;
mod endpoint;
mod identity;
mod journaled;
mod keys;
mod kv;
mod names;
mod remote;
mod request;
mod requests;
mod service;
mod storage;
mod wire;

pub use client::{Ended, Restate, RestateError, RestateThread};
pub use endpoint::{Endpoint, EndpointBuilder, EndpointError, listen};
