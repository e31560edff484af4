//! Guides. Their code is compiled and run with the tests.

#[cfg(all(feature = "openai", feature = "sqlite"))]
#[doc = include_str!("../../../docs/start.md")]
pub mod start {}

#[doc = include_str!("../../../docs/streaming.md")]
pub mod streaming {}

#[doc = include_str!("../../../docs/state.md")]
pub mod state {}

#[doc = include_str!("../../../docs/nodes.md")]
pub mod nodes {}

#[doc = include_str!("../../../docs/interrupts.md")]
pub mod interrupts {}

#[doc = include_str!("../../../docs/limits.md")]
pub mod limits {}

#[doc = include_str!("../../../docs/subgraphs.md")]
pub mod subgraphs {}

#[doc = include_str!("../../../docs/store.md")]
pub mod store {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/presets.md")]
pub mod presets {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/facades.md")]
pub mod facades {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/models.md")]
pub mod models {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/budgets.md")]
pub mod budgets {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/context.md")]
pub mod context {}

#[doc = include_str!("../../../docs/drawing.md")]
pub mod drawing {}

#[doc = include_str!("../../../docs/checkpoints.md")]
pub mod checkpoints {}

#[doc = include_str!("../../../docs/replay.md")]
pub mod replay {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/turns.md")]
pub mod turns {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/structured.md")]
pub mod structured {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/tools.md")]
pub mod tools {}

#[cfg(feature = "mcp")]
#[doc = include_str!("../../../docs/mcp.md")]
pub mod mcp {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/extending.md")]
pub mod extending {}

#[cfg(all(feature = "agent", feature = "sqlite"))]
#[doc = include_str!("../../../docs/memory.md")]
pub mod memory {}

#[cfg(feature = "workspace-tools")]
#[doc = include_str!("../../../docs/snapshots.md")]
pub mod snapshots {}

#[cfg(feature = "workspace-tools")]
#[doc = include_str!("../../../docs/dreams.md")]
pub mod dreams {}

#[cfg(feature = "agent")]
#[doc = include_str!("../../../docs/subagents.md")]
pub mod subagents {}
