//! The conformance suite of [`Store`].
//!
//! Start at [`check_store`]; [`check_store_operations`] covers random sequences.

mod items;
mod kit;
mod meaning;
mod operations;
mod search;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use superstep_graph::{Store, store::StoreOptions};

use super::message;
use kit::{TestClock, Topics};

pub use operations::{check_some_store_operations, check_store_operations};

/// Runs every case of the contract, each on a store of its own with the given options.
///
/// Use [`check_store_operations`] as well: it covers random sequences and restarts.
///
/// # Panics
/// If a case fails; lists the failed cases and their reasons.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use superstep_graph::MemoryStore;
///
/// superstep_testing::conformance::check_store(async |options| Arc::new(MemoryStore::with(options)) as _).await;
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn check_store(make: impl AsyncFn(StoreOptions) -> Arc<dyn Store>) {
    let mut failures = Vec::new();
    for (name, case) in items::CASES.iter().chain(search::CASES).chain(meaning::CASES) {
        let clock = TestClock::at(1000);
        let embed = Arc::new(Topics::default());
        let options = StoreOptions::new().clock(clock.clone());
        let plain = make(options.clone()).await;
        let meant = make(options.clone().embed(embed.clone())).await;
        let brief = make(options.ttl(std::time::Duration::from_millis(100)).refresh_on_read()).await;
        let kit = Kit { plain, meant, brief, clock, embed };
        if let Err(panic) = AssertUnwindSafe(case(kit)).catch_unwind().await {
            failures.push(format!("{name}: {}", message(&*panic)));
        }
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

/// The tested stores, with a common clock.
struct Kit {
    /// As usual.
    plain: Arc<dyn Store>,
    /// A store with an embedding.
    meant: Arc<dyn Store>,
    /// A store whose items live for 100 ms, and longer if they are read.
    brief: Arc<dyn Store>,
    clock: TestClock,
    embed: Arc<Topics>,
}

type Case = (&'static str, fn(Kit) -> BoxFuture<'static, ()>);

/// Lists the named functions as [`Case`]s.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$((stringify!($name), |kit| Box::pin($name(kit)))),*];
    };
}
use cases;
