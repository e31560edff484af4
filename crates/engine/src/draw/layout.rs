//! The layout of a picture: nodes in layers, arrows from layer to layer.
//!
//! # Source
//! Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981):
//! reverse the edges that close a cycle, put each node below all its predecessors, split long arrows into
//! pieces of one layer, order each layer by the positions of the neighbours, then draw neighbours close
//! together.

// Of one's own: `layout-rs` has its own fonts and colours and iterates over hash sets when it places nodes, and
// `rust-sugiyama` places nodes only, so that long edges cross them. Without randomness a picture can be a snapshot.
/// The gaps between nodes in one layer, and between layers. Arrows change their column only between layers.
const GAP: f64 = 28.0;
const LAYER_GAP: f64 = 28.0;

/// The distance of a label from its arrow, which is on its left.
const BESIDE: f64 = 7.0;

/// Maximum distance of two arrows at one side of a node.
const PORT: f64 = 24.0;

/// A node to be placed. It is placed by the centre of its box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The width of its box.
    pub(super) width: f64,
    pub(super) height: f64,
    /// The width of the straight part of its upper and lower side, where arrows begin and end.
    pub(super) side: f64,
    /// The width of its arrow to itself with the label, on its right.
    pub(super) beside: f64,
}

/// The number of passes that improve first the order of layers, then the positions in them.
const SWEEPS: usize = 12;

/// An arrow to be placed. An arrow from a node to itself has no place of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The width and height of its label.
    pub(super) label: (f64, f64),
}

/// The positions of all elements. Points are relative to the upper left corner.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The centres of the nodes.
    pub(super) nodes: Vec<(f64, f64)>,
    /// The arrows.
    pub(super) lines: Vec<PlacedLine>,
}

/// The position of an arrow.
#[derive(Debug)]
pub(super) struct PlacedLine {
    /// The points of its path from source to target; empty for an arrow from a node to itself.
    pub(super) points: Vec<(f64, f64)>,
    /// The middle of the left edge of its label.
    pub(super) label: (f64, f64),
}

/// An element of a layer: a node, or a piece of an arrow.
#[derive(Clone, Debug)]
struct LayerItem {
    layer: usize,
    /// The extents to the left and to the right of `x`.
    left: f64,
    right: f64,
    height: f64,
    /// The neighbours of the node in the layers above and below.
    above: Vec<usize>,
    below: Vec<usize>,
    x: f64,
}

/// Places nodes of these shapes.
pub(super) fn place(shapes: &[Shape], lines: &[Line]) -> Placed {
    let turned = turned(shapes.len(), lines);
    let layers_of = layers(shapes.len(), lines, &turned);
    let mut things: Vec<LayerItem> = shapes
        .iter()
        .zip(&layers_of)
        // Between two layers of nodes there is one for labels.
        .map(|(shape, layer)| LayerItem {
            layer: layer * 2,
            left: shape.width / 2.0,
            right: shape.width / 2.0 + shape.beside,
            height: shape.height,
            above: Vec::new(),
            below: Vec::new(),
            x: 0.0,
        })
        .collect();
    let mut pieces: Vec<Vec<usize>> = Vec::new();
    for (line, turned) in lines.iter().zip(&turned) {
        let (top, bottom) = if *turned { (line.to, line.from) } else { (line.from, line.to) };
        let mut way = Vec::new();
        if top != bottom {
            let mut last = top;
            // The label is next to the node that makes the choice.
            let labelled = if *turned { things[bottom].layer - 1 } else { things[top].layer + 1 };
            for layer in things[top].layer + 1..things[bottom].layer {
                let (width, height) = if layer == labelled { line.label } else { (0.0, 0.0) };
                let right = if width > 0.0 { width + BESIDE } else { 0.0 };
                let piece = things.len();
                let (above, below) = (vec![last], Vec::new());
                things.push(LayerItem { layer, left: 0.0, right, height, above, below, x: 0.0 });
                things[last].below.push(piece);
                way.push(piece);
                last = piece;
            }
            things[last].below.push(bottom);
            things[bottom].above.push(last);
        }
        pieces.push(way);
    }
    let rows = order(&things);
    spread(&mut things, &rows);
    finish(things, &rows, shapes, lines, &turned, &pieces)
}

