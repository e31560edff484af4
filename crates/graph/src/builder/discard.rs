//! What is kept of tasks that a new input discards.
//!
//! Start at [`StateGraph::on_discard`].

use std::sync::Arc;

use crate::{NodeRef, State, StateGraph, node::discarded::Discarded};

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
