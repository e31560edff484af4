//! The fixed shape of a graph: its nodes, its edges and what is wrong with them.
//!
//! Start at [`TopologyBuilder`].

use std::{collections::BTreeMap, fmt, panic::Location, sync::Arc};

use petgraph::{graph::DiGraph, visit::Dfs};

use crate::{
    END, Level, Lint, NodeIndex, NodeName, RetryPolicy, RouterSpec, START, WhyDead, WritesSpec, lint,
};

/// Where in the user's code something was said.
pub type Place = &'static Location<'static>;

/// A node as it is declared.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name.
    pub name: NodeName,
    /// How often it runs again after a failure that may pass.
    pub retry: Option<RetryPolicy>,
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
    /// Once for each item that is sent.
    FanOut,
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
    pub(crate) retry: Option<RetryPolicy>,
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
    /// The joins that wait for it.
    pub(crate) joins: Vec<usize>,
    pub(crate) deferred: bool,
    pub(crate) worker: bool,
    pub(crate) subgraph: Option<Arc<Topology>>,
    /// What runs in its place once it has failed for good.
    pub(crate) handler: Option<NodeIndex>,
    /// Whether it is such a handler.
    pub(crate) handles: bool,
}

/// Something wrong with a graph, found when it is compiled.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// Where in the user's code.
    pub place: Place,
}

/// Kinds of [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Two nodes have one name.
    #[error("SS001: node `{0}` is declared twice, first at {1}; give one of them another name")]
    DuplicateNode(NodeName, Place),
    /// A name that the engine keeps for itself.
    #[error("SS002: `{0}` is a reserved name; choose another")]
    ReservedName(NodeName),
    /// A name that cannot stand in checkpoints and drawings.
    #[error("SS003: node name `{0}` is empty or has `|`, `:` or a control character; choose another")]
    BadName(NodeName),
    /// No edge leaves [`START`].
    #[error(
        "SS004: no edge leaves START, so nothing would ever run; add an edge from START to the first node"
    )]
    NoStart,
    /// An edge uses a node of another graph.
    #[error(
        "SS005: the edge {0} uses a node of another graph; use the handles that this graph's `add_node` returned"
    )]
    ForeignNode(String),
    /// An edge leaves [`END`].
    #[error("SS006: an edge leaves END, where a branch is over; remove it")]
    OutOfEnd,
    /// An edge enters [`START`].
    #[error("SS007: an edge enters START, which only begins a run; lead it to the first node instead")]
    IntoStart,
    /// A join of less than two nodes.
    #[error("SS010: a join to `{0}` waits for less than two nodes; use `add_edge`, or add its other sources")]
    LonelyJoin(String),
    /// A plain edge or a route leads to a worker.
    #[error(
        "SS009: node `{0}` takes an item, so only a fan-out can lead to it; use `add_fan_out`, or `add_node`"
    )]
    WorkerWithoutItem(NodeName),
    /// A node that chooses among routes, and no one said where they lead.
    #[error(
        "SS011: node `{0}` chooses where to go, and its routes lead nowhere yet; say where with `add_routes`"
    )]
    NoRoutes(NodeName),
    /// Two maps for the routes of a node.
    #[error("SS012: the routes of node `{0}` are declared twice, first at {1}; remove one of the two")]
    RoutesTwice(NodeName, Place),
    /// An edge leads to an error handler.
    #[error(
        "SS013: node `{0}` handles the failures of another, so only these can lead to it; remove the edge, or lead it to a \
         node of `add_node`"
    )]
    EdgeIntoHandler(NodeName),
    /// A second error handler for a node.
    #[error("SS014: node `{0}` has two error handlers, the first declared at {1}; remove one of the two")]
    TwoHandlers(NodeName, Place),
    /// An error handler for START or END.
    #[error("SS014: node `{0}` handles the failures of {1}, which runs nothing that could fail; name a node")]
    NothingToHandle(NodeName, &'static str),
    /// A subgraph that works on its caller's state and is to keep a state of its own.
    #[error(
        "SS015: subgraph `{0}` works on the state of the graph that it is in, so it has none to keep over several tasks; \
         use `add_subgraph_with`, or another `Persistence`"
    )]
    OwnSameState(NodeName),
    /// Nothing leads to a node. A warning.
    #[error(
        "SS008: node `{0}` can never run, no edge leads to it from START; add an edge or remove the node"
    )]
    Unreachable(NodeName),
    /// A node's plain edges are taken in different supersteps, so that it runs more than once.
    #[error(
        "SS020: node `{node}` runs more than once: `{late}` leads to it in a later superstep than `{early}`; use \
         `add_join` to run it once after both, or defer it"
    )]
    RunsTwice {
        /// The node.
        node: NodeName,
        /// A node that leads to it.
        early: NodeName,
        /// Another one, which does so later.
        late: NodeName,
    },
    /// A join waits for nodes that never all run.
    #[error("SS021: the join to `{join}` never completes: {}", match .why {
        WhyDead::Unreachable(source) => format!("no edge leads to `{source}`; add one, or remove it from the join"),
        WhyDead::Exclusive { router, first, second } => format!(
            "a conditional edge of `{router}` leads to `{first}` or to `{second}`, never to both; use an edge from each \
             instead of the join, or let the router return several routes"
        ),
    })]
    DeadJoin {
        /// The node that would run once all of them have.
        join: NodeName,
        /// Why they never do.
        why: WhyDead,
    },
    /// Nodes run in a circle that nothing leads out of.
    #[error(
        "SS022: {} for ever: nothing leads out of the circle; add a conditional edge with a route to END or to another \
         node", match &.0[..] {
            [one] => format!("node `{one}` runs"),
            many => format!("nodes {} run", many.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ")),
        }
    )]
    Endless(Vec<NodeName>),
    /// Nodes that can run in one superstep say that they write a channel that takes one write.
    #[error("SS023: {} `{channel}`, which takes one write per superstep; use a merging reducer or order the nodes with \
             an edge", if .first == .second {
        format!("the tasks of worker `{first}` run in the same superstep and all write channel")
    } else {
        format!("nodes `{first}` and `{second}` can run in the same superstep, and both write channel")
    })]
    ConcurrentWrites {
        /// One node.
        first: NodeName,
        /// The other; the same if it is a worker.
        second: NodeName,
        /// The channel.
        channel: String,
    },
    /// A node says that it writes a channel that the state does not have.
    #[error(
        "SS024: node `{node}` cannot write channel `{channel}`, which the state does not have; it has {known}"
    )]
    UnknownChannel {
        /// The node.
        node: String,
        /// What it says.
        channel: String,
        /// The channels that there are.
        known: String,
    },
}

