//! The files beside a database, checked before SQLite opens them.
//!
//! A database may come from another person, with these files. A rollback journal can end with the name of a super-journal, the
//! file with which SQLite commits one transaction to several databases: SQLite deletes that file, wherever it is, after it has
//! rolled the journal back. This program attaches no databases, so its own journals never name one.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use superstep_checkpoint::CheckpointError;

use super::JOURNAL;
use crate::{error, location::beside};

// Rejected and not rolled back without it: SQLite has no option for that, and a changed journal would be a guess at
// what the other databases of its transaction did.
/// The length of the end of a journal that names a super-journal, after the name: its length, its checksum and [`JOURNAL`].
const SUPER_JOURNAL_END: u64 = 16;

/// Rejects a journal that names a super-journal, and a log or a journal that is not a regular file.
///
/// Call it directly before SQLite opens the database. A journal that another program creates between the two is not checked.
/// # Source
/// SQLite, `pager.c`: `readSuperJournal`, `pager_delsuper`; "The Super-Journal File" in its file format.
pub(super) fn check(database: &Path) -> Result<(), CheckpointError> {
    for ending in ["-wal", "-shm", "-journal"] {
        let path = beside(database, ending);
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_file() => {}
            // SQLite reports files that it cannot inspect.
            Err(_) => continue,
            Ok(_) => {
                let advice = format!("`{}` is not a regular file; remove it", path.display());
                return Err(error::not_ours(database, advice));
            }
        }
        // A journal that cannot be read, or is being removed, cannot be rolled back either.
        if ending == "-journal" && names_super_journal(&path).unwrap_or(false) {
            let advice = format!(
                "its journal `{0}` names another file, which SQLite would delete, and superstep writes no such journal; if the \
                 database came from another person, do not open it with `sqlite3` either, and delete `{0}`",
                path.display()
            );
            return Err(error::not_ours(database, advice));
        }
    }
    Ok(())
}

/// Returns whether SQLite may find the name of a super-journal at the end of a journal. It also requires a plausible length
/// and a checksum.
fn names_super_journal(journal: &Path) -> io::Result<bool> {
    let mut journal = File::open(journal)?;
    let length = journal.seek(SeekFrom::End(0))?;
    let mut end = [0; JOURNAL.len()];
    journal.seek(SeekFrom::Start(length.saturating_sub(JOURNAL.len() as u64)))?;
    journal.read_exact(&mut end)?;
    Ok(length >= SUPER_JOURNAL_END && end == JOURNAL)
}
