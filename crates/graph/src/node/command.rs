//! The results of nodes that choose the next nodes.
//!
//! Start at [`Command`].

use std::fmt;

use serde::Serialize;
use superstep_engine::NodeName;
use superstep_state::{Update, internal::encode};

use crate::{
    NodeError, Route, State, WorkerRef,
    node::output::{Goto, Written},
};

/// An update together with the next nodes.
///
/// A node that returns it is declared with
/// [`StateGraph::add_routing_node`](crate::StateGraph::add_routing_node). `R` is the enum of its routes;
/// external commands name nodes instead, see
/// [`Thread::resume_with`](crate::Thread::resume_with). Several commands in a `Vec` are
/// combined: their updates are folded in order.
///
/// ```
/// # use superstep_graph::{Command, Cx, Route, State};
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     turns: i64,
/// }
///
/// #[derive(Route, Clone, Copy)]
/// enum Next {
///     Again,
///     Done,
/// }
///
/// async fn answer(state: Chat, _: Cx) -> Command<Chat, Next> {
///     let next = if state.turns < 3 { Next::Again } else { Next::Done };
///     Command::update(Chat::update().turns(state.turns + 1)).goto(next)
/// }
/// ```
#[must_use = "a command does something once a node returns it"]
pub struct Command<S: State, R = NoRoute> {
    pub(crate) update: Option<S::Update>,
    pub(crate) goto: Vec<Goto<R>>,
}

/// The routes of a node that has none: it only writes, and sends items to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {}

impl Route for NoRoute {
    const ALL: &'static [Self] = &[];

    fn index(self) -> usize {
        match self {}
    }

    fn label(self) -> &'static str {
        match self {}
    }
}

impl<S: State, R> Command<S, R> {
    /// Creates an empty command.
    pub fn new() -> Self {
        Self { update: None, goto: Vec::new() }
    }

    /// Creates a command that writes `update`.
    pub fn update(update: S::Update) -> Self {
        Self { update: Some(update), goto: Vec::new() }
    }

    /// Adds a route. If several routes are added, all of them are taken.
    pub fn goto(mut self, route: R) -> Self {
        self.goto.push(Goto::Route(route));
        self
    }

    /// Adds a task of `worker` with this item. The tasks come after those of routes and edges, in sending
    /// order.
    ///
    /// [`StateGraph::add_sends`](crate::StateGraph::add_sends) must declare this.
    pub fn send<I: Serialize>(mut self, worker: WorkerRef<I>, item: I) -> Self {
        let item = encode::to_string(&item).map_err(|error| error.to_string());
        self.goto.push(Goto::Send { worker: worker.into(), item });
        self
    }
}

impl<S: State> Command<S> {
    /// Creates an empty command of a node without routes, which writes and sends items only.
    ///
    /// ```
    /// # use superstep_graph::{Command, Cx, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Mail { sent: i64 }
    /// # let mut graph = StateGraph::<Mail>::new("mail");
    /// let send = graph.add_worker("send", async |_to: String, _: Mail, _: Cx| ());
    /// let all = graph.add_routing_node("all", move |_: Mail, _: Cx| async move {
    ///     Command::without_routes().send(send, "ann".to_owned())
    /// });
    /// graph.add_sends(all, send);
    /// ```
    pub fn without_routes() -> Self {
        Self::new()
    }
}

impl<S: State> Command<S, &str> {
    /// Converts an external command, which names nodes.
    pub(crate) fn by_name(self) -> Command<S, NodeName> {
        let own = |goto| match goto {
            Goto::Route(name) => Goto::Route(NodeName::from(name)),
            Goto::Send { worker, item } => Goto::Send { worker, item },
        };
        Command { update: self.update, goto: self.goto.into_iter().map(own).collect() }
    }
}

impl<S: State, R> Default for Command<S, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: State, R: Clone> Clone for Command<S, R> {
    fn clone(&self) -> Self {
        Self { update: self.update.clone(), goto: self.goto.clone() }
    }
}

impl<S: State, R: fmt::Debug> fmt::Debug for Command<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("update", &self.update).field("goto", &self.goto).finish()
    }
}

/// A return type of a node that is declared with `add_routing_node`: one or several routes, one or several
/// [`Command`]s, or a `Result` of any of these.
#[diagnostic::on_unimplemented(
    message = "a routing node of a `StateGraph<{S}>` cannot return `{Self}`",
    label = "neither a route nor a command of routes on `{S}`",
    note = "return a `Command<{S}, Next>` or a `Next`, where `Next` is an enum with `#[derive(Route, Clone, Copy)]`, a `Vec` \
            of either, or a `Result` of those whose error converts into a `NodeError`; a node that returns an update only \
            is declared with `add_node`"
)]
pub trait RoutingOutput<S: State> {
    /// The enum of its routes.
    type Route: Route;

    /// Returns the contained command.
    ///
    /// # Errors
    /// The node's failure.
    fn into_command(self) -> Result<Command<S, Self::Route>, NodeError>;
}

#[diagnostic::do_not_recommend]
impl<S: State, R: Route> RoutingOutput<S> for R {
    type Route = R;

    fn into_command(self) -> Result<Command<S, R>, NodeError> {
        Ok(Command::new().goto(self))
    }
}

impl<S: State, R: Route> RoutingOutput<S> for Command<S, R> {
    type Route = R;

    fn into_command(self) -> Result<Self, NodeError> {
        Ok(self)
    }
}

impl<S: State, O: RoutingOutput<S>> RoutingOutput<S> for Vec<O> {
    type Route = O::Route;

    fn into_command(self) -> Result<Command<S, O::Route>, NodeError> {
        let mut all = Command::new();
        for next in self {
            let Command { update, mut goto } = next.into_command()?;
            all.update = match (all.update, update) {
                (Some(first), Some(then)) => Some(Update::then(first, then)),
                (first, then) => first.or(then),
            };
            all.goto.append(&mut goto);
        }
        Ok(all)
    }
}

impl<S: State, O: RoutingOutput<S>, E: Into<NodeError>> RoutingOutput<S> for Result<O, E> {
    type Route = O::Route;

    fn into_command(self) -> Result<Command<S, O::Route>, NodeError> {
        self.map_err(Into::into)?.into_command()
    }
}

impl<S: State, R: Route> Command<S, R> {
    /// Converts to the driver's form.
    ///
    /// # Errors
    /// An item that has no JSON form.
    pub(crate) fn into_written(self) -> Result<Written<S>, NodeError> {
        let Self { update, goto } = self;
        let erase = |goto: Goto<R>| match goto {
            Goto::Route(route) => Ok(Goto::Route(route.index())),
            Goto::Send { worker, item: Ok(item) } => Ok(Goto::Send { worker, item }),
            Goto::Send { item: Err(error), .. } => Err(NodeError::new(BadItem(error)).fatal()),
        };
        let goto = goto.into_iter().map(erase).collect::<Result<_, _>>()?;
        Ok(Written { update: update.unwrap_or_default(), goto, recorded_targets: None })
    }
}

/// An item that cannot be stored.
#[derive(Debug, thiserror::Error)]
#[error("an item of its command cannot be stored: {0}")]
struct BadItem(String);