impl ProblemKind {
    /// Whether the graph could run all the same.
    pub fn is_warning(&self) -> bool {
        self.lint().is_some()
    }

    /// The kind of suspicion, if the graph could run all the same.
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

impl TopologyBuilder {
    /// Checks everything and numbers the nodes. Returns the warnings beside the topology.
    ///
    /// `place` is where the user asked for it; it is blamed for what is missing.
    ///
    /// # Errors
    /// All problems at once, warnings among them, in the order of their places in the builder.
    pub fn build(self, place: Place) -> Result<(Topology, Vec<Problem>), Vec<Problem>> {
        let mut problems = self.problems.clone();
        problems.extend(self.name_problems());
        problems.extend(self.handler_problems());
        problems.extend(self.route_problems());
        problems.extend(self.edge_problems(place));
        problems.extend(self.channel_problems());
        if problems.iter().all(|problem| problem.kind.is_warning()) {
            problems.extend(lint::look(&self));
        }
        let level = |problem: &Problem| match problem.kind.lint() {
            Some(lint) => self.levels.get(&lint).copied().unwrap_or_default(),
            None => Level::Deny,
        };
        problems.retain(|problem| level(problem) != Level::Allow);
        let (mut errors, mut warnings): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(|problem| level(problem) == Level::Deny);
        if !errors.is_empty() {
            errors.append(&mut warnings);
            return Err(errors);
        }
        Ok((self.number(), warnings))
    }

    fn name_problems(&self) -> Vec<Problem> {
        let mut first = BTreeMap::new();
        let mut problems = Vec::new();
        for node in &self.nodes {
            let text = node.name.as_str();
            let kind = if text == START || text == END || text == "START" || text == "END" {
                ProblemKind::ReservedName(node.name.clone())
            } else if text.is_empty() || text.contains(['|', ':']) || text.contains(char::is_control) {
                ProblemKind::BadName(node.name.clone())
            } else if let Some(&place) = first.get(&node.name) {
                ProblemKind::DuplicateNode(node.name.clone(), place)
            } else {
                first.insert(&node.name, node.place);
                continue;
            };
            problems.push(Problem { kind, place: node.place });
        }
        problems
    }

    /// Channels that are said to be written and do not exist.
    fn channel_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for said in &self.writes {
            let known = |channel: &&String| self.channels.iter().any(|(name, _)| name == *channel);
            for channel in said.channels.iter().filter(|channel| !known(channel)) {
                let names = self.channels.iter().map(|(name, _)| format!("`{name}`"));
                let kind = ProblemKind::UnknownChannel {
                    node: self.show(said.node).to_owned(),
                    channel: channel.clone(),
                    known: names.collect::<Vec<_>>().join(", "),
                };
                problems.push(Problem { kind, place: said.place });
            }
        }
        problems
    }

