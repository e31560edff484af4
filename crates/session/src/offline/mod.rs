//! A demonstration without a language model, which really calls the tools.
//!
//! Start at `planner::Offline`.

mod plan;
pub mod planner;
