//! A part of a state has channels of it, with their types.

use superstep_graph::{Input, State, View};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(View)]
#[view(of = Chat)]
struct Unknown {
    answer: String,
}

#[derive(View)]
#[view(of = Chat)]
struct OfAnotherType {
    turns: String,
}

#[derive(Input)]
#[input(of = Chat)]
struct UnknownToo {
    answer: String,
}

#[derive(Input)]
#[input(of = Chat)]
struct OfAnotherTypeToo {
    turns: String,
}

fn main() {}
