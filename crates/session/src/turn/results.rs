//! Tool results too long for the conversation: files in the folder of the tools, separate for each thread.

use std::path::Path;

use superstep::tools::{RESULTS, SpillFiles};

use crate::error::{ErrorKind, SessionError};

pub fn open(cwd: &Path) -> Result<SpillFiles, SessionError> {
    SpillFiles::new(cwd, RESULTS).map_err(|cause| SessionError::unusable_folder(cwd, &cause))
}

pub fn delete(cwd: &Path, thread: &str) -> Result<(), SessionError> {
    open(cwd)?.delete(thread).map_err(|cause| {
        let place = cwd.join(RESULTS);
        let message =
            format!("the long tool results of thread `{thread}` in `{}` are left: {cause}", place.display());
        SessionError::new(ErrorKind::Failed, message)
    })
}
