//! The ends of answers, in the words of different servers.

use crate::{FinishReason, ModelError, ModelErrorKind, http::error::excerpt};

/// The end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The model stopped for this reason.
    Finished(FinishReason),
    /// The server gave up, in its own words.
    Failed(String),
}

/// Parts of the reasons of servers that gave up.
const FAILED: [&str; 14] = [
    "error",
    "fail",
    "abort",
    "cancel",
    "timeout",
    "timed_out",
    "interrupt",
    "disconnect",
    "unavailable",
    "overload",
    "insufficient",
    // A call that the server could not read: it has left it out, and perhaps the others too.
    "malformed",
    "unexpected_tool",
    "missing_thought",
];

/// Parts of the reasons of answers that are cut off.
const CUT_OFF: [&str; 7] =
    ["length", "max_token", "max_output", "max_new_token", "max_completion", "token_limit", "context_window"];

/// Parts of the reasons of answers that are withheld.
const WITHHELD: [&str; 8] =
    ["filter", "safety", "sensitive", "recitation", "prohibited", "blocklist", "spii", "moderation"];

/// Reads a finish reason, and the one of the server behind a proxy: the worse one counts.
pub(super) fn ending(reason: String, native: Option<String>) -> Ending {
    use FinishReason::{Other, Stop, ToolCalls};
    let is_good = |ending: &Ending| matches!(ending, Ending::Finished(Stop | ToolCalls | Other(_)));
    let ending = read(reason);
    let native = native.map(read).filter(|native| is_good(&ending) && !is_good(native));
    native.unwrap_or(ending)
}

fn read(reason: String) -> Ending {
    let word = reason.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
    Ending::Finished(match word.as_str() {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "refusal" => FinishReason::Refusal,
        _ if has(&CUT_OFF) => FinishReason::Length,
        _ if has(&WITHHELD) || word == "language" => FinishReason::ContentFilter,
        _ if has(&FAILED) => return Ending::Failed(reason),
        _ => FinishReason::Other(reason),
    })
}

/// Creates the error of an answer that the server gave up.
pub(super) fn given_up(reason: &str) -> ModelError {
    let reason = excerpt(reason);
    let message = format!(
        "the server gave up the answer (finish reason `{reason}`), which is incomplete; send the request again"
    );
    ModelError::new(ModelErrorKind::Server, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(reason: &str, native: &str) -> Ending {
        ending(reason.to_owned(), (!native.is_empty()).then(|| native.to_owned()))
    }

    #[test]
    fn reasons_of_all_servers_are_complete_cut_off_withheld_or_failed() {
        use FinishReason::*;
        for (wanted, reasons) in [
            (Stop, &["stop", "STOP"][..]),
            (ToolCalls, &["tool_calls", "function_call"]),
            (
                Length,
                &[
                    "length",
                    "max_tokens",
                    "MAX_TOKENS",
                    "model_length",
                    "model_context_window_exceeded",
                    "context_length_exceeded",
                ],
            ),
            (
                ContentFilter,
                &[
                    "content_filter",
                    "sensitive",
                    "SAFETY",
                    "RECITATION",
                    "PROHIBITED_CONTENT",
                    "LANGUAGE",
                    "SPII",
                ],
            ),
            (Refusal, &["refusal"]),
        ] {
            for reason in reasons {
                assert_eq!(end(reason, ""), Ending::Finished(wanted.clone()), "{reason}");
            }
        }
        for reason in ["eos", "end_turn", "stop_sequence", "OTHER"] {
            assert_eq!(end(reason, ""), Ending::Finished(Other(reason.to_owned())), "{reason}");
        }
        for reason in [
            "error",
            "ERROR",
            "abort",
            "network_error",
            "server_error",
            "insufficient_system_resource",
            "timeout",
            "cancelled",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
        ] {
            assert_eq!(end(reason, ""), Ending::Failed(reason.to_owned()), "{reason}");
        }
    }

    #[test]
    fn the_reason_behind_a_proxy_counts_if_it_is_worse() {
        assert_eq!(end("stop", "network_error"), Ending::Failed("network_error".to_owned()));
        assert_eq!(end("stop", "MAX_TOKENS"), Ending::Finished(FinishReason::Length));
        assert_eq!(end("tool_calls", "end_turn"), Ending::Finished(FinishReason::ToolCalls));
        assert_eq!(end("length", "network_error"), Ending::Finished(FinishReason::Length));
    }
}
