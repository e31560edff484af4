//! Drawings in Mermaid, DOT and plain text.

use std::fmt::Write as _;

use super::{Drawing, DrawnKind, DrawnNode};

impl Drawing {
    /// Renders the drawing in Mermaid's flowchart language. Conditional edges are dotted and labelled with
    /// their routes. Nodes and arrows that ran are green, pending nodes are yellow, and counts follow the
    /// names.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for node in &self.nodes {
            let (open, close) = if is_round(node) { ("([", "])") } else { ("[", "]") };
            let _ = writeln!(out, "    {}{open}\"{}\"{close}", node.id, escape_mermaid(&self.titled(node)));
        }
        for arrow in &self.arrows {
            let (from, to) = (&self.nodes[arrow.from].id, &self.nodes[arrow.to].id);
            let _ = match self.labelled(arrow.kind.label(), arrow.runs) {
                Some(label) if !arrow.kind.is_conditional() => {
                    writeln!(out, "    {from} -- \"{}\" --> {to}", escape_mermaid(&label))
                }
                Some(label) => writeln!(out, "    {from} -. \"{}\" .-> {to}", escape_mermaid(&label)),
                None => writeln!(out, "    {from} --> {to}"),
            };
        }
        if self.marked {
            let of = |fits: fn(&DrawnNode) -> bool| {
                let ids: Vec<_> =
                    self.nodes.iter().filter(|node| fits(node)).map(|node| node.id.as_str()).collect();
                ids.join(",")
            };
            for (class, ids, style) in [
                (
                    "ran",
                    of(|node| node.runs > 0 && !node.pending),
                    "fill:#d9f2dd,stroke:#1a7f37,color:#1f2328",
                ),
                ("pending", of(|node| node.pending), "fill:#fff3c4,stroke:#b08800,color:#1f2328"),
            ] {
                if !ids.is_empty() {
                    let _ = writeln!(out, "    classDef {class} {style}\n    class {ids} {class}");
                }
            }
            let ran = self.arrows.iter().enumerate().filter(|(_, arrow)| arrow.runs > 0);
            let ran: Vec<_> = ran.map(|(position, _)| position.to_string()).collect();
            if !ran.is_empty() {
                let _ = writeln!(out, "    linkStyle {} stroke:#1a7f37,stroke-width:2px", ran.join(","));
            }
        }
        out
    }

    /// Renders the drawing in Graphviz' DOT language. Conditional edges are dashed and labelled with their
    /// routes. Nodes and arrows that ran are green, pending nodes are yellow, and counts follow the names.
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph {\n    node [shape=box style=rounded]\n");
        for node in &self.nodes {
            let shape = if is_round(node) { " shape=oval" } else { "" };
            let color = match node {
                DrawnNode { pending: true, .. } => {
                    " style=\"rounded,filled\" fillcolor=\"#fff3c4\" color=\"#b08800\""
                }
                DrawnNode { runs: 1.., .. } => {
                    " style=\"rounded,filled\" fillcolor=\"#d9f2dd\" color=\"#1a7f37\""
                }
                _ => "",
            };
            let label = escape_dot(&self.titled(node));
            let _ = writeln!(out, "    {} [label=\"{label}\"{shape}{color}]", node.id);
        }
        for arrow in &self.arrows {
            let (from, to) = (&self.nodes[arrow.from].id, &self.nodes[arrow.to].id);
            let mut style = Vec::new();
            if let Some(label) = self.labelled(arrow.kind.label(), arrow.runs) {
                style.push(format!("label=\"{}\"", escape_dot(&label)));
            }
            if arrow.kind.is_conditional() {
                style.push("style=dashed".to_owned());
            }
            if arrow.runs > 0 {
                style.push("color=\"#1a7f37\" penwidth=2".to_owned());
            }
            let style = if style.is_empty() { String::new() } else { format!(" [{}]", style.join(" ")) };
            let _ = writeln!(out, "    {from} -> {to}{style}");
        }
        out.push_str("}\n");
        out
    }

    /// Renders the drawing as one line per arrow, in the order in which a run can first reach them. Counts
    /// end a line; pending nodes have a line of their own.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let inner = self.nodes.iter().filter(|node| node.kind != DrawnKind::End);
        let width = inner.map(|node| node.label.chars().count()).max().unwrap_or(0);
        for arrow in &self.arrows {
            let (from, to) = (&self.nodes[arrow.from].label, &self.nodes[arrow.to].label);
            let _ = match arrow.kind.label() {
                Some(route) if arrow.kind.is_conditional() => {
                    write!(out, "{from:width$} ┄┄▶ {to}  ({route})")
                }
                Some(join) => write!(out, "{from:width$} ──▶ {to}  ({join})"),
                None => write!(out, "{from:width$} ──▶ {to}"),
            };
            let _ = if arrow.runs > 0 { writeln!(out, "  ×{}", arrow.runs) } else { writeln!(out) };
        }
        for node in self.nodes.iter().filter(|node| node.pending) {
            let _ = writeln!(out, "next: {}", node.label);
        }
        out
    }

    /// Returns the name of a node, with the number of its runs if more than one.
    pub(super) fn titled(&self, node: &DrawnNode) -> String {
        if node.runs > 1 { format!("{} ×{}", node.label, node.runs) } else { node.label.clone() }
    }

    /// Returns the label of an arrow, with its count if more than one.
    pub(super) fn labelled(&self, label: Option<&str>, runs: u64) -> Option<String> {
        match (label, runs) {
            (None, 0 | 1) => None,
            (None, runs) => Some(format!("×{runs}")),
            (Some(label), 0 | 1) => Some(label.to_owned()),
            (Some(label), runs) => Some(format!("{label} ×{runs}")),
        }
    }
}

pub(super) fn is_round(node: &DrawnNode) -> bool {
    matches!(node.kind, DrawnKind::Start | DrawnKind::End | DrawnKind::Leaves(_))
}

fn escape_mermaid(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

fn escape_dot(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
