//! Tests of single nodes, of chains of nodes, of routes, and of functions that take a `Cx`.
//!
//! ```text
//! node(&graph, "plan").state(s).answer("approve", true).run() ─▶ Transition ─▶ assert_transition!
//! chain(&graph, "plan").until("pay").state(s).run() ──────────▶ Chain, of transitions
//! cx().answer("approve", true).call(async |cx| ..) ───────────▶ Called
//! route(&graph, "agent", &state), route_table(&graph, "agent", states)
//! ```
//!
//! Start at [`node`].

mod chain;
mod cx;
mod diff;
mod error;
mod node;
mod route;
mod setup;
mod text;
mod transition;

pub(crate) use self::text::line;
pub use self::{
    chain::{Chain, ChainTest, chain},
    cx::{Called, CxTest, cx},
    diff::state_diff,
    error::NodeTestError,
    node::{NodeTest, node},
    route::{route, route_table},
    transition::Transition,
};
