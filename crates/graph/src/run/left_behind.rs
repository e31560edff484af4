//! Updates in the name of discarded tasks.
//!
//! Start at [`left_behind`].

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use superstep_checkpoint::TaskRecord;
use superstep_engine::Control;
use superstep_state::{FoldError, Panicked, Update};

use crate::{
    RunError, State, compiled::graph::Inner, node::discarded::Discarded, run::restore::RestoredTask,
};

/// Returns the remaining updates of a superstep's unfinished tasks, in slot order; `None` if there are none.
///
/// # Errors
/// [`RunError::Fold`] if a user's function panics.
pub(crate) fn left_behind<S: State>(
    graph: &Inner<S>,
    state: &S,
    control: &Control,
    tasks: Vec<RestoredTask<S>>,
) -> Result<Option<S::Update>, RunError> {
    let mut tasks: BTreeMap<u32, RestoredTask<S>> = tasks.into_iter().map(|task| (task.slot, task)).collect();
    let mut left = None;
    for (slot, name) in (0..).zip(&control.next) {
        let node = graph.topology.find(name.as_str()).map(|node| &graph.nodes[node.position()]);
        let Some(keep) = node.and_then(|node| node.on_discard.as_ref()) else { continue };
        let (record, update) = match tasks.remove(&slot) {
            Some(RestoredTask { record, update, .. }) => (Some(record), update),
            None => (None, None),
        };
        let update = match update {
            Some(update) => update,
            None => {
                let once = record.map(TaskRecord::into_once).unwrap_or_default();
                let update = catch_unwind(AssertUnwindSafe(|| keep(state, &Discarded { once: &once })));
                update.map_err(|panic| RunError::Fold {
                    node: name.clone(),
                    step: control.step + 1,
                    source: FoldError {
                        channel: "(the update of its discarded task)".into(),
                        source: Box::new(Panicked::from_payload(&*panic)),
                    },
                })?
            }
        };
        left = Some(match left {
            Some(all) => Update::then(all, update),
            None => update,
        });
    }
    Ok(left)
}
