//! A text in all the forms that JSON has for it.
//!
//! Start at [`Secret`].

use std::ops::Range;

/// A text that is found as it is, and as a part of a JSON text, at any depth of JSON texts within each other: each of its characters
/// may be escaped, as `\"`, `\/`, `\n` or `\u0026`, by any number of backslashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secret(Vec<char>);

impl Secret {
    /// Creates the secret; `None` for an empty text.
    pub(super) fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.chars().collect()))
    }

    /// Returns the number of its characters.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a text contains it.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.find(text, 0).is_some()
    }

    /// Replaces it wherever a text contains it; `None` if it does not.
    pub(super) fn replaced(&self, text: &str, by: &str) -> Option<String> {
        let (mut replaced, mut end) = (String::new(), 0);
        while let Some(found) = self.find(text, end) {
            replaced.push_str(&text[end..found.start]);
            replaced.push_str(by);
            end = found.end;
        }
        (end > 0).then(|| replaced + &text[end..])
    }

    fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let mut starts = text[from..].char_indices().map(|(at, _)| from + at);
        starts.find_map(|at| Some(at..at + self.length_in(&text[at..])?))
    }

    /// Returns the length of its form at the beginning of a text. A `\u005c` is a backslash, or else what it looks like.
    fn length_in(&self, text: &str) -> Option<usize> {
        self.length_as(Backslashes::Any, text).or_else(|| self.length_as(Backslashes::Plain, text))
    }

    fn length_as(&self, slashes: Backslashes, text: &str) -> Option<usize> {
        let (mut rest, mut is_escaped, mut at) = (text, false, 0);
        while let Some(char) = self.0.get(at).copied() {
            let length = if char == '\\' {
                let wanted = self.0[at..].iter().take_while(|char| **char == '\\').count();
                let found = slashes.length(rest);
                if found >= wanted {
                    // Escaping multiplies them, and adds those of the next character.
                    is_escaped = found > wanted;
                    at += wanted;
                    rest = &rest[found..];
                    continue;
                }
                slashes.unicode(char, rest, false)?
            } else {
                slashes.length_of(char, rest, is_escaped)?
            };
            is_escaped = false;
            at += 1;
            rest = &rest[length..];
        }
        Some(text.len() - rest.len())
    }
}

/// The forms of a backslash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslashes {
    /// Also `\u005c`.
    Any,
    Plain,
}

impl Backslashes {
    /// Returns the length of a character's form at the beginning of a text. `is_escaped` if a backslash is before it.
    fn length_of(self, char: char, text: &str, is_escaped: bool) -> Option<usize> {
        if text.starts_with(char) {
            return Some(char.len_utf8());
        }
        let before = self.length(text);
        if before == 0 && !is_escaped {
            return None;
        }
        let short = match char {
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            other => other,
        };
        // A letter after a backslash is another character.
        let is_short = (short != char || !char.is_alphanumeric()) && text[before..].starts_with(short);
        if is_short { Some(before + short.len_utf8()) } else { self.unicode(char, text, is_escaped) }
    }

    /// Returns the length of a character's form `\u0026`; of two for one beyond 16 bits.
    fn unicode(self, char: char, text: &str, mut is_escaped: bool) -> Option<usize> {
        let (mut rest, mut units) = (text, [0; 2]);
        for unit in char.encode_utf16(&mut units) {
            let before = self.length(rest);
            let digits = rest[before..].strip_prefix('u')?.get(..4)?;
            let is_unit = u16::from_str_radix(digits, 16).ok() == Some(*unit);
            if (before == 0 && !is_escaped) || !is_unit {
                return None;
            }
            rest = &rest[before + 5..];
            is_escaped = false;
        }
        Some(text.len() - rest.len())
    }

    /// Returns the length of the backslashes at the beginning of a text.
    fn length(self, text: &str) -> usize {
        let mut length = 0;
        loop {
            let plain = text[length..].bytes().take_while(|byte| *byte == b'\\').count();
            length += plain;
            let is_one = text.get(length..length + 5).is_some_and(|form| form.eq_ignore_ascii_case("u005c"));
            if plain == 0 || !is_one || self == Self::Plain {
                return length;
            }
            length += 5;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn redacted(secret: &str, text: &str) -> Option<String> {
        Secret::new(secret).unwrap().replaced(text, "[redacted]")
    }

    /// Returns a text as a part of a JSON text.
    fn escaped(text: &str) -> String {
        let json = Value::from(text).to_string();
        json[1..json.len() - 1].to_owned()
    }

    /// Escapes every character as `\u0026`.
    fn as_unicode(text: &str) -> String {
        text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
    }

    /// Does the same as some programs do, with only the characters of ASCII.
    fn as_ascii(text: &str) -> String {
        escaped(text)
            .chars()
            .map(|char| if char >= '\u{7f}' { as_unicode(&char.to_string()) } else { char.into() })
            .collect()
    }

    #[test]
    fn a_secret_is_replaced_in_json_texts_within_each_other() {
        let slashes = |text: &str| escaped(text).replace('/', "\\/");
        let go = |text: &str| escaped(text).replace('&', "\\u0026").replace('<', "\\u003c");
        for secret in ["p\"w\\d\n\u{7f}é😀/<&", "a/b&c", "\\\\\"x", "hunter2", "\\é", "plain/"] {
            let mut forms = vec![secret.to_owned()];
            for depth in 0..3 {
                // A program escapes every character of a text, and not of another one's escapes.
                let escapes: [&dyn Fn(&str) -> String; 5] = [&escaped, &as_ascii, &slashes, &go, &as_unicode];
                let escapes = if depth == 0 { &escapes[..] } else { &escapes[..4] };
                forms =
                    forms.iter().flat_map(|form| escapes.iter().map(move |escape| escape(form))).collect();
                for form in &forms {
                    let text = format!("a {form} b {form}");
                    assert_eq!(
                        redacted(secret, &text).as_deref(),
                        Some("a [redacted] b [redacted]"),
                        "{form}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_texts_are_left() {
        for (secret, text) in [
            ("hunter2", "hunter"),
            ("new", "\\new".strip_suffix('w').unwrap()),
            ("a&b", "a\\u0027b"),
            ("\\\\x", "\\x"),
            ("\n", "n"),
        ] {
            assert_eq!(redacted(secret, text), None, "{secret} {text}");
        }
        assert_eq!(Secret::new(""), None);
    }
}
