//! `fold_with` is for channels that are empty before their first write.

use superstep_graph::State;

#[derive(State, Clone, Debug, Default)]
struct Chat {
    #[channel(fold_with = i64::max)]
    turns: i64,
}

fn main() {}
