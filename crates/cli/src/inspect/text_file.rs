//! A thread as a file of text.
//!
//! Start at [`write`].

use std::{fs::OpenOptions, io::BufWriter, path::Path};

use superstep::{
    Checkpointer, ThreadId,
    checkpoint::text::{self, ExportOptions},
};
use superstep_session::error::{ErrorKind, SessionError};

/// Writes the text of a thread, as `export` prints it, to a file that does not exist yet. Only its owner can read it.
///
/// # Errors
/// The file exists or cannot be written, or the thread cannot be read.
pub(crate) async fn write(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    file: &Path,
) -> Result<(), SessionError> {
    let failed = |cause: std::io::Error| {
        let message = format!("cannot write `{}`: {cause}", file.display());
        SessionError::new(ErrorKind::Failed, message)
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = BufWriter::new(options.open(file).map_err(failed)?);
    text::export_to(store, thread, &ExportOptions::new(), &mut out).await?;
    Ok(())
}
