//! The remains of tasks that a new input discards.
//!
//! Start at [`StateGraph::on_discard`].

use std::sync::Arc;

use crate::{NodeRef, State, StateGraph, node::discarded::Discarded};

impl<S: State> StateGraph<S> {
    /// Sets the update that remains of an unfinished task of `node` when a new input discards it. `keep`
    /// receives the task's state and its [effects](crate::Cx::once), and returns an update, which is stored
    /// before the input. A finished task of an incomplete superstep retains its own update.
    ///
    /// By default nothing remains, although the task's effects cannot be undone.
    ///
    /// `keep` is a pure function, like a router. It is also called if the task never started.
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
