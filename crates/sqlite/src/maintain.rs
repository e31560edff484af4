//! The file as a whole: its size, its integrity, and its free space.

use superstep_checkpoint::{CheckpointError, Storage};

use crate::{database::Database, error};

/// The maximum number of damages that are named.
const DAMAGES: u32 = 3;

impl Database {
    /// Returns the size of the file and of its free pages.
    pub(crate) fn storage(&self) -> Result<Storage, CheckpointError> {
        let pages = "SELECT page_count * page_size, freelist_count * page_size, user_version
                     FROM pragma_page_count, pragma_freelist_count, pragma_page_size, pragma_user_version";
        let numbers = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, u32>(2)?))
        };
        let (bytes, free, version) = self
            .connection
            .query_row(pages, [], numbers)
            .map_err(|cause| error::database(&self.place, "read the size", cause))?;
        let [bytes, free] = [bytes, free].map(|number| u64::try_from(number).unwrap_or(0));
        Ok(Storage::new("SQLite", version, bytes, Some(free)))
    }

    /// Verifies all pages and indexes.
    pub(crate) fn verify(&self) -> Result<(), CheckpointError> {
        let refused = |cause| error::database(&self.place, "verify the file", cause);
        let check = format!("PRAGMA integrity_check({DAMAGES})");
        let mut check = self.connection.prepare(&check).map_err(refused)?;
        let found = check.query_map([], |row| row.get::<_, String>(0)).map_err(refused)?;
        let found = found.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        match found.as_slice() {
            [ok] if ok == "ok" => Ok(()),
            damages => Err(error::damaged_file(&self.place, &damages.join("; "))),
        }
    }

    /// Rewrites the file without its free space.
    pub(crate) fn vacuum(&mut self) -> Result<(), CheckpointError> {
        self.writable()?;
        let refused = |cause| error::database(&self.place, "vacuum the file", cause);
        self.connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").map_err(refused)
    }
}
