//! States that contain the agent's channels.
//!
//! Start at [`HasAgent`].

use superstep_graph::{
    Cx, NodeError, NodeOptions, NodeRef, State, StateGraph,
    convert::IntoUpdate as _,
    node::{NodeOutput, OnCancel},
    state::Flattens,
};
use superstep_llm::timers::check_timers;

use super::agent_state::{AgentState, AgentStateUpdate};

/// A state with the agent's channels: [`AgentState`] itself, or a struct with a field of it with
/// `#[channel(flatten)]` beside other channels.
///
/// ```
/// use superstep_agent::{AgentState, HasAgent};
/// use superstep_graph::{Log, State};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Research {
///     #[channel(flatten)]
///     agent: AgentState,
///     #[channel(append)]
///     sources: Log<String>,
/// }
///
/// assert_eq!(Research::default().agent().current_step, 0);
/// let update = Research::agent_update(AgentState::update().user_id("ada")).sources(["a book"]);
/// assert_eq!(serde_json::to_string(&update)?, r#"{"sources":["a book"],"user_id":"ada"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` does not have the channels of the agent",
    label = "has no field `#[channel(flatten)]` of type `AgentState`",
    note = "add one to the state: `#[channel(flatten)] agent: AgentState`"
)]
pub trait HasAgent: State {
    /// Returns the agent's channels.
    fn agent(&self) -> &AgentState;

    /// Returns the agent's channels without a copy.
    fn into_agent(self) -> AgentState;

    /// Converts an update of the agent's channels to one of this state.
    fn agent_update(update: AgentStateUpdate) -> Self::Update;
}

impl HasAgent for AgentState {
    fn agent(&self) -> &AgentState {
        self
    }

    fn into_agent(self) -> AgentState {
        self
    }

    fn agent_update(update: AgentStateUpdate) -> AgentStateUpdate {
        update
    }
}

impl<S: Flattens<AgentState>> HasAgent for S {
    fn agent(&self) -> &AgentState {
        self.part()
    }

    fn into_agent(self) -> AgentState {
        self.into_part()
    }

    fn agent_update(update: AgentStateUpdate) -> S::Update {
        S::lift(update)
    }
}

// With a type parameter for the outer state, each state would compile the agent's nodes again, and a node could use more than its
// channels. Only `tools` receives the outer state, because tools may.
/// Adds a node that reads and writes the agent's channels only.
#[track_caller]
pub(crate) fn add_node<S, D, F, Fut>(graph: &mut StateGraph<S>, name: &str, deps: D, node: F) -> NodeRef
where
    S: HasAgent,
    D: Clone + Send + Sync + 'static,
    F: Fn(D, AgentState, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: NodeOutput<AgentState>,
{
    let lifted = move |state: S, cx| {
        // Boxed, because the future around it is moved several times before it starts.
        let ran = Box::pin(node(deps.clone(), state.into_agent(), cx));
        async {
            timers()?;
            ran.await.into_update().map(S::agent_update)
        }
    };
    let node = graph.add_node(name, lifted);
    finishes(graph, node)
}

/// Fails on a runtime without timers: models, tools and memories have time limits.
pub(crate) fn timers() -> Result<(), NodeError> {
    check_timers().map_err(|error| NodeError::new(error).fatal())
}

/// Lets a node finish after a cancellation, so that a cancelled turn leaves a valid conversation.
#[track_caller]
pub(crate) fn finishes<S: State>(graph: &mut StateGraph<S>, node: NodeRef) -> NodeRef {
    graph.configure(node, NodeOptions::new().on_cancel(OnCancel::Finish));
    node
}
