//! A type with two values that are `null` in JSON cannot be stored.

use std::collections::BTreeMap;

use superstep_graph::{Log, Reducer, ReduceError, State};

#[derive(Clone, Debug)]
enum Mine {}

impl Reducer<Option<Option<i64>>> for Mine {
    type Write = i64;

    fn reduce(value: &mut Option<Option<i64>>, write: i64) -> Result<(), ReduceError> {
        *value = Some(Some(write));
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Chat {
    twice: Option<Option<i64>>,
    unit: Option<()>,
    #[channel(append)]
    log: Log<Option<()>>,
    map: BTreeMap<String, (i64, Vec<std::option::Option<Option<bool>>>)>,
    #[channel(ephemeral)]
    brief: Option<()>,
    // These are fine.
    #[channel(untracked)]
    loose: Option<Option<i64>>,
    #[channel(with = Mine)]
    mine: Option<Option<i64>>,
    json: Option<serde_json::Value>,
    list: Option<Vec<Option<i64>>>,
}

fn main() {}
