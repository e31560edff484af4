//! The effort of regular expressions, which a schema and its values multiply.
//!
//! A search in a text takes, at worst, as many steps for each character as the expression has states. One with a look-ahead or a
//! back reference may begin such a search again at each step back.

use serde_json::{Map, Value};

use super::objects;

/// The maximum number of steps back of one regular expression in one text.
pub(super) const MAX_BACKTRACKS: usize = 20_000;

/// The count of a regular expression by itself.
const ONCE: usize = 100;

/// The number of steps that count as one check.
const STEPS: usize = 200;

/// Counts the checks of a regular expression for a text of this length.
pub(super) fn count(pattern: &str, length: usize) -> usize {
    count_all(pattern, &[length])
}

/// Does the same for several texts.
pub(super) fn count_all(pattern: &str, lengths: &[usize]) -> usize {
    let states = states(pattern);
    let restarts = |length: usize| if begins_again(pattern) { length.min(MAX_BACKTRACKS) } else { 1 };
    let steps = |length: usize| states.saturating_mul(length).saturating_mul(restarts(length));
    let counts = lengths.iter().map(|length| ONCE.saturating_add(steps(*length) / STEPS));
    counts.fold(0, usize::saturating_add)
}

/// Returns the number of regular expressions.
pub(super) fn number(schema: &Value) -> usize {
    let number = |(_, fields): (&Value, &Map<String, Value>)| {
        let named = fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        named + usize::from(fields.contains_key("pattern"))
    };
    objects(schema).map(number).sum()
}

/// Estimates the number of states from above: the length, multiplied by each number of repetitions.
fn states(pattern: &str) -> usize {
    let repetitions = pattern.split('{').skip(1).filter_map(|behind| {
        let numbers = behind.split_once('}')?.0;
        numbers.split(',').filter_map(|number| number.trim().parse::<usize>().ok()).max()
    });
    repetitions.fold(pattern.len(), |states, number| states.saturating_mul(number.max(1)))
}

/// Returns whether a search may begin again at each step back. Look-aheads at the begin of the text are searched once.
fn begins_again(pattern: &str) -> bool {
    let mut rest = pattern;
    if let Some(anchored) = pattern.strip_prefix('^').filter(|anchored| !anchored.contains('|')) {
        rest = anchored;
        while let Some((ahead, behind)) =
            ["(?=", "(?!"].iter().find_map(|begin| rest.strip_prefix(begin)?.split_once(')'))
        {
            if ahead.contains('(') || behind.starts_with(['*', '+', '?', '{']) {
                break;
            }
            rest = behind;
        }
    }
    let refers = |(at, _): (usize, &str)| {
        rest[at + 1..].starts_with(|c: char| c.is_ascii_digit() || "kKgG".contains(c))
    };
    ["(?=", "(?!", "(?<", "(?>", "(?(", "(?P", "++", "*+", "?+", "}+"].iter().any(|sign| rest.contains(sign))
        || rest.match_indices('\\').any(refers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_may_take_long_count_more() {
        // Ordinary ones, also with long texts.
        for (pattern, length) in [
            (r"^[\w-]{1,255}$", 255),
            (r"\S", 1 << 20),
            (r"^(?!\s*$).+", 100_000),
            (r"^(?=.*[A-Z])(?=.*\d).{8,64}$", 64),
            (r"^(?!\.)[\w.]+@[\w.]+$", 320),
            (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$", 20),
            ("(?i)^(yes|no)$", 3),
        ] {
            assert!(count(pattern, length) < 150_000, "{pattern}: {}", count(pattern, length));
        }
        for (pattern, length) in [
            ("(?!x)a*b", 20_000),
            (r"(a*)\1b", 20_000),
            ("^(?:(?=a*b)|a)*c", 10_000),
            ("^(?!x)|a*b|(?!y)", 10_000),
            ("1[01]{8000}x", 10_000),
            ("((a{1,1000}){1,1000}){1,100}", 1),
        ] {
            assert!(count(pattern, length) > 1_000_000, "{pattern}: {}", count(pattern, length));
        }
        assert_eq!(count_all("a", &[1, 1]), 2 * ONCE);
    }
}
