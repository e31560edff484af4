use superstep_graph::State;

#[derive(State, Clone, Default)]
struct Chat {
    answer: Option<String>,
    #[channel(append)]
    text: String,
}

fn main() {
    Chat::update().clear_text().clear_answer();
}
