use superstep_graph::State;

#[derive(State, Clone, Default)]
enum Chat {
    #[default]
    Idle,
}

fn main() {}
