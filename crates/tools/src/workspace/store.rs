//! Atomic file writes: a reader sees the old content or the new, never a part.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use superstep_llm::ToolError;
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    content::{CurrentContent, load},
    root::{EditTurn, Found, PREFIX, is_leftover, replaced},
};
use crate::{
    call::check_stop,
    folders::held::{Folder, is_swapped},
};

/// Replaces a file by `content` if it is still the one that was read. Permissions are preserved.
pub(crate) fn replace(
    workspace: &Workspace,
    turn: &EditTurn<'_>,
    found: &Found,
    old: &CurrentContent,
    content: &[u8],
    stop: &CancellationToken,
) -> Result<(), ToolError> {
    let next = Next::new(workspace, PREFIX, found, old, content)?;
    clear(turn, &next.folder, Some(&next.file));
    next.take_place(workspace, old, stop).map_err(|(_, error)| error)
}

/// New content in a temporary file beside the file it will replace; removed on drop.
pub(crate) struct Next<'a> {
    // Dropped before the folder through which it is removed.
    file: NamedTempFile,
    folder: Folder,
    found: &'a Found,
}

impl<'a> Next<'a> {
    pub(crate) fn new(
        workspace: &Workspace,
        prefix: &str,
        found: &'a Found,
        old: &CurrentContent,
        content: &[u8],
    ) -> Result<Self, ToolError> {
        let folder = workspace.folder(directory(found)).map_err(failed(found))?;
        let mut file =
            tempfile::Builder::new().prefix(prefix).tempfile_in(folder.path()).map_err(failed(found))?;
        fill(&mut file, content).map_err(failed(found))?;
        file.as_file().set_permissions(old.metadata.permissions()).map_err(failed(found))?;
        Ok(Self { file, folder, found })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.real().join(self.file.path().file_name().expect("a file has a name"))
    }

    /// Renames itself over the file, if that is still the one that was read; otherwise it stays beside it.
    pub(crate) fn take_place(
        self,
        workspace: &Workspace,
        old: &CurrentContent,
        stop: &CancellationToken,
    ) -> Result<(), (Box<Self>, ToolError)> {
        let Self { file, folder, found } = self;
        // The last check before the rename. A change between the two by a program that ignores the lock would
        // be lost.
        let looked = check_stop(stop).and_then(|()| {
            let now = load(workspace, found)?;
            let unchanged = (now.form, &now.text) == (old.form, &old.text)
                && workspace.still_leads_to(found, &old.metadata);
            if unchanged { Ok(()) } else { Err(replaced(&found.shown)) }
        });
        if let Err(error) = looked {
            return Err((Box::new(Self { file, folder, found }), error));
        }
        match file.persist(folder.at(name(found))) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err((Box::new(Self { file: error.file, folder, found }), failed(found)(error.error)))
            }
        }
    }
}

/// Creates a new file and its missing parent directories.
pub(crate) fn create(
    workspace: &Workspace,
    turn: &EditTurn<'_>,
    found: &Found,
    content: &str,
    stop: &CancellationToken,
) -> Result<(), ToolError> {
    check_stop(stop)?;
    let folder = make_directories(workspace, directory(found))?;
    clear(turn, &folder, None);
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut next = builder.prefix(PREFIX).tempfile_in(folder.path()).map_err(failed(found))?;
    fill(&mut next, content.as_bytes()).map_err(failed(found))?;
    check_stop(stop)?;
    folder.check().map_err(failed(found))?;
    match next.persist_noclobber(folder.at(name(found))) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(replaced(&found.shown)),
        Err(error) => Err(failed(found)(error.error)),
    }
}

/// Removes temporary files of killed processes from a folder. Requires exclusive access, because another
/// writer's file could be removed. A failure only wastes disk space.
fn clear(turn: &EditTurn<'_>, folder: &Folder, except: Option<&NamedTempFile>) {
    let kept = except.and_then(|file| file.path().file_name());
    let Some(entries) = turn.is_alone().then(|| fs::read_dir(folder.path()).ok()).flatten() else { return };
    for name in entries.flatten().map(|entry| entry.file_name()) {
        if is_leftover(&name) && Some(&*name) != kept {
            let _ = fs::remove_file(folder.at(name));
        }
    }
}

/// Creates directories one by one, each inside of the one before, so that a concurrent swap for a link has no
/// effect.
pub(crate) fn make_directories(workspace: &Workspace, directory: &Path) -> Result<Folder, ToolError> {
    let Ok(below) = directory.strip_prefix(workspace.root()) else {
        let directory = directory.display();
        return Err(ToolError::Denied(format!("directory '{directory}' is outside the workspace root")));
    };
    let mut real = workspace.root().to_owned();
    let open = |real: &Path| {
        workspace.folder(real).map_err(|error| match (is_swapped(&error), error.kind()) {
            (true, _) => replaced(&workspace.show(real)),
            (false, io::ErrorKind::NotADirectory) => {
                ToolError::Failed(format!("path '{}' is not a directory", workspace.show(real)))
            }
            _ => ToolError::Failed(format!("path '{}' cannot be resolved: {error}", workspace.show(real))),
        })
    };
    let mut folder = open(&real)?;
    for name in below.components() {
        let made = fs::create_dir(folder.at(name));
        real.push(name);
        if let Err(error) = made.or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        }) {
            let shown = workspace.show(&real);
            return Err(ToolError::Failed(format!("directory '{shown}' cannot be made: {error}")));
        }
        folder = open(&real)?;
    }
    Ok(folder)
}

fn fill(next: &mut NamedTempFile, content: &[u8]) -> io::Result<()> {
    next.write_all(content)?;
    next.as_file().sync_all()
}

fn directory(found: &Found) -> &Path {
    found.real.parent().expect("a file below the root has a parent")
}

fn name(found: &Found) -> &Path {
    Path::new(found.real.file_name().expect("a file below the root has a name"))
}

fn failed(found: &Found) -> impl Fn(io::Error) -> ToolError {
    let shown = found.shown.clone();
    move |error| {
        if is_swapped(&error) {
            replaced(&shown)
        } else {
            ToolError::Failed(format!("path '{shown}' cannot be written: {error}"))
        }
    }
}
