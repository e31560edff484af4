use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat<T> {
    answer: Option<T>,
}

fn main() {}
