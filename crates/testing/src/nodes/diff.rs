//! The difference between two states.
//!
//! Start at [`state_diff`].

use std::fmt::Write as _;

use serde_json::Value;
use superstep_graph::State;

use super::text::line;

/// Returns the differences of two states, one per line, in the order of the channels; empty if there are none.
/// Channels that are never stored are left out.
///
/// ```text
/// turns 1 → 2                   another value
/// log + "b"                     a new entry at the end of a list
/// plan[0].done false → true     a value inside of another
/// plan[1] - {"text":"pack"}     an entry that is gone
/// ```
///
/// # Example: a reducer
/// ```
/// use superstep_graph::{Log, State, state::reduce};
/// use superstep_testing::state_diff;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     #[channel(append)]
///     log: Log<String>,
///     #[channel(sum)]
///     turns: i64,
/// }
///
/// let before = Chat { turns: 1, ..Chat::default() };
/// let updates = [Chat::update().log(["hello"]).turns(1), Chat::update().turns(2)];
/// insta::assert_snapshot!(state_diff(&before, &reduce(&before, updates)?), @r#"
/// log + "hello"
/// turns 1 → 4
/// "#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn state_diff<S: State>(before: &S, after: &S) -> String {
    let mut out = String::new();
    for (position, channel) in before.channels().iter().enumerate() {
        if !channel.untracked {
            differ(&mut out, &channel.name, &value(before, position), &value(after, position));
        }
    }
    out
}

fn value<S: State>(state: &S, channel: usize) -> Value {
    let json = state.encode(channel).and_then(|json| serde_json::from_slice(&json));
    json.unwrap_or_else(|error| format!("has no JSON form: {error}").into())
}

fn differ(out: &mut String, place: &str, before: &Value, after: &Value) {
    let write =
        |out: &mut String, text: String| writeln!(out, "{place} {text}").expect("a string takes any text");
    match (before, after) {
        _ if before == after => {}
        (Value::Object(one), Value::Object(other)) => {
            let mut names: Vec<_> =
                one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))).collect();
            names.sort();
            for name in names {
                let inner = format!("{place}.{name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => differ(out, &inner, one, other),
                    (one, other) => changed(out, &inner, one, other),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if other.starts_with(one) => {
            other[one.len()..].iter().for_each(|new| write(out, format!("+ {}", line(new))));
        }
        (Value::Array(one), Value::Array(other)) => {
            let start = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            let rest = one.len().min(other.len()) - start;
            let tails = one.iter().rev().zip(other.iter().rev()).take(rest);
            let end = tails.take_while(|(one, other)| one == other).count();
            let (one, other) = (&one[start..one.len() - end], &other[start..other.len() - end]);
            for nth in 0..one.len().max(other.len()) {
                let inner = format!("{place}[{}]", start + nth);
                match (one.get(nth), other.get(nth)) {
                    (Some(one), Some(other)) => differ(out, &inner, one, other),
                    (one, other) => changed(out, &inner, one, other),
                }
            }
        }
        _ => write(out, format!("{} → {}", line(before), line(after))),
    }
}

fn changed(out: &mut String, place: &str, before: Option<&Value>, after: Option<&Value>) {
    for (sign, value) in [("-", before), ("+", after)] {
        if let Some(value) = value {
            writeln!(out, "{place} {sign} {}", line(value)).expect("a string takes any text");
        }
    }
}
