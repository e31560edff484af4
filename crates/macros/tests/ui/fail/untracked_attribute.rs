//! An untracked channel cannot have attributes about stored data.

use superstep_graph::State;

#[derive(State, Clone, Debug, Default)]
struct Chat {
    #[channel(untracked, required)]
    a: i64,
    #[channel(untracked, was = "old")]
    b: i64,
    #[channel(untracked, untracked)]
    c: i64,
}

fn main() {}
