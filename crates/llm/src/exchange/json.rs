//! The JSON of events.
//!
//! Start at [`parse`].

use std::borrow::Cow;

use serde_json::Value;

use crate::{ModelError, ModelErrorKind, http::error::excerpt};

/// The replacement of a character that cannot be decoded.
pub(crate) const UNDECODABLE: char = '\u{fffd}';

/// Parses the data of an event. A half of a surrogate pair that stands alone becomes U+FFFD.
pub(crate) fn parse(data: &str) -> Result<(Cow<'_, str>, Value), ModelError> {
    let cause = match serde_json::from_str(data) {
        Ok(event) => return Ok((Cow::Borrowed(data), event)),
        Err(cause) => cause,
    };
    let whole = without_halves(data);
    match serde_json::from_str(&whole) {
        Ok(event) => Ok((Cow::Owned(whole), event)),
        Err(_) => {
            let message = format!("the server sent an event that is not JSON ({cause}): {}", excerpt(data));
            Err(ModelError::new(ModelErrorKind::Malformed, message))
        }
    }
}

/// Replaces escapes of halves of surrogate pairs that stand alone.
fn without_halves(json: &str) -> String {
    let (mut whole, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let code = |from: usize| {
            let digits = escape.get(from..from + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        let is_high = |code: u16| (0xD800..0xDC00).contains(&code);
        let is_low = |code: u16| (0xDC00..0xE000).contains(&code);
        let length = match (code(0), code(6)) {
            (Some(high), Some(low)) if is_high(high) && is_low(low) => 12,
            (Some(half), _) if is_high(half) || is_low(half) => {
                whole.push(UNDECODABLE);
                rest = &escape[6..];
                continue;
            }
            (Some(_), _) => 6,
            (None, _) => escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at),
        };
        let (escape, behind) = escape.split_at(length);
        whole.push_str(escape);
        rest = behind;
    }
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_characters_are_replaced_in_escapes_only() {
        for (json, whole) in [
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d""#, "\"\u{fffd}\""),
            (r#""a\ude00\n\\ud83d\u00e9""#, "\"a\u{fffd}\\n\\\\ud83d\\u00e9\""),
            (r#""\"#, r#""\"#),
        ] {
            assert_eq!(without_halves(json), whole);
        }
    }
}
