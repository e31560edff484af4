//! What the agent says itself, to the model and to the user.

use std::any::Any;

/// A call of a tool that is not there. `names` stands in the order of the names.
pub(crate) fn unknown_tool<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names = names.collect::<Vec<_>>().join(", ");
    format!("Error: unknown tool '{name}'. Available tools: {names}")
}

pub(crate) fn bad_json(name: &str, detail: &str) -> String {
    format!("Error: arguments for '{name}' are not valid JSON: {detail}")
}

pub(crate) fn bad_args(name: &str, detail: &str) -> String {
    format!("Error: invalid args for '{name}': {detail}")
}

pub(crate) fn failed(name: &str, detail: &str) -> String {
    format!("Error executing '{name}': {detail}")
}

pub(crate) fn timed_out(name: &str, ms: u128) -> String {
    format!("Error: tool '{name}' timed out after {ms} ms")
}

pub(crate) fn denied(reason: &str) -> String {
    format!("Error: Permission denied: {reason}")
}

pub(crate) fn cut_off(name: &str) -> String {
    format!(
        "Error: the call to '{name}' was cut off by the output limit and was not executed. Send smaller arguments."
    )
}

/// What a panic says, as far as it is text.
pub(crate) fn panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

pub(crate) fn tool_panicked(payload: &(dyn Any + Send)) -> String {
    format!("the tool panicked: {}", panic(payload))
}

pub(crate) const INTERRUPTED: &str = "The tool call has been interrupted by the user.";

pub(crate) const LOST: &str = "[Tool result unavailable — call was interrupted or lost]";

/// What the user reads when there is no answer. Names the reason as metadata does.
pub(crate) fn explain(stop_reason: &str, error: Option<&str>) -> String {
    let why = match stop_reason {
        "max_steps" => "the step limit was reached before the model gave an answer",
        "loop_detected" => "the model repeated the same tool call with the same result",
        "cancelled" => "the run was cancelled",
        "llm_error" => "the model could not be asked",
        _ => "the run was stopped",
    };
    match error {
        Some(error) => format!("No answer: {why} ({stop_reason}): {error}"),
        None => format!("No answer: {why} ({stop_reason})."),
    }
}
