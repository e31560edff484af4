//! Files and folders below a root, opened so that a concurrent swap for a link cannot lead outside.
//!
//! On Linux everything is opened relative to the open root by `openat2`, which follows no link and does not
//! leave the root; entries of a folder are addressed through the open folder. On other systems, and where
//! `openat2` or `/proc` is missing, a path is checked before and after its use.

#[cfg(feature = "workspace")]
use std::fs::File;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[cfg(target_os = "linux")]
use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

#[cfg(target_os = "linux")]
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// The open root.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// Canonical.
    path: PathBuf,
    #[cfg(target_os = "linux")]
    open: Option<Arc<OwnedFd>>,
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The canonical path at which it was found.
    real: PathBuf,
    /// The path through which its entries are accessed.
    by: PathBuf,
    #[cfg(target_os = "linux")]
    open: Option<OwnedFd>,
}

impl Root {
    /// Opens the root at the canonical `path`.
    ///
    /// # Errors
    /// The path contains a link by now.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            #[cfg(target_os = "linux")]
            open: linux::root(path)?.map(Arc::new),
        })
    }

    /// Opens a file for reading; the caller checks that it is a regular file.
    #[cfg(feature = "workspace")]
    pub(crate) fn file(&self, real: &Path) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        if let Some(root) = &self.open {
            // Opening a FIFO must not block.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            return Ok(linux::open(root, self.below(real)?, flags)?.into());
        }
        File::open(real)
    }

    /// Opens a folder, or the root itself.
    pub(crate) fn folder(&self, real: &Path) -> io::Result<Folder> {
        #[cfg(target_os = "linux")]
        if let Some(root) = &self.open {
            let open = linux::open(root, self.below(real)?, OFlags::PATH | OFlags::DIRECTORY)?;
            let by = Path::new(linux::OPEN).join(open.as_raw_fd().to_string());
            return Ok(Folder { real: real.to_owned(), by, open: Some(open) });
        }
        let folder = Folder {
            real: real.to_owned(),
            by: real.to_owned(),
            #[cfg(target_os = "linux")]
            open: None,
        };
        folder.check()?;
        Ok(folder)
    }

    #[cfg(target_os = "linux")]
    fn below<'a>(&self, real: &'a Path) -> io::Result<&'a Path> {
        let below = real.strip_prefix(&self.path).map_err(|_| io::Error::from(Errno::XDEV))?;
        Ok(if below.as_os_str().is_empty() { Path::new(".") } else { below })
    }
}

impl Folder {
    /// Returns the canonical path at which it was found.
    #[cfg(feature = "workspace")]
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }

    /// Returns a path to the folder itself that stays valid while this is held open.
    #[cfg(feature = "workspace")]
    pub(crate) fn path(&self) -> &Path {
        &self.by
    }

    /// Returns the path of an entry.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.by.join(name)
    }

    /// Checks that an entry accessed by its path was in this folder.
    pub(crate) fn check(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if self.open.is_some() {
            return Ok(());
        }
        if fs::symlink_metadata(&self.real)?.is_dir() && self.real.canonicalize()? == self.real {
            Ok(())
        } else if self.real.is_dir() {
            Err(io::Error::other(ReplacedFolder))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }
}

/// Returns the error for a folder whose path contains a link by now.
pub(crate) fn leads_elsewhere() -> io::Error {
    io::Error::other("its path contains a link")
}

/// A folder was replaced by a link.
#[derive(Debug, thiserror::Error)]
#[error("it was replaced while it was in use")]
struct ReplacedFolder;

/// Returns whether opening failed because a path component was replaced by a link.
#[cfg(feature = "workspace")]
pub(crate) fn is_swapped(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if let Some(error) = Errno::from_io_error(error) {
        return matches!(error, Errno::LOOP | Errno::XDEV | Errno::AGAIN);
    }
    error.get_ref().is_some_and(|error| error.is::<ReplacedFolder>())
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;

    /// The directory that lists a process's open files.
    pub(super) const OPEN: &str = "/proc/self/fd";

    /// Opens the root, if the system can confine lookups to it.
    pub(super) fn root(path: &Path) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let root = match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve) {
            Ok(root) => root,
            Err(Errno::LOOP) => return Err(leads_elsewhere()),
            Err(_) => return Ok(None),
        };
        let is_usable = open(&root, Path::new("."), flags).is_ok()
            && Path::new(OPEN).join(root.as_raw_fd().to_string()).is_dir();
        Ok(is_usable.then_some(root))
    }

    pub(super) fn open(root: &OwnedFd, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        Ok(rustix::fs::openat2(root, below, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }
}
