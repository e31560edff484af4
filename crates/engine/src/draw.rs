//! Drawings of a topology: Mermaid, DOT, SVG, and plain lines for a terminal.
//!
//! Start at [`Drawing`].

mod digraph;
mod layout;
mod mark;
mod picture;
mod svg;
mod text;

pub use picture::{Picture, PictureArrow, PictureNode};

use crate::{NodeIndex, NodeName, Topology};

/// A drawable form of a graph: its nodes and arrows, and marks for those that a run has used.
///
/// [`Topology::drawing`] makes one without marks.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The nodes: [`START`](crate::START) first, in the order in which a run can first reach them; then the
    /// end, then the nodes of expanded subgraphs.
    pub nodes: Vec<DrawnNode>,
    /// The arrows, by the node that they leave.
    pub arrows: Vec<DrawnArrow>,
    /// `true` if the drawing has marks; an element without a mark was then not used.
    pub marked: bool,
}

/// A node of a [`Drawing`].
#[derive(Clone, Debug)]
pub struct DrawnNode {
    /// The node's kind.
    pub kind: DrawnKind,
    /// An identifier that drawing languages accept for any node name.
    pub id: String,
    /// The name of the node, as the user wrote it.
    pub label: String,
    /// The number of times it ran.
    pub runs: u64,
    /// `true` if it is pending.
    pub pending: bool,
}

/// The kind of a [`DrawnNode`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrawnKind {
    /// The start of every run.
    Start,
    /// The end of a branch.
    End,
    /// A node.
    Node(NodeName),
    /// The exit of a subgraph that is drawn expanded.
    Leaves(NodeName),
    /// A node of a subgraph.
    Inside,
}

/// An arrow of a [`Drawing`].
#[derive(Clone, Debug)]
pub struct DrawnArrow {
    /// The position of the node that it leaves.
    pub from: usize,
    /// The position of the node that it leads to.
    pub to: usize,
    /// The condition under which it is taken.
    pub kind: ArrowKind,
    /// The number of times it was taken.
    pub runs: u64,
}

/// The condition under which a [`DrawnArrow`] is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArrowKind {
    /// Always.
    Plain,
    /// Taken when all sources of the join have run.
    Join,
    /// Taken once for each item.
    Items,
    /// Taken when the node has permanently failed.
    Error,
    /// Taken when this route is chosen.
    Route(String),
}

impl ArrowKind {
    /// Returns whether it is drawn dashed: unlike a plain arrow and a join it may not be taken.
    fn is_conditional(&self) -> bool {
        !matches!(self, Self::Plain | Self::Join)
    }

    /// Returns the label of the arrow.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Plain => None,
            Self::Join => Some("join"),
            Self::Items => Some("each item"),
            Self::Error => Some("error"),
            Self::Route(route) => Some(route),
        }
    }
}

impl Drawing {
    /// Adds a graph that the node at `at` calls.
    fn add_call(&mut self, at: usize, call: usize, name: &str, inside: Self) {
        let first = self.nodes.len();
        let end = inside.nodes.iter().position(|node| node.kind == DrawnKind::End);
        let end = end.expect("every drawing has an end");
        let place = |inner: usize| match inner {
            inner if inner == end => at,
            inner => first + inner - usize::from(inner > end),
        };
        let outer = self.nodes[at].clone();
        let (id, label) = (format!("{}_c{call}", outer.id), format!("{}/{name}", outer.label));
        for node in inside.nodes.into_iter().filter(|node| node.kind != DrawnKind::End) {
            let (id, label) = match node.kind {
                DrawnKind::Start => (id.clone(), label.clone()),
                _ => (format!("{id}_{}", node.id), format!("{label}/{}", node.label)),
            };
            self.nodes.push(DrawnNode { kind: DrawnKind::Inside, id, label, ..node });
        }
        let begin = DrawnArrow { from: at, to: first, kind: ArrowKind::Route("call".to_owned()), runs: 0 };
        let arrows = inside.arrows.into_iter();
        let arrows = arrows.map(|arrow| DrawnArrow { from: place(arrow.from), to: place(arrow.to), ..arrow });
        self.arrows.extend([begin].into_iter().chain(arrows));
    }
}

