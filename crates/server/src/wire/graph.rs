//! The shape of a graph.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use superstep_graph::{
    drawing::{ArrowKind, Drawing, DrawnKind, DrawnNode},
    erased::JsonGraph,
};

use super::channels::retain;

/// Returns the nodes and edges of a graph; with `expanded`, the nodes of subgraphs in place of them.
pub(crate) fn drawing(graph: &dyn JsonGraph, expanded: bool) -> Value {
    let topology = graph.topology();
    let drawing = if expanded { topology.expanded() } else { topology.drawing() };
    let nodes = drawing.nodes.iter().map(|node| match &node.kind {
        DrawnKind::Start => json!({ "id": "__start__", "type": "runnable", "data": { "name": "__start__" } }),
        DrawnKind::End => json!({ "id": "__end__" }),
        _ => json!({ "id": id(node), "type": "runnable", "data": { "name": id(node) } }),
    });
    json!({ "nodes": nodes.collect::<Vec<_>>(), "edges": edges(&drawing) })
}

/// Returns the JSON Schemas of a graph with this name on the server.
pub(crate) fn schemas(name: &str, graph: &dyn JsonGraph, shown: Option<&BTreeSet<String>>) -> Value {
    let mut output = object_schema(graph.output_schema());
    if let Some(shown) = shown {
        retain(&mut output["properties"], shown);
        if let Some(required) = output.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name.as_str().is_some_and(|name| shown.contains(name)));
        }
    }
    json!({
        "graph_id": name,
        "input_schema": object_schema(graph.input_schema()),
        "output_schema": output,
        "state_schema": output,
        "config_schema": {},
        "context_schema": null,
    })
}

/// Clients read `properties`, which a schema that accepts everything lacks.
fn object_schema(schema: Value) -> Value {
    if schema.is_object() { schema } else { json!({ "type": "object", "properties": {} }) }
}

fn edges(drawing: &Drawing) -> Vec<Value> {
    let edge = |arrow: &superstep_graph::drawing::DrawnArrow| {
        let (source, target) = (id(&drawing.nodes[arrow.from]), id(&drawing.nodes[arrow.to]));
        let mut edge = json!({ "source": source, "target": target });
        if !matches!(arrow.kind, ArrowKind::Plain | ArrowKind::Join) {
            edge["conditional"] = true.into();
        }
        if let Some(label) = arrow.kind.label().filter(|label| *label != target) {
            edge["data"] = label.into();
        }
        edge
    };
    drawing.arrows.iter().map(edge).collect()
}

fn id(node: &DrawnNode) -> String {
    match &node.kind {
        DrawnKind::Start => "__start__".to_owned(),
        DrawnKind::End => "__end__".to_owned(),
        // Clients split the path of a node of a subgraph at colons.
        _ => node.label.replace('/', ":"),
    }
}
