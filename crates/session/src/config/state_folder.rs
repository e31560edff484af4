//! The user's state folder.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::{
    config::private,
    error::{ErrorKind, SessionError},
};

/// The variable that overrides the state folder.
const FOLDER: &str = "SUPERSTEP_STATE_DIR";

/// The advice where the state folder cannot be used.
pub(crate) const OTHER_FOLDER: &str = "name another folder with SUPERSTEP_STATE_DIR";

/// Returns the state folder; `None` if the environment has no location for one.
pub fn folder() -> Option<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The specification of these variables requires ignoring a relative path.
    let usual = || given("XDG_STATE_HOME").filter(|folder| folder.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local/state"));
    let folder = given(FOLDER).or_else(|| Some(usual().or_else(home)?.join("superstep")))?;
    Some(private::followed(folder))
}

/// Returns the folder of the user's own memory, and creates it if absent.
pub(crate) fn own_folder() -> Result<PathBuf, SessionError> {
    let folder = folder().ok_or_else(|| {
        SessionError::new(ErrorKind::Database, "no folder for it is known; name one with SUPERSTEP_STATE_DIR")
    })?;
    make_private(&folder).map_err(|cause| {
        let folder = folder.display();
        let message = format!(
            "the folder `{folder}` cannot be made: {cause}; name another one with SUPERSTEP_STATE_DIR"
        );
        SessionError::new(ErrorKind::Database, message)
    })?;
    private::check(&folder, "name another folder with SUPERSTEP_STATE_DIR")?;
    Ok(folder)
}

/// Creates a folder accessible by its owner only, if it is missing.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
