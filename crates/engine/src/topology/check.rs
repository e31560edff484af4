//! The checks of a graph before it is built.
//!
//! Start at [`TopologyBuilder::build`].

use std::collections::BTreeMap;

use petgraph::{graph::DiGraph, visit::Dfs};

use crate::{
    END, EdgeKind, Endpoint, JoinSpec, Level, NodeSpec, Problem, ProblemKind, START, SourceLocation,
    Topology, TopologyBuilder, lint,
};

impl TopologyBuilder {
    /// Checks everything and numbers the nodes. Returns the topology and the warnings.
    ///
    /// `place` is the source location of the build call; problems about missing parts are reported there.
    ///
    /// # Errors
    /// All problems at once, including warnings, in the order of their places in the builder.
    pub fn build(self, place: SourceLocation) -> Result<(Topology, Vec<Problem>), Vec<Problem>> {
        let mut problems = self.problems.clone();
        problems.extend(self.name_problems());
        problems.extend(self.former_problems());
        problems.extend(self.deferral_problems());
        problems.extend(self.handler_problems());
        problems.extend(self.route_problems());
        problems.extend(self.edge_problems(place));
        problems.extend(self.channel_problems());
        if problems.iter().all(|problem| problem.kind.is_warning()) {
            problems.extend(lint::find(&self));
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
            } else if is_pattern(text) {
                ProblemKind::PatternName(node.name.clone())
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

    /// Returns problems for former names that belong to several nodes.
    fn former_problems(&self) -> Vec<Problem> {
        let mut taken: BTreeMap<_, _> = self.nodes.iter().map(|node| (&node.name, &node.name)).collect();
        let mut problems = Vec::new();
        for (declared, former) in &self.former {
            let NodeSpec { name: node, place, .. } = &self.nodes[*declared];
            if let Some(other) = taken.insert(former, node) {
                let (node, former, other) = (node.clone(), former.clone(), other.clone());
                problems.push(Problem { kind: ProblemKind::FormerName { node, former, other }, place });
            }
        }
        problems
    }

    /// Returns problems for declared writes to channels that do not exist.
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

    /// Returns problems for deferred nodes that no plan can defer.
    fn deferral_problems(&self) -> Vec<Problem> {
        let deferred = self.nodes.iter().filter(|node| node.deferred);
        let problem = |node: &NodeSpec| {
            let why = match node {
                NodeSpec { worker: true, .. } => "takes an item, and runs once it is sent one",
                NodeSpec { handles: Some(_), .. } => {
                    "handles the failures of another, and runs when that fails"
                }
                _ => return None,
            };
            Some(Problem { kind: ProblemKind::NeverDeferred(node.name.clone(), why), place: node.place })
        };
        deferred.filter_map(problem).collect()
    }

    /// Returns the problems of error handlers, except those of edges that lead to them.
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

    /// Returns the problems of the routes that nodes take themselves.
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
                // The first route again: routes of one enum have unique names.
                Some(first) => problems.extend(said.filter(|edge| edge.kind == first.kind).map(|again| {
                    let kind = ProblemKind::RoutesTwice(node.name.clone(), first.place);
                    Problem { kind, place: again.place }
                })),
                None => {}
            }
        }
        problems
    }

    fn edge_problems(&self, place: SourceLocation) -> Vec<Problem> {
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
                && !edge.kind.has_items()
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
        let takes_item = |end: &Endpoint| matches!(end, Endpoint::Node(node) if self.nodes[*node].worker);
        let mut sources = join.sources.clone();
        sources.sort();
        sources.dedup();
        let kind = if join.sources.iter().chain([&join.to]).any(|end| foreign(&end)) {
            ProblemKind::ForeignNode(format!("join -> {}", self.show(join.to)))
        } else if join.sources.contains(&Endpoint::End) {
            ProblemKind::OutOfEnd
        } else if join.to == Endpoint::Start {
            ProblemKind::IntoStart
        } else if join.to == Endpoint::End || (sources.len() < 2 && !sources.iter().any(takes_item)) {
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
}

/// Returns whether a name has a special meaning in breakpoints or in subgraph paths.
fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', ']', '/', '\\']) || name.starts_with('$') || name == "." || name == ".."
}
