//! Drawings as SVG pictures, without external programs.

use std::fmt::Write as _;

use super::{
    Drawing, DrawnNode,
    layout::{Line, Placed, PlacedLine, Shape, place},
    text::is_round,
};

/// The width of a letter of the monospaced font, and the heights of lines and nodes.
const LETTER: f64 = 7.3;
const LINE: f64 = 18.0;
const NODE: f64 = 34.0;

/// The radius of a corner, and the width and length of an arrowhead.
const CORNER: f64 = 6.0;
const HEAD: (f64, f64) = (7.0, 8.0);

/// The extent of an arrow from a node to itself, and the distance of its ends.
const LOOP: f64 = 24.0;
const LOOP_ENDS: f64 = 16.0;

/// The distance of the label from it.
const LOOP_LABEL: f64 = 6.0;

/// The colours: of a light page, and of a dark one. Programs that do not know the condition use the first.
const STYLE: &str = "\
<style>
.page{fill:#ffffff}.name{fill:#1f2328}.label{fill:#57606a}
.node{fill:#f3f5f8;stroke:#57606a}.idle{fill:#ffffff;stroke:#b8bec6}.ran{fill:#d9f2dd;stroke:#1a7f37}.pending{fill:#fff3c4;stroke:#b08800}
.line{fill:none;stroke:#57606a}.line-idle{fill:none;stroke:#b8bec6}.line-ran{fill:none;stroke:#1a7f37;stroke-width:2}
.head{fill:#57606a}.head-idle{fill:#b8bec6}.head-ran{fill:#1a7f37}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117}.name{fill:#e6edf3}.label{fill:#9198a1}
.node{fill:#161b22;stroke:#8b949e}.idle{fill:#0d1117;stroke:#484f58}.ran{fill:#12341d;stroke:#3fb950}.pending{fill:#3b2e0a;stroke:#d29922}
.line{stroke:#8b949e}.line-idle{stroke:#484f58}.line-ran{stroke:#3fb950}
.head{fill:#8b949e}.head-idle{fill:#484f58}.head-ran{fill:#3fb950}
}
</style>
";

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
    /// the names. The colours follow the reader's light or dark mode. Equal drawings give equal text.
    pub fn svg(&self) -> String {
        let strokes = self.strokes();
        let shapes: Vec<Shape> = (0..self.nodes.len()).map(|node| self.shape(node, &strokes)).collect();
        let lines: Vec<Line> = strokes.iter().map(|stroke| stroke.line).collect();
        let placed = place(&shapes, &lines);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
             font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"12\">\n",
            w = placed.width.ceil(),
            h = placed.height.ceil()
        );
        out.push_str(STYLE);
        out.push_str("<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n");
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
            let dashed = arrow.kind.is_conditional();
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

    /// Returns the space that a node needs, with its arrow to itself on the right.
    fn shape(&self, node: usize, strokes: &[Stroke]) -> Shape {
        let of_itself = strokes.iter().filter(|stroke| (stroke.line.from, stroke.line.to) == (node, node));
        let beside = of_itself.map(|stroke| LOOP + LOOP_LABEL + stroke.line.label.0).fold(0.0, f64::max);
        let (width, corner) = (self.width(&self.nodes[node]), corner(&self.nodes[node]));
        Shape { width, height: NODE, side: width - 2.0 * corner, beside }
    }

    fn width(&self, node: &DrawnNode) -> f64 {
        (wide(&self.titled(node)) + 24.0).max(56.0)
    }

    fn draw_node(&self, out: &mut String, node: &DrawnNode, (x, y): (f64, f64)) {
        let class = match node {
            DrawnNode { pending: true, .. } => "pending",
            DrawnNode { runs: 1.., .. } => "ran",
            _ if self.marked => "idle",
            _ => "node",
        };
        let (width, corner) = (self.width(node), corner(node));
        let _ = writeln!(
            out,
            "<g id=\"{}\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{NODE:.1}\" rx=\"{corner:.0}\" \
             class=\"{class}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"name\">{}</text></g>",
            node.id,
            x - width / 2.0,
            y - NODE / 2.0,
            y + 4.0,
            escape(&self.titled(node))
        );
    }

    fn draw_arrow(&self, out: &mut String, stroke: &Stroke, line: &PlacedLine, placed: &Placed) {
        let kind = if stroke.ran {
            "-ran"
        } else if self.marked {
            "-idle"
        } else {
            ""
        };
        let dashes = if stroke.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let (half, long) = (HEAD.0 / 2.0, HEAD.1);
        // The line ends at the base of the head, whose tip is at the node.
        let (path, head, (x, y)) = match &line.way[..] {
            [.., (_, before), (x, tip)] => {
                let base = if tip > before { tip - long } else { tip + long };
                let head = format!("M{:.1} {base:.1}L{:.1} {base:.1}L{x:.1} {tip:.1}z", x - half, x + half);
                (curve(&line.way, base), head, line.label)
            }
            _ => {
                let node = stroke.line.from;
                let (x, y) = placed.nodes[node];
                let (side, radius) = (x + self.width(&self.nodes[node]) / 2.0, LOOP_ENDS / 2.0);
                let (upper, lower, turn) = (y - radius, y + radius, side + LOOP - radius);
                let base = side + long;
                let path = format!(
                    "M{side:.1} {upper:.1}L{turn:.1} {upper:.1}A{radius:.1} {radius:.1} 0 0 1 {turn:.1} {lower:.1}L{base:.1} {lower:.1}"
                );
                let head = format!(
                    "M{base:.1} {:.1}L{base:.1} {:.1}L{side:.1} {lower:.1}z",
                    lower - half,
                    lower + half
                );
                (path, head, (side + LOOP + LOOP_LABEL, y))
            }
        };
        let _ = writeln!(
            out,
            "<path d=\"{path}\"{dashes} class=\"line{kind}\"/><path d=\"{head}\" class=\"head{kind}\"/>"
        );
        let first = y - LINE * (stroke.label.len() as f64 - 1.0) / 2.0;
        for (at, line) in stroke.label.iter().enumerate() {
            let y = first + LINE * at as f64 + 4.0;
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"label\">{}</text>", escape(line));
        }
    }
}

/// Returns the path through these points, each of which it passes vertically, to the height `end` in the column of the
/// last point.
fn curve(way: &[(f64, f64)], end: f64) -> String {
    let mut path = format!("M{:.1} {:.1}", way[0].0, way[0].1);
    for (at, pair) in way.windows(2).enumerate() {
        let ((x0, y0), (x1, mut y1)) = (pair[0], pair[1]);
        if at + 2 == way.len() {
            y1 = end;
        }
        let middle = f64::midpoint(y0, y1);
        let (is_straight, is_short) = ((x1 - x0).abs() < 0.05, (y1 - y0).abs() < 0.05);
        let _ = if !is_straight {
            write!(path, "C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {y1:.1}")
        } else if !is_short {
            write!(path, "L{x1:.1} {y1:.1}")
        } else {
            Ok(())
        };
    }
    path
}

/// Returns the radius of the corners of a node.
fn corner(node: &DrawnNode) -> f64 {
    if is_round(node) { NODE / 2.0 } else { CORNER }
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
