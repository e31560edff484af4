use superstep_graph::State;

#[derive(State, Clone, Copy)]
union Chat {
    turns: i64,
}

fn main() {}
