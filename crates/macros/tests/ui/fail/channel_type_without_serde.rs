use superstep_graph::State;

#[derive(Clone, Debug, Default)]
struct Reply;

#[derive(State, Clone, Default)]
struct Chat {
    answer: Option<Reply>,
}

fn main() {}
