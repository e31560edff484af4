//! Drawings as SVG pictures, without external programs.

use std::fmt::Write as _;

use super::{
    ArrowKind, Drawing, DrawnNode,
    layout::{Line, Placed, PlacedLine, place},
    text::is_round,
};

/// The width of a letter of the monospaced font, and the heights of lines and nodes.
const LETTER: f64 = 7.3;
const LINE: f64 = 18.0;
const NODE: f64 = 34.0;

/// The extent of an arrow from a node to itself.
const LOOP: f64 = 34.0;

/// An arrow of the picture: arrows between the same two nodes that look alike are merged.
struct Stroke {
    line: Line,
    label: Vec<String>,
    dashed: bool,
    ran: bool,
}

impl Drawing {
    /// Renders the drawing as SVG. Conditional edges are dashed and labelled with their routes. The start and
    /// the end are round. Nodes and arrows that ran are green, pending nodes are yellow, and counts follow
    /// the names. Equal drawings give equal text.
    pub fn svg(&self) -> String {
        let strokes = self.strokes();
        let sizes: Vec<(f64, f64)> = (0..self.nodes.len()).map(|node| self.size(node, &strokes)).collect();
        let lines: Vec<Line> = strokes.iter().map(|stroke| stroke.line).collect();
        let placed = place(&sizes, &lines);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\">\n",
            w = placed.width,
            h = placed.height
        );
        out.push_str("<defs>\n");
        for (id, color) in [("head", GREY), ("ran", GREEN)] {
            let _ = writeln!(
                out,
                "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
                 orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{color}\"/></marker>"
            );
        }
        out.push_str("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
        for (stroke, line) in strokes.iter().zip(&placed.lines) {
            self.draw_arrow(&mut out, stroke, line, &placed);
        }
        for (node, centre) in self.nodes.iter().zip(&placed.nodes) {
            self.draw_node(&mut out, node, *centre);
        }
        out.push_str("</svg>\n");
        out
    }

    fn strokes(&self) -> Vec<Stroke> {
        let mut strokes: Vec<Stroke> = Vec::new();
        for arrow in &self.arrows {
            // A join makes no choice.
            let dashed = !matches!(arrow.kind, ArrowKind::Plain | ArrowKind::Join);
            let ran = arrow.runs > 0;
            let label = self.labelled(arrow.kind.label(), arrow.runs);
            let alike = strokes.iter_mut().find(|other| {
                (other.line.from, other.line.to, other.dashed, other.ran)
                    == (arrow.from, arrow.to, dashed, ran)
            });
            match alike {
                Some(other) => other.label.extend(label),
                None => {
                    let line = Line { from: arrow.from, to: arrow.to, label: (0.0, 0.0) };
                    strokes.push(Stroke { line, label: label.into_iter().collect(), dashed, ran });
                }
            }
        }
        for stroke in &mut strokes {
            let widest = stroke.label.iter().map(|line| wide(line)).fold(0.0, f64::max);
            stroke.line.label = (widest, LINE * stroke.label.len() as f64);
        }
        strokes
    }

    /// Returns the space that a node needs, with its arrow to itself on the right and the same margin on the
    /// left.
    fn size(&self, node: usize, strokes: &[Stroke]) -> (f64, f64) {
        let of_itself = strokes.iter().filter(|stroke| (stroke.line.from, stroke.line.to) == (node, node));
        let beside = of_itself.map(|stroke| LOOP + stroke.line.label.0).fold(0.0, f64::max);
        (self.width(&self.nodes[node]) + 2.0 * beside, NODE)
    }

    fn width(&self, node: &DrawnNode) -> f64 {
        (wide(&self.titled(node)) + 24.0).max(56.0)
    }

    fn draw_node(&self, out: &mut String, node: &DrawnNode, (x, y): (f64, f64)) {
        let (fill, line) = match node {
            DrawnNode { pending: true, .. } => ("#fff3c4", YELLOW),
            DrawnNode { runs: 1.., .. } => ("#d9f2dd", GREEN),
            _ if self.marked => ("#ffffff", "#b8bec6"),
            _ => ("#f3f5f8", GREY),
        };
        let width = self.width(node);
        let round = if is_round(node) { NODE / 2.0 } else { 6.0 };
        let title = escape(&self.titled(node));
        let _ = writeln!(
            out,
            "<g id=\"{}\"><rect x=\"{:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"{NODE:.0}\" rx=\"{round:.0}\" \
             fill=\"{fill}\" stroke=\"{line}\"/>{}</g>",
            node.id,
            x - width / 2.0,
            y - NODE / 2.0,
            written(x, y, "#1f2328", &title)
        );
    }

    fn draw_arrow(&self, out: &mut String, stroke: &Stroke, line: &PlacedLine, placed: &Placed) {
        let (color, head) = if stroke.ran { (GREEN, "ran") } else { (GREY, "head") };
        let color = if self.marked && !stroke.ran { "#b8bec6" } else { color };
        let thick = if stroke.ran { 2 } else { 1 };
        let dashes = if stroke.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let way = &line.way;
        let (path, (x, y)) = if way.is_empty() {
            let node = stroke.line.from;
            let (x, y) = placed.nodes[node];
            let right = x + self.width(&self.nodes[node]) / 2.0;
            let far = right + LOOP - 6.0;
            let path = format!(
                "M{right:.0} {:.0}C{far:.0} {:.0} {far:.0} {:.0} {right:.0} {:.0}",
                y - 8.0,
                y - 22.0,
                y + 22.0,
                y + 8.0
            );
            (path, (right + LOOP + stroke.line.label.0 / 2.0 - 8.0, y))
        } else {
            let mut path = format!("M{:.0} {:.0}", way[0].0, way[0].1);
            for pair in way.windows(2) {
                let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
                let middle = f64::midpoint(y0, y1);
                let _ = write!(path, "C{x0:.0} {middle:.0} {x1:.0} {middle:.0} {x1:.0} {y1:.0}");
            }
            (path, line.label)
        };
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{thick}\"{dashes} \
             marker-end=\"url(#{head})\"/>"
        );
        let first = y - LINE * (stroke.label.len() as f64 - 1.0) / 2.0;
        for (at, line) in stroke.label.iter().enumerate() {
            let (width, y) = (wide(line), first + LINE * at as f64);
            // Makes the label readable on top of its arrow.
            let _ = writeln!(
                out,
                "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"14\" fill=\"#ffffff\"/>{}",
                x - width / 2.0,
                y - 7.0,
                written(x, y, "#57606a", &escape(line))
            );
        }
    }
}

const GREY: &str = "#57606a";
const GREEN: &str = "#1a7f37";
const YELLOW: &str = "#b08800";

fn written(x: f64, y: f64, color: &str, text: &str) -> String {
    format!("<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"{color}\">{text}</text>", y + 4.0)
}

/// Returns the approximate width of a text; letters of East Asian scripts and emoji count as two.
fn wide(text: &str) -> f64 {
    let letters: u32 = text.chars().map(|c| if c >= '\u{1100}' { 2 } else { 1 }).sum();
    f64::from(letters) * LETTER
}

/// Escapes a text for XML, and removes characters that XML does not allow.
fn escape(text: &str) -> String {
    let allowed = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().filter(allowed).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
