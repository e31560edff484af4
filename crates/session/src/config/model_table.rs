//! The table of models: that of this version, and the user's own over it.
//!
//! Start at [`table`].

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep::llm::models::ModelTable;

use crate::{config::file, error::SessionError};

/// Returns the table, with `superstep/models.toml` of the user's configuration folder over that of this version.
///
/// # Errors
/// The file exists and cannot be used.
pub fn table() -> Result<Arc<ModelTable>, SessionError> {
    match own_file() {
        Some(file) => over(&file),
        None => Ok(ModelTable::embedded()),
    }
}

/// Returns the path of the user's table; `None` if the environment has no location for it.
pub(crate) fn own_file() -> Option<PathBuf> {
    // The specification of this variable requires ignoring a relative path.
    let given = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".config"));
    Some(given.or_else(home)?.join("superstep/models.toml"))
}

fn over(file: &Path) -> Result<Arc<ModelTable>, SessionError> {
    if matches!(fs::metadata(file), Err(cause) if cause.kind() == io::ErrorKind::NotFound) {
        return Ok(ModelTable::embedded());
    }
    let failed =
        |what: String| SessionError::usage(format!("the table of models `{}` {what}", file.display()));
    let text = file::text(file).map_err(failed)?;
    let own = ModelTable::parse(&text).map_err(|error| failed(format!("cannot be used: {error}")))?;
    Ok(Arc::new(ModelTable::embedded().with(&own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_table_is_over_that_of_this_version() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("models.toml");
        assert_eq!(over(&file).unwrap(), ModelTable::embedded(), "a missing file is no error");
        fs::write(&file, "[[model]]\nid = \"gpt-5\"\nwindow = 1000\n[[model]]\nid = \"own\"").unwrap();
        let table = over(&file).unwrap();
        assert_eq!(table.find("gpt-5").unwrap().window, Some(1000));
        assert!(table.find("own").is_some() && table.find("gpt-5-mini").is_some());
        fs::write(&file, "[[model]]\nid = \"a\"\nwindw = 1").unwrap();
        let wrong = over(&file).unwrap_err().message;
        assert!(wrong.contains("models.toml` cannot be used: ") && wrong.contains("`windw`"), "{wrong}");
        assert!(over(folder.path()).unwrap_err().message.ends_with("is not a regular file"));
    }
}
