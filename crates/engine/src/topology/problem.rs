//! The problems of a graph.
//!
//! Start at [`Problem`].

use std::fmt;

use super::SourceLocation;
use crate::NodeName;

/// A problem of a graph, found when it is compiled.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The location in the user's code.
    pub place: SourceLocation,
}

/// Kinds of [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Two nodes with one name.
    #[error("SS001: node `{0}` is declared twice, first at {1}; give one of them another name")]
    DuplicateNode(NodeName, SourceLocation),
    /// A name that is reserved for the engine.
    #[error("SS002: `{0}` is a reserved name; choose another")]
    ReservedName(NodeName),
    /// A name that is invalid in checkpoints and drawings.
    #[error("SS003: node name `{0}` is empty or has `|`, `:` or a control character; choose another")]
    BadName(NodeName),
    /// A name with another meaning in breakpoints or paths.
    #[error(
        "SS018: node name `{0}` reads as a pattern or a path: `*` stands for every node, `/` leads into a subgraph, and names \
         that begin with `$` are superstep's own; choose one without `*`, `?`, `[`, `]`, `/`, `\\`, and no `$` in front"
    )]
    PatternName(NodeName),
    /// A former name that another node has, or had as well.
    #[error(
        "SS025: node `{node}` was `{former}`, and {}; a stored task of `{former}` can resume at one node only: remove the former \
         name, or give the other node another name",
        if .former == .other { "a node has that name now".to_owned() } else { format!("node `{other}` was as well") }
    )]
    FormerName {
        /// The node.
        node: NodeName,
        /// Its former name.
        former: NodeName,
        /// The node that has the name, or had it.
        other: NodeName,
    },
    /// A graph without an edge that leaves [`START`](crate::START).
    #[error(
        "SS004: no edge leaves START, so nothing would ever run; add an edge from START to the first node"
    )]
    NoStart,
    /// An edge of a node of another graph.
    #[error(
        "SS005: the edge {0} uses a node of another graph; use the handles that this graph's `add_node` returned"
    )]
    ForeignNode(String),
    /// An edge with [`END`](crate::END) as its source.
    #[error("SS006: an edge leaves END, where a branch is over; remove it")]
    OutOfEnd,
    /// An edge with [`START`](crate::START) as its target.
    #[error("SS007: an edge enters START, which only begins a run; lead it to the first node instead")]
    IntoStart,
    /// A join of less than two nodes, none of which is a worker.
    #[error(
        "SS010: a join to `{0}` waits for fewer than two nodes; use `add_edge`, or add its other sources"
    )]
    LonelyJoin(String),
    /// A plain edge or a route to a worker.
    #[error(
        "SS009: node `{0}` takes an item, which only a fan-out provides; use `add_fan_out`, or `add_node`"
    )]
    WorkerWithoutItem(NodeName),
    /// A node with its own routes whose targets are not declared.
    #[error("SS011: routing node `{0}` has no targets; map its routes to nodes with `add_routes`")]
    NoRoutes(NodeName),
    /// Two maps for the routes of a node.
    #[error("SS012: the routes of node `{0}` are declared twice, first at {1}; remove one of the two")]
    RoutesTwice(NodeName, SourceLocation),
    /// An edge to an error handler.
    #[error(
        "SS013: node `{0}` is an error handler, which no edge can lead to; remove the edge, or lead it to a \
         node of `add_node`"
    )]
    EdgeIntoHandler(NodeName),
    /// A second error handler for a node.
    #[error("SS014: node `{0}` has two error handlers, the first declared at {1}; remove one of the two")]
    TwoHandlers(NodeName, SourceLocation),
    /// An error handler of START or END.
    #[error("SS014: node `{0}` is an error handler of {1}, which cannot fail; name a node")]
    NothingToHandle(NodeName, &'static str),
    /// A subgraph that works on its caller's state and declares its own state.
    #[error(
        "SS015: subgraph `{0}` uses the state of its graph, so it has no state of its own to store; use \
         `add_subgraph_with`, or another `Persistence`"
    )]
    OwnSameState(NodeName),
    /// A deferred node that cannot be deferred.
    #[error(
        "SS016: node `{0}` cannot be deferred, because it {1}; remove `deferred`, or defer the node that comes after it"
    )]
    NeverDeferred(NodeName, &'static str),
    /// A breakpoint before an error handler.
    #[error(
        "SS017: no run can stop before error handler `{0}`, which runs in the middle of a superstep; stop \
         after it, or interrupt the run in it"
    )]
    StopBeforeHandler(NodeName),
    /// A node that no edge leads to. A warning.
    #[error(
        "SS008: node `{0}` can never run, no edge leads to it from START; add an edge or remove the node"
    )]
    Unreachable(NodeName),
    /// A node whose plain edges are taken in different supersteps, so that it runs more than once.
    #[error(
        "SS020: node `{node}` runs more than once: `{late}` leads to it in a later superstep than `{early}`; use \
         `add_join` to run it once after both, or defer it"
    )]
    RunsTwice {
        /// The node.
        node: NodeName,
        /// The node whose edge is taken first.
        early: NodeName,
        /// The node whose edge is taken in a later superstep.
        late: NodeName,
    },
    /// A join whose sources never all run.
    #[error("SS021: the join to `{join}` never completes: {}", match .why {
        WhyDead::Unreachable(source) => format!("no edge leads to `{source}`; add one, or remove it from the join"),
        WhyDead::Exclusive { router, first, second } => format!(
            "a conditional edge of `{router}` leads to `{first}` or to `{second}`, never to both; use an edge from each \
             instead of the join, or let the router return several routes"
        ),
    })]
    DeadJoin {
        /// The node that would run after all of them.
        join: NodeName,
        /// The reason.
        why: WhyDead,
    },
    /// Nodes in a cycle without an exit.
    #[error(
        "SS022: {} forever: no route leaves the cycle; add a conditional edge with a route to END or to \
         another node", match &.0[..] {
            [one] => format!("node `{one}` runs"),
            many => format!("nodes {} run", many.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ")),
        }
    )]
    Endless(Vec<NodeName>),
    /// Nodes that can run in one superstep and declare writes to a channel that accepts one write.
    #[error("SS023: {} `{channel}`, which takes one write per superstep; use a merging reducer or order the nodes with \
             an edge", if .first == .second {
        format!("the tasks of worker `{first}` run in the same superstep and all write channel")
    } else {
        format!("nodes `{first}` and `{second}` can run in the same superstep, and both write channel")
    })]
    ConcurrentWrites {
        /// One node.
        first: NodeName,
        /// The second node; the same if it is a worker.
        second: NodeName,
        /// The channel.
        channel: String,
    },
    /// A declared write to a channel that the state does not have.
    #[error(
        "SS024: node `{node}` cannot write channel `{channel}`, which the state does not have; its channels \
         are {known}"
    )]
    UnknownChannel {
        /// The node.
        node: String,
        /// The declared channel.
        channel: String,
        /// The existing channels.
        known: String,
    },
}

