//! Patterns of permission rules.

use globset::{GlobBuilder, GlobSet};

/// Maximum length of a pattern in bytes.
const MAX_LENGTH: usize = 4_096;

/// A pattern: `*` matches any characters, `?` one, `[ab]` and `{ab,cd}` either.
pub(super) struct Glob(GlobSet);

impl Glob {
    /// Compiles a pattern whose `*` matches any text.
    ///
    /// # Errors
    /// The pattern is not valid, or too large.
    pub(super) fn text(pattern: &str) -> Result<Self, String> {
        Self::new(pattern, false, false)
    }

    /// Does the same without regard to letter case.
    ///
    /// # Errors
    /// The pattern is not valid, or too large.
    pub(super) fn any_case(pattern: &str) -> Result<Self, String> {
        Self::new(pattern, false, true)
    }

    /// Compiles a pattern whose `*` does not cross `/`, while `**` does.
    ///
    /// # Errors
    /// The pattern is not valid, or too large.
    pub(super) fn names(pattern: &str) -> Result<Self, String> {
        Self::new(pattern, true, false)
    }

    fn new(pattern: &str, literal_separator: bool, any_case: bool) -> Result<Self, String> {
        if pattern.len() > MAX_LENGTH {
            return Err(format!("the pattern is longer than {MAX_LENGTH} bytes"));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(literal_separator)
            .case_insensitive(any_case)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| error.to_string())?;
        // A set reports a pattern that is too large as an error; a single matcher panics.
        let set = GlobSet::builder().add(glob).build();
        set.map(Self).map_err(|_| "the pattern is too large".to_owned())
    }

    pub(super) fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Returns whether a pattern matches; an invalid one does not.
pub(super) fn fits_text(pattern: &str, text: &str) -> bool {
    Glob::text(pattern).is_ok_and(|glob| glob.fits(text))
}

/// Does the same with a `*` that does not cross `/`.
pub(super) fn fits_names(pattern: &str, text: &str) -> bool {
    Glob::names(pattern).is_ok_and(|glob| glob.fits(text))
}

/// Returns whether a pattern contains wildcards.
pub(super) fn is_open(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Splits a pattern at `/`, except within braces or brackets.
pub(super) fn parts(pattern: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '{' if !in_class => depth += 1,
            '}' if !in_class => depth = depth.saturating_sub(1),
            '/' if depth == 0 && !in_class => {
                parts.push(&pattern[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[begin..]);
    parts
}
