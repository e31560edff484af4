//! The targets of finished tasks, as they are stored.

use std::collections::BTreeMap;

use superstep_checkpoint::RecordedTarget;
use superstep_engine::{END, NodeIndex, NodeName, Target, Topology};
use superstep_state::RawJson;

use crate::node::routing::Targets;

/// Returns the stored targets that the graph still has, and the names of the missing ones.
pub(crate) fn recorded_targets(
    topology: &Topology,
    recorded: Vec<RecordedTarget>,
) -> (Targets, Vec<NodeName>) {
    let (mut targets, mut lost) = (Targets::default(), Vec::new());
    for target in recorded {
        let (name, item) = match target {
            RecordedTarget::Node(name) if name.as_str() == END => {
                targets.ends.push(Target::End);
                continue;
            }
            RecordedTarget::Node(name) => (name, None),
            RecordedTarget::Send { node, item } => (node, Some(item)),
        };
        match topology.find(name.as_str()) {
            Some(node) => {
                targets.ends.push(if item.is_some() { Target::Send(node) } else { Target::Node(node) })
            }
            None => {
                lost.push(name);
                continue;
            }
        }
        targets.items.extend(item);
    }
    (targets, lost)
}

/// Returns targets as they are stored; each send takes the next of the `items`.
pub(crate) fn named(
    topology: &Topology,
    ends: &[Target],
    items: &mut impl Iterator<Item = RawJson>,
) -> Vec<RecordedTarget> {
    let name = |node: &NodeIndex| topology.name(*node).clone();
    let target = |target: &Target| match target {
        Target::End => END.into(),
        Target::Node(node) => RecordedTarget::Node(name(node)),
        Target::Send(node) => {
            let item = items.next().expect("each send has an item");
            RecordedTarget::Send { node: name(node), item }
        }
    };
    ends.iter().map(target).collect()
}

/// Returns the items of the last of `next` tasks, by slot, in sending order.
pub(crate) fn items(next: usize, sent: Vec<RawJson>) -> BTreeMap<u32, String> {
    let first = next - sent.len();
    (first..).map(slot_number).zip(sent.into_iter().map(RawJson::into_string)).collect()
}

fn slot_number(slot: usize) -> u32 {
    u32::try_from(slot).expect("slots are counted in 32 bits")
}
