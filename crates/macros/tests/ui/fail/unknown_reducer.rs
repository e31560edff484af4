use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(apend)]
    misspelt: Vec<String>,
}

fn main() {}
