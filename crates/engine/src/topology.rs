//! The fixed shape of a graph: its nodes, its edges and what is wrong with them.
//!
//! Start at [`TopologyBuilder`].

mod number;
mod problem;

pub use problem::{Level, Lint, Problem, ProblemKind, WhyDead};

use std::{collections::BTreeMap, panic::Location, sync::Arc};

use crate::{NodeIndex, NodeName, START};

/// Where in the user's code something was said.
pub type Place = &'static Location<'static>;

/// A node as it is declared.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name.
    pub name: NodeName,
    /// What happens to it when the run is cancelled.
    pub on_cancel: OnCancel,
    /// Whether each of its tasks takes an item, so that only a fan-out can lead to it.
    pub worker: bool,
    /// Whether it chooses among routes of its own, so that some have to be declared.
    pub routing: bool,
    /// The node whose failures it handles, so that only these lead to it.
    pub handles: Option<Endpoint>,
    /// Whether it waits until nothing else is left to run.
    pub deferred: bool,
    /// The graph that it runs, if it is a subgraph.
    pub subgraph: Option<Arc<Topology>>,
    /// Where it was declared.
    pub place: Place,
}

/// What happens to a node when its run is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCancel {
    /// It is dropped where it stands, and stays to be run.
    #[default]
    Drop,
    /// It is told, may finish, and is started even afterwards: for nodes that leave things in order.
    Finish,
}

/// One end of an edge while a graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The beginning of every run.
    Start,
    /// The node declared as the `n`-th, from 0.
    Node(usize),
    /// The end of a branch.
    End,
    /// A node of another graph.
    Foreign,
}

/// An edge as it is declared.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where it leaves.
    pub from: Endpoint,
    /// Where it leads.
    pub to: Endpoint,
    /// When it is taken.
    pub kind: EdgeKind,
    /// Where it was declared.
    pub place: Place,
}

/// A node that waits for several others.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// What it waits for.
    pub sources: Vec<Endpoint>,
    /// The node that runs once all of them have.
    pub to: Endpoint,
    /// Where it was declared.
    pub place: Place,
}

/// When an edge is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// Always.
    Plain,
    /// When a conditional edge chooses this route.
    Route(String),
    /// When the node itself goes this way.
    Goto(String),
    /// Once for each item that is taken from the state.
    FanOut,
    /// Once for each item that the node itself sends.
    Sends,
}

impl EdgeKind {
    /// Whether the tasks that it leads to take an item.
    pub(crate) fn has_items(&self) -> bool {
        matches!(self, Self::FanOut | Self::Sends)
    }
}

/// What a node says that it writes.
#[derive(Clone, Debug)]
pub struct WritesSpec {
    /// The node.
    pub node: Endpoint,
    /// The names of channels.
    pub channels: Vec<String>,
    /// Where it was said.
    pub place: Place,
}

/// The routes of one conditional edge.
#[derive(Clone, Debug)]
pub struct RouterSpec {
    /// Its routes, as positions among the edges.
    pub edges: std::ops::Range<usize>,
    /// Whether it takes only one of them each time.
    pub one: bool,
}

/// Collects what a graph is made of, then checks all of it at once.
#[derive(Debug, Default)]
pub struct TopologyBuilder {
    /// The nodes, in the order of their declaration.
    pub nodes: Vec<NodeSpec>,
    /// The edges, in the order of their declaration.
    pub edges: Vec<Edge>,
    /// The joins, in the order of their declaration.
    pub joins: Vec<JoinSpec>,
    /// Which edges are the routes of which conditional edge.
    pub routers: Vec<RouterSpec>,
    /// The names of all channels, and whether they take one write per superstep.
    pub channels: Vec<(String, bool)>,
    /// What nodes say that they write.
    pub writes: Vec<WritesSpec>,
    /// The graphs that nodes say they call: the node's position, a name for the call, and the graph.
    pub calls: Vec<(Endpoint, String, Arc<Topology>)>,
    /// What is done about suspicions, if it is not a warning.
    pub levels: BTreeMap<Lint, Level>,
    /// What was found to be wrong while they were declared.
    pub problems: Vec<Problem>,
}

