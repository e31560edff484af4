use serde_json::Value;
use superstep_graph::{State, state::Stored};

fn same(json: Value, _from: u32, _stored: Stored) -> Result<Value, String> {
    Ok(json)
}

fn other(json: Value) -> Value {
    json
}

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(was = "texts")]
    messages: Vec<String>,
    #[channel(was = "texts")]
    claimed_twice: i64,
    #[channel(was = "messages")]
    is_there: i64,
    #[channel(was = "a b")]
    no_name: i64,
    #[channel(was = "clear")]
    never: i64,
    #[channel(was)]
    nothing: i64,
    #[channel(version = 2)]
    without_migrate: i64,
    #[channel(migrate = same)]
    without_version: i64,
    #[channel(version = 1, migrate = same)]
    first: i64,
    #[channel(version = "2", migrate = same)]
    no_number: i64,
    #[channel(version = 2, version = 3, migrate = same)]
    two_versions: i64,
    #[channel(required, required)]
    very: i64,
}

#[derive(State, Clone, Default)]
struct Other {
    #[channel(version = 2, migrate = other)]
    wrong_function: i64,
}

fn main() {}
