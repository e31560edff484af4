//! The settings of the layer.
//!
//! Start at [`SealOptions`].

use std::{fmt, sync::Arc};

use crate::{
    master::KeyProvider,
    random::{Random, SystemRandom},
};

/// The settings of [`SealedCheckpointer`](crate::SealedCheckpointer) and [`SealedStore`](crate::SealedStore).
///
/// The default changes nothing that is stored: no encryption, no compression.
#[derive(Clone)]
pub struct SealOptions {
    /// The keys for encryption; `None` for no encryption.
    pub keys: Option<Arc<dyn KeyProvider>>,
    /// `true` to refuse stored values that are not encrypted, so that an attacker who can write to the database cannot insert
    /// any. It needs `keys`: without them nothing is stored. `false` by default: threads and items from the time before
    /// encryption are read.
    pub required: bool,
    /// The compression of values; `None` for no compression.
    pub compression: Option<Compression>,
    /// The maximum size of a decompressed value in bytes, for each value. A larger one is not compressed, and a larger
    /// compressed one is an error, before it takes memory. 256 MiB by default.
    pub max_bytes: usize,
    /// The source of nonces and data keys.
    pub random: Arc<dyn Random>,
}

/// The compression of values by zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The level, from 1 (fast) to 19 (small). 3 by default.
    pub level: i32,
    /// The size in bytes from which a value is compressed. 512 by default.
    pub from_bytes: usize,
}

impl Default for Compression {
    fn default() -> Self {
        Self { level: 3, from_bytes: 512 }
    }
}

impl Default for SealOptions {
    fn default() -> Self {
        Self {
            keys: None,
            required: false,
            compression: None,
            max_bytes: 256 << 20,
            random: Arc::new(SystemRandom),
        }
    }
}

impl SealOptions {
    /// Returns the options for encryption with these keys. Large values are compressed first.
    pub fn encrypted(keys: impl KeyProvider) -> Self {
        Self { keys: Some(Arc::new(keys)), compression: Some(Compression::default()), ..Self::default() }
    }

    /// Returns the options for compression alone.
    pub fn compressed(compression: Compression) -> Self {
        Self { compression: Some(compression), ..Self::default() }
    }
}

impl fmt::Debug for SealOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealOptions")
            .field("encrypted", &self.keys.is_some())
            .field("required", &self.required)
            .field("compression", &self.compression)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
