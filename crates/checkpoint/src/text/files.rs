//! The files of threads in a folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The end of the name of a file with a thread.
pub const FILE_END: &str = ".thread.jsonl";

/// Returns the files of threads in a folder, whose names end with `.thread.jsonl`, in the order of their names; of a file, itself.
/// Folders inside of the folder are not read.
///
/// # Errors
/// The folder cannot be read, or there is no such file.
pub fn files(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    let path = path.as_ref();
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_thread = entry.file_name().to_str().is_some_and(|name| name.ends_with(FILE_END));
        // A link that leads nowhere is an error where it is read, so that the other files are read.
        let is_other = fs::metadata(entry.path()).is_ok_and(|found| !found.is_file());
        if is_thread && !is_other {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
