//! Nothing can be said of what was stored of a channel that is never stored.

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
