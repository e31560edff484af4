//! All suites of one backend.
//!
//! Start at the macro [`conformance!`](crate::conformance!).

use std::sync::{Mutex, PoisonError};

use superstep_graph::{Checkpointer, Store, convert::IntoShared, store::StoreOptions};
use tokio::runtime::{Builder, Runtime};

use super::{
    check, check_crashes, check_load, check_some_operations, check_some_store_operations, check_store,
};

/// Generates the tests of a checkpointer or a store: its contract, random operations with restarts, requests that are dropped, and
/// a short load.
///
/// # Shape
/// `place` is an expression of an `Option`: a fresh, empty place for data, such as a folder, which is removed when it is dropped, or
/// `None` where there is none on this machine, such as no server; the tests then do nothing. `open` is an async function that opens a
/// place as another process would; all results for one place share its data. For a store it also takes the
/// [`StoreOptions`](superstep_graph::store::StoreOptions).
///
/// `sequences` is the number of random sequences, 256 by default; fewer for a backend whose answers take long.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use superstep_graph::{MemoryCheckpointer, MemoryStore};
///
/// // The data in memory is the place.
/// superstep_testing::conformance!(
///     checkpointer memory,
///     place = Some(Arc::new(MemoryCheckpointer::new())),
///     open = async |place: &Arc<MemoryCheckpointer>| place.clone(),
/// );
/// ```
#[macro_export]
macro_rules! conformance {
    (checkpointer $name:ident, place = $place:expr, open = $open:expr $(, sequences = $sequences:expr)? $(,)?) => {
        mod $name {
            #[allow(unused_imports, reason = "the expressions may use anything in their module")]
            use super::*;

            #[test]
            fn conforms() {
                $crate::conformance::kit::contract(|| $place, $open);
            }

            #[test]
            fn conforms_under_any_operations_and_restarts() {
                $crate::conformance::kit::operations([$($sequences)?].first().copied(), || $place, $open);
            }

            #[test]
            fn stores_dropped_requests_whole_or_not_at_all() {
                $crate::conformance::kit::crashes(|| $place, $open);
            }

            #[test]
            fn serves_many_writers_and_readers() {
                $crate::conformance::kit::load(|| $place, $open);
            }
        }
    };
    (store $name:ident, place = $place:expr, open = $open:expr $(, sequences = $sequences:expr)? $(,)?) => {
        mod $name {
            #[allow(unused_imports, reason = "the expressions may use anything in their module")]
            use super::*;

            #[test]
            fn conforms() {
                $crate::conformance::kit::store_contract(|| $place, $open);
            }

            #[test]
            fn conforms_under_any_operations_and_restarts() {
                $crate::conformance::kit::store_operations([$($sequences)?].first().copied(), || $place, $open);
            }
        }
    };
}

/// The places of a test, which live until its end.
struct Directories<P, F> {
    make: F,
    made: Mutex<Vec<P>>,
}

impl<P, F: Fn() -> Option<P>> Directories<P, F> {
    /// Returns `None` if there is no place on this machine.
    fn new(make: F) -> Option<Self> {
        let first = make()?;
        Some(Self { make, made: Mutex::new(vec![first]) })
    }

    fn next(&self) -> P {
        let first = self.made.lock().unwrap_or_else(PoisonError::into_inner).pop();
        first.or_else(&self.make).expect("there are places on this machine")
    }
}

/// Returns the usual number of random sequences.
fn all() -> u32 {
    proptest::test_runner::Config::default().cases
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime starts")
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn contract<P, C: IntoShared<dyn Checkpointer>>(
    place: impl Fn() -> Option<P>,
    open: impl AsyncFn(&P) -> C,
) {
    let Some(places) = Directories::new(place) else { return };
    let used = Mutex::new(Vec::new());
    runtime().block_on(check(async || {
        let place = places.next();
        let store = open(&place).await.into_shared();
        used.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        store
    }));
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn operations<P, C: IntoShared<dyn Checkpointer>>(
    sequences: Option<u32>,
    place: impl Fn() -> Option<P>,
    open: impl AsyncFn(&P) -> C,
) {
    let Some(places) = Directories::new(place) else { return };
    check_some_operations(
        sequences.unwrap_or_else(all),
        async || {
            let place = places.next();
            (open(&place).await.into_shared(), place)
        },
        async |store, place| {
            drop(store);
            open(place).await.into_shared()
        },
    );
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn crashes<P, C: IntoShared<dyn Checkpointer>>(
    place: impl Fn() -> Option<P>,
    open: impl AsyncFn(&P) -> C,
) {
    let Some(place) = place() else { return };
    runtime().block_on(check_crashes(async || open(&place).await.into_shared()));
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn load<P, C: IntoShared<dyn Checkpointer>>(place: impl Fn() -> Option<P>, open: impl AsyncFn(&P) -> C) {
    let Some(place) = place() else { return };
    runtime().block_on(check_load(async || open(&place).await.into_shared()));
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn store_contract<P, S: IntoShared<dyn Store>>(
    place: impl Fn() -> Option<P>,
    open: impl AsyncFn(&P, StoreOptions) -> S,
) {
    let Some(places) = Directories::new(place) else { return };
    let used = Mutex::new(Vec::new());
    runtime().block_on(check_store(async |options| {
        let place = places.next();
        let store = open(&place, options).await.into_shared();
        used.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        store
    }));
}

/// See [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn store_operations<P, S: IntoShared<dyn Store>>(
    sequences: Option<u32>,
    place: impl Fn() -> Option<P>,
    open: impl AsyncFn(&P, StoreOptions) -> S,
) {
    let Some(places) = Directories::new(place) else { return };
    check_some_store_operations(
        sequences.unwrap_or_else(all),
        async |options| {
            let place = places.next();
            (open(&place, options).await.into_shared(), place)
        },
        async |store, options, place| {
            drop(store);
            open(place, options).await.into_shared()
        },
    );
}
