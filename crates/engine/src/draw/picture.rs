//! The shapes of a picture: where its nodes are, and the paths of its arrows.
//!
//! Start at [`Picture`].

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

/// The layout of a [`Drawing`], for programs that render it themselves. [`Drawing::picture`] makes it.
///
/// All lengths are in pixels of a monospaced font of 12 pixels; places are relative to the upper left corner.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The width of the whole.
    pub width: f64,
    /// The height of the whole.
    pub height: f64,
    /// The boxes of [`Drawing::nodes`], in the same order.
    pub nodes: Vec<PictureNode>,
    /// The arrows. Arrows of the drawing between the same two nodes that look alike are merged.
    pub arrows: Vec<PictureArrow>,
}

/// The box of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureNode {
    /// The horizontal place of its centre.
    pub x: f64,
    /// The vertical place of its centre.
    pub y: f64,
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
    /// The radius of its corners.
    pub corner: f64,
}

/// An arrow with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureArrow {
    /// The position of the node that it leaves.
    pub from: usize,
    /// The position of the node that it leads to.
    pub to: usize,
    /// `true` if it may not be taken.
    pub dashed: bool,
    /// `true` if it was taken, in a drawing with marks.
    pub ran: bool,
    /// The line, as path data of SVG.
    pub line: String,
    /// The arrowhead, as path data of SVG.
    pub head: String,
    /// The labels: the left end and the base line of each, and its text.
    pub labels: Vec<(f64, f64, String)>,
}

/// An arrow to be placed.
struct Stroke {
    line: Line,
    label: Vec<String>,
    dashed: bool,
    ran: bool,
}

impl Drawing {
    /// Returns the layout of the drawing. Equal drawings have equal layouts.
    pub fn picture(&self) -> Picture {
        let strokes = self.strokes();
        let shapes: Vec<Shape> = (0..self.nodes.len()).map(|node| self.shape(node, &strokes)).collect();
        let lines: Vec<Line> = strokes.iter().map(|stroke| stroke.line).collect();
        let placed = place(&shapes, &lines);
        let nodes = self.nodes.iter().zip(&placed.nodes).map(|(node, (x, y))| PictureNode {
            x: *x,
            y: *y,
            width: self.width(node),
            height: NODE,
            corner: corner(node),
        });
        let nodes = nodes.collect();
        let arrows = strokes.iter().zip(&placed.lines);
        let arrows = arrows.map(|(stroke, line)| self.arrow(stroke, line, &placed)).collect();
        Picture { width: placed.width, height: placed.height, nodes, arrows }
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

    fn arrow(&self, stroke: &Stroke, line: &PlacedLine, placed: &Placed) -> PictureArrow {
        let (half, long) = (HEAD.0 / 2.0, HEAD.1);
        // The line ends at the base of the head, whose tip is at the node.
        let (path, head, (x, y)) = match &line.points[..] {
            [.., (_, before), (x, tip)] => {
                let base = if tip > before { tip - long } else { tip + long };
                let head = format!("M{:.1} {base:.1}L{:.1} {base:.1}L{x:.1} {tip:.1}z", x - half, x + half);
                (curve(&line.points, base), head, line.label)
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
        let first = y - LINE * (stroke.label.len() as f64 - 1.0) / 2.0;
        let labels = stroke.label.iter().enumerate();
        let labels = labels.map(|(at, text)| (x, first + LINE * at as f64 + 4.0, text.clone())).collect();
        let Line { from, to, .. } = stroke.line;
        PictureArrow { from, to, dashed: stroke.dashed, ran: stroke.ran, line: path, head, labels }
    }
}

/// Returns the path through these points, each of which it passes vertically, to the height `end` in the column of the
/// last point.
fn curve(points: &[(f64, f64)], end: f64) -> String {
    let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for (at, pair) in points.windows(2).enumerate() {
        let ((x0, y0), (x1, mut y1)) = (pair[0], pair[1]);
        if at + 2 == points.len() {
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
