//! Drawings as SVG pictures, without external programs.

use std::fmt::Write as _;

use super::{
    Drawing, DrawnNode,
    picture::{PictureArrow, PictureNode},
};

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

impl Drawing {
    /// Renders the drawing as SVG. Conditional edges are dashed and labelled with their routes. The start and
    /// the end are round. Nodes and arrows that ran are green, pending nodes are yellow, and counts follow
    /// the names. The colours follow the reader's light or dark mode. Equal drawings give equal text.
    pub fn svg(&self) -> String {
        let picture = self.picture();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
             font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"12\">\n",
            w = picture.width.ceil(),
            h = picture.height.ceil()
        );
        out.push_str(STYLE);
        out.push_str("<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n");
        for arrow in &picture.arrows {
            self.draw_arrow(&mut out, arrow);
        }
        for (node, placed) in self.nodes.iter().zip(&picture.nodes) {
            self.draw_node(&mut out, node, placed);
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_node(&self, out: &mut String, node: &DrawnNode, placed: &PictureNode) {
        let class = match node {
            DrawnNode { pending: true, .. } => "pending",
            DrawnNode { runs: 1.., .. } => "ran",
            _ if self.marked => "idle",
            _ => "node",
        };
        let PictureNode { x, y, width, height, corner } = placed;
        let _ = writeln!(
            out,
            "<g id=\"{}\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{corner:.0}\" \
             class=\"{class}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"name\">{}</text></g>",
            node.id,
            x - width / 2.0,
            y - height / 2.0,
            y + 4.0,
            escape(&self.titled(node))
        );
    }

    fn draw_arrow(&self, out: &mut String, arrow: &PictureArrow) {
        let kind = if arrow.ran {
            "-ran"
        } else if self.marked {
            "-idle"
        } else {
            ""
        };
        let dashes = if arrow.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let PictureArrow { line, head, labels, .. } = arrow;
        let _ = writeln!(
            out,
            "<path d=\"{line}\"{dashes} class=\"line{kind}\"/><path d=\"{head}\" class=\"head{kind}\"/>"
        );
        for (x, y, text) in labels {
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"label\">{}</text>", escape(text));
        }
    }
}

/// Escapes a text for XML, and removes characters that XML does not allow.
fn escape(text: &str) -> String {
    let allowed = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().filter(allowed).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
