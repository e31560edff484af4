//! Long tool results: truncated for the model, and stored as a whole elsewhere.

use superstep_graph::Cx;
use superstep_llm::spill::SpillText;

use crate::{AgentEvent, deps::AgentDeps, events::emit};

/// Returns a tool result for the model: truncated if too long, with the full text stored if configured; and
/// its location.
pub(super) async fn shorten(
    deps: &AgentDeps,
    cx: &Cx,
    call_id: &str,
    result: String,
) -> (String, Option<String>) {
    let Some(truncate) = &deps.config.truncate else { return (result, None) };
    let Some(cut) = truncate.cut(&result) else { return (result, None) };
    let (Some(spill), Some(marker)) = (&deps.spill, &truncate.spill) else {
        return (cut.apply(&result, &truncate.marker), None);
    };
    let thread = cx.thread().map(|thread| thread.as_str());
    match spill.keep(SpillText { thread, call_id, text: &result }).await {
        Ok(path) => {
            emit(cx, || AgentEvent::Spilled {
                id: call_id.to_owned(),
                path: path.clone(),
                chars: result.chars().count(),
            });
            (cut.apply(&result, &marker.replace("{path}", &path)), Some(path))
        }
        Err(error) => {
            emit(cx, || AgentEvent::SpillFailed { id: call_id.to_owned(), reason: error.to_string() });
            (cut.apply(&result, &truncate.marker), None)
        }
    }
}
