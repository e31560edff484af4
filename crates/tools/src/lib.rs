//! Tools of an agent that works in one directory: list, read, search, edit and write files, run commands, read pages of the web,
//! keep a list of what is to be done, pin what must stay, calculate, report the time; and files of the program beside them.
//!
//! File tools cannot leave the directory: see [`Workspace`]. Start at [`all()`]. Without the feature `workspace` there are only
//! the files of the program: [`SpillFiles`].

#[cfg(feature = "workspace")]
mod all;
#[cfg(feature = "workspace")]
mod calculate;
#[cfg(feature = "workspace")]
mod call;
#[cfg(feature = "workspace")]
mod clock;
mod folders;
#[cfg(feature = "workspace")]
mod instructions;
#[cfg(feature = "workspace")]
mod pin;
#[cfg(feature = "workspace")]
mod question;
#[cfg(feature = "workspace")]
mod settings;
#[cfg(feature = "workspace")]
mod shell;
#[cfg(feature = "workspace")]
mod snapshots;
#[cfg(all(test, feature = "workspace"))]
mod testing;
#[cfg(feature = "workspace")]
mod text;
#[cfg(feature = "workspace")]
mod todo;
#[cfg(feature = "workspace")]
mod web;
#[cfg(feature = "workspace")]
mod workspace;

#[cfg(feature = "workspace")]
pub use all::{all, all_with};
#[cfg(feature = "workspace")]
pub use calculate::calculate;
#[cfg(feature = "workspace")]
pub use clock::current_time;
pub use folders::{spill_files::SpillFiles, thread_folders::make_private_folder};
#[cfg(feature = "workspace")]
pub use instructions::{FolderInstructions, FoundFile, FoundFiles, FoundKind, UserFolders};
#[cfg(feature = "workspace")]
pub use pin::pin;
#[cfg(feature = "workspace")]
pub use settings::{ShellSettings, ToolSettings, WebSettings};
#[cfg(feature = "workspace")]
pub use shell::{shell, shell_with};
#[cfg(feature = "workspace")]
pub use snapshots::{FileSnapshots, RestoreError, Restored};
#[cfg(feature = "workspace")]
pub use todo::todo;
#[cfg(feature = "workspace")]
pub use web::{fetch_url, fetch_url_with};
#[cfg(feature = "workspace")]
pub use workspace::{RESULTS, Workspace, edit_file, list_files, read_file, search_files, write_file};

/// Items shared with the other crates of superstep. Not for other use.
#[doc(hidden)]
pub mod internal {
    pub use crate::folders::{
        locks::{LockedFile, PATIENCE, blocking, keep_names, lock, locked, patiently, private},
        stored::{open_stored, read_stored},
        thread_folders::{ThreadFolders, UNFINISHED, clear_unfinished, lock_unfinished, user_name, user_of},
    };
    #[cfg(feature = "workspace")]
    pub use crate::workspace::{edit::edit_file_once, journal::EditJournal};
    pub use superstep_llm::internal::hash_of;
}
