//! The events of a dream.

use serde_json::json;
use superstep_graph::Cx;

use super::config::Due;

/// Emits that a dream begins and its number of turns.
pub(super) fn dream_begun(cx: &Cx, why: Due, turns: usize) {
    cx.emit("dream_begun", json!({ "why": why, "turns": turns }));
}

/// Emits that a dream ended and whether its turns count as read.
pub(super) fn dream_ended(cx: &Cx, outcome: &str, turns: usize, settled: bool) {
    cx.emit("dream_ended", json!({ "outcome": outcome, "turns": turns, "settled": settled }));
}
