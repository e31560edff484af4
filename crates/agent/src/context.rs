//! What of a conversation is sent: a view of it, which is extended from request to request.
//!
//! The conversation itself is never changed. [`ContextView`] says which part of it is sent and what stands for the rest;
//! [`plan`] decides when there is to be another view, and [`summary`] has a model write what stands for the rest.

mod meter;
mod plan;
mod shown;
pub(crate) mod summary;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    meter::Meter,
    plan::{Change, Consolidation, Step, plan},
    shown::{Shown, without_first_media},
};
use crate::{AgentState, Breaker};

/// Which part of the conversation is sent, and what is known of making it smaller.
///
/// Messages are named by their ids, so that the view stays true whatever is removed from the conversation; what names one
/// that is gone does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextView {
    /// The first message that is sent; empty for the first of all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// What was said before it, summed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// A message of the user before [`start`](Self::start) that is sent all the same, because it was the newest when the
    /// view began there; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kept: String,
    /// The newest message of which, if it is a tool result, only the beginning and the end are sent; so it is with those
    /// before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shortened: String,
    /// The newest message of which, if it is a tool result, only the first line is sent; so it is with those before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pruned: String,
    /// The newest message whose images and audio are not sent any more; so it is with those before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub without_media: String,
    /// Whether room is to be made before the model is asked.
    #[serde(skip_serializing_if = "is_false")]
    pub due: bool,
    /// The newest message when everything had been done to make room: nothing else is tried before there is another one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub settled: String,
    /// Summaries in a row that failed or gained too little.
    #[serde(skip_serializing_if = "is_zero")]
    pub ineffective: u32,
    /// Whether summaries are given up for this turn.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// How often in a row the provider found the request too long.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflows: u32,
    /// How many tokens the last request had more than it may have, because nothing made it smaller.
    #[serde(skip_serializing_if = "is_zero")]
    pub over: u64,
    /// How many tokens a request had that the provider found too long in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
}

/// How large a request was, so that only what was added since needs to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSize {
    /// The newest message that it held; empty if nothing is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its tokens, those of the system prompt and the tools among them: as the provider says, otherwise as they were
    /// counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
}

impl ContextView {
    /// The view with which a turn begins. It shows the same as the one with which the last turn ended, unless the
    /// conversation was replaced since.
    pub(crate) fn for_turn(state: &AgentState, breaker: &Breaker) -> Self {
        let view = &state.context;
        let is_gone = |id: &String| !id.is_empty() && state.messages.position(id).is_none();
        if [&view.start, &view.shortened, &view.pruned, &view.without_media].into_iter().any(is_gone) {
            return Self::default();
        }
        let mut view = Self { due: false, overflows: 0, refused: None, over: 0, ..view.clone() };
        if std::mem::take(&mut view.paused) {
            // One more try, and a failure of it is enough to give up again.
            view.ineffective = breaker.max_ineffective.saturating_sub(1);
        }
        view
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}
