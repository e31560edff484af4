//! Drawings of a graph, and of a thread's path.

use superstep::{CheckpointId, Cx, END, Route, RunError, START, State as _, StateGraph, drawing::Drawing};

use crate::support::{Plain, failed, logging_node, on_every_store};

#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    Finalize,
}

/// Builds a loop with an exit, a fan-out, and names that drawing languages must escape.
fn react() -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("react");
    let agent = logging_node(&mut graph, "agent");
    let tools = logging_node(&mut graph, r#"tools "a" & <b>"#);
    let finalize = logging_node(&mut graph, "finalize");
    let worker = graph.add_worker("worker", async |_: i64, _: Plain, _: Cx| ());
    graph.add_edge(START, agent);
    graph.add_conditional_edges(
        agent,
        |_: &Plain| Next::Finalize,
        |next| match next {
            Next::Tools => tools,
            Next::Finalize => finalize,
        },
    );
    graph.add_edge(tools, agent);
    graph.add_fan_out(tools, |_: &Plain| [1, 2], worker);
    graph.add_edge(worker, finalize);
    graph.add_edge(finalize, END);
    graph.compile().unwrap()
}

#[test]
fn a_graph_draws_itself_as_mermaid() {
    insta::assert_snapshot!("mermaid", react().topology().mermaid());
}

#[test]
fn a_graph_draws_itself_as_dot() {
    insta::assert_snapshot!("dot", react().topology().dot());
}

#[test]
fn a_graph_draws_itself_as_text() {
    insta::assert_snapshot!("text", react().topology().text());
}

#[test]
fn a_graph_draws_itself_as_svg() {
    let svg = react().topology().svg();
    assert_eq!(svg, react().topology().svg(), "the same graph is the same picture");
    assert_well_formed(&svg);
    insta::assert_snapshot!("svg", svg);
}

/// Builds a graph with an arrow of every kind, some of which lead back, far, or nowhere.
fn odd() -> superstep::CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("odd");
    let [a, b, c, join, own] =
        ["a", "b", "c", "東京 <&> \"join\"", "own"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_edge(b, c);
    graph.add_join([a, c], join);
    let way = |next| match next {
        Next::Tools => a,
        Next::Finalize => END,
    };
    graph.add_conditional_edges(join, |_: &Plain| Next::Finalize, way);
    graph.add_conditional_edges(join, |_: &Plain| Next::Finalize, move |_| own);
    graph.add_conditional_edges(
        own,
        |_: &Plain| Next::Finalize,
        move |next| match next {
            Next::Tools => own,
            Next::Finalize => END,
        },
    );
    graph.compile().unwrap()
}

#[test]
fn odd_graphs_are_drawn_whole() {
    let topology = odd();
    let drawing = topology.drawing();
    let svg = drawing.svg();
    assert_well_formed(&svg);
    assert_eq!(svg.matches("<g id=").count(), drawing.nodes.len());
    assert!(svg.contains(">東京 &lt;&amp;&gt; &quot;join&quot;</text>"), "{svg}");
    // Two routes from one node to another are one line with two labels; no element lies outside the picture.
    let lines = svg.matches(" class=\"line\"/>").count();
    assert_eq!((drawing.arrows.len(), lines), (11, 10));
    assert_eq!(svg.matches(" class=\"head\"/>").count(), lines, "each has a head of its own");
    for label in ["join", "Tools", "Finalize"] {
        assert!(svg.contains(&format!(">{label}</text>")), "{label}");
    }
    let boxes = boxes(&svg);
    for (at, one) in boxes.iter().enumerate() {
        assert!(
            boxes[at + 1..].iter().all(|other| apart(*one, *other)),
            "two nodes lie on each other: {svg}"
        );
    }
    for (x, y) in tips(&svg) {
        let ends = |[left, top, right, bottom]: &[f64; 4]| {
            let at_side = (y - top).abs() < 0.2 || (y - bottom).abs() < 0.2 || (x - right).abs() < 0.2;
            (left - 0.1..=right + 0.1).contains(&x) && (top - 0.1..=bottom + 0.1).contains(&y) && at_side
        };
        assert!(boxes.iter().any(ends), "the arrowhead at {x} {y} is at no node: {svg}");
    }
    // An empty graph, and one without inner nodes.
    assert_well_formed(&crate::support::line(&[]).drawing().svg());
}

/// Returns the corners of the nodes.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let number = |text: &str, name: &str| -> f64 {
        let rest = text.split(&format!(" {name}=\"")).nth(1).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let nodes = svg.split("<g id=").skip(1).map(|node| node.split("/>").next().unwrap());
    nodes
        .map(|node| {
            let (x, y) = (number(node, "x"), number(node, "y"));
            [x, y, x + number(node, "width"), y + number(node, "height")]
        })
        .collect()
}

