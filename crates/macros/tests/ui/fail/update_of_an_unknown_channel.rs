//! An update writes the channels of its state, and no others.

use superstep_graph::State;

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

fn main() {
    let _ = Chat::update().turn(1);
}
