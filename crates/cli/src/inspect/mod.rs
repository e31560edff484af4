//! Threads as text, for the commands and for the chat.

pub(crate) mod differences;
pub(crate) mod drawing;
pub(crate) mod memory;
pub(crate) mod pins;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod text_file;
pub(crate) mod tools;
pub(crate) mod turns;