    /// What is wrong with error handlers, but for the edges that lead to them.
    fn handler_problems(&self) -> Vec<Problem> {
        let (mut problems, mut first) = (Vec::new(), BTreeMap::new());
        for node in &self.nodes {
            let kind = match node.handles {
                None => continue,
                Some(Endpoint::Start) => ProblemKind::NothingToHandle(node.name.clone(), "START"),
                Some(Endpoint::End) => ProblemKind::NothingToHandle(node.name.clone(), "END"),
                Some(Endpoint::Foreign) => ProblemKind::ForeignNode(format!("? -> {}", node.name)),
                Some(Endpoint::Node(of)) => match first.get(&of) {
                    Some(&place) => ProblemKind::TwoHandlers(self.nodes[of].name.clone(), place),
                    None => {
                        first.insert(of, node.place);
                        continue;
                    }
                },
            };
            problems.push(Problem { kind, place: node.place });
        }
        problems
    }

    /// What is wrong with the routes that nodes take themselves.
    fn route_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (declared, node) in self.nodes.iter().enumerate() {
            let from = Endpoint::Node(declared);
            let mut said =
                self.edges.iter().filter(|edge| edge.from == from && matches!(edge.kind, EdgeKind::Goto(_)));
            match said.next() {
                None if node.routing => {
                    problems
                        .push(Problem { kind: ProblemKind::NoRoutes(node.name.clone()), place: node.place });
                }
                // The first route again: routes of one enum have names of their own.
                Some(first) => problems.extend(said.filter(|edge| edge.kind == first.kind).map(|again| {
                    let kind = ProblemKind::RoutesTwice(node.name.clone(), first.place);
                    Problem { kind, place: again.place }
                })),
                None => {}
            }
        }
        problems
    }

    fn edge_problems(&self, place: Place) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut graph = DiGraph::<usize, ()>::new();
        let start = graph.add_node(usize::MAX);
        let nodes: Vec<_> = (0..self.nodes.len()).map(|declared| graph.add_node(declared)).collect();
        for (handler, node) in nodes.iter().zip(&self.nodes) {
            if let Some(Endpoint::Node(of)) = node.handles {
                graph.add_edge(nodes[of], *handler, ());
            }
        }
        for edge in &self.edges {
            let mut blame = |kind| problems.push(Problem { kind, place: edge.place });
            if let Endpoint::Node(to) = edge.to
                && self.nodes[to].handles.is_some()
            {
                blame(ProblemKind::EdgeIntoHandler(self.nodes[to].name.clone()));
            }
            if let Endpoint::Node(to) = edge.to
                && self.nodes[to].worker
                && edge.kind != EdgeKind::FanOut
            {
                blame(ProblemKind::WorkerWithoutItem(self.nodes[to].name.clone()));
            }
            match (edge.from, edge.to) {
                (Endpoint::Foreign, _) | (_, Endpoint::Foreign) => {
                    blame(ProblemKind::ForeignNode(format!(
                        "{} -> {}",
                        self.show(edge.from),
                        self.show(edge.to)
                    )));
                }
                (Endpoint::End, _) => blame(ProblemKind::OutOfEnd),
                (_, Endpoint::Start) => blame(ProblemKind::IntoStart),
                (Endpoint::Start, Endpoint::Node(to)) => {
                    graph.add_edge(start, nodes[to], ());
                }
                (Endpoint::Node(from), Endpoint::Node(to)) => {
                    graph.add_edge(nodes[from], nodes[to], ());
                }
                (_, Endpoint::End) => {}
            }
        }
        for join in &self.joins {
            problems.extend(self.join_problems(join));
            if let Endpoint::Node(to) = join.to {
                for source in &join.sources {
                    match *source {
                        Endpoint::Start => graph.add_edge(start, nodes[to], ()),
                        Endpoint::Node(from) => graph.add_edge(nodes[from], nodes[to], ()),
                        Endpoint::End | Endpoint::Foreign => continue,
                    };
                }
            }
        }
        if !self.edges.iter().any(|edge| edge.from == Endpoint::Start) {
            problems.push(Problem { kind: ProblemKind::NoStart, place });
            return problems;
        }
        let mut reached = vec![false; self.nodes.len()];
        let mut walk = Dfs::new(&graph, start);
        while let Some(node) = walk.next(&graph) {
            if let Some(reached) = reached.get_mut(graph[node]) {
                *reached = true;
            }
        }
        for (node, _) in self.nodes.iter().zip(&reached).filter(|(_, reached)| !**reached) {
            problems.push(Problem { kind: ProblemKind::Unreachable(node.name.clone()), place: node.place });
        }
        problems
    }

    fn join_problems(&self, join: &JoinSpec) -> Option<Problem> {
        let foreign = |end: &&Endpoint| **end == Endpoint::Foreign;
        let mut sources = join.sources.clone();
        sources.sort();
        sources.dedup();
        let kind = if join.sources.iter().chain([&join.to]).any(|end| foreign(&end)) {
            ProblemKind::ForeignNode(format!("join -> {}", self.show(join.to)))
        } else if join.sources.contains(&Endpoint::End) {
            ProblemKind::OutOfEnd
        } else if join.to == Endpoint::Start {
            ProblemKind::IntoStart
        } else if join.to == Endpoint::End || sources.len() < 2 {
            ProblemKind::LonelyJoin(self.show(join.to).to_owned())
        } else if let Endpoint::Node(to) = join.to
            && self.nodes[to].worker
        {
            ProblemKind::WorkerWithoutItem(self.nodes[to].name.clone())
        } else if let Endpoint::Node(to) = join.to
            && self.nodes[to].handles.is_some()
        {
            ProblemKind::EdgeIntoHandler(self.nodes[to].name.clone())
        } else {
            return None;
        };
        Some(Problem { kind, place: join.place })
    }

    fn show(&self, end: Endpoint) -> &str {
        match end {
            Endpoint::Start => "START",
            Endpoint::End => "END",
            Endpoint::Foreign => "?",
            Endpoint::Node(declared) => self.nodes[declared].name.as_str(),
        }
    }

    /// Sorts the nodes by name, so that comparing indexes compares names.
    fn number(self) -> Topology {
        let mut order: Vec<usize> = (0..=self.nodes.len()).collect();
        let names: Vec<NodeName> =
            self.nodes.iter().map(|node| node.name.clone()).chain([START.into()]).collect();
        order.sort_by(|&a, &b| names[a].cmp(&names[b]));
        let mut index = vec![NodeIndex(0); order.len()];
        for (position, &declared) in order.iter().enumerate() {
            index[declared] = NodeIndex(u32::try_from(position).expect("a graph has fewer than 2^32 nodes"));
        }
        let of = |end| match end {
            Endpoint::Start => Some(index[self.nodes.len()]),
            Endpoint::Node(declared) => Some(index[declared]),
            Endpoint::End | Endpoint::Foreign => None,
        };
        let mut nodes: Vec<TopologyNode> = order
            .iter()
            .map(|&declared| {
                let spec = self.nodes.get(declared);
                TopologyNode {
                    name: names[declared].clone(),
                    retry: spec.and_then(|node| node.retry),
                    on_cancel: spec.map_or(OnCancel::Finish, |node| node.on_cancel),
                    edges: Vec::new(),
                    ends: false,
                    routes: Vec::new(),
                    gotos: Vec::new(),
                    fan_outs: Vec::new(),
                    joins: Vec::new(),
                    deferred: spec.is_some_and(|node| node.deferred),
                    worker: spec.is_some_and(|node| node.worker),
                    subgraph: spec.and_then(|node| node.subgraph.clone()),
                    handler: None,
                    handles: spec.is_some_and(|node| node.handles.is_some()),
                }
            })
            .collect();
        for (declared, spec) in self.nodes.iter().enumerate() {
            if let Some(of) = spec.handles.and_then(of) {
                nodes[of.position()].handler = Some(index[declared]);
            }
        }
        for edge in self.edges {
            let from = of(edge.from).expect("checked: no edge leaves the end");
            let (node, to) = (&mut nodes[from.position()], of(edge.to));
            match (edge.kind, to) {
                (EdgeKind::Route(route), to) => node.routes.push((route, to)),
                (EdgeKind::Goto(route), to) => node.gotos.push((route, to)),
                (EdgeKind::FanOut, to) => node.fan_outs.extend(to),
                (EdgeKind::Plain, None) => node.ends = true,
                (EdgeKind::Plain, Some(to)) if node.edges.contains(&to) => {}
                (EdgeKind::Plain, Some(to)) => node.edges.push(to),
            }
        }
        let mut joins = Vec::new();
        for join in self.joins {
            let mut sources: Vec<NodeIndex> = join.sources.into_iter().filter_map(of).collect();
            sources.sort_unstable();
            sources.dedup();
            let to = of(join.to).expect("checked: a join leads to a node");
            let name = |node: &NodeIndex| nodes[node.position()].name.as_str();
            let name = format!("{}:{}", sources.iter().map(name).collect::<Vec<_>>().join("|"), name(&to));
            for source in &sources {
                nodes[source.position()].joins.push(joins.len());
            }
            joins.push(Join { name, sources, to });
        }
        let start = index[index.len() - 1];
        index.pop();
        Topology { nodes, joins, start, declared: index }
    }
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
