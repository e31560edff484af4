//! An error with its causes, as text.
//!
//! `llm` has a link to this file: neither crate may depend on the other.
//!
//! Start at [`chain`].

use std::error::Error;

/// Implements `Debug` for an error by [`chain`]: its code, message, help and causes, because `main` prints this form.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_by_chain {
    ($error:ty) => {
        /// Writes its code, message, help and causes, not its fields, because `main` prints this form.
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::__private::chain(self))
            }
        }
    };
}

/// Formats an error with its causes in one line, for records and terminals.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Avoids duplicates of a transparent cause or of one that is formatted into the message.
        let is_whole =
            |(at, part): (usize, &str)| !text[at + part.len()..].starts_with(char::is_alphanumeric);
        if !text.ends_with(&more) && !text.match_indices(&format!(": {more}")).any(is_whole) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
