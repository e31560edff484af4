//! The channels of a graph, and the declared writes of its nodes, for the checks of the engine.

use superstep_engine::{ChannelSet, Endpoint, TopologyBuilder};

use crate::State;

/// Returns the channels of a state.
pub(super) fn channels<S: State>(state: &S) -> Vec<(String, bool)> {
    state.channels().iter().map(|channel| (channel.name.to_string(), channel.exclusive)).collect()
}

/// Returns the declared writes of nodes, as sets.
pub(super) fn written(topology: &TopologyBuilder) -> Vec<(Endpoint, ChannelSet)> {
    let position = |name: &String| topology.channels.iter().position(|(channel, _)| channel == name);
    let mut written: Vec<(Endpoint, ChannelSet)> = Vec::new();
    for said in &topology.writes {
        let channels: ChannelSet = said.channels.iter().filter_map(position).collect();
        match written.iter_mut().find(|(node, _)| *node == said.node) {
            Some((_, before)) => *before = before.union(channels),
            None => written.push((said.node, channels)),
        }
    }
    written
}
