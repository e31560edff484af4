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

impl<C: Checkpointer> IntoShared<dyn Checkpointer> for C {
    fn into_shared(self) -> Arc<dyn Checkpointer> {
        Arc::new(self)
    }
}

impl<C: Checkpointer> IntoShared<dyn Checkpointer> for Arc<C> {
    fn into_shared(self) -> Arc<dyn Checkpointer> {
        self
    }
}

impl IntoShared<dyn Checkpointer> for Arc<dyn Checkpointer> {
    fn into_shared(self) -> Arc<dyn Checkpointer> {
        self
    }
}

impl<C: Clock> IntoShared<dyn Clock> for C {
    fn into_shared(self) -> Arc<dyn Clock> {
        Arc::new(self)
    }
}

impl<C: Clock> IntoShared<dyn Clock> for Arc<C> {
    fn into_shared(self) -> Arc<dyn Clock> {
        self
    }
}

impl IntoShared<dyn Clock> for Arc<dyn Clock> {
    fn into_shared(self) -> Arc<dyn Clock> {
        self
    }
}
