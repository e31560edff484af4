//! The conformance suites of [`Checkpointer`], of [`Store`](superstep_graph::Store), and of
//! [`LongTermMemory`](superstep_agent::deps::LongTermMemory).
//!
//! Start at [`check`], [`check_store`] or [`check_memory`]; [`check_operations`] and
//! [`check_store_operations`] cover random sequences.

mod branches;
mod children;
mod commits;
mod fixture;
mod listing;
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
    memories::check_memory,
    operations::{check_operations, check_some_operations},
    stores::{check_store, check_store_operations},
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
    use superstep_graph::MemoryCheckpointer;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_conforms() {
        check(async || Arc::new(MemoryCheckpointer::new()) as Arc<dyn Checkpointer>).await;
    }

    #[test]
    fn memory_conforms_under_any_operations() {
        check_operations(
            async || (Arc::new(MemoryCheckpointer::new()) as Arc<dyn Checkpointer>, ()),
            async |store, ()| store,
        );
    }
}