impl ProblemKind {
    /// Returns whether the graph can run in spite of the problem.
    pub fn is_warning(&self) -> bool {
        self.lint().is_some()
    }

    /// Returns the lint, if the graph can run in spite of the problem.
    pub fn lint(&self) -> Option<Lint> {
        match self {
            Self::Unreachable(_) => Some(Lint::Unreachable),
            Self::RunsTwice { .. } => Some(Lint::RunsTwice),
            Self::DeadJoin { .. } => Some(Lint::DeadJoin),
            Self::Endless(_) => Some(Lint::Cycle),
            Self::ConcurrentWrites { .. } => Some(Lint::ConcurrentWrites),
            Self::DuplicateNode(..)
            | Self::ReservedName(_)
            | Self::BadName(_)
            | Self::PatternName(_)
            | Self::FormerName { .. }
            | Self::NoStart
            | Self::ForeignNode(_)
            | Self::OutOfEnd
            | Self::LonelyJoin(_)
            | Self::WorkerWithoutItem(_)
            | Self::NoRoutes(_)
            | Self::RoutesTwice(..)
            | Self::UnknownChannel { .. }
            | Self::OwnSameState(_)
            | Self::EdgeIntoHandler(_)
            | Self::NeverDeferred(..)
            | Self::StopBeforeHandler(_)
            | Self::TwoHandlers(..)
            | Self::NothingToHandle(..)
            | Self::IntoStart => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.file(), self.place.line(), self.kind)
    }
}

/// A lint: a kind of suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lint {
    /// SS008: no edge leads to a node.
    Unreachable,
    /// SS020: a node runs more than once because its plain edges are taken in different supersteps.
    RunsTwice,
    /// SS021: the sources of a join never all run.
    DeadJoin,
    /// SS022: nodes form a cycle without an exit.
    Cycle,
    /// SS023: nodes that can run in one superstep declare writes to a channel that accepts one write.
    ConcurrentWrites,
}

/// The reaction to a [`Lint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Disables the report.
    Allow,
    /// A warning of the compiled graph.
    #[default]
    Warn,
    /// An error at compile time of the graph.
    Deny,
}

/// The reason that a join never completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyDead {
    /// No edge leads to this source.
    Unreachable(NodeName),
    /// A conditional edge takes one route, once, and the two sources need different routes.
    Exclusive {
        /// The node that the conditional edge leaves.
        router: NodeName,
        /// One source.
        first: NodeName,
        /// The other.
        second: NodeName,
    },
}
