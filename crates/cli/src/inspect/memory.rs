//! Entries of a memory as a table.

use superstep::agent::deps::MemoryEntry;
use superstep_session::text::brief;

use crate::output::table::{formatted, new_table};

/// Maximum number of characters of an entry.
const MAX_SHOWN: usize = 100;

/// Formats entries.
pub(crate) fn table(entries: &[MemoryEntry]) -> String {
    if entries.is_empty() {
        return "nothing\n".to_owned();
    }
    let has_scores = entries.iter().any(|entry| entry.score.is_some());
    let mut table = new_table(if has_scores { &["SCORE", "ID", "TEXT"][..] } else { &["ID", "TEXT"] });
    for entry in entries {
        let score = entry.score.map(|score| format!("{score:.2}"));
        let row = [brief(&entry.id, MAX_SHOWN), brief(&entry.text, MAX_SHOWN)];
        table.add_row(score.into_iter().chain(row));
    }
    formatted(table)
}
