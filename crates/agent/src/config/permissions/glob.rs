//! Patterns of rules.

use globset::{GlobBuilder, GlobSet};

/// Far more than anybody writes by hand, in bytes.
const LONGEST: usize = 4_096;

/// A pattern: `*` stands for any characters, `?` for one, `[ab]` and `{ab,cd}` for either.
pub(super) struct Glob(GlobSet);

impl Glob {
    /// One whose `*` stands for any text.
    ///
    /// # Errors    It is none, or too large.
    pub(super) fn text(pattern: &str) -> Result<Self, String> {
        Self::new(pattern, false)
    }

    /// One whose `*` does not cross `/`, while `**` does.
    ///
    /// # Errors    It is none, or too large.
    pub(super) fn names(pattern: &str) -> Result<Self, String> {
        Self::new(pattern, true)
    }

    fn new(pattern: &str, literal_separator: bool) -> Result<Self, String> {
        if pattern.len() > LONGEST {
            return Err(format!("the pattern is longer than {LONGEST} bytes"));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(literal_separator)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| error.to_string())?;
        // A set says so if a pattern is too large; a single matcher panics.
        let set = GlobSet::builder().add(glob).build();
        set.map(Self).map_err(|_| "the pattern is too large".to_owned())
    }

    pub(super) fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Whether a pattern fits; one that is none does not.
pub(super) fn fits_text(pattern: &str, text: &str) -> bool {
    Glob::text(pattern).is_ok_and(|glob| glob.fits(text))
}

/// The same, with a `*` that does not cross `/`.
pub(super) fn fits_names(pattern: &str, text: &str) -> bool {
    Glob::names(pattern).is_ok_and(|glob| glob.fits(text))
}

/// Whether it has signs that stand for something else.
pub(super) fn is_open(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// The parts of a pattern between `/`. One within braces or brackets is no end of a part.
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
