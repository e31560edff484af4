//! The contract of tools: their calls, arguments and results.
//!
//! Start at [`Tool`](tool::Tool).

pub(crate) mod arguments;
pub(crate) mod cx;
pub(crate) mod error;
pub(crate) mod fn_tool;
pub(crate) mod macros;
pub(crate) mod registry;
pub(crate) mod source;
pub(crate) mod subject;
pub(crate) mod tool;
