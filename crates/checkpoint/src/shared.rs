//! Backends passed by value or shared.

use std::sync::Arc;

use crate::{Checkpointer, Clock};

/// A backend, or an `Arc` of one, that converts to an `Arc` of the trait object.
///
/// `T` is `dyn Checkpointer`, `dyn Store`, `dyn Clock` or `dyn Embed`. A setter that takes an `impl IntoShared<dyn Checkpointer>`
/// accepts `MemoryCheckpointer::new()` as well as the `Arc` that several graphs share.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as `{T}`",
    note = "pass a value that implements the trait, an `Arc` of one, or an `Arc` of the trait object"
)]
pub trait IntoShared<T: ?Sized> {
    /// Returns the shared trait object.
    fn into_shared(self) -> Arc<T>;
}

// Not `Into<Arc<dyn ..>>`: the `Arc` of a concrete type does not implement that, and only the standard library could
// add it.
/// Implements the conversions for traits.
macro_rules! into_shared {
    ($($backend:ident),*) => {$(
        impl<B: $backend> IntoShared<dyn $backend> for B {
            fn into_shared(self) -> Arc<dyn $backend> {
                Arc::new(self)
            }
        }

        impl<B: $backend> IntoShared<dyn $backend> for Arc<B> {
            fn into_shared(self) -> Arc<dyn $backend> {
                self
            }
        }

        impl IntoShared<dyn $backend> for Arc<dyn $backend> {
            fn into_shared(self) -> Arc<dyn $backend> {
                self
            }
        }
    )*};
}

pub(crate) use into_shared;

into_shared!(Checkpointer, Clock);
