//! Graphs of superstep as a service on a Restate cluster.

mod journaled;
mod keys;
mod kv;
#[cfg(test)]
mod memory;
mod request;
mod requests;
mod storage;
