use superstep_graph::State;

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Reply;

#[derive(State, Clone)]
struct Chat {
    answer: Reply,
}

impl Default for Chat {
    fn default() -> Self {
        Self { answer: Reply }
    }
}

fn main() {}
