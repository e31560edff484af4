//! A memory in Markdown files that people can read and edit.
//!
//! Start at [`memory_files::MemoryFiles`].

pub(crate) mod bullets;
pub(crate) mod memory_files;
pub(crate) mod ranking;
