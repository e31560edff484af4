//! The argument that names a database.
//!
//! Start at [`DbArg`].

use std::{ffi::OsString, fmt};

use clap::builder::{OsStringValueParser, TypedValueParser};

/// The environment variable with the database of commands without `--db`.
pub(crate) const VARIABLE: &str = "SUPERSTEP_DB";

/// The value of `--db`: a path or a URL. A URL has a password, so that no output contains it.
#[derive(Clone)]
pub(crate) struct DbArg(pub(crate) OsString);

impl fmt::Debug for DbArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_server() {
            true => f.write_str("a PostgreSQL database"),
            false => self.0.fmt(f),
        }
    }
}

impl DbArg {
    /// Returns whether it is a URL.
    pub(crate) fn is_server(&self) -> bool {
        let text = self.0.to_string_lossy();
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }
}

/// Reads a path or a URL.
pub(crate) fn database() -> impl TypedValueParser<Value = DbArg> {
    OsStringValueParser::new().map(DbArg)
}
