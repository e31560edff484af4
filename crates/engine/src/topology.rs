//! The fixed shape of a graph: its nodes, its edges and their problems.
//!
//! Start at [`TopologyBuilder`].

mod check;
mod number;
mod problem;

pub use problem::{Level, Lint, Problem, ProblemKind, WhyDead};

use std::{collections::BTreeMap, panic::Location, sync::Arc};

use crate::{NodeIndex, NodeName, START};

/// A location in the user's code.
pub type SourceLocation = &'static Location<'static>;

/// A declared node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// The name of the node.
    pub name: NodeName,
    /// The behaviour when the run is cancelled.
    pub on_cancel: OnCancel,
    /// `true` if each of its tasks takes an item, so that only a fan-out can lead to it.
    pub worker: bool,
    /// `true` if it chooses among routes of its own, which must then be declared.
    pub routing: bool,
    /// The node whose failures it handles, so that only these lead to it.
    pub handles: Option<Endpoint>,
    /// `true` if it waits until no other task is left.
    pub deferred: bool,
    /// The topology of the subgraph, if it is one.
    pub subgraph: Option<Arc<Topology>>,
    /// The location of its declaration.
    pub place: SourceLocation,
}

/// The behaviour of a node when its run is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCancel {
    /// The task is dropped and stays pending.
    #[default]
    Drop,
    /// The task is notified and may finish; it is started even after the cancellation. For nodes that clean
    /// up.
    Finish,
}

/// One end of an edge of a graph under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The start of every run.
    Start,
    /// The node declared as the `n`-th, from 0.
    Node(usize),
    /// The end of a branch.
    End,
    /// A node of another graph.
    Foreign,
}

/// A declared edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The source.
    pub from: Endpoint,
    /// The target.
    pub to: Endpoint,
    /// The condition under which it is taken.
    pub kind: EdgeKind,
    /// The location of its declaration.
    pub place: SourceLocation,
}

/// A node that waits for several others.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// The sources it waits for.
    pub sources: Vec<Endpoint>,
    /// The node that runs after all sources have run.
    pub to: Endpoint,
    /// The location of its declaration.
    pub place: SourceLocation,
}

/// The condition under which an edge is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// Always.
    Plain,
    /// Taken when a conditional edge chooses this route.
    Route(String),
    /// Taken when the node itself chooses this route.
    Goto(String),
    /// Taken once for each item of the state.
    FanOut,
    /// Taken once for each item that the node itself sends.
    Sends,
}

impl EdgeKind {
    /// Returns whether the tasks at its target take an item.
    pub(crate) fn has_items(&self) -> bool {
        matches!(self, Self::FanOut | Self::Sends)
    }
}

/// The declared writes of a node.
#[derive(Clone, Debug)]
pub struct WritesSpec {
    /// The node.
    pub node: Endpoint,
    /// The names of channels.
    pub channels: Vec<String>,
    /// The location of the declaration.
    pub place: SourceLocation,
}

/// The routes of one conditional edge.
#[derive(Clone, Debug)]
pub struct RouterSpec {
    /// The routes of the node, as positions among the edges.
    pub edges: std::ops::Range<usize>,
    /// `true` if it takes exactly one of its routes each time.
    pub one: bool,
}

/// Collects the parts of a graph and then checks all of them at once.
#[derive(Debug, Default)]
pub struct TopologyBuilder {
    /// The nodes, in the order of their declaration.
    pub nodes: Vec<NodeSpec>,
    /// The former names of nodes, each with the node's position.
    pub former: Vec<(usize, NodeName)>,
    /// The edges, in the order of their declaration.
    pub edges: Vec<Edge>,
    /// The joins, in the order of their declaration.
    pub joins: Vec<JoinSpec>,
    /// The conditional edges and their routes.
    pub routers: Vec<RouterSpec>,
    /// The names of all channels, and whether each accepts one write per superstep.
    pub channels: Vec<(String, bool)>,
    /// The declared writes of nodes.
    pub writes: Vec<WritesSpec>,
    /// The declared calls of graphs: the node's position, a name for the call, and the graph.
    pub calls: Vec<(Endpoint, String, Arc<Topology>)>,
    /// The levels of lints, where they differ from a warning.
    pub levels: BTreeMap<Lint, Level>,
    /// Problems found during the declaration.
    pub problems: Vec<Problem>,
}

/// The immutable shape of a compiled graph. Nodes are numbered in the order of their names; [`START`] is one of them.
#[derive(Debug)]
pub struct Topology {
    pub(crate) nodes: Vec<TopologyNode>,
    pub(crate) joins: Vec<Join>,
    start: NodeIndex,
    /// The former names of nodes.
    former: Vec<(NodeName, NodeIndex)>,
    /// The index of each declared node.
    declared: Vec<NodeIndex>,
}

#[derive(Debug)]
pub(crate) struct Join {
    /// The name in checkpoints, made of its sources and its target.
    pub(crate) name: String,
    pub(crate) sources: Vec<NodeIndex>,
    pub(crate) to: NodeIndex,
}

