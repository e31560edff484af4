//! An API key that is never shown.

use std::fmt;

/// The minimum length of a secret: shorter keys are placeholders for local servers, and hiding them would cut
/// ordinary words.
const MIN_SECRET_LENGTH: usize = 4;

/// A key that no error and no debug output shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps `key`; an empty one means no key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key itself, for the header of a request only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Replaces the key in a text by `[key]`, in case a server repeated it. A truncated key at the end of the
    /// text or before `…` is replaced too.
    pub fn hide_in(&self, text: String) -> String {
        if self.0.len() < MIN_SECRET_LENGTH {
            return text;
        }
        let text = text.replace(&self.0, "[key]");
        let parts: Vec<_> = text.split('…').map(|part| self.hide_at_end(part)).collect();
        parts.join("…")
    }

    fn hide_at_end(&self, text: &str) -> String {
        let lengths =
            (MIN_SECRET_LENGTH..self.0.len()).rev().filter(|length| self.0.is_char_boundary(*length));
        let rest = lengths.into_iter().find_map(|length| text.strip_suffix(&self.0[..length]));
        rest.map_or_else(|| text.to_owned(), |rest| format!("{rest}[key]"))
    }
}

impl From<&str> for ApiKey {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for ApiKey {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "ApiKey(none)" } else { "ApiKey(hidden)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_masked_everywhere() {
        let key = ApiKey::new("sk-1234");
        assert_eq!(key.hide_in("no sk-1234, sk-1234!".into()), "no [key], [key]!");
        assert_eq!(key.hide_in("cut: sk-12… and sk-123".into()), "cut: [key]… and [key]");
        assert_eq!(format!("{key:?} {:?}", ApiKey::default()), "ApiKey(hidden) ApiKey(none)");
        assert_eq!([ApiKey::from("sk-1234"), "sk-1234".to_owned().into()], [key.clone(), key]);
        assert_eq!(ApiKey::new("x").hide_in("fox".into()), "fox");
    }
}
