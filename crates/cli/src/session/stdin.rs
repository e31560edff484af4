//! Inputs of the command line that may be on stdin or in a file.

use std::{
    fs::File,
    io::{self, Read},
};

use serde_json::Value;
use superstep_session::error::SessionError;

/// Maximum size of a JSON input in bytes.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Returns whether stdin is a pipe or a file. It is not read without a request: that may never end, or
/// consume the input of a script's loop.
pub(crate) fn is_piped() -> bool {
    #[cfg(unix)]
    {
        use std::os::{fd::AsFd, unix::fs::FileTypeExt};
        let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let kind = stdin.and_then(|stdin| stdin.metadata()).map(|metadata| metadata.file_type());
        kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file())
    }
    #[cfg(not(unix))]
    false
}

/// Reads JSON: the given text, the content of `@FILE`, or stdin for `-`. `what` names it in an error.
///
/// # Errors
/// It cannot be read, is too long, or is not valid JSON; with the line and column of the problem.
pub(crate) fn read_json(what: &str, given: &str) -> Result<Value, SessionError> {
    let text = match given.strip_prefix('@') {
        Some(file) => {
            let unread = |cause: io::Error| {
                SessionError::usage(format!("the {what} `{file}` cannot be read: {cause}"))
            };
            read(what, File::open(file).map_err(unread)?)?
        }
        None if given == "-" => read(what, io::stdin().lock())?,
        None => without_mark(given.to_owned()),
    };
    serde_json::from_str(&text).map_err(|error| {
        let hint = if given.starts_with(['{', '[', '"', '@', '-']) {
            ""
        } else {
            "; a text is in quotes: '\"yes\"'"
        };
        SessionError::usage(format!("the {what} is not valid JSON: {error}{hint}"))
    })
}

fn read(what: &str, from: impl Read) -> Result<String, SessionError> {
    let mut bytes = Vec::new();
    let unread = |cause: io::Error| SessionError::usage(format!("the {what} cannot be read: {cause}"));
    from.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return Err(SessionError::usage(format!("the {what} is longer than {} MiB", MAX_JSON_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| SessionError::usage(format!("the {what} is not valid UTF-8")))?;
    Ok(without_mark(text))
}

/// Removes the byte order mark that some programs write before a text.
pub(crate) fn without_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(text) => text.to_owned(),
        None => text,
    }
}
