//! The current content of a file that a tool is about to change.
//!
//! Start at [`load`].

use std::{fs::Metadata, io::Read};

use superstep_llm::ToolError;

use super::{Workspace, root::Found};
use crate::call::{grouped, is_binary};

/// The maximum size of a file that is changed, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 4 << 20;

/// The current content of a file to be changed.
pub(crate) struct CurrentContent {
    pub(crate) text: String,
    pub(crate) metadata: Metadata,
}

pub(crate) fn load(workspace: &Workspace, found: &Found) -> Result<CurrentContent, ToolError> {
    let (file, metadata) = workspace.open_file(found)?;
    let shown = &found.shown;
    if metadata.permissions().readonly() {
        return Err(ToolError::Denied(format!("path '{shown}' is read-only")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ToolError::Failed(format!("path '{shown}' cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolError::Failed(format!(
            "path '{shown}' is larger than {} bytes, too large to edit",
            grouped(MAX_FILE_BYTES)
        )));
    }
    if is_binary(&bytes) {
        return Err(binary(found, metadata.len()));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| ToolError::Failed(format!("path '{shown}' is not UTF-8 text and cannot be edited")))?;
    Ok(CurrentContent { text, metadata })
}

pub(crate) fn binary(found: &Found, len: u64) -> ToolError {
    ToolError::Failed(format!("path '{}' is a binary file of {} bytes, not text", found.shown, grouped(len)))
}
