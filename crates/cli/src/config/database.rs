//! The section `db` of a configuration.

use serde::{Deserialize, Serialize};
use superstep::sqlite::{SqliteOptions, Synchronous};

/// The database settings of a configuration. A promise: threads store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Database {
    synchronous: Level,
}

/// The supported levels of SQLite's `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    #[default]
    Normal,
    Full,
}

impl Database {
    pub(crate) fn options(self) -> SqliteOptions {
        let synchronous = match self.synchronous {
            Level::Normal => Synchronous::Effects,
            Level::Full => Synchronous::Commits,
        };
        SqliteOptions::new().synchronous(synchronous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse;

    #[test]
    fn a_configuration_sets_when_the_database_is_synced() {
        let read = |toml: &str| parse(toml).map(|read| read.db.options().synchronous);
        assert_eq!(read(""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]"), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"normal\""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"full\""), Ok(Synchronous::Commits));
        let wrong = "does not fit: line 2, column 15: `db.synchronous`: unknown variant `off`, expected `normal` or `full`";
        assert_eq!(read("[db]\nsynchronous = \"off\""), Err(wrong.to_owned()));
    }
}
