//! The section `db` of a configuration.

use serde::Deserialize;
use superstep::sqlite::{SqliteOptions, Synchronous};

use crate::config::settings::Chosen;

/// The database settings' key in a configuration.
pub(crate) const KEY: &str = "db";

/// The database settings of a configuration. A promise: threads store them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Writing {
    synchronous: Level,
}

/// The levels of SQLite's `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    #[default]
    Normal,
    Full,
}

/// Returns the database settings of a configuration.
///
/// # Errors    The problem with them.
pub(crate) fn options(chosen: &Chosen) -> Result<SqliteOptions, String> {
    let writing = match chosen.get(KEY) {
        None => Writing::default(),
        Some(writing) => Writing::deserialize(writing).map_err(|error| format!("`{KEY}`: {error}"))?,
    };
    let synchronous = match writing.synchronous {
        Level::Normal => Synchronous::Effects,
        Level::Full => Synchronous::Commits,
    };
    Ok(SqliteOptions { synchronous, ..SqliteOptions::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_when_the_database_is_synced() {
        let read = |toml: &str| options(&toml::from_str(toml).unwrap()).map(|options| options.synchronous);
        assert_eq!(read(""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]"), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"normal\""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"full\""), Ok(Synchronous::Commits));
        for (wrong, why) in [
            ("[db]\nsynchronous = \"off\"", "`db`: unknown variant `off`, expected `normal` or `full`"),
            ("[db]\nsynchronus = \"full\"", "`db`: unknown field `synchronus`, expected `synchronous`"),
            ("db = \"full\"", "`db`: invalid type: string \"full\", expected struct Writing"),
        ] {
            assert_eq!(read(wrong), Err(why.to_owned()));
        }
    }
}
