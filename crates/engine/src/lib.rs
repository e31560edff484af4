//! The deterministic control plane of superstep.
//!
//! Contract: every [`Run::handle`] is followed by [`Run::poll`] until it returns `None`, before the next
//! `handle`. The engine reads no clock, draws no random number, does no IO, holds no user value and has no
//! `async`; equal inputs give equal outputs. It sees nodes as names and channels as bits.
//!
//! ```text
//!            restore(control, finished tasks)
//!                        │
//!                        ▼
//!   Execute ──▶ Finished / Failed ──▶ Commit ──▶ Committed ──▶ Execute … ──▶ Done
//!                        │                                       │
//!                        └──▶ Fail, Suspended                    └──▶ Cancelled, Drained, Suspended
//! ```
//!
//! The driver executes the requested tasks and reports each one. It folds their writes in the order of
//! [`SuperstepEnd::order`] and stores the folded state together with [`Run::control`] in one transaction. Only then
//! does it send [`Input::Committed`]. Starting a run *is* restoring one: the input is the finished task of
//! [`START`].
//!
//! Start at [`Run`].

mod control;
mod draw;
mod ids;
mod lint;
mod plan;
mod retry;
mod run;
mod topology;

pub use control::{Control, RestoreError, Withheld};
pub use petgraph;

pub use draw::{ArrowKind, Drawing, DrawnArrow, DrawnKind, DrawnNode, Picture, PictureArrow, PictureNode};
pub use ids::{ChannelSet, END, NodeIndex, NodeName, START, TaskId};
pub use plan::Before;
pub use retry::RetryPolicy;
pub use run::{
    Breakpoints, EngineError, Failure, Finished, Input, Output, Records, Report, Run, RunLimits,
    SuperstepEnd, Target, Task,
};
pub use topology::{
    Edge, EdgeKind, Endpoint, JoinSpec, Level, Lint, NodeSpec, OnCancel, Problem, ProblemKind, RouterSpec,
    SourceLocation, Topology, TopologyBuilder, WhyDead, WritesSpec,
};

#[doc = include_str!("../docs/engine.md")]
pub mod guide {}