/// Returns the arrows that close a cycle, searching from the first node on.
fn turned(nodes: usize, lines: &[Line]) -> Vec<bool> {
    let mut turned = vec![false; lines.len()];
    // 0: not visited; 1: on the path from the start to here; 2: completed.
    let mut seen = vec![0; nodes];
    for root in 0..nodes {
        if seen[root] != 0 {
            continue;
        }
        seen[root] = 1;
        let mut way = vec![(root, 0)];
        while let Some((node, position)) = way.pop() {
            let next = lines.iter().enumerate().skip(position).find(|(_, line)| line.from == node);
            let Some((at, line)) = next else {
                seen[node] = 2;
                continue;
            };
            way.push((node, at + 1));
            match seen[line.to] {
                0 => {
                    seen[line.to] = 1;
                    way.push((line.to, 0));
                }
                1 => turned[at] = true,
                _ => {}
            }
        }
    }
    turned
}

/// Assigns each node to a layer below all its predecessors.
fn layers(nodes: usize, lines: &[Line], turned: &[bool]) -> Vec<usize> {
    let mut layers = vec![0; nodes];
    // No cycle is left, so this terminates.
    loop {
        let mut changed = false;
        for (line, turned) in lines.iter().zip(turned) {
            let (top, bottom) = if *turned { (line.to, line.from) } else { (line.from, line.to) };
            if top != bottom && layers[bottom] <= layers[top] {
                layers[bottom] = layers[top] + 1;
                changed = true;
            }
        }
        if !changed {
            return layers;
        }
    }
}

/// Returns the elements of each layer from left to right, with few crossings.
fn order(things: &[LayerItem]) -> Vec<Vec<usize>> {
    let depth = things.iter().map(|thing| thing.layer).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); depth + 1];
    for (position, thing) in things.iter().enumerate() {
        rows[thing.layer].push(position);
    }
    let mut best = rows.clone();
    let mut fewest = crossings(things, &best);
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let layers: Vec<usize> = if down { (1..=depth).collect() } else { (0..depth).rev().collect() };
        for layer in layers {
            let mut place = vec![0.0; things.len()];
            for row in &rows {
                row.iter().enumerate().for_each(|(at, thing)| place[*thing] = at as f64);
            }
            let key = |thing: &usize| {
                let near = if down { &things[*thing].above } else { &things[*thing].below };
                if near.is_empty() {
                    place[*thing]
                } else {
                    near.iter().map(|near| place[*near]).sum::<f64>() / near.len() as f64
                }
            };
            rows[layer].sort_by(|a, b| key(a).total_cmp(&key(b)));
        }
        let crossed = crossings(things, &rows);
        if crossed < fewest {
            (fewest, best) = (crossed, rows.clone());
        }
    }
    best
}

fn crossings(things: &[LayerItem], rows: &[Vec<usize>]) -> usize {
    let mut place = vec![0; things.len()];
    for row in rows {
        row.iter().enumerate().for_each(|(at, thing)| place[*thing] = at);
    }
    let crossed = |row: &Vec<usize>| {
        let ends: Vec<(usize, usize)> = row
            .iter()
            .flat_map(|thing| things[*thing].below.iter().map(|below| (place[*thing], place[*below])))
            .collect();
        let pairs = ends.iter().enumerate().flat_map(|(at, a)| ends[at + 1..].iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| (a.0 < b.0 && a.1 > b.1) || (a.0 > b.0 && a.1 < b.1)).count()
    };
    rows.iter().map(crossed).sum()
}

