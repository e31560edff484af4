//! The nesting of JSON text that arrives in pieces.

/// The nesting depth of JSON text, updated piece by piece. Invalid JSON gives some depth too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    pub(super) most: usize,
    /// The number of values, from above.
    pub(super) values: usize,
    in_string: bool,
    escaped: bool,
    /// `true` if text follows the end of the first object or list.
    pub(super) trailing: bool,
}

impl Nesting {
    pub(super) fn push(&mut self, text: &str) {
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
    pub(super) fn is_closed(&self) -> bool {
        self.depth == 0 && self.most > 0 && !self.trailing
    }
}

/// Returns the number of values in a JSON text, from above.
pub(crate) fn values(json: &str) -> usize {
    let mut nesting = Nesting::default();
    nesting.push(json);
    1 + nesting.values
}
