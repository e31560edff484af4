//! Reading one file that may have come from another person.

use std::{fs, io, path::Path};

use superstep_llm::instructions::FileProblem;

use crate::folders::stored::read_stored;

/// Maximum size of a file in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 10;

/// A file and its hash.
#[derive(Clone, Debug)]
pub(super) struct TextFile {
    pub(super) text: String,
    pub(super) hash: String,
}

/// Reads a regular file of UTF-8 text, not through a link; `None` if there is none.
///
/// # Errors
/// The file is a link, not regular, too long or not UTF-8, or cannot be read.
pub(super) fn read(path: &Path) -> Result<Option<TextFile>, FileProblem> {
    let wrong = |problem: String| FileProblem { path: path.to_string_lossy().into_owned(), problem };
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(cause) => return Err(wrong(format!("cannot be read: {cause}"))),
    };
    if there.is_symlink() {
        return Err(wrong("is a link, and links are not followed".to_owned()));
    }
    if !there.is_file() {
        return Err(wrong("is not a regular file".to_owned()));
    }
    if there.len() > MAX_FILE_BYTES {
        return Err(wrong("is longer than 256 KiB".to_owned()));
    }
    let content = read_stored(path, MAX_FILE_BYTES);
    let content = content.map_err(|cause| wrong(format!("cannot be read: {cause}")))?;
    let text = String::from_utf8(content).map_err(|_| wrong("is not UTF-8 text".to_owned()))?;
    let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    Ok(Some(TextFile { text, hash }))
}

/// Returns whether each folder of a relative path below `base` is one, and not a link.
pub(super) fn is_plain_folder(base: &Path, below: &Path) -> bool {
    let mut path = base.to_owned();
    below.components().all(|part| {
        path.push(part);
        fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir())
    })
}