impl Topology {
    /// Returns a drawing of the graph.
    pub fn drawing(&self) -> Drawing {
        let order = self.order();
        let end = order.len();
        let at =
            |node: NodeIndex| order.iter().position(|other| *other == node).expect("every node is drawn");
        let mut nodes: Vec<DrawnNode> = Vec::new();
        let mut arrows = Vec::new();
        for (from, index) in order.iter().enumerate() {
            let is_start = *index == self.start();
            let name = self.name(*index);
            nodes.push(DrawnNode {
                kind: if is_start { DrawnKind::Start } else { DrawnKind::Node(name.clone()) },
                id: if is_start { "start_".into() } else { format!("n{}", index.0) },
                label: if is_start { "START".into() } else { name.as_str().to_owned() },
                runs: 0,
                pending: false,
            });
            let node = &self.nodes[index.position()];
            let mut arrow = |to, kind| arrows.push(DrawnArrow { from, to, kind, runs: 0 });
            node.edges.iter().for_each(|to| arrow(at(*to), ArrowKind::Plain));
            if node.ends {
                arrow(end, ArrowKind::Plain);
            }
            node.joins.iter().for_each(|join| arrow(at(self.joins[*join].to), ArrowKind::Join));
            node.fan_outs.iter().for_each(|to| arrow(at(*to), ArrowKind::Items));
            node.handler.iter().for_each(|to| arrow(at(*to), ArrowKind::Error));
            for (route, to) in node.routes.iter().chain(&node.gotos) {
                arrow(to.map_or(end, at), ArrowKind::Route(route.clone()));
            }
        }
        let (kind, id, label) = (DrawnKind::End, "end_".to_owned(), "END".to_owned());
        nodes.push(DrawnNode { kind, id, label, runs: 0, pending: false });
        Drawing { nodes, arrows, marked: false }
    }

    /// Returns the drawing with all subgraphs expanded, recursively.
    ///
    /// A subgraph is drawn as its entry node, its own nodes under names like `sub/node`, and its exit. A
    /// graph that a node declares to call is drawn as a node `node/call`. An arrow leads to it, and its last
    /// nodes lead back.
    pub fn expanded(&self) -> Drawing {
        let mut drawing = self.drawing();
        for (at, index) in self.order().into_iter().enumerate() {
            for (call, (name, called)) in self.calls(index).iter().enumerate() {
                drawing.add_call(at, call, name, called.expanded());
            }
            let Some(inside) = self.subgraph(index) else { continue };
            let inside = inside.expanded();
            // The first inner node is the entry, which is the subgraph's node itself.
            let first = drawing.nodes.len() - 1;
            let place = |inner: usize| if inner == 0 { at } else { first + inner };
            let end = inside.nodes.iter().position(|node| node.kind == DrawnKind::End);
            let end = place(end.expect("every drawing has an end"));
            drawing.arrows.iter_mut().filter(|arrow| arrow.from == at).for_each(|arrow| arrow.from = end);
            let outer = drawing.nodes[at].clone();
            drawing.nodes.extend(inside.nodes.into_iter().skip(1).map(|node| DrawnNode {
                kind: match (node.kind, &outer.kind) {
                    (DrawnKind::End, DrawnKind::Node(name)) => DrawnKind::Leaves(name.clone()),
                    _ => DrawnKind::Inside,
                },
                id: format!("{}_{}", outer.id, node.id),
                label: format!("{}/{}", outer.label, node.label),
                ..node
            }));
            let arrows = inside.arrows.into_iter();
            drawing.arrows.extend(arrows.map(|arrow| DrawnArrow {
                from: place(arrow.from),
                to: place(arrow.to),
                ..arrow
            }));
        }
        drawing
    }

    /// Returns the graph in Mermaid's flowchart language; see [`Drawing::mermaid`].
    pub fn mermaid(&self) -> String {
        self.drawing().mermaid()
    }

    /// Returns the graph in Graphviz' DOT language; see [`Drawing::dot`].
    pub fn dot(&self) -> String {
        self.drawing().dot()
    }

    /// Returns the graph as one line per arrow; see [`Drawing::text`].
    pub fn text(&self) -> String {
        self.drawing().text()
    }

    /// Returns the graph as a picture; see [`Drawing::svg`].
    pub fn svg(&self) -> String {
        self.drawing().svg()
    }

    /// Returns every node once, [`START`](crate::START) first, in the order in which a run can first reach
    /// it.
    fn order(&self) -> Vec<NodeIndex> {
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
                .chain(node.handler)
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
        order
    }
}
