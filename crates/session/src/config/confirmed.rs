//! The files of folders that the user has confirmed on this machine, by path and hash.
//!
//! A folder may come from another person, for example as a repository: its settings could start programs, and its instructions mislead
//! the model. Therefore each of its files counts once the user has confirmed it, and after a change once more.
//!
//! Start at [`Confirmed`].

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    config::{
        file, private,
        state_folder::{self, OTHER_FOLDER},
    },
    error::{ErrorKind, SessionError},
};

/// The time of the last change and the size in bytes of the stored confirmations, `None` without any: if it differs, they may too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    /// Returns the one of now.
    pub(crate) fn now() -> Self {
        let there = place().and_then(|place| fs::metadata(place).ok());
        Self(there.and_then(|there| Some((there.modified().ok()?, there.len()))))
    }
}

/// The confirmed hashes by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confirmed(BTreeMap<String, String>);

impl Confirmed {
    /// Reads them.
    ///
    /// # Errors
    /// The file is damaged, or writable by others.
    pub(crate) fn read() -> Result<Self, SessionError> {
        let Some(place) = place() else { return Ok(Self::default()) };
        for path in [place.parent(), Some(&*place)].into_iter().flatten() {
            private::check(path, OTHER_FOLDER)?;
        }
        let is_absent = |cause: &io::Error| {
            matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        if fs::symlink_metadata(&place).is_err_and(|cause| is_absent(&cause)) {
            return Ok(Self::default());
        }
        let wrong = |what: String| {
            let message = format!(
                "`{}`, which stores what you confirmed, {what}; remove it to confirm again",
                place.display()
            );
            SessionError::new(ErrorKind::Database, message)
        };
        let text = file::text(&place).map_err(wrong)?;
        let read = serde_json::from_str(&text).map_err(|cause| wrong(format!("cannot be read: {cause}")))?;
        Ok(Self(read))
    }

    /// Returns whether the user confirmed the file at a path with this hash.
    pub(crate) fn has(&self, path: &Path, hash: &str) -> bool {
        self.0.get(&key(path)).is_some_and(|known| known == hash)
    }

    /// Adds files, and removes those that do not exist any more.
    ///
    /// # Errors
    /// Nothing can be stored.
    pub(crate) fn add(
        mut self,
        files: impl IntoIterator<Item = (PathBuf, String)>,
    ) -> Result<(), SessionError> {
        let place = place().ok_or_else(|| {
            let what = "no folder for your decisions is known; name one with SUPERSTEP_STATE_DIR";
            SessionError::new(ErrorKind::Failed, what)
        })?;
        // A file of a folder that is not mounted now stays.
        let is_gone = |path: &Path| path.parent().is_some_and(Path::is_dir) && !path.exists();
        self.0.retain(|path, _| !is_gone(Path::new(path)));
        self.0.extend(files.into_iter().map(|(path, hash)| (key(&path), hash)));
        let folder = place.parent().unwrap_or(Path::new("."));
        let text = serde_json::to_string_pretty(&self.0).expect("texts have a JSON form");
        if text.len() as u64 > file::MAX_CONFIG_BYTES {
            let what = "more files would be confirmed than can be stored, which is 1 MiB of paths and hashes";
            return Err(SessionError::usage(what));
        }
        let write = || {
            state_folder::make_private(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(text.as_bytes())?;
            file.persist(&place)?;
            Ok(())
        };
        write().map_err(|cause: io::Error| {
            let what = format!("`{}` cannot be written: {cause}; {OTHER_FOLDER}", place.display());
            SessionError::new(ErrorKind::Failed, what)
        })
    }
}

fn key(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The file. A promise.
fn place() -> Option<PathBuf> {
    Some(state_folder::folder()?.join("confirmed.json"))
}
