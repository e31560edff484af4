//! The error for an answer to a question that the node replaced.
//!
//! Start at [`ChangedQuestion`].

use superstep_engine::NodeName;
use superstep_state::RawJson;

/// The maximum number of characters of a question in an error.
const MAX_SHOWN: usize = 200;

/// See [`RunError::ChangedQuestion`](crate::RunError::ChangedQuestion).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "SS125: the answer to `{name}` is for another question than the current one of node `{node}`, and was \
     not delivered: {}; read the question and answer it by its id, `{id}`",
    changed(.answered.as_deref(), .asks)
)]
pub struct ChangedQuestion {
    /// The answered name: the key, or the id of the question at that time.
    pub name: String,
    /// The node.
    pub node: NodeName,
    /// The answered question, if known.
    pub answered: Option<RawJson>,
    /// The current question.
    pub asks: RawJson,
    /// The id of the pending interrupt.
    pub id: String,
}

/// Formats both questions for the error about an answer to the first one: the part that shows their
/// difference.
pub(crate) fn changed(answered: Option<&str>, asks: &str) -> String {
    let Some(answered) = answered else {
        return format!(
            "it is for a question that no longer waits, and the current one is {}",
            part(asks, 0)
        );
    };
    let same = answered.chars().zip(asks.chars()).take_while(|(one, other)| one == other).count();
    format!("it is for {}, and the current one is {}", part(answered, same), part(asks, same))
}

/// Returns the text if it is short, or the part around the character at `place`.
fn part(text: &str, place: usize) -> String {
    let length = text.chars().count();
    let first = place.saturating_sub(MAX_SHOWN / 4).min(length.saturating_sub(MAX_SHOWN));
    let shown: String = text.chars().skip(first).take(MAX_SHOWN).collect();
    let (before, after) =
        (["", "…"][usize::from(first > 0)], ["", "…"][usize::from(first + MAX_SHOWN < length)]);
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_long_questions_are_shown_at_their_difference() {
        let question = |amount: u32| format!("{}pay {amount}{}", "-".repeat(1_000), "=".repeat(1_000));
        let shown = changed(Some(&question(1)), &question(1_000_000));
        assert!(shown.len() < 1_000 && shown.contains("pay 1=") && shown.contains("pay 1000000="), "{shown}");
        assert_eq!(changed(Some("1"), "2"), "it is for 1, and the current one is 2");
    }
}
