//! The history of a thread. A thread that was never pruned must have every checkpoint; others must have the recorded
//! number, and those that a part of the history lacks must be missing in the whole.
//!
//! Start at [`HistoryReader`].

use super::thread::{Counts, MetaRow, StoredThread};
use crate::{CheckpointError, CheckpointId, CheckpointMeta, History};

/// Collects the rows of a history, newest first.
///
/// # Shape
/// The caller pushes rows from [`newest`](Self::newest) on, until the history [is full](Self::is_full) or there are no
/// more, and calls [`end`](Self::end).
pub struct HistoryReader<'a> {
    thread: StoredThread<'a>,
    counts: Counts,
    range: &'a History,
    limit: usize,
    from_head: bool,
    start: u64,
    /// The id below the last row.
    next: u64,
    seen: u64,
    has_gaps: bool,
    found: Vec<CheckpointMeta>,
}

/// The end of a history.
pub enum HistoryEnd {
    Complete(Vec<CheckpointMeta>),
    /// The whole history must have as many checkpoints between two ids.
    Partial(PartialHistory),
}

/// A part of a history with gaps.
pub struct PartialHistory {
    ids: std::ops::RangeInclusive<u64>,
    seen: u64,
    found: Vec<CheckpointMeta>,
}

impl<'a> HistoryReader<'a> {
    /// Begins at the newest checkpoint of the range.
    pub fn new(thread: StoredThread<'a>, counts: Counts, range: &'a History) -> Self {
        let head = counts.head.0;
        let start = range.before.map_or(head, |before| before.0.saturating_sub(1).min(head));
        Self {
            thread,
            counts,
            range,
            limit: range.limit.unwrap_or(usize::MAX),
            from_head: range.before.is_none_or(|before| before.0 > head),
            start,
            next: start,
            seen: 0,
            has_gaps: false,
            found: Vec::new(),
        }
    }

    /// Returns the newest checkpoint of the rows to read. `None` if there is no limit: rows after the head are read as well, so
    /// that they are detected.
    pub fn newest(&self) -> Option<CheckpointId> {
        (!self.from_head || self.seen > 0).then_some(CheckpointId(self.next))
    }

    /// Returns whether no further row is needed.
    pub fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }

    /// Returns the number of rows to read at once, if they are read in pages of at most `page`.
    pub fn page(&self, page: usize) -> usize {
        // Few rows if few are wanted, unless they are searched.
        if self.seen == 0 { self.limit.clamp(1, page) } else { page }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if the row is damaged, or rows before it are missing.
    pub fn push(&mut self, row: &MetaRow<'_>) -> Result<(), CheckpointError> {
        let id = row.id.0;
        let must_be_next = self.counts.is_whole() || (self.from_head && self.seen == 0);
        if id == 0 || id > self.next || (must_be_next && id != self.next) {
            return Err(self.thread.lost_checkpoints());
        }
        self.has_gaps |= id != self.next;
        (self.next, self.seen) = (id - 1, self.seen + 1);
        // Checkpoints of other sources need not be decoded.
        let is_other = |source: crate::Source| source.as_str().as_bytes() != row.source;
        let is_skipped = row.is_intact && self.range.source.is_some_and(is_other);
        if !self.is_full() && !is_skipped {
            self.found.extend(Some(self.thread.meta(row)?).filter(|meta| self.range.has(meta)));
        }
        Ok(())
    }

    /// Ends the history. `is_all` is `true` if there are no more rows.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if rows are missing.
    pub fn end(self, is_all: bool) -> Result<HistoryEnd, CheckpointError> {
        let is_complete = if self.counts.is_whole() {
            self.next == 0 || self.is_full()
        } else if is_all && self.from_head {
            self.seen == self.counts.checkpoints
        } else if self.has_gaps || (is_all && self.next > 0) {
            let ids = if is_all { 1 } else { self.next + 1 }..=self.start;
            return Ok(HistoryEnd::Partial(PartialHistory { ids, seen: self.seen, found: self.found }));
        } else {
            true
        };
        if is_complete { Ok(HistoryEnd::Complete(self.found)) } else { Err(self.thread.lost_checkpoints()) }
    }
}

impl PartialHistory {
    /// Returns the history if the gaps are those of the whole history.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if rows are missing.
    pub fn checked(
        self,
        thread: StoredThread<'_>,
        whole: &[CheckpointMeta],
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let here = whole.iter().filter(|meta| self.ids.contains(&meta.id.0)).count();
        if here as u64 == self.seen { Ok(self.found) } else { Err(thread.lost_checkpoints()) }
    }
}
