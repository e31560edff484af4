//! What happens in a run, as it is told.
//!
//! Start at [`Event`].

use serde_json::Value;
use superstep_engine::{ChannelSet, NodeName};

use crate::{CheckpointMeta, Interrupt, State};

/// Something that happened in a run.
///
/// Within a superstep they come in this order: for each task its start, its custom events, its update and its end, as
/// they happen; then the new state, then the checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<S: State> {
    /// The state after the input or a superstep was applied. [`StreamMode::Values`](crate::StreamMode::Values).
    Values {
        /// The superstep; 0 is the input's.
        step: i64,
        /// The state. Channels that were not asked for are at their defaults.
        state: S,
        /// The channels that were asked for, by position: all of them without
        /// [`Streaming::output_keys`](crate::Streaming::output_keys).
        channels: ChannelSet,
    },
    /// A task finished. [`StreamMode::Updates`](crate::StreamMode::Updates).
    Update {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// What it wrote to the channels that were asked for.
        update: S::Update,
    },
    /// A node said something with [`Cx::emit`](crate::Cx::emit). [`StreamMode::Custom`](crate::StreamMode::Custom).
    Custom {
        /// The node.
        node: NodeName,
        /// What kind of event it is.
        name: &'static str,
        /// What it tells.
        data: Value,
    },
    /// An attempt of a task begins. [`StreamMode::Tasks`](crate::StreamMode::Tasks).
    TaskStart {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// An attempt of a task is over. [`StreamMode::Tasks`](crate::StreamMode::Tasks).
    TaskEnd {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A checkpoint was stored. [`StreamMode::Checkpoints`](crate::StreamMode::Checkpoints).
    Checkpoint(CheckpointMeta),
    /// The consumer was too slow: so many events, which came here, are lost. Sent in every mode.
    Lagged {
        /// How many.
        skipped: u64,
    },
    /// A node asks someone outside. Sent in every mode, and never lost.
    Interrupt(Interrupt),
    /// A new input took the place of unfinished tasks. Sent in every mode, and never lost.
    Discarded {
        /// The tasks that will not run.
        nodes: Vec<NodeName>,
    },
}
