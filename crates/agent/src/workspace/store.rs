//! Writing a file in one step: whoever reads it sees the old content or the new, and never a part.

use std::{
    fs::{self, Metadata},
    io::{self, Write},
    path::Path,
};

use superstep_llm::ToolError;
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::{
    check_stop,
    root::{Found, Workspace, replaced},
};

/// How the names of files begin that are about to take the place of others.
pub(super) const PREFIX: &str = ".superstep-edit-";

/// The same of files that a note tells of: whoever clears the notes away removes these, and none of an edit that is being made
/// without one.
pub(super) const NOTED_PREFIX: &str = ".superstep-noted-";

/// Puts `content` in the place of a file, if that still is the one whose metadata was read. Permissions are kept.
pub(super) fn replace(
    workspace: &Workspace,
    found: &Found,
    read: &Metadata,
    content: &str,
    stop: &CancellationToken,
) -> Result<(), ToolError> {
    Next::new(PREFIX, found, read, content)?.take_place(workspace, read, stop).map_err(|(_, error)| error)
}

/// A new content that stands beside the file whose place it is to take; removed if it does not.
pub(super) struct Next<'a> {
    file: NamedTempFile,
    found: &'a Found,
}

impl<'a> Next<'a> {
    pub(super) fn new(
        prefix: &str,
        found: &'a Found,
        read: &Metadata,
        content: &str,
    ) -> Result<Self, ToolError> {
        let mut file =
            tempfile::Builder::new().prefix(prefix).tempfile_in(directory(found)).map_err(failed(found))?;
        fill(&mut file, content).map_err(failed(found))?;
        file.as_file().set_permissions(read.permissions()).map_err(failed(found))?;
        Ok(Self { file, found })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Takes the place of the file, if that still is the one whose metadata was read; else it still stands beside it.
    pub(super) fn take_place(
        self,
        workspace: &Workspace,
        read: &Metadata,
        stop: &CancellationToken,
    ) -> Result<(), (Self, ToolError)> {
        let Self { file, found } = self;
        // The last look before the rename. Between the two, a change by another program would still be lost.
        let looked = check_stop(stop).and_then(|()| {
            let (_, now) = workspace.open_file(found)?;
            let unchanged = now.len() == read.len()
                && now.modified().ok() == read.modified().ok()
                && workspace.still_leads_to(found, read);
            if unchanged { Ok(()) } else { Err(replaced(&found.shown)) }
        });
        if let Err(error) = looked {
            return Err((Self { file, found }, error));
        }
        match file.persist(&found.real) {
            Ok(_) => Ok(()),
            Err(error) => Err((Self { file: error.file, found }, failed(found)(error.error))),
        }
    }
}

/// Makes a file where nothing is, and the directories that are missing on the way to it.
pub(super) fn create(
    workspace: &Workspace,
    found: &Found,
    content: &str,
    stop: &CancellationToken,
) -> Result<(), ToolError> {
    check_stop(stop)?;
    let directory = directory(found);
    make_directories(workspace, directory)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut next = builder.prefix(PREFIX).tempfile_in(directory).map_err(failed(found))?;
    fill(&mut next, content).map_err(failed(found))?;
    check_stop(stop)?;
    stays(workspace, directory)?;
    match next.persist_noclobber(&found.real) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(replaced(&found.shown)),
        Err(error) => Err(failed(found)(error.error)),
    }
}

/// One after the other, so that a link which takes the place of one is seen before anything is made behind it.
pub(super) fn make_directories(workspace: &Workspace, directory: &Path) -> Result<(), ToolError> {
    if !directory.starts_with(workspace.root()) {
        let directory = directory.display();
        return Err(ToolError::Denied(format!("directory '{directory}' is outside the workspace root")));
    }
    let above = directory.ancestors().take_while(|dir| *dir != workspace.root());
    for dir in above.collect::<Vec<_>>().into_iter().rev() {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let shown = workspace.show(dir);
                return Err(ToolError::Failed(format!("directory '{shown}' cannot be made: {error}")));
            }
            Ok(()) | Err(_) => stays(workspace, dir)?,
        }
    }
    Ok(())
}

/// Makes sure that a path is that of a directory, without a link in it.
fn stays(workspace: &Workspace, directory: &Path) -> Result<(), ToolError> {
    let shown = || workspace.show(directory);
    match directory.canonicalize() {
        Ok(real) if real != directory => Err(replaced(&shown())),
        Ok(real) if real.is_dir() => Ok(()),
        Ok(_) => Err(ToolError::Failed(format!("path '{}' is no directory", shown()))),
        Err(error) => Err(ToolError::Failed(format!("path '{}' cannot be resolved: {error}", shown()))),
    }
}

fn fill(next: &mut NamedTempFile, content: &str) -> io::Result<()> {
    next.write_all(content.as_bytes())?;
    next.as_file().sync_all()
}

fn directory(found: &Found) -> &Path {
    found.real.parent().expect("a file below the root has a parent")
}

fn failed(found: &Found) -> impl Fn(io::Error) -> ToolError {
    let shown = found.shown.clone();
    move |error| ToolError::Failed(format!("path '{shown}' cannot be written: {error}"))
}
