//! Embeddings of texts: on a server, and in this process.

#[cfg(feature = "openai")]
mod answer;
#[cfg(feature = "openai")]
pub(crate) mod openai;
