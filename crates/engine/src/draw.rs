//! Pictures of a topology as text: Mermaid, DOT, and plain lines for a terminal.

use std::fmt::Write as _;

use crate::{NodeIndex, Topology};

/// An arrow of a drawing: from, to, and the route that takes it. `None` as a node is the end.
type Arrow<'a> = (NodeIndex, Option<NodeIndex>, Option<&'a str>);

impl Topology {
    /// The graph in Mermaid's flowchart language; conditional edges are dotted and labelled with their routes.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for node in self.indexes() {
            let (id, label) = (self.id(Some(node)), self.label(Some(node)));
            let (open, close) = if node == self.start() { ("([", "])") } else { ("[", "]") };
            let _ = writeln!(out, "    {id}{open}\"{}\"{close}", escape_mermaid(label));
        }
        let _ = writeln!(out, "    end_([\"END\"])");
        for (from, to, route) in self.arrows() {
            let (from, to) = (self.id(Some(from)), self.id(to));
            let _ = match route {
                Some(route) => writeln!(out, "    {from} -. \"{}\" .-> {to}", escape_mermaid(route)),
                None => writeln!(out, "    {from} --> {to}"),
            };
        }
        out
    }

    /// The graph in Graphviz' DOT language; conditional edges are dashed and labelled with their routes.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph {\n    node [shape=box style=rounded]\n");
        for node in self.indexes() {
            let shape = if node == self.start() { " shape=oval" } else { "" };
            let label = escape_dot(self.label(Some(node)));
            let _ = writeln!(out, "    {} [label=\"{label}\"{shape}]", self.id(Some(node)));
        }
        let _ = writeln!(out, "    end_ [label=\"END\" shape=oval]");
        for (from, to, route) in self.arrows() {
            let (from, to) = (self.id(Some(from)), self.id(to));
            let _ = match route {
                Some(route) => {
                    writeln!(out, "    {from} -> {to} [label=\"{}\" style=dashed]", escape_dot(route))
                }
                None => writeln!(out, "    {from} -> {to}"),
            };
        }
        out.push_str("}\n");
        out
    }

    /// The graph as one line per arrow, in the order in which a run can first reach them.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let width = self.indexes().map(|node| self.label(Some(node)).chars().count()).max().unwrap_or(0);
        for (from, to, route) in self.arrows() {
            let (from, to) = (self.label(Some(from)), self.label(to));
            let _ = match route {
                Some(route) => writeln!(out, "{from:width$} ┄┄▶ {to}  ({route})"),
                None => writeln!(out, "{from:width$} ──▶ {to}"),
            };
        }
        out
    }

    /// Every node once, [`START`](crate::START) first, in the order in which a run can first reach it.
    fn indexes(&self) -> impl Iterator<Item = NodeIndex> {
        let mut order = vec![self.start()];
        let mut seen = 0;
        while seen < order.len() {
            let node = &self.nodes[order[seen].position()];
            let targets = node
                .edges
                .iter()
                .chain(&node.fan_outs)
                .chain(node.joins.iter().map(|&join| &self.joins[join].to))
                .copied()
                .chain(node.routes.iter().chain(&node.gotos).filter_map(|(_, to)| *to));
            for to in targets {
                if !order.contains(&to) {
                    order.push(to);
                }
            }
            seen += 1;
        }
        let all =
            (0..self.len()).map(|position| NodeIndex(u32::try_from(position).expect("counted in 32 bits")));
        order.extend(all.filter(|node| !order.contains(node)).collect::<Vec<_>>());
        order.into_iter()
    }

    fn arrows(&self) -> Vec<Arrow<'_>> {
        let mut arrows = Vec::new();
        for from in self.indexes() {
            let node = &self.nodes[from.position()];
            arrows.extend(node.edges.iter().map(|to| (from, Some(*to), None)));
            if node.ends {
                arrows.push((from, None, None));
            }
            arrows.extend(node.joins.iter().map(|&join| (from, Some(self.joins[join].to), Some("join"))));
            arrows.extend(node.fan_outs.iter().map(|to| (from, Some(*to), Some("each item"))));
            let routes = node.routes.iter().chain(&node.gotos);
            arrows.extend(routes.map(|(route, to)| (from, *to, Some(route.as_str()))));
        }
        arrows
    }

    /// A name that drawing languages accept, whatever the node is called.
    fn id(&self, node: Option<NodeIndex>) -> String {
        match node {
            None => "end_".into(),
            Some(node) if node == self.start() => "start_".into(),
            Some(node) => format!("n{}", node.0),
        }
    }

    fn label(&self, node: Option<NodeIndex>) -> &str {
        match node {
            None => "END",
            Some(node) if node == self.start() => "START",
            Some(node) => self.name(node).as_str(),
        }
    }
}

fn escape_mermaid(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

fn escape_dot(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
