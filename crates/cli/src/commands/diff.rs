//! `diff`: compares two states by channel.

use serde_json::json;
use superstep::CheckpointId;
use superstep_session::error::SessionError;

use crate::{
    args::shared::{DatabaseArgs, DiffArgs, Locate},
    graphs::graph_set::GraphSet,
    inspect::differences::{ComparedState, differences},
    output::{
        exit::Exit,
        table::{lines, print, print_styled},
    },
};

/// Shows the differing channels of two states.
pub(crate) async fn diff<L: Locate>(args: DiffArgs<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let DiffArgs { a, b, database: DatabaseArgs { location, json } } = args;
    let location = location.locate(&graphs.program)?;
    let Some(name) = a.name else {
        return Err(SessionError::usage("the first state has no thread: write `THREAD@CHECKPOINT`"));
    };
    let load = |name, at: Option<u64>| ComparedState::load(&location, graphs, name, at.map(CheckpointId));
    let (one, other) = (load(&name, a.at).await?, load(b.name.as_deref().unwrap_or(&name), b.at).await?);
    if json {
        let line = |name: &String| json!({ "channel": name, "a": one.values.get(name), "b": other.values.get(name) });
        return print(&lines(one.changed_channels(&other).into_iter().map(line)));
    }
    print_styled(&differences(&one, &other))
}
