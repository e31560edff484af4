//! Instructions of a user and of a folder, and skills, read from files.
//!
//! Start at [`FolderInstructions`](folder::FolderInstructions).

pub(crate) mod folder;
mod front_matter;
mod read;
mod skills;

pub use self::folder::{FolderInstructions, FoundFile, FoundFiles, FoundKind, UserFolders};
