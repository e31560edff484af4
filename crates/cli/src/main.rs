//! The `superstep` program: a ReAct agent in the terminal.
fn main() {}
