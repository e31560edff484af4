use superstep_graph::State;

#[derive(State)]
struct Chat {
    turns: i64,
}

fn main() {}
