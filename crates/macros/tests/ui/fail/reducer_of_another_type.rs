use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(append)]
    turns: Option<i64>,
}

fn main() {}
