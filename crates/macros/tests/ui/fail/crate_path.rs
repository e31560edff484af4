//! The path of the crate.

use superstep_graph::{Route, State};

#[derive(State, Clone, Default)]
#[superstep(krate = superstep_graph)]
struct Misspelt {
    turns: i64,
}

#[derive(Route, Clone, Copy)]
#[superstep(crate = "superstep_graph")]
enum Quoted {
    End,
}

/// Has a text.
#[superstep_llm::tool(crate = "superstep_llm")]
async fn quoted() {}

fn main() {}
