//! Panics of user code, as errors.
//!
//! Start at [`Panicked`].

use std::any::Any;

/// A node that panicked.
#[derive(thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(pub String);

crate::debug_by_chain!(Panicked);

impl Panicked {
    /// Returns the message of a panic, if it has one.
    pub fn from_payload(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "with no message".to_owned()))
    }
}
