//! Graphs with their layouts.
//!
//! Start at [`view`].

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use superstep_graph::{drawing::DrawnKind, erased::JsonGraph};

use super::{
    Studio,
    types::{ArrowView, ChannelInfo, GraphView, LabelView, NodeView},
};
use crate::error::ApiError;

pub(super) async fn read(
    State(studio): State<Arc<Studio>>,
    Path(name): Path<String>,
) -> Result<Json<GraphView>, ApiError> {
    let has_actions = studio.hub.actions.contains_key(&name);
    let mut view = view(&**studio.hub.graph(&name)?, has_actions);
    if let Some(shown) = studio.shown(Some(&name)) {
        view.channels.retain(|channel| shown.contains(&channel.name));
    }
    Ok(Json(view))
}

/// Returns a graph with its layout, and all its channels.
fn view(graph: &dyn JsonGraph, has_actions: bool) -> GraphView {
    let drawing = graph.topology().drawing();
    let picture = drawing.picture();
    let nodes = drawing.nodes.iter().zip(picture.nodes);
    let nodes = nodes.map(|(node, place)| NodeView {
        label: node.label.clone(),
        is_round: matches!(node.kind, DrawnKind::Start | DrawnKind::End),
        x: place.x,
        y: place.y,
        width: place.width,
        height: place.height,
    });
    let arrows = picture.arrows.into_iter().map(|arrow| ArrowView {
        from: arrow.from,
        to: arrow.to,
        line: arrow.line,
        head: arrow.head,
        is_dashed: arrow.dashed,
        labels: arrow.labels.into_iter().map(|(x, y, text)| LabelView { text, x, y }).collect(),
    });
    let channels = graph.channels().iter().map(|channel| ChannelInfo {
        name: channel.name.to_string(),
        exclusive: channel.exclusive,
        ephemeral: channel.ephemeral,
        untracked: channel.untracked,
    });
    GraphView {
        name: graph.name().to_owned(),
        version: graph.version().map(str::to_owned),
        width: picture.width,
        height: picture.height,
        nodes: nodes.collect(),
        arrows: arrows.collect(),
        channels: channels.collect(),
        input_schema: graph.input_schema(),
        has_actions,
    }
}