/// Returns the tips of the arrowheads.
fn tips(svg: &str) -> Vec<(f64, f64)> {
    let heads = svg.split("<path d=\"").skip(1).filter(|path| path.contains(" class=\"head"));
    let heads =
        heads.map(|path| path.split('"').next().unwrap().trim_end_matches('z').rsplit('L').next().unwrap());
    let point = |tip: &str| {
        let (x, y) = tip.split_once(' ').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    heads.map(point).collect()
}

fn apart([a, b, c, d]: [f64; 4], [e, f, g, h]: [f64; 4]) -> bool {
    c <= e || g <= a || d <= f || h <= b
}

/// Asserts that every element is closed, attributes are quoted, and text is escaped.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "a stray `>` in {}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("an element ends");
        let element = &rest[start + 1..end];
        assert!(!element.contains('<') && element.matches('"').count().is_multiple_of(2), "{element}");
        if let Some(name) = element.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{svg}");
        } else if !element.ends_with('/') {
            open.push(element.split(' ').next().unwrap());
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, [""; 0]);
    for entity in svg.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;"];
        assert!(known.iter().any(|name| entity.starts_with(name)), "&{}", &entity[..entity.len().min(10)]);
    }
}

/// Returns the number of runs of each node, and the pending nodes.
fn marks(drawing: &Drawing) -> String {
    let nodes = drawing.nodes.iter().filter(|node| node.runs > 0 || node.pending);
    let mark = |node: &superstep::drawing::DrawnNode| {
        format!("{}{}{}", node.label, "*".repeat(node.runs as usize), if node.pending { "?" } else { "" })
    };
    nodes.map(mark).collect::<Vec<_>>().join(" ")
}

on_every_store! {
    async fn the_way_of_a_thread_is_marked(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("loop");
        let [agent, tools, unused] = ["agent", "tools", "unused"].map(|name| logging_node(&mut graph, name));
        let worker = graph.add_worker("worker", async |_: i64, _: Plain, _: Cx| ());
        graph.add_edge(START, agent);
        graph.add_conditional_edges(
            agent,
            |state: &Plain| if state.log.len() < 5 { Next::Tools } else { Next::Finalize },
            |next| match next {
                Next::Tools => tools,
                Next::Finalize => END,
            },
        );
        graph.add_fan_out(tools, |_: &Plain| [1, 2], worker);
        graph.add_edge(tools, agent);
        graph.add_edge(unused, END);
        let graph = backend.keep(graph.compile().unwrap());
        assert!(!graph.thread("t").drawing().await.unwrap().marked);

        graph.thread("t").break_before(["tools"]).run(Plain::update()).await.unwrap();
        let waiting = graph.thread("t").drawing().await.unwrap();
        assert_eq!(marks(&waiting), "START* agent* tools?");
        graph.thread("t").resume().await.unwrap();

        let drawing = graph.thread("t").drawing().await.unwrap();
        assert_eq!(marks(&drawing), "START* agent*** tools** worker**** END*");
        assert_eq!(
            drawing.text(),
            "START  ──▶ agent  ×1\n\
             agent  ┄┄▶ tools  (Tools)  ×2\n\
             agent  ┄┄▶ END  (Finalize)  ×1\n\
             tools  ──▶ agent  ×2\n\
             tools  ┄┄▶ worker  (each item)  ×4\n\
             unused ──▶ END\n"
        );
        insta::assert_snapshot!("marked_mermaid", drawing.mermaid());
        insta::assert_snapshot!("marked_dot", drawing.dot());
        insta::assert_snapshot!("marked_svg", drawing.svg());
        assert_well_formed(&drawing.svg());

        let earlier = graph.thread("t").at(CheckpointId(2)).drawing().await.unwrap();
        assert_eq!(marks(&earlier), "START* agent?");
        let unknown = failed(graph.thread("t").at(CheckpointId(99)).drawing().await);
        assert!(matches!(unknown, RunError::UnknownCheckpoint { .. }), "{unknown}");
    }
}

#[tokio::test]
async fn subgraphs_are_expanded_on_request() {
    let inner = crate::support::line(&["one", "two"]);
    let mut middle = StateGraph::<Plain>::new("middle");
    let nested = middle.add_subgraph("nested", &inner);
    middle.add_edge(START, nested);
    let mut graph = StateGraph::<Plain>::new("outer");
    let sub = graph.add_subgraph("sub", &middle.compile().unwrap());
    let after = logging_node(&mut graph, "after");
    graph.add_edge(START, sub);
    graph.add_edge(sub, after);
    let graph = graph.compile().unwrap();
    assert_eq!(graph.topology().text(), "START ──▶ sub\nsub   ──▶ after\n");
    let mut expanded = graph.topology().expanded();
    let lines: Vec<String> = expanded.text().lines().map(|line| line.replace(' ', "")).collect();
    assert_eq!(
        lines,
        [
            "START──▶sub",
            "sub/END──▶after",
            "sub──▶sub/nested",
            "sub/nested──▶sub/nested/one",
            "sub/nested/one──▶sub/nested/two",
            "sub/nested/two──▶sub/nested/END",
        ]
    );
    let ids: std::collections::BTreeSet<_> = expanded.nodes.iter().map(|node| &node.id).collect();
    assert_eq!(ids.len(), expanded.nodes.len(), "each has an id of its own");
    expanded.superstep(&["sub".into()], &["after".into()]);
    assert_eq!(marks(&expanded), "sub* sub/END*");
    assert_well_formed(&expanded.svg());
    for drawn in [expanded.mermaid(), expanded.dot(), expanded.svg()] {
        assert!(drawn.contains("sub/nested/two"), "{drawn}");
    }
}
