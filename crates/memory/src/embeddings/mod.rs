//! Embeddings of texts: on a server, and in this process.

#[cfg(feature = "openai")]
mod answer;
#[cfg(feature = "model2vec")]
pub(crate) mod model2vec;
#[cfg(feature = "openai")]
pub(crate) mod openai;
