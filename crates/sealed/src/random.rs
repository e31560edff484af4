//! The source of nonces and keys.

use std::error::Error;

use rand::{TryRng as _, rngs::SysRng};

/// A source of random bytes. Data that is encrypted with predictable bytes is not protected.
pub trait Random: Send + Sync + 'static {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// If there are no random bytes. Nothing is stored then.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// The random numbers of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        SysRng.try_fill_bytes(bytes).map_err(Into::into)
    }
}
