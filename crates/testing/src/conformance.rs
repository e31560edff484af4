//! The conformance suites of [`Checkpointer`], of [`Store`](superstep_graph::Store), and of
//! [`LongTermMemory`](superstep_agent::deps::LongTermMemory).
//!
//! Start at the macro [`conformance!`](crate::conformance!), which generates all tests of a checkpointer or a store, or at
//! [`check_memory`].

mod branches;
mod children;
mod commits;
mod crashes;
mod fixture;
#[doc(hidden)]
pub mod kit;
mod listing;
mod load;
mod memories;
mod operations;
mod pruning;
mod stores;
mod texts;
mod writers;

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use superstep_graph::Checkpointer;

pub use self::{
    crashes::check_crashes,
    load::check_load,
    memories::check_memory,
    operations::{check_operations, check_some_operations},
    stores::{check_some_store_operations, check_store, check_store_operations},
};

/// Runs every case of the contract, each on a store of its own.
///
/// Use [`check_operations`] as well: it covers random sequences and restarts.
///
/// # Panics
/// If a case fails; lists the failed cases and their reasons.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use superstep_graph::{Checkpointer, MemoryCheckpointer};
///
/// superstep_testing::conformance::check(async || Arc::new(MemoryCheckpointer::new()) as Arc<dyn Checkpointer>).await;
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn check(make: impl AsyncFn() -> Arc<dyn Checkpointer>) {
    let mut failures = Vec::new();
    let cases = commits::CASES.iter().chain(branches::CASES).chain(listing::CASES).chain(children::CASES);
    let cases = cases.chain(pruning::CASES).chain(texts::CASES).chain(writers::CASES);
    for (name, case) in cases {
        let store = make().await;
        if let Err(panic) = AssertUnwindSafe(case(store)).catch_unwind().await {
            failures.push(format!("{name}: {}", message(&*panic)));
        }
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

type Case = (&'static str, fn(Arc<dyn Checkpointer>) -> BoxFuture<'static, ()>);

/// Lists the named functions as [`Case`]s.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$((stringify!($name), |store| Box::pin($name(store)))),*];
    };
}
use cases;

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use superstep_graph::{MemoryCheckpointer, MemoryStore};

    use super::*;

    crate::conformance!(
        checkpointer memory,
        place = Some(Arc::new(MemoryCheckpointer::new())),
        open = async |place: &Arc<MemoryCheckpointer>| place.clone(),
    );

    /// A store in memory, once it was opened.
    type Opened = std::sync::OnceLock<Arc<MemoryStore>>;

    crate::conformance!(
        store memory_store,
        place = Some(Opened::new()),
        open = async |place: &Opened, options| place.get_or_init(|| Arc::new(MemoryStore::with(options))).clone(),
    );
}