/// The immutable shape of a compiled graph. Nodes are numbered in the order of their names; [`START`] is one of them.
#[derive(Debug)]
pub struct Topology {
    pub(crate) nodes: Vec<TopologyNode>,
    pub(crate) joins: Vec<Join>,
    start: NodeIndex,
    /// For each declared node, its index.
    declared: Vec<NodeIndex>,
}

#[derive(Debug)]
pub(crate) struct Join {
    /// Its sources and its target, by which checkpoints know it.
    pub(crate) name: String,
    pub(crate) sources: Vec<NodeIndex>,
    pub(crate) to: NodeIndex,
}

#[derive(Debug)]
pub(crate) struct TopologyNode {
    pub(crate) name: NodeName,
    pub(crate) on_cancel: OnCancel,
    /// Where its plain edges lead; an edge to the end leads nowhere.
    pub(crate) edges: Vec<NodeIndex>,
    pub(crate) ends: bool,
    /// Every route that its conditional edges can take: the label, and the node or the end.
    pub(crate) routes: Vec<(String, Option<NodeIndex>)>,
    /// Every route that it can take itself, likewise.
    pub(crate) gotos: Vec<(String, Option<NodeIndex>)>,
    /// The workers it can send items to.
    pub(crate) fan_outs: Vec<NodeIndex>,
    /// Those of them to which only the node itself sends, and not a function of the state.
    pub(crate) sends: Vec<NodeIndex>,
    /// The nodes that a plain edge of it leads to, and that nothing else leads to.
    pub(crate) only_way_to: Vec<NodeIndex>,
    /// The joins that wait for it.
    pub(crate) joins: Vec<usize>,
    pub(crate) deferred: bool,
    pub(crate) worker: bool,
    pub(crate) subgraph: Option<Arc<Topology>>,
    /// The graphs that it calls, as far as it says so.
    pub(crate) calls: Vec<(String, Arc<Topology>)>,
    /// What runs in its place once it has failed for good.
    pub(crate) handler: Option<NodeIndex>,
    /// Whether it is such a handler.
    pub(crate) handles: bool,
}

impl Topology {
    /// The index of the node that was declared as the `declared`-th, from 0.
    pub fn declared(&self, declared: usize) -> Option<NodeIndex> {
        self.declared.get(declared).copied()
    }

    /// The index of [`START`].
    pub fn start(&self) -> NodeIndex {
        self.start
    }

    /// How many nodes there are, [`START`] included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node but [`START`].
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// A node's name.
    pub fn name(&self, node: NodeIndex) -> &NodeName {
        &self.nodes[node.position()].name
    }

    /// The node that runs in place of this one once it has failed for good.
    pub fn handler(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.nodes[node.position()].handler
    }

    /// Whether it is the error handler of another node.
    pub fn is_handler(&self, node: NodeIndex) -> bool {
        self.nodes[node.position()].handles
    }

    /// Whether each task of this node takes an item.
    pub fn takes_item(&self, node: NodeIndex) -> bool {
        self.nodes[node.position()].worker
    }

    /// The graph that a node runs, if it is a subgraph.
    pub fn subgraph(&self, node: NodeIndex) -> Option<&Arc<Topology>> {
        self.nodes[node.position()].subgraph.as_ref()
    }

    /// The graphs that a node says it calls, each with a name for the call.
    pub fn calls(&self, node: NodeIndex) -> &[(String, Arc<Topology>)] {
        &self.nodes[node.position()].calls
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeIndex> {
        let position = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        Some(NodeIndex(u32::try_from(position).expect("a graph has fewer than 2^32 nodes")))
    }

    /// The names of all nodes in order, without [`START`].
    pub fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().map(|node| &node.name).filter(|name| name.as_str() != START)
    }
}
