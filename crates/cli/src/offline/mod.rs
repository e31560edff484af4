//! A demonstration without a language model.
//!
//! Start at [`planner::Offline`].

mod plan;
pub(crate) mod planner;
mod read;
