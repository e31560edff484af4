//! Checks that only the user can have written a file.

use std::{
    env,
    ffi::OsString,
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

use superstep::tools::make_private_folder;

use crate::error::{ErrorKind, SessionError};

/// The advice for a rejected database.
pub(crate) const OTHER_DATABASE: &str = "use another database with `--db`";

/// The suffixes of a database and the files that SQLite creates beside it.
const FILES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// The variable with folders whose files count as the user's own, even if others own them or may write them. Several are separated as in
/// `PATH`.
const TRUSTED: &str = "SUPERSTEP_TRUST_FOLDER";

/// The folder of locks beside it, which has no content.
const LOCKS: &str = "-locks";

/// Checks a database and the existing files beside it.
///
/// # Errors
/// One of them is a link, a pipe or a device, belongs to another user, or is writable by others.
pub(crate) fn check_database(file: &Path) -> Result<(), SessionError> {
    let beside = |end: &str| {
        let mut path = OsString::from(file);
        path.push(end);
        PathBuf::from(path)
    };
    for end in FILES {
        check(&beside(end), OTHER_DATABASE)?;
    }
    match beside(LOCKS) {
        locks if locks.is_symlink() => check(&locks, OTHER_DATABASE),
        _ => Ok(()),
    }
}

/// Checks one file or folder, if it exists. `advice` names an alternative.
///
/// # Errors
/// See `check_database`.
pub fn check(path: &Path, advice: &str) -> Result<(), SessionError> {
    // A file that cannot be inspected cannot be opened either, and that error is more specific.
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    match problem(path, &there, advice) {
        Some(problem) => {
            Err(SessionError::new(ErrorKind::Database, format!("`{}` {problem}", path.display())))
        }
        None => Ok(()),
    }
}

/// Checks the folder of a database: others may create files there only if they cannot replace those of the
/// user.
///
/// # Errors
/// It is writable by everyone, or belongs to another user.
#[cfg(unix)]
pub(crate) fn check_folder_of(file: &Path) -> Result<(), SessionError> {
    use std::os::unix::fs::MetadataExt;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // A missing file is reported when the database is opened.
    let Ok(there) = fs::metadata(folder) else { return Ok(()) };
    if there.mode() & 0o1000 != 0 || is_trusted(folder) {
        return Ok(());
    }
    let problem = match (there.uid(), there.mode() & 0o002 != 0) {
        (owner, _) if ![0, me()].contains(&owner) => format!("belongs to another user (uid {owner})"),
        (_, true) => "is writable by everyone".to_owned(),
        (_, false) => return Ok(()),
    };
    let message = format!(
        "the folder `{}` {problem}; store the database in a folder of your own, or {}",
        folder.display(),
        trusting(folder)
    );
    Err(SessionError::new(ErrorKind::Database, message))
}

/// Returns the target of a link that the user named and made.
pub(crate) fn followed(path: PathBuf) -> PathBuf {
    match fs::symlink_metadata(&path) {
        Ok(there) if there.is_symlink() && (is_own(&there) || is_trusted(path.parent().unwrap_or(&path))) => {
            path.canonicalize().unwrap_or(path)
        }
        _ => path,
    }
}

/// Returns whether the user trusts everyone who may write in a folder, which may be that of the path.
fn is_trusted(path: &Path) -> bool {
    let Some(trusted) = env::var_os(TRUSTED) else { return false };
    let Ok(path) = path.canonicalize() else { return false };
    let folders = env::split_paths(&trusted).filter(|folder| folder.is_absolute());
    folders.into_iter().any(|folder| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder)))
}

#[cfg(unix)]
fn trusting(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let folder = crate::text::quoted(&folder.to_string_lossy());
    format!("set {TRUSTED}={folder} if you trust everyone who can write there")
}

/// Does nothing: this system has no such permissions.
#[cfg(not(unix))]
pub(crate) fn check_folder_of(_: &Path) -> Result<(), SessionError> {
    Ok(())
}

/// Returns the path of a file given by a plain path below a folder, existing or not; creates its parent
/// folders.
///
/// # Errors
/// A folder cannot be created; or a folder or the file is a link, which may lead out of the
/// folder.
pub fn below(folder: &Path, file: &Path) -> io::Result<PathBuf> {
    let mut path = folder.to_owned();
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        if parts.peek().is_some() {
            make_private_folder(&path)?;
        }
        if fs::symlink_metadata(&path).is_ok_and(|there| there.is_symlink()) {
            return Err(io::Error::other(format!("`{}` is a link", path.display())));
        }
    }
    Ok(path)
}

/// Returns the reason why a file is not the user's own, with the advice.
#[cfg(unix)]
fn problem(path: &Path, there: &Metadata, advice: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    if there.is_symlink() {
        let target = fs::read_link(path).unwrap_or_else(|_| PathBuf::from("?"));
        let target = target.display();
        return Some(format!(
            "is a link to `{target}`, and links are not followed here; remove it, or {advice}"
        ));
    }
    // A pipe would be waited for without an end.
    if !there.is_file() && !there.is_dir() {
        return Some(format!("is not a regular file; remove it, or {advice}"));
    }
    if is_trusted(path) {
        return None;
    }
    let folder = if there.is_dir() { path } else { path.parent().unwrap_or(path) };
    if there.uid() != me() {
        return Some(format!(
            "belongs to another user (uid {}); take it over with `chown` if you trust its content, {}, or {advice}",
            there.uid(),
            trusting(folder)
        ));
    }
    (there.mode() & 0o022 != 0).then(|| {
        let (mode, shown) = (there.mode() & 0o777, crate::text::quoted(&path.to_string_lossy()));
        format!(
            "can be written by other users (mode {mode:o}); if you trust its content, change that with `chmod go-w \
             {shown}`, {}, or {advice}",
            trusting(folder)
        )
    })
}

/// Returns whether a link is the user's own, or the administrator's.
#[cfg(unix)]
fn is_own(there: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    [0, me()].contains(&there.uid())
}

#[cfg(not(unix))]
fn is_own(_: &Metadata) -> bool {
    true
}

/// Checks for links only, on this system.
#[cfg(not(unix))]
fn problem(_: &Path, there: &Metadata, advice: &str) -> Option<String> {
    there.is_symlink().then(|| format!("is a link, and links are not followed here; remove it, or {advice}"))
}

#[cfg(unix)]
fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}
