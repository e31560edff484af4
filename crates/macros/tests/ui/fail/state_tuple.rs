use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat(i64);

fn main() {}
