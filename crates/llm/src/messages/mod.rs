//! Messages, and what they carry: media, and the fields of the provider that sent them.

pub(crate) mod chat_json;
pub(crate) mod extras;
pub mod media;
pub(crate) mod message;
pub(crate) mod origin;
#[cfg(feature = "openai")]
pub(crate) mod wire_ids;