/// Puts each element near the middle of its neighbours, in order and without overlap.
fn spread(things: &mut [LayerItem], rows: &[Vec<usize>]) {
    for row in rows {
        let mut end = 0.0;
        for thing in row {
            let thing = &mut things[*thing];
            thing.x = end + thing.left;
            end += thing.left + thing.right + GAP;
        }
    }
    for sweep in 0..2 * SWEEPS {
        let down = sweep % 2 == 0;
        let rows: Vec<&Vec<usize>> = if down { rows.iter().collect() } else { rows.iter().rev().collect() };
        for row in rows {
            let wanted: Vec<f64> = row
                .iter()
                .map(|thing| {
                    let near = if down { &things[*thing].above } else { &things[*thing].below };
                    let sum: f64 = near.iter().map(|near| things[*near].x).sum();
                    if near.is_empty() { things[*thing].x } else { sum / near.len() as f64 }
                })
                .collect();
            let extents: Vec<_> =
                row.iter().map(|thing| (things[*thing].left, things[*thing].right)).collect();
            for (thing, x) in row.iter().zip(apart(&wanted, &extents)) {
                things[*thing].x = x;
            }
        }
    }
}

/// Returns the places nearest to the wanted ones, in order and at least [`GAP`] apart. Each element extends to its left
/// and right.
fn apart(wanted: &[f64], extents: &[(f64, f64)]) -> Vec<f64> {
    let mut offsets = Vec::new();
    let mut offset = 0.0;
    for (at, (left, _)) in extents.iter().enumerate() {
        if at > 0 {
            offset += extents[at - 1].1 + left + GAP;
        }
        offsets.push(offset);
    }
    // Blocks that move together: their mean, and their number.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (wanted, offset) in wanted.iter().zip(&offsets) {
        blocks.push((wanted - offset, 1));
        while let [.., (a, n), (b, m)] = blocks[..]
            && a > b
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    let places = blocks.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count));
    places.zip(offsets).map(|(place, offset)| place + offset).collect()
}

fn finish(
    mut things: Vec<LayerItem>,
    rows: &[Vec<usize>],
    shapes: &[Shape],
    lines: &[Line],
    turned: &[bool],
    pieces: &[Vec<usize>],
) -> Placed {
    let left = things.iter().map(|thing| thing.x - thing.left).fold(f64::INFINITY, f64::min);
    things.iter_mut().for_each(|thing| thing.x += GAP - left);
    let width = things.iter().map(|thing| thing.x + thing.right).fold(0.0, f64::max) + GAP;
    // The upper and lower edge of each layer.
    let mut edges = Vec::new();
    let mut y = LAYER_GAP;
    for row in rows {
        let height = row.iter().map(|thing| things[*thing].height).fold(0.0, f64::max);
        edges.push((y, y + height));
        y += height + LAYER_GAP;
    }
    let centre = |thing: usize| {
        let (upper, lower) = edges[things[thing].layer];
        (things[thing].x, f64::midpoint(upper, lower))
    };
    // Arrows at the same side of a node leave it next to each other, in the order of their targets.
    let port = |node: usize, toward: usize, below: bool| {
        let near = if below { &things[node].below } else { &things[node].above };
        let mut near: Vec<usize> = near.clone();
        near.sort_by(|a, b| things[*a].x.total_cmp(&things[*b].x));
        let at = near.iter().position(|other| *other == toward).unwrap_or(0);
        let others = near.len().saturating_sub(1) as f64;
        let step = if others > 0.0 { (shapes[node].side / others).min(PORT) } else { 0.0 };
        let (x, y) = centre(node);
        let half = things[node].height / 2.0;
        (x + (at as f64 - others / 2.0) * step, if below { y + half } else { y - half })
    };
    let lines = lines.iter().zip(turned).zip(pieces).map(|((line, turned), pieces)| {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return PlacedLine { points: Vec::new(), label: centre(line.from) };
        };
        let (top, bottom) = if *turned { (line.to, line.from) } else { (line.from, line.to) };
        let mut points = vec![port(top, *first, true)];
        // Straight past the nodes and labels of a layer.
        points.extend(pieces.iter().flat_map(|piece| {
            let (x, (upper, lower)) = (things[*piece].x, edges[things[*piece].layer]);
            [(x, upper), (x, lower)]
        }));
        points.push(port(bottom, *last, false));
        if *turned {
            points.reverse();
        }
        let (x, y) = centre(if *turned { *last } else { *first });
        PlacedLine { points, label: (x + BESIDE, y) }
    });
    let lines = lines.collect();
    Placed { width, height: y, nodes: (0..shapes.len()).map(centre).collect(), lines }
}
