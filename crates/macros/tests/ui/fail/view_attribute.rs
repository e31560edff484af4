//! The attributes of a view's fields.

use superstep_graph::{Input, View};

#[derive(View)]
struct OfNothing {
    turns: i64,
}

#[derive(View)]
#[view(off = Chat)]
struct Misspelt {
    turns: i64,
}

#[derive(Input)]
#[input(of = Chat, of = Chat)]
struct Twice {
    turns: i64,
}

#[derive(Input)]
#[input(of = Chat)]
struct Tuple(i64);

#[derive(View)]
#[view(of = Chat)]
struct Generic<T> {
    turns: T,
}

fn main() {}
