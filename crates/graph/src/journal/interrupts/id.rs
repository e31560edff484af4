//! The ids of questions.
//!
//! ```text
//! ask:1.0:approve~9c1f02ab77e4d510          node, superstep and slot, key; a hash of the thread, the branch and the question
//! sub:2.0/ask:1.0:approve~55e0c4aa10b98d3f  the same of a graph that a task called
//! ```
//!
//! Start at [`marked`].

use serde_json::Value;
use superstep_checkpoint::Within;
use superstep_engine::NodeName;

use crate::{
    Question,
    journal::task_origin::{Origin, QuestionContext},
};

/// The character between the place of a question and its hash.
const MARK: char = '~';

/// The length of the hash.
const DIGITS: usize = 16;

/// The name of a question within its task.
#[derive(Clone, Copy)]
pub(crate) enum QuestionName<'a> {
    /// A question of the task itself.
    Key(&'a str),
    /// A question with this id of a graph that the task called.
    Within { call: &'a str, id: &'a str },
}

impl<'a> QuestionName<'a> {
    pub(super) fn of(question: &'a Question) -> Self {
        match &question.within {
            None => Self::Key(&question.key),
            Some(Within { call, id, .. }) => Self::Within { call, id },
        }
    }
}

/// Returns the id of a question that a task asks on this occasion.
///
/// The checkpoint is part of the hash, so that an answer on one branch is not valid for the same question on
/// another. So is the nonce, for the same question of another thread, or of one that was deleted and created again.
pub(crate) fn marked(
    name: QuestionName<'_>,
    content: &Value,
    began: QuestionContext<'_>,
    node: &NodeName,
) -> String {
    let QuestionContext { origin: Origin { checkpoint, step, slot, .. }, nonce, thread } = began;
    let mut hash = blake3::Hasher::new();
    match (nonce, thread) {
        (Some(nonce), _) => drop(hash.update(nonce.as_bytes()).update(&[0])),
        (None, Some(thread)) => drop(hash.update(thread.as_str().as_bytes()).update(&[1])),
        (None, None) => {}
    }
    hash.update(&checkpoint.0.to_le_bytes());
    let place = match name {
        QuestionName::Key(key) => format!("{node}:{step}.{slot}:{key}"),
        QuestionName::Within { call, id } => {
            hash.update(id.as_bytes());
            let colon = if call.is_empty() { "" } else { ":" };
            format!("{node}:{step}.{slot}{colon}{call}/{}", split_id(id).map_or(id, |(place, _)| place))
        }
    };
    hash.update(sorted(content).to_string().as_bytes());
    let hash = hash.finalize().to_hex();
    format!("{place}{MARK}{}", &hash[..DIGITS])
}

/// Returns whether `id` belongs to another question of the same task under the same key.
pub(super) fn is_other(id: &str, than: &str) -> bool {
    id != than && matches!((split_id(id), split_id(than)), (Some((one, _)), Some((other, _))) if one == other)
}

/// Returns the place and the hash.
fn split_id(id: &str) -> Option<(&str, &str)> {
    id.rsplit_once(MARK)
        .filter(|(_, hash)| hash.len() == DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the value with the entries of all maps sorted, independent of the build of `serde_json`.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(entries) => {
            let mut entries: Vec<_> =
                entries.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(entries.into_iter().collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_question_of_the_same_place_has_another_hash() {
        let [one, other] = ["0123456789abcdef", "fedcba9876543210"].map(|hash| format!("a:1.0:q~{hash}"));
        assert!(is_other(&one, &other) && !is_other(&one, &one));
        assert!(!is_other("a:1.0:q", &one) && !is_other(&one.replace(":q", ":r"), &other));
    }
}
