use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat {
    clear: bool,
}

#[derive(State, Clone, Default)]
struct Other {
    #[channel(sum)]
    turns: i64,
    clear_turns: bool,
}

fn main() {}
