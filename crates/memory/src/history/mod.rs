//! The history of turns in files, one for each user.
//!
//! Start at [`history_files::HistoryFiles`].

pub(crate) mod file;
pub(crate) mod history_files;
