//! The conversion of a declared graph into a topology.

use super::{
    EdgeKind, Endpoint, Join, JoinSpec, NodeSpec, OnCancel, Topology, TopologyBuilder, TopologyNode,
};
use crate::{NodeIndex, NodeName, START};

impl TopologyBuilder {
    /// Sorts the nodes by name, so that comparing indexes compares names.
    pub(crate) fn number(self) -> Topology {
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
        let node = |&declared: &usize| {
            let spec = self.nodes.get(declared);
            let handles = spec.and_then(|node| node.handles).and_then(of);
            unconnected(names[declared].clone(), spec, handles)
        };
        let mut nodes: Vec<TopologyNode> = order.iter().map(node).collect();
        for (declared, spec) in self.nodes.iter().enumerate() {
            if let Some(of) = spec.handles.and_then(of) {
                nodes[of.position()].handler = Some(index[declared]);
            }
        }
        for (node, name, called) in self.calls {
            let node = of(node).expect("checked: only a node of the graph calls");
            nodes[node.position()].calls.push((name, called));
        }
        for edge in self.edges {
            let from = of(edge.from).expect("checked: no edge leaves the end");
            let (node, to) = (&mut nodes[from.position()], of(edge.to));
            match (edge.kind, to) {
                (EdgeKind::Route(route), to) => node.routes.push((route, to)),
                (EdgeKind::Goto(route), to) => node.gotos.push((route, to)),
                (EdgeKind::FanOut, to) => node.fan_outs.extend(to),
                (EdgeKind::Sends, to) => node.sends.extend(to),
                (EdgeKind::Plain, None) => node.ends = true,
                (EdgeKind::Plain, Some(to)) if node.edges.contains(&to) => {}
                (EdgeKind::Plain, Some(to)) => node.edges.push(to),
            }
        }
        let joins = joins(self.joins, &mut nodes, of);
        for node in &mut nodes {
            node.sends.retain(|worker| !node.fan_outs.contains(worker));
            node.fan_outs.extend(&node.sends);
        }
        let former = self.former.into_iter().map(|(declared, name)| (name, index[declared])).collect();
        let ways_in = ways_in(&nodes, &joins);
        for node in &mut nodes {
            node.only_way_to = node.edges.iter().copied().filter(|to| ways_in[to.position()] == 1).collect();
        }
        let start = index[index.len() - 1];
        index.pop();
        Topology { nodes, joins, start, former, declared: index }
    }
}

/// Creates a node without connections; `spec` is `None` for the start.
fn unconnected(name: NodeName, spec: Option<&NodeSpec>, handles: Option<NodeIndex>) -> TopologyNode {
    TopologyNode {
        name,
        on_cancel: spec.map_or(OnCancel::Finish, |node| node.on_cancel),
        edges: Vec::new(),
        ends: false,
        routes: Vec::new(),
        gotos: Vec::new(),
        fan_outs: Vec::new(),
        sends: Vec::new(),
        only_way_to: Vec::new(),
        joins: Vec::new(),
        deferred: spec.is_some_and(|node| node.deferred),
        worker: spec.is_some_and(|node| node.worker),
        subgraph: spec.and_then(|node| node.subgraph.clone()),
        calls: Vec::new(),
        handler: None,
        handles,
    }
}

/// Names the joins, and lists them at their sources.
fn joins(
    declared: Vec<JoinSpec>,
    nodes: &mut [TopologyNode],
    of: impl Fn(Endpoint) -> Option<NodeIndex>,
) -> Vec<Join> {
    let mut joins = Vec::new();
    for join in declared {
        let mut sources: Vec<NodeIndex> = join.sources.into_iter().filter_map(&of).collect();
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
    joins
}

/// Returns the number of paths that lead to each node.
fn ways_in(nodes: &[TopologyNode], joins: &[Join]) -> Vec<usize> {
    let mut ways = vec![0; nodes.len()];
    for node in nodes {
        let chosen = node.routes.iter().chain(&node.gotos).filter_map(|(_, to)| to.as_ref());
        let all = node.edges.iter().chain(&node.fan_outs).chain(chosen).chain(&node.handler);
        all.for_each(|to| ways[to.position()] += 1);
    }
    joins.iter().for_each(|join| ways[join.to.position()] += 1);
    ways
}
