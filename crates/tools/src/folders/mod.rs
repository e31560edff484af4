//! Files and folders that the program has for itself: locks, a folder for each thread, long tool results.
//!
//! Start at [`ThreadFolders`](thread_folders::ThreadFolders).

pub(crate) mod held;
pub(crate) mod locks;
pub(crate) mod spill_files;
pub(crate) mod stored;
pub(crate) mod thread_folders;
