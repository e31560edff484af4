//! The keys of users, which encrypt the data keys.
//!
//! Start at [`KeyRing`].

use std::{collections::BTreeMap, error::Error, fmt, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::future::{BoxFuture, ready};
use zeroize::Zeroizing;

use crate::random::Random;

/// The error of a [`KeyProvider`].
pub type KeyError = Box<dyn Error + Send + Sync>;

/// A source of keys, such as a file of secrets or a key management service.
///
/// It is called when a thread is opened, not for each value.
pub trait KeyProvider: Send + Sync + 'static {
    /// Returns the key that encrypts new data.
    ///
    /// # Errors
    /// If the key cannot be obtained. The text must not contain a key.
    fn current(&self) -> BoxFuture<'_, Result<MasterKey, KeyError>>;

    /// Returns the key with an [id](MasterKey::id); `None` if there is no such key.
    ///
    /// # Errors
    /// If the key cannot be obtained. The text must not contain a key.
    fn find(&self, id: &str) -> BoxFuture<'_, Result<Option<MasterKey>, KeyError>>;
}

/// A secret of 32 random bytes. It is erased from memory when it is dropped, and has no form as text but
/// [`to_base64`](Self::to_base64).
#[derive(Clone)]
pub struct MasterKey {
    id: String,
    bytes: Zeroizing<[u8; 32]>,
}

/// A text that is not a key.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 random bytes in Base64, 44 characters; `MasterKey::generate` makes one")]
pub struct NotAKey;

superstep_state::debug_by_chain!(NotAKey);

impl MasterKey {
    /// Creates a key from its bytes, which must be random: a password is not a key.
    pub fn new(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        // The id is stored beside the data, and reveals nothing about the key.
        let id = blake3::derive_key("superstep 2026-11-26 id of a master key", &*bytes);
        let id = id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { id, bytes }
    }

    /// Draws a key.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn generate(random: &dyn Random) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(&mut *bytes)?;
        Ok(Self::new(*bytes))
    }

    /// Returns the id: 16 hexadecimal digits that are computed from the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key as text, for the place where it is stored.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_STANDARD.encode(self.bytes.as_slice()))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

/// Parses Base64.
impl FromStr for MasterKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(text.trim()).map_err(|_| NotAKey)?);
        let bytes = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| NotAKey)?;
        // All bytes equal is a placeholder.
        if bytes.iter().all(|byte| *byte == bytes[0]) { Err(NotAKey) } else { Ok(Self::new(bytes)) }
    }
}

/// Shows the id alone.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Keys in the memory of this process: the current one, and old ones that still decrypt.
#[derive(Clone, Debug)]
pub struct KeyRing {
    current: MasterKey,
    all: BTreeMap<String, MasterKey>,
}

impl KeyRing {
    /// Creates a ring with one key.
    pub fn new(current: MasterKey) -> Self {
        Self { all: [(current.id.clone(), current.clone())].into(), current }
    }

    /// Adds a key that was current before.
    #[must_use]
    pub fn with_old(mut self, old: MasterKey) -> Self {
        self.all.insert(old.id.clone(), old);
        self
    }
}

impl KeyProvider for KeyRing {
    fn current(&self) -> BoxFuture<'_, Result<MasterKey, KeyError>> {
        Box::pin(ready(Ok(self.current.clone())))
    }

    fn find(&self, id: &str) -> BoxFuture<'_, Result<Option<MasterKey>, KeyError>> {
        Box::pin(ready(Ok(self.all.get(id).cloned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "YwEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn a_key_has_a_stable_id_and_is_not_shown() {
        let key: MasterKey = TEXT.parse().unwrap();
        assert_eq!(key.to_base64().as_str(), TEXT);
        let shown = format!("{key:?} {:?}", KeyRing::new(key.clone()));
        assert!(shown.contains(key.id()), "{shown}");
        assert!(!shown.contains("YwEB") && !shown.contains("99"), "{shown}");
        assert_eq!(key.id(), "10623e6d51027d4b");
    }

    #[test]
    fn a_text_that_is_not_a_key_is_refused_without_being_shown() {
        let secret = "c2VjcmV0";
        for text in ["", secret, &TEXT[1..], &BASE64_STANDARD.encode([7; 32]), &"A".repeat(1 << 20)] {
            let error = text.parse::<MasterKey>().unwrap_err().to_string();
            assert!(!error.contains(secret), "{error}");
        }
    }
}
