//! Long-term memories of an agent, the history of its turns, and dreams, which consolidate the history into a memory.
//!
//! Start at [`StoreMemory`] or [`MemoryFiles`]; both implement [`LongTermMemory`](superstep_agent::deps::LongTermMemory).

#[cfg(feature = "dream")]
mod dream;
#[cfg(any(feature = "model2vec", feature = "openai"))]
mod embeddings;
mod entry_texts;
mod files;
mod history;
#[cfg(feature = "mem0")]
mod mem0;
mod memory_tools;
mod stored;

#[cfg(feature = "dream")]
pub use dream::config::{DreamConfig, Due};
#[cfg(feature = "dream")]
pub use dream::cursor::{DreamCursor, LastDream};
#[cfg(feature = "dream")]
pub use dream::dreams::{Dream, DreamError, DreamResult, Dreams};
#[cfg(feature = "dream")]
pub use dream::events::{DreamEnd, DreamEvent};
#[cfg(feature = "dream")]
pub use dream::state::{DreamState, DreamStateUpdate};
#[cfg(feature = "model2vec")]
pub use embeddings::model2vec::{Model2Vec, Model2VecError};
#[cfg(feature = "openai")]
pub use embeddings::openai::{EmbeddingsConfig, OpenAiEmbeddings};
pub use entry_texts::MAX_MEMORY_CHARS;
pub use files::memory_files::MemoryFiles;
pub use history::file::{HistoryPlace, Unread};
pub use history::history_files::HistoryFiles;
#[cfg(feature = "mem0")]
pub use mem0::client::Mem0;
#[cfg(feature = "mem0")]
pub use mem0::config::{Mem0Config, Mem0ConfigError, Mem0Form};
pub use memory_tools::memory_tools;
pub use stored::{MIN_COSINE, StoreMemory};
