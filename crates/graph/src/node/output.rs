//! The result of a node, after its type is erased.

use superstep_state::{BadUpdate, IntoUpdate, RawJson, internal::Refuses};

use super::routing::Targets;
use crate::{NodeError, NodeRef, State};

/// A return type of a node: an update, nothing, or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "a node of a `StateGraph<{S}>` cannot return `{Self}`",
    label = "not an update of `{S}`",
    note = "return the update type of the state (made by `#[derive(State)]`, begun with `{S}::update()`), `()`, or a \
            `Result` of either whose error converts into a `NodeError`; a node that returns a `Command` or a route is \
            declared with `add_routing_node`"
)]
pub trait NodeOutput<S: State>: IntoUpdate<S, NodeError> {}

#[diagnostic::do_not_recommend]
impl<S: State, O: IntoUpdate<S, NodeError>> NodeOutput<S> for O {}

/// A retry would give the same error.
impl Refuses for NodeError {
    fn refuse(error: BadUpdate) -> Self {
        Self::new(error).fatal()
    }
}

/// A target of a command. The item is JSON, or the error of its conversion.
#[derive(Clone, Debug)]
pub(crate) enum Goto<R, I = Result<RawJson, String>> {
    Route(R),
    Send { worker: NodeRef, item: I },
}

/// The result of a task, after the types of its node are erased.
pub(crate) struct Written<S: State> {
    pub(crate) update: S::Update,
    /// The targets of its command; a route is its position among the node's routes.
    pub(crate) goto: Vec<Goto<usize, RawJson>>,
    /// The stored targets of its command, in place of `goto`. Boxed, because results are moved often and few have them.
    pub(crate) recorded_targets: Option<Box<Targets>>,
}

impl<S: State> Written<S> {
    pub(crate) fn update(update: S::Update) -> Self {
        Self { update, goto: Vec::new(), recorded_targets: None }
    }
}

impl<S: State> Clone for Written<S> {
    fn clone(&self) -> Self {
        Self {
            update: self.update.clone(),
            goto: self.goto.clone(),
            recorded_targets: self.recorded_targets.clone(),
        }
    }
}
