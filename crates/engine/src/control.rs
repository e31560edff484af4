//! The control record of a thread: everything the engine needs to continue, stored with every checkpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeInclusive,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{NodeName, START, Topology};

/// The control half of a checkpoint. A serializable promise: see the fixture in `tests/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The superstep that made this checkpoint. -1 is the input of a fresh thread, 0 the superstep that applied it. One outside of
    /// [`STEPS`](Self::STEPS) is not deserialized.
    #[serde(deserialize_with = "superstep")]
    pub step: i64,
    /// The nodes to run next, one task each, in task order. Empty when the thread is finished.
    pub next: Vec<NodeName>,
    /// The items of tasks that have one, by slot, as JSON. Opaque to the engine; the driver fills them in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub items: BTreeMap<u32, String>,
    /// The sources that have reached each join, for joins with any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrived: BTreeMap<String, Vec<NodeName>>,
    /// Deferred nodes, which run when no other task is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<NodeName>,
    /// Nodes whose arrival at their joins is withheld, because an external update separated items of one
    /// fan-out: some of them have ended, and others are still to run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub withheld: BTreeMap<NodeName, Withheld>,
    /// Nodes that finished tasks lead to, each with the nodes of these tasks, which wait after an external update for the
    /// unfinished tasks that may lead to them as well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<NodeName, Vec<NodeName>>,
}

/// The state of a node whose arrival at its joins is withheld. The last one applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withheld {
    /// A worker without items so far; open items may still send it some.
    Empty,
    /// A worker that was sent items, of which none has ended yet, unless in its error handler.
    Sent,
    /// A worker or its error handler, which has run.
    Reached,
}

impl Control {
    /// The supersteps that a stored record may have: their successors are numbers, too.
    pub const STEPS: RangeInclusive<i64> = -1..=(1 << 53);

    /// Creates the record of an accepted input, which precedes the superstep that applies it.
    ///
    /// `last` is the superstep of the checkpoint it follows, `None` on a fresh thread.
    pub fn input(last: Option<i64>) -> Self {
        Self::new(last.map_or(-1, |step| step + 1), vec![START.into()])
    }

    /// Creates a record that contains only nodes to run.
    pub fn new(step: i64, next: Vec<NodeName>) -> Self {
        Self {
            step,
            next,
            items: BTreeMap::new(),
            arrived: BTreeMap::new(),
            deferred: Vec::new(),
            withheld: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Returns whether no task is left to run.
    pub fn is_finished(&self) -> bool {
        self.next.is_empty()
    }

    /// Checks that each node is planned once, except for nodes that take items, which have a task for each.
    pub(crate) fn plans_once(&self, topology: &Topology) -> Result<(), RestoreError> {
        let takes_items =
            |name: &NodeName| topology.find(name.as_str()).is_some_and(|node| topology.takes_item(node));
        let (mut planned, mut deferred) = (BTreeSet::new(), BTreeSet::new());
        let next = self
            .next
            .iter()
            // Depends on the graph: the record itself could give items to any node.
            .filter(|name| !takes_items(name) && !planned.insert(topology.present_name(name)));
        match next
            .chain(self.deferred.iter().filter(|name| !deferred.insert(topology.present_name(name))))
            .next()
        {
            Some(node) => Err(RestoreError::RepeatedNode { step: self.step, node: node.clone() }),
            None => Ok(()),
        }
    }
}

fn superstep<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let step = i64::deserialize(from)?;
    if Control::STEPS.contains(&step) {
        Ok(step)
    } else {
        Err(D::Error::custom(format_args!("{step} is not the number of a superstep")))
    }
}

/// A control record that does not fit the topology it is restored on.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The checkpoint has pending nodes that the graph no longer has.
    #[error(
        "the checkpoint of superstep {step} has pending nodes that the graph does not have: {}; add the \
         nodes again, or update the thread as another node", list(.nodes)
    )]
    UnknownNodes {
        /// The superstep of the checkpoint.
        step: i64,
        /// The missing nodes.
        nodes: Vec<NodeName>,
    },
    /// Pending joins that the graph no longer has.
    #[error(
        "at the checkpoint of superstep {step} nodes have reached {}, which the graph does not have; add it again with the \
         same sources, or update the thread as another node", .joins.iter().map(|join| show_join(join)).collect::<Vec<_>>().join(", ")
    )]
    UnknownJoins {
        /// The superstep of the checkpoint.
        step: i64,
        /// The names of the missing joins: their sources, and after a colon their target.
        joins: Vec<String>,
    },
    /// A pending task has an item, and in this graph its node takes none.
    #[error(
        "at the checkpoint of superstep {step} a task of node `{node}` has an item, but the node takes no items; let it take \
         items again, or update the thread as this node"
    )]
    UnknownItem {
        /// The superstep of the checkpoint.
        step: i64,
        /// The node of the first such task.
        node: NodeName,
    },
    /// A pending task has no item, and in this graph its node takes one.
    #[error(
        "at the checkpoint of superstep {step} the task of node `{node}` has no item, but the node takes items; let it run \
         without one again, or update the thread as this node"
    )]
    MissingItem {
        /// The superstep of the checkpoint.
        step: i64,
        /// The node of the first such task.
        node: NodeName,
    },
    /// A node that takes no items is planned more than once. The record may be forged: each of its tasks would run.
    #[error(
        "the checkpoint of superstep {step} has several tasks of node `{node}`, which takes no items; superstep wrote no such \
         record: resume from an earlier checkpoint, or delete the thread"
    )]
    RepeatedNode {
        /// The superstep of the checkpoint.
        step: i64,
        /// The first node that is repeated.
        node: NodeName,
    },
    /// A record of a task that is not pending, or with a target to which its node has no edge.
    #[error("the record of task {slot} does not fit the checkpoint of superstep {step}: {detail}")]
    BadRecord {
        /// The superstep of the checkpoint.
        step: i64,
        /// The task's slot.
        slot: u32,
        /// A description of the defect.
        detail: String,
    },
}

/// Writes its message, not its fields, because `main` prints this form.
impl fmt::Debug for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn show_join(name: &str) -> String {
    let (sources, to) = name.split_once(':').unwrap_or((name, "?"));
    let sources: Vec<NodeName> = sources.split('|').map(NodeName::from).collect();
    format!("the join of {} to `{to}`", list(&sources))
}

fn list(nodes: &[NodeName]) -> String {
    nodes.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ")
}
