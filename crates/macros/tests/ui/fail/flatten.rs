use superstep_graph::{JsonState, Log, State};

#[derive(State, Clone, Debug, Default)]
struct Talk {
    #[channel(append, was = "lines")]
    log: Log<String>,
}

#[derive(State, Clone, Debug, Default)]
struct SameName {
    #[channel(flatten)]
    talk: Talk,
    log: String,
}

#[derive(State, Clone, Debug, Default)]
struct OldName {
    lines: String,
    #[channel(flatten)]
    talk: Talk,
}

#[derive(State, Clone, Debug, Default)]
struct NoState {
    #[channel(flatten)]
    turns: i64,
}

#[derive(State, Clone, Debug, Default)]
struct AtRunTime {
    #[channel(flatten)]
    json: JsonState,
}

fn main() {}
