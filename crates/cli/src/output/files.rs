//! Changed files, as they are listed.

use superstep::llm::snapshots::{FileChangeKind, FileChanges};
use superstep_session::text::printable_line;

/// Formats changed files, one per line.
pub(crate) fn listed(changes: &FileChanges) -> Vec<String> {
    let mut lines: Vec<_> = changes
        .changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                FileChangeKind::Made => "made",
                FileChangeKind::Changed => "changed",
                FileChangeKind::Removed => "removed",
            };
            format!("{kind} {}", printable_line(&change.path))
        })
        .collect();
    if changes.more > 0 {
        lines.push(format!("and {} more", changes.more));
    }
    lines
}
