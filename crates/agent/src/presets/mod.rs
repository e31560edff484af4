//! Presets: named configurations, and reading a configuration that is based on one.
//!
//! Start at [`named::PRESETS`].

pub(crate) mod named;
pub(crate) mod read;
pub(crate) mod single_round;

pub use self::named::{PRESETS, Preset};
