//! Whether the model repeats itself.

use serde_json::Value;

use crate::{AgentState, LoopRule};

/// A loop that a rule found.
pub(super) struct Found {
    pub(super) rule: &'static str,
    pub(super) tool: String,
    pub(super) n: usize,
}

/// Texts longer than this are alike only if they are equal: comparing takes the product of their lengths.
const LONGEST_COMPARED: usize = 2_000;

pub(super) fn find(rules: &[LoopRule], state: &AgentState) -> Option<Found> {
    rules.iter().find_map(|rule| match *rule {
        LoopRule::Similar { n, threshold } => similar(state, n.max(2), threshold),
    })
}

fn similar(state: &AgentState, n: usize, threshold: f64) -> Option<Found> {
    let calls: Vec<_> = state.tool_call_history.iter().rev().take(n).collect();
    let results: Vec<_> = state.tool_result_history.iter().rev().take(n).collect();
    let (first, result) = (calls.first()?, results.first()?);
    let all = calls.len() == n
        && results.len() == n
        && calls
            .iter()
            .all(|call| call.name == first.name && alike_values(&call.args, &first.args, threshold))
        && results.iter().all(|other| alike(other, result, threshold));
    all.then(|| Found { rule: "similar", tool: first.name.clone(), n })
}

/// Whether two arguments are alike: the same fields, texts alike, everything else equal.
fn alike_values(a: &Value, b: &Value, threshold: f64) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => alike(a, b, threshold),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike_values(a, b, threshold))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike_values(a, b, threshold)))
        }
        (a, b) => a == b,
    }
}

fn alike(a: &str, b: &str, threshold: f64) -> bool {
    let (a, b) = (normal(a), normal(b));
    if a == b {
        return true;
    }
    // A number that changes is progress, however little of the text it is.
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    a.len().max(b.len()) <= LONGEST_COMPARED
        && digits(&a) == digits(&b)
        && strsim::normalized_levenshtein(&a, &b) >= threshold
}

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_alike_but_for_case_white_space_and_trifles() {
        for (a, b) in [("rust  Async", "rust async"), ("10 hits: A,B", "10 hits: A,B."), ("", " ")] {
            assert!(alike(a, b, 0.9), "{a} / {b}");
        }
        for (a, b) in [
            ("progress 10%", "progress 55%"),
            ("rust async", "go channels"),
            ("page 1", "page 2"),
            ("a", "b"),
        ] {
            assert!(!alike(a, b, 0.9), "{a} / {b}");
        }
    }

    #[test]
    fn arguments_are_alike_whatever_the_order_of_their_fields() {
        let value = |text| serde_json::from_str::<Value>(text).unwrap();
        assert!(alike_values(&value(r#"{"q":"Rust","n":1}"#), &value(r#"{"n":1,"q":"rust "}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust","n":1}"#), &value(r#"{"q":"rust","n":2}"#), 0.9));
        assert!(!alike_values(&value(r#"{"q":"rust"}"#), &value(r#"{"q":"rust","n":1}"#), 0.9));
    }
}
