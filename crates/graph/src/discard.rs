//! What is kept of tasks that a new input discards.
//!
//! Start at [`StateGraph::on_discard`].

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use superstep_engine::Control;

use crate::{
    FoldError, NodeRef, Panicked, RunError, State, StateGraph, TaskRecord, Update, compiled::Inner,
    load::RestoredTask,
};

/// A task that will not run again, because a new input [discards](crate::OnUnfinished::Discard) it.
pub struct Discarded<'a> {
    once: &'a BTreeMap<String, String>,
}

impl Discarded<'_> {
    /// What the task did [once](crate::Cx::once) under this name; `None` if it did not, or if what is stored is not a `T`.
    pub fn did<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.once.get(name)?).ok()
    }
}

pub(crate) type OnDiscard<S> = Arc<dyn Fn(&S, &Discarded<'_>) -> <S as State>::Update + Send + Sync>;

impl<S: State> StateGraph<S> {
    /// Says what stays of a task of `node` that a new input discards before it is finished: `keep` makes an update of the state
    /// that the task would have read and of what it did [once](crate::Cx::once). The input is stored with that update before
    /// it. Of a task that is finished, while others of its superstep are not, its own update stays.
    ///
    /// Without it nothing stays, although what the task did cannot be undone.
    ///
    /// `keep` is a pure function, as a router is. It is also asked if the task never began.
    ///
    /// ```
    /// # use superstep_graph::{Cx, NodeError, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { receipt: String }
    /// # async fn charge(key: &str) -> Result<String, std::io::Error> { Ok("r-1".to_owned()) }
    /// async fn pay(_: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    ///     let receipt = cx.once("charge", async |key: String| charge(&key).await).await?;
    ///     let _seen: bool = cx.interrupt("show", &receipt).await;
    ///     Ok(Order::update().receipt(receipt))
    /// }
    /// let mut graph = StateGraph::<Order>::new("orders");
    /// let pay = graph.add_node("pay", pay);
    /// graph.add_edge(START, pay);
    /// graph.on_discard(pay, |_, task| match task.did::<String>("charge") {
    ///     Some(receipt) => Order::update().receipt(receipt),
    ///     None => Order::update(),
    /// });
    /// ```
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn on_discard(
        &mut self,
        node: impl Into<NodeRef>,
        keep: impl Fn(&S, &Discarded<'_>) -> S::Update + Send + Sync + 'static,
    ) {
        let declared = self.declared(node.into(), "can be discarded");
        self.discards.push((declared, Arc::new(keep)));
    }
}

/// What the unfinished tasks of a superstep leave, in the order of their slots; `None` if that is nothing.
///
/// # Errors
/// [`RunError::Fold`] if the program panics over it.
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
                let kept = catch_unwind(AssertUnwindSafe(|| keep(state, &Discarded { once: &once })));
                kept.map_err(|panic| RunError::Fold {
                    node: name.clone(),
                    step: control.step + 1,
                    source: FoldError {
                        channel: "(what its discarded task leaves)".into(),
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
