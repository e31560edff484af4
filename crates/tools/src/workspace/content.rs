//! The current content of a file that a tool is about to change.
//!
//! Start at [`load`].

use std::{fs::Metadata, io::Read};

use superstep_llm::ToolError;

use super::{Workspace, root::Found};
use crate::{
    call::{grouped, is_binary},
    text::{LineEnds, TextForm},
};

/// The maximum size of a file that is changed, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 4 << 20;

/// The current content of a file to be changed.
pub(crate) struct CurrentContent {
    /// The text without the byte order mark.
    pub(crate) text: String,
    pub(crate) form: TextForm,
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
    let form = TextForm::of(&bytes);
    let text = form.decode(&bytes).0.into_owned();
    if is_binary(text.as_bytes()) {
        return Err(binary(found, metadata.len()));
    }
    // An edit must not change the bytes of other lines.
    if form.encode(&text).is_none_or(|again| again != bytes) {
        let encoding = form.encoding.name();
        return Err(ToolError::Failed(format!("path '{shown}' is not {encoding} text and cannot be edited")));
    }
    Ok(CurrentContent { text, form, metadata })
}

impl CurrentContent {
    /// Returns the bytes of the file with another text.
    pub(crate) fn with(&self, found: &Found, text: &str) -> Result<Vec<u8>, ToolError> {
        self.form.encode(text).ok_or_else(|| {
            ToolError::Failed(format!(
                "path '{}' is {} text, which lacks some of the new characters",
                found.shown,
                self.form.encoding.name()
            ))
        })
    }

    /// Describes what a new text has taken over from the file, for the end of a result.
    pub(crate) fn kept(&self, is_adapted: bool, written: &str) -> String {
        let ends = if is_adapted { ", with the file's line ends \\r\\n" } else { "" };
        let encoding = self.form.name().map(|name| format!(", in {name}")).unwrap_or_default();
        let now = LineEnds::of(written);
        let is_mixed = now != LineEnds::of(&self.text) && now.crlf > 0 && !now.are_crlf();
        let mixed = now.note().filter(|_| is_mixed).map(|note| format!("; {note}")).unwrap_or_default();
        format!("{ends}{encoding}{mixed}")
    }
}

pub(crate) fn binary(found: &Found, len: u64) -> ToolError {
    ToolError::Failed(format!("path '{}' is a binary file of {} bytes, not text", found.shown, grouped(len)))
}
