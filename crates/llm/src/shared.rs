//! Tools and their helpers passed by value or shared.

use std::sync::Arc;

/// A value, or an `Arc` of one, that converts to an `Arc` of the trait object.
///
/// `T` is `dyn Tool`, `dyn ToolSource`, `dyn Spill`, `dyn Snapshots` or `dyn TokenCounter`. A setter that takes an
/// `impl IntoShared<dyn Tool>` accepts a tool as well as the `Arc` that several agents share. A
/// [`ChatModel`](crate::ChatModel) needs no conversion: an `Arc` of one is a model.
///
/// ```
/// # use std::sync::Arc;
/// use superstep_llm::{convert::IntoShared, tokens::{Estimate, TokenCounter}};
///
/// fn counter(counter: impl IntoShared<dyn TokenCounter>) -> Arc<dyn TokenCounter> {
///     counter.into_shared()
/// }
/// let shared = counter(Estimate);
/// assert!(Arc::ptr_eq(&shared, &counter(shared.clone())));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as `{T}`",
    note = "pass a value that implements the trait, an `Arc` of one, or an `Arc` of the trait object"
)]
pub trait IntoShared<T: ?Sized> {
    /// Returns the shared trait object.
    fn into_shared(self) -> Arc<T>;
}

/// Implements the conversions for traits.
macro_rules! into_shared {
    ($($shared:ident),*) => {$(
        impl<V: $shared + 'static> $crate::shared::IntoShared<dyn $shared> for V {
            fn into_shared(self) -> std::sync::Arc<dyn $shared> {
                std::sync::Arc::new(self)
            }
        }

        impl<V: $shared + 'static> $crate::shared::IntoShared<dyn $shared> for std::sync::Arc<V> {
            fn into_shared(self) -> std::sync::Arc<dyn $shared> {
                self
            }
        }

        impl $crate::shared::IntoShared<dyn $shared> for std::sync::Arc<dyn $shared> {
            fn into_shared(self) -> std::sync::Arc<dyn $shared> {
                self
            }
        }
    )*};
}

pub(crate) use into_shared;
