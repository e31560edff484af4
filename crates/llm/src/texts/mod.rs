//! Texts of models: their printable form, and incomplete JSON.

pub(crate) mod halves;
pub(crate) mod nesting;
pub(crate) mod partial_json;
pub(crate) mod printable;
