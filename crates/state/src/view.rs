//! Views: parts of a state.
//!
//! Start at [`View`].

/// Some channels of a state, as a struct of its own. Write `#[derive(View)]`.
///
/// A node or a caller with a view sees only those channels. An input is an update; `#[derive(Input)]` creates
/// one from a struct with a field for each channel that callers may write.
///
/// ```
/// use superstep_graph::{Cx, Input, START, State, StateGraph, View};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     question: String,
///     answer: String,
///     seen: i64,
/// }
///
/// #[derive(Input, View, Debug)]
/// #[input(of = Chat)]
/// #[view(of = Chat)]
/// struct Ask {
///     question: String,
/// }
///
/// #[derive(View, Debug, PartialEq)]
/// #[view(of = Chat)]
/// struct Reply {
///     answer: String,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut graph = StateGraph::<Chat>::new("chat");
/// let node = graph.add_view_node("node", async |ask: Ask, _: Cx| {
///     Chat::update().answer(ask.question + "!").seen(1)
/// });
/// graph.add_edge(START, node);
/// let ask = Ask { question: "hi".into() };
/// let end = graph.compile()?.run(ask).await?.view::<Reply>();
/// assert_eq!(end.state, Reply { answer: "hi!".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a view of the state `{S}`",
    label = "not a view of `{S}`",
    note = "derive it: `#[derive(View)] #[view(of = {S})]` on a struct with some of its channels"
)]
pub trait View<S> {
    /// Returns the view of `state`.
    fn view(state: &S) -> Self;
}
