//! The Messages API of Anthropic.

mod blocks;
pub(crate) mod config;
pub(crate) mod model;
mod reader;
mod refusals;
mod request;
