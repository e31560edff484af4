//! The scenarios of the engine, each under its number.

mod control_flow;
