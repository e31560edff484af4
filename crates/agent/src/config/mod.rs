//! The configuration of an agent, and its prompts.
//!
//! Start at [`react_config::ReactConfig`].

pub(crate) mod answers;
pub(crate) mod approval;
pub(crate) mod budget;
pub(crate) mod context;
pub(crate) mod delimiters;
pub(crate) mod finish;
pub(crate) mod keep;
pub(crate) mod limit;
pub(crate) mod loops;
pub(crate) mod media;
pub(crate) mod millis;
pub(crate) mod pins;
pub(crate) mod prompts;
pub(crate) mod react_config;
pub(crate) mod retrieve;
pub(crate) mod tools;
pub(crate) mod truncate;

pub use self::{
    answers::{AfterEmpty, EmptyPolicy, Exhausted, LengthPolicy},
    approval::ApprovalConfig,
    budget::{Budget, Cost},
    context::{Breaker, ContextBudget, ContextConfig, ContextLayer},
    finish::{Finish, FinishBy, OutputMode},
    keep::{Keep, KeptResults},
    limit::{AtLimit, Limit, LimitUnit},
    loops::{LoopAction, LoopRule, Repeat},
    media::MediaConfig,
    pins::{Pin, PinKind, PinSource},
    react_config::ConfigError,
    retrieve::Retrieve,
    tools::{ResultOrder, ToolErrors, ToolMode},
    truncate::{Truncate, TruncateSide},
};
pub use crate::permissions::{PermissionRule, Permit};
