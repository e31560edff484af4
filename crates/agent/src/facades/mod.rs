//! Facades: the agent with the interfaces of other designs.
//!
//! Each is an [`Agent`](crate::Agent) with a preset; all run the same graph.
//! Start at `facade::Facade`.

pub mod agentscope;
pub mod cococat;
pub(crate) mod facade;
pub mod harness;
pub mod opencode;

pub use self::facade::FacadeError;
