//! Tool results too long for the conversation: files in the folder of the tools, separate for each thread.

use std::path::Path;

use superstep::tools::{RESULTS, SpillFiles};

use crate::output::exit::{Exit, Failure};

pub(crate) fn open(cwd: &Path) -> Result<SpillFiles, Failure> {
    SpillFiles::new(cwd, RESULTS).map_err(|cause| Failure::unusable_folder(cwd, &cause))
}

pub(crate) fn delete(cwd: &Path, thread: &str) -> Result<(), Failure> {
    open(cwd)?.delete(thread).map_err(|cause| {
        let place = cwd.join(RESULTS);
        let message =
            format!("the long tool results of thread `{thread}` in `{}` are left: {cause}", place.display());
        Failure::new(Exit::Failed, message)
    })
}