#[derive(Debug)]
pub(crate) struct TopologyNode {
    pub(crate) name: NodeName,
    pub(crate) on_cancel: OnCancel,
    /// The targets of its plain edges, without the end.
    pub(crate) edges: Vec<NodeIndex>,
    pub(crate) ends: bool,
    /// The routes of its conditional edges: the label, and the node, or `None` for the end.
    pub(crate) routes: Vec<(String, Option<NodeIndex>)>,
    /// The routes that it can take itself, in the same form.
    pub(crate) gotos: Vec<(String, Option<NodeIndex>)>,
    /// The workers that it can send items to.
    pub(crate) fan_outs: Vec<NodeIndex>,
    /// The workers that receive items only from the node's own sends, not from a fan-out.
    pub(crate) sends: Vec<NodeIndex>,
    /// The nodes that are reached only by a plain edge of this node.
    pub(crate) only_way_to: Vec<NodeIndex>,
    /// The joins that wait for it.
    pub(crate) joins: Vec<usize>,
    pub(crate) deferred: bool,
    pub(crate) worker: bool,
    pub(crate) subgraph: Option<Arc<Topology>>,
    /// The graphs that it declares to call.
    pub(crate) calls: Vec<(String, Arc<Topology>)>,
    /// The error handler that runs after a permanent failure.
    pub(crate) handler: Option<NodeIndex>,
    /// The node whose failures it handles.
    pub(crate) handles: Option<NodeIndex>,
}

impl Topology {
    /// Returns the index of the node that was declared as the `declared`-th, from 0.
    pub fn declared(&self, declared: usize) -> Option<NodeIndex> {
        self.declared.get(declared).copied()
    }

    /// Returns the index of [`START`].
    pub fn start(&self) -> NodeIndex {
        self.start
    }

    /// Returns the number of nodes, including [`START`].
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether [`START`] is the only node.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Returns a node's name.
    pub fn name(&self, node: NodeIndex) -> &NodeName {
        &self.nodes[node.position()].name
    }

    /// Returns the error handler that runs after a permanent failure of this node.
    pub fn handler(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.nodes[node.position()].handler
    }

    /// Returns whether it is the error handler of another node.
    pub fn is_handler(&self, node: NodeIndex) -> bool {
        self.nodes[node.position()].handles.is_some()
    }

    /// Returns whether each task of this node takes an item.
    pub fn takes_item(&self, node: NodeIndex) -> bool {
        self.nodes[node.position()].worker
    }

    /// Returns the graph that a node runs, if it is a subgraph.
    pub fn subgraph(&self, node: NodeIndex) -> Option<&Arc<Topology>> {
        self.nodes[node.position()].subgraph.as_ref()
    }

    /// Returns the graphs that a node declares to call, each with a name for the call.
    pub fn calls(&self, node: NodeIndex) -> &[(String, Arc<Topology>)] {
        &self.nodes[node.position()].calls
    }

    /// Returns the node that has this name, or had it.
    pub fn find(&self, name: &str) -> Option<NodeIndex> {
        let Ok(position) = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)) else {
            return self.former.iter().find(|(former, _)| former.as_str() == name).map(|(_, node)| *node);
        };
        Some(NodeIndex(u32::try_from(position).expect("a graph has fewer than 2^32 nodes")))
    }

    /// Returns the former names of a node, in the order of their declaration.
    pub fn former_names(&self, node: NodeIndex) -> impl Iterator<Item = &NodeName> {
        self.former.iter().filter(move |(_, named)| *named == node).map(|(name, _)| name)
    }

    /// Returns the first name that a node had.
    pub fn first_name(&self, node: NodeIndex) -> &NodeName {
        self.former_names(node).last().unwrap_or_else(|| self.name(node))
    }

    /// Returns whether both names are of one node. A name that no node has is only that of itself.
    pub fn is_same(&self, one: &NodeName, other: &NodeName) -> bool {
        one == other || self.find(one.as_str()).is_some_and(|node| self.find(other.as_str()) == Some(node))
    }

    /// Returns the present name of the node that has this name, or had it; the name itself if there is none.
    pub fn present_name<'a>(&'a self, name: &'a NodeName) -> &'a NodeName {
        self.find(name.as_str()).map_or(name, |node| self.name(node))
    }

    /// Returns the join of this name, even if its nodes had the names.
    pub(crate) fn find_join(&self, name: &str) -> Option<usize> {
        let is_same = |join: &Join| {
            let (sources, to) = name.split_once(':')?;
            let mut sources: Vec<_> =
                sources.split('|').map(|name| self.find(name)).collect::<Option<_>>()?;
            sources.sort_unstable();
            Some(sources == join.sources && self.find(to) == Some(join.to))
        };
        let exact = self.joins.iter().position(|join| join.name == name);
        exact.or_else(|| self.joins.iter().position(|join| is_same(join) == Some(true)))
    }

    /// Returns the names of all nodes in order, without [`START`].
    pub fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().map(|node| &node.name).filter(|name| name.as_str() != START)
    }
}
