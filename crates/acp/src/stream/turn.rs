//! Decisions about calls, and the ends of turns.

use crate::wire::{PermissionKind, PermissionOption, PermissionOutcome, RpcError, StopReason};

/// The user's decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The call may run.
    Once,
    /// The call and later ones of its tool may run.
    Always,
    /// The call may not run.
    Reject,
}

/// The options of a permission request: ids, names, kinds, and their decisions.
const OPTIONS: [(&str, &str, PermissionKind, Choice); 3] = [
    ("allow_once", "Allow", PermissionKind::AllowOnce, Choice::Once),
    ("allow_always", "Always allow", PermissionKind::AllowAlways, Choice::Always),
    ("reject_once", "Reject", PermissionKind::RejectOnce, Choice::Reject),
];

/// Returns the options of a permission request.
pub fn permission_options() -> Vec<PermissionOption> {
    let option = |(id, name, kind, _): (&str, &str, _, _)| PermissionOption {
        option_id: id.to_owned(),
        name: name.to_owned(),
        kind,
    };
    OPTIONS.map(option).into()
}

/// Returns the decision about a call; `None` if there is none: the turn was cancelled, or the option is unknown. Nothing may run
/// then.
pub fn choice(outcome: &PermissionOutcome) -> Option<Choice> {
    let PermissionOutcome::Selected { option_id } = outcome else { return None };
    OPTIONS.iter().find(|(id, ..)| id == option_id).map(|(.., choice)| *choice)
}

/// Returns the reason for the end of a turn with this outcome, in the JSON form of `AgentOutcome`.
///
/// A refusal is `end_turn`, because the protocol's `refusal` promises that prompt and reply leave the context.
///
/// # Errors
/// The turn failed: the reason of the error is the outcome, its message `problem`.
pub fn stop_reason(outcome: &str, problem: &str) -> Result<StopReason, RpcError> {
    match outcome {
        "completed" | "denied" | "empty_response" | "loop_detected" | "refusal" | "content_filter"
        | "guarded" => Ok(StopReason::EndTurn),
        "limit" | "budget" => Ok(StopReason::MaxTurnRequests),
        "length_limit" => Ok(StopReason::MaxTokens),
        "cancelled" => Ok(StopReason::Cancelled),
        "structured_output_invalid" => Err(RpcError::internal("invalid_output", problem)),
        failed => Err(RpcError::internal(failed, problem)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_option_has_a_decision_and_an_unknown_one_has_none() {
        let selected = |id: &str| choice(&PermissionOutcome::Selected { option_id: id.to_owned() });
        let choices: Vec<_> = permission_options().iter().map(|option| selected(&option.option_id)).collect();
        assert_eq!(choices, [Some(Choice::Once), Some(Choice::Always), Some(Choice::Reject)]);
        assert_eq!(selected("reject_always"), None);
        assert_eq!(choice(&PermissionOutcome::Cancelled), None);
    }

    #[test]
    fn a_failed_turn_is_an_error_with_its_reason() {
        assert_eq!(stop_reason("refusal", ""), Ok(StopReason::EndTurn));
        assert_eq!(stop_reason("budget", ""), Ok(StopReason::MaxTurnRequests));
        let error = stop_reason("llm_error", "HTTP 500").unwrap_err();
        let expected = json!({ "code": -32603, "message": "HTTP 500", "data": { "reason": "llm_error" } });
        assert_eq!(serde_json::to_value(&error).unwrap(), expected);
    }
}
