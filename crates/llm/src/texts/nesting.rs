//! The nesting and the number of values of JSON text, which may arrive in pieces.

/// The maximum number of values in the calls of one answer, unless [`AnswerLimits`](crate::limits::AnswerLimits) differs, and in calls
/// within a text.
pub(crate) const MAX_VALUES: usize = 20_000;

/// The maximum number of values in a JSON text of a model.
pub(crate) const MAX_PARSED: usize = 100_000;

/// The nesting depth of JSON text, updated piece by piece. Invalid JSON gives some depth too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
    depth: usize,
    pub(crate) most: usize,
    /// The number of values, from above.
    pub(crate) values: usize,
    in_string: bool,
    escaped: bool,
    /// `true` if text follows the end of the first object or list.
    pub(crate) trailing: bool,
}

impl Nesting {
    pub(crate) fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            let is_behind = self.depth == 0 && self.most > 0 && !byte.is_ascii_whitespace();
            self.trailing |= is_behind;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b',' => self.values += 1,
                b'{' | b'[' => {
                    self.values += 1;
                    self.depth += 1;
                    self.most = self.most.max(self.depth);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Returns whether the text may be a complete object, so that parsing it is worthwhile.
    pub(crate) fn is_closed(&self) -> bool {
        self.depth == 0 && self.most > 0 && !self.trailing
    }
}

/// Returns the number of values in a JSON text, from above.
pub(crate) fn values(json: &str) -> usize {
    let mut nesting = Nesting::default();
    nesting.push(json);
    1 + nesting.values
}

/// Returns the number of values that JSON within a text may have, from above. Quotes are not read, because those of prose are not
/// strings.
pub(crate) fn values_in_prose(text: &str) -> usize {
    1 + text.bytes().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count()
}
