//! Encryption and compression of stored values, as a layer in front of any checkpointer and store.
//!
//! ```text
//! graph ── SealedCheckpointer ── SqliteCheckpointer, PostgresCheckpointer, …
//! nodes ── SealedStore ───────── SqliteStore, PostgresStore, …
//! ```
//!
//! A value is encoded as JSON, compressed if it is large, encrypted, and bound to its place: the thread, the checkpoint and the
//! task, or the namespace and the key. Start at [`SealedCheckpointer`].

mod checkpointer;
mod error;
mod form;
mod keys;
mod master;
mod options;
mod path;
mod random;
mod store;
mod thread_keys;
mod values;

pub use checkpointer::{Rekeyed, SealedCheckpointer};
pub use master::{KeyError, KeyProvider, KeyRing, MasterKey, NotAKey};
pub use options::{Compression, SealOptions};
pub use random::{Random, SystemRandom};
pub use store::SealedStore;
