use superstep_graph::{Log, State};

#[derive(State, Clone, Debug, Default)]
struct Talk {
    #[channel(append)]
    log: Log<String>,
}

#[derive(State, Clone, Debug, Default)]
struct Reduced {
    #[channel(flatten, append)]
    talk: Talk,
}

#[derive(State, Clone, Debug, Default)]
struct Renamed {
    #[channel(flatten, was = "chat")]
    talk: Talk,
}

#[derive(State, Clone, Debug, Default)]
struct Twice {
    #[channel(flatten, flatten)]
    talk: Talk,
}

#[derive(State, Clone, Debug, Default)]
struct Hidden {
    #[channel(append)]
    log: Log<String>,
    #[channel(flatten)]
    clear_log: Talk,
}

#[derive(State, Clone, Debug, Default)]
struct Reserved {
    #[channel(flatten)]
    clear: Talk,
}

fn main() {}
