//! Loads, histories, threads.

use std::collections::BTreeMap;

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use superstep_checkpoint::{
    AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Commit, HeadState, History, Loaded,
    LoadedHead, TaskRecord, ThreadId,
    internal::{Heads, leftovers},
};
use superstep_engine::{Control, NodeName};
use superstep_state::{RawJson, Snapshot, StoredUpdate};

use crate::{
    checksum::{CHECKPOINT, CONTENT, TASK, TASK_SHARE},
    database::{Database, ThreadKey, ThreadRow, id_of},
    error,
    location::Location,
    stored::{self, EffectSlots},
};

/// Returns the columns of a [`CheckpointMeta`], in the order in which [`meta`] reads them. The first parameter is the thread's least
/// key.
pub(crate) fn metas() -> String {
    format!(
        "SELECT key, parent, source, created_ms, control, metadata, parent_pruned, checksum IS {CHECKPOINT},
             parent IS NOT NULL AND ((?1 | parent) NOT IN (SELECT key FROM checkpoints))
         FROM checkpoints"
    )
}

fn history() -> String {
    format!("{} WHERE key BETWEEN ?2 AND ?3 ORDER BY key DESC", metas())
}

/// The root threads, by name.
const ROOTS: &str = "
SELECT key, name, head, checkpoints, branched, checksum FROM threads WHERE instr(name, char(31)) = 0 ORDER BY name";

/// The threads of subgraphs whose root has no checkpoints, by name.
const ORPHANS: &str = "
SELECT name FROM threads WHERE instr(name, char(31)) > 0
AND substr(name, 1, instr(name, char(31)) - 1) NOT IN (SELECT name FROM threads) ORDER BY name";

/// Returns the checkpoint with a key and those before it.
fn way_back() -> String {
    format!(
        "SELECT key, parent, applied, snapshot, checksum IS {CHECKPOINT} AND content_checksum IS {CONTENT}
         FROM checkpoints WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC"
    )
}

/// Returns the SQL for the newest superstep that follows a checkpoint: on a branch, or directly after it. For
/// the direct successor only the columns read here must be intact, so that a damaged checkpoint does not
/// affect the one before it.
fn applied_by() -> String {
    let (row, content) = (format!("checksum IS {CHECKPOINT}"), format!("content_checksum IS {CONTENT}"));
    let follows = "parent = ?2 AND source IN ('input', 'loop', 'update', 'fork')";
    format!(
        "SELECT key, applied, intact FROM (
             SELECT key, applied, source, {row} AND {content} AS intact FROM checkpoints
             WHERE thread = ?1 AND parent = ?2 AND parent <> id - 1
             UNION ALL
             SELECT key, applied, source, ({row} OR ({follows})) AND {content} AS intact FROM checkpoints
             WHERE key = ((?1 << 32) | (?2 + 1)) AND (parent = ?2 OR NOT {row})
         ) WHERE source = 'loop' OR NOT intact ORDER BY key DESC LIMIT 1"
    )
}

/// The SQL that tests for a checkpoint with this key.
const EXISTS: &str = "SELECT 1 FROM checkpoints WHERE key = ?1";

/// The SQL that counts the checkpoints in the index of branches whose rows have the same parent.
const BRANCHED: &str = "SELECT count(DISTINCT own.key)
     FROM checkpoints AS branch INDEXED BY branches JOIN checkpoints AS own ON own.key = branch.key
     WHERE branch.thread = ?1 AND branch.parent <> branch.id - 1 AND +own.parent = branch.parent";

fn records() -> String {
    format!(
        "SELECT slot, record, checksum IS {TASK}, {TASK_SHARE} FROM tasks WHERE checkpoint = ?1 ORDER BY slot"
    )
}

fn record() -> String {
    format!("SELECT record, checksum IS {TASK} FROM tasks WHERE checkpoint = ?1 AND slot = ?2")
}

const TASK_SUM: &str = "SELECT sum FROM task_sums WHERE checkpoint = ?1";

impl Database {
    pub(crate) fn load(
        &mut self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Option<Loaded>, CheckpointError> {
        let place = self.place.clone();
        // One transaction, so that the thread cannot be deleted while it is read.
        let transaction = self
            .connection
            .transaction()
            .map_err(|cause| error::database(&place, &format!("load thread `{thread}`"), cause))?;
        let Some(row) = ThreadRow::find(&transaction, &place, &self.names, thread)? else {
            return Ok(None);
        };
        Reader { connection: &transaction, place: &place, thread, row }.load(at)
    }

    /// Reads a checkpoint as it was committed.
    pub(crate) fn read_commit(
        &mut self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> Result<Option<Commit>, CheckpointError> {
        let place = self.place.clone();
        let transaction = self
            .connection
            .transaction()
            .map_err(|cause| error::database(&place, &format!("read thread `{thread}`"), cause))?;
        let Some(row) = ThreadRow::find(&transaction, &place, &self.names, thread)? else {
            return Ok(None);
        };
        Reader { connection: &transaction, place: &place, thread, row }.commit(at)
    }

    /// Returns whether there is no such thread; `None` if that cannot be read.
    pub(crate) fn is_fresh(&mut self, thread: &ThreadId) -> Option<bool> {
        let row = ThreadRow::find(&self.connection, &self.place, &self.names, thread).ok()?;
        Some(row.is_none())
    }

    /// Loads the head, without the path to its state if that is remembered.
    pub(crate) fn load_head(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
    ) -> Result<Option<LoadedHead>, CheckpointError> {
        let loaded = self.head(thread, heads, |reader, state| {
            let loaded = if state.is_some() { reader.tip()? } else { reader.load(None)? };
            Ok(loaded.map(|loaded| LoadedHead { loaded, state }))
        })?;
        Ok(loaded.flatten())
    }

    /// Loads the head if that takes microseconds: if its state is remembered, or there is no such thread. Returns `None`
    /// otherwise.
    pub(crate) fn load_short_head(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
    ) -> Option<Result<Option<LoadedHead>, CheckpointError>> {
        let loaded = self.head(thread, heads, |reader, state| match state {
            Some(state) => Ok(reader.tip()?.map(|loaded| LoadedHead { loaded, state: Some(state) })),
            None => Ok(None),
        });
        match loaded {
            Ok(None) => Some(Ok(None)),
            Ok(Some(found)) => found.map(|found| Ok(Some(found))),
            Err(error) if error::is_busy(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads the head of a thread, if it exists, in a transaction. `read` receives the remembered state.
    fn head<T>(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
        read: impl FnOnce(&Reader<'_>, Option<HeadState>) -> Result<T, CheckpointError>,
    ) -> Result<Option<T>, CheckpointError> {
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &format!("load thread `{thread}`"), cause);
        let transaction = self.connection.transaction().map_err(refused)?;
        let row = ThreadRow::find(&transaction, &place, &self.names, thread)?;
        // Read after the first row, which begins the transaction.
        let version = transaction.prepare_cached("PRAGMA data_version");
        let version = version.and_then(|mut version| version.query_row([], |row| row.get(0)));
        let mut heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.see(version.map_err(refused)?);
        let Some(row) = row else { return Ok(None) };
        let state = heads.get(thread, &row.head);
        drop(heads);
        read(&Reader { connection: &transaction, place: &place, thread, row }, state).map(Some)
    }

    pub(crate) fn history(
        &mut self,
        thread: &ThreadId,
        range: &History,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let place = self.place.clone();
        let transaction = self.connection.transaction().map_err(|cause| {
            error::database(&place, &format!("read the history of thread `{thread}`"), cause)
        })?;
        let Some(row) = ThreadRow::find(&transaction, &place, &self.names, thread)? else {
            return Ok(Vec::new());
        };
        Reader { connection: &transaction, place: &place, thread, row }.history(range)
    }

    /// Returns the number of a thread's checkpoints, from its row.
    pub(crate) fn count(&self, thread: &ThreadId) -> Result<usize, CheckpointError> {
        let row = ThreadRow::find(&self.connection, &self.place, &self.names, thread)?;
        Ok(row.map_or(0, |row| usize::try_from(row.checkpoints()).unwrap_or(usize::MAX)))
    }

    /// Returns the heads of the threads, newest first.
    pub(crate) fn threads(&mut self) -> Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError> {
        let place = self.place.clone();
        let refused = |cause| error::database(&place, "list the threads", cause);
        let transaction = self.connection.transaction().map_err(refused)?;
        let mut found = Vec::new();
        for (thread, row) in roots_of(&transaction, &place)? {
            let reader = Reader { connection: &transaction, place: &place, thread: &thread, row };
            let head = reader.meta(row.head)?;
            let head = head.ok_or_else(|| error::missing(&place, &thread, row.head, "its row"))?;
            found.push((thread, head));
        }
        found.sort_by(|(a, one), (b, other)| other.created_ms.cmp(&one.created_ms).then_with(|| a.cmp(b)));
        Ok(found)
    }

    /// Returns the names alone, so that damaged heads do not matter.
    pub(crate) fn names(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let roots = roots_of(&self.connection, &self.place)?;
        Ok(roots.into_iter().map(|(thread, _)| thread).collect())
    }

    /// Returns the roots that only the names of other threads have.
    pub(crate) fn orphans(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let refused = |cause| error::database(&self.place, "list the threads without checkpoints", cause);
        let mut orphans = self.connection.prepare_cached(ORPHANS).map_err(refused)?;
        let found = orphans.query_map([], |row| row.get::<_, String>(0)).map_err(refused)?;
        let children: Vec<ThreadId> =
            found.map(|name| name.map(Into::into)).collect::<Result<_, _>>().map_err(refused)?;
        let mut roots: Vec<_> = leftovers(children).iter().map(ThreadId::root).collect();
        roots.dedup();
        Ok(roots)
    }

    pub(crate) fn children(&mut self, thread: &ThreadId) -> Result<Vec<ThreadId>, CheckpointError> {
        let found = ThreadKey::checked_under(&self.connection, &self.place, thread)?;
        Ok(found.into_iter().map(|(_, child)| child).collect())
    }
}

fn roots_of(
    connection: &Connection,
    place: &Location,
) -> Result<Vec<(ThreadId, ThreadRow)>, CheckpointError> {
    let refused = |cause| error::database(place, "list the threads", cause);
    ThreadRow::check_all(connection, place)?;
    let mut roots = connection.prepare_cached(ROOTS).map_err(refused)?;
    let mut rows = roots.query([]).map_err(refused)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(refused)? {
        let key = row.get(0).map_err(refused)?;
        let read = ThreadRow::read(row).map_err(|cause| error::damaged_thread_row(place, key, cause))?;
        found.push((row.get::<_, String>(1).map_err(refused)?.into(), read));
    }
    Ok(found)
}

/// Reads one thread.
pub(crate) struct Reader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) place: &'a Location,
    pub(crate) thread: &'a ThreadId,
    pub(crate) row: ThreadRow,
}

/// The parts of a loaded checkpoint: see [`Loaded`].
#[derive(Default)]
struct LoadedParts {
    applied: Vec<(u32, NodeName)>,
    snapshot: Option<Snapshot>,
    commits: Vec<Vec<StoredUpdate>>,
}

impl Reader<'_> {
    fn load(&self, at: Option<CheckpointId>) -> Result<Option<Loaded>, CheckpointError> {
        let (key, head) = (self.row.key, self.row.head);
        let id = at.unwrap_or(head);
        let Some(meta) = self.find(id)? else { return Ok(None) };
        let LoadedParts { applied, snapshot, commits } = self.way_back(id)?;
        let tasks = self.tasks(id, key.checkpoint(id).expect("ids up to the head are small"))?;
        Ok(Some(Loaded { meta, head, applied, snapshot, commits, tasks, fingerprints: None }))
    }

    /// Returns the metadata of a checkpoint; `None` if the thread never had it, or it was pruned.
    fn find(&self, id: CheckpointId) -> Result<Option<CheckpointMeta>, CheckpointError> {
        let head = self.row.head;
        if id > head || id.0 == 0 {
            return Ok(None);
        }
        if let Some(meta) = self.meta(id)? {
            return Ok(Some(meta));
        }
        if self.was_pruned(id)? {
            Ok(None)
        } else {
            Err(error::missing(self.place, self.thread, id, "its row"))
        }
    }

    /// Returns whether a checkpoint whose row was not found was pruned: if the number of missing ones is correct, and it is
    /// one of them. All rows are read, because the search for one may miss it.
    fn was_pruned(&self, id: CheckpointId) -> Result<bool, CheckpointError> {
        Ok(!self.row.is_whole()
            && id < self.row.head
            && !self.history(&History::default())?.iter().any(|meta| meta.id == id))
    }

    /// Reads a checkpoint as it was committed.
    fn commit(&self, id: CheckpointId) -> Result<Option<Commit>, CheckpointError> {
        let Some(meta) = self.find(id)? else { return Ok(None) };
        let missing = || error::missing(self.place, self.thread, id, "its row");
        let key = self.row.key.checkpoint(id).ok_or_else(missing)?;
        let mut statement = self.prepare(&way_back())?;
        let mut rows = statement.query([key, key]).map_err(|cause| self.refused(cause))?;
        let row = rows.next().map_err(|cause| self.refused(cause))?.ok_or_else(missing)?;
        let mut applied = Vec::new();
        for task in self.applied(id, row)? {
            let recorded = task.update.is_none();
            let update = match task.update {
                Some(update) => update.into(),
                // Its record was pruned with the parent.
                None if meta.parent_pruned => StoredUpdate::empty(),
                None => self.recorded(id, meta.parent, task.slot)?,
            };
            applied.push(AppliedTask { slot: task.slot, recorded, node: task.node.as_ref().into(), update });
        }
        let snapshot = self.snapshot(id, row)?;
        let records = self.own_tasks(id, key)?;
        let CheckpointMeta { parent, source, control, created_ms, metadata, .. } = meta;
        let fingerprints = None;
        Ok(Some(Commit {
            parent,
            source,
            control,
            created_ms,
            metadata: metadata.into(),
            applied,
            snapshot,
            records,
            fingerprints,
        }))
    }

    /// Returns the snapshot in a row of [`way_back`].
    fn snapshot(&self, id: CheckpointId, row: &Row<'_>) -> Result<Option<Snapshot>, CheckpointError> {
        let stored = row.get_ref(3).map_err(|cause| self.refused(cause))?;
        let stored = stored.as_bytes_or_null().map_err(|cause| self.damaged(id, "snapshot", cause))?;
        let channels = stored.map(stored::snapshot).transpose();
        Ok(channels.map_err(|cause| self.damaged(id, "snapshot", cause))?.map(Snapshot::from))
    }

    /// Loads the head without the path to its state.
    fn tip(&self) -> Result<Option<Loaded>, CheckpointError> {
        let head = self.row.head;
        let missing = || error::missing(self.place, self.thread, head, "its row");
        let meta = self.meta(head)?.ok_or_else(missing)?;
        let key = self.row.key.checkpoint(head).ok_or_else(missing)?;
        let mut statement = self.prepare(&way_back())?;
        let mut rows = statement.query([key, key]).map_err(|cause| self.refused(cause))?;
        let row = rows.next().map_err(|cause| self.refused(cause))?.ok_or_else(missing)?;
        let applied = named(&self.applied(head, row)?);
        let tasks = self.tasks(head, key)?;
        let (snapshot, commits) = (None, Vec::new());
        Ok(Some(Loaded { meta, head, applied, snapshot, commits, tasks, fingerprints: None }))
    }

    /// Returns the list of applied tasks in a row of [`way_back`].
    fn applied<'row>(
        &self,
        id: CheckpointId,
        row: &'row Row<'_>,
    ) -> Result<Vec<stored::Applied<'row>>, CheckpointError> {
        if !is_intact(row, 4) {
            return Err(error::changed(self.place, self.thread, id, "its row"));
        }
        let applied = text(row, 2).map_err(|cause| self.damaged(id, "list of applied tasks", cause))?;
        stored::applied(applied).map_err(|cause| self.damaged(id, "list of applied tasks", cause))
    }

    /// Returns the metadata of one checkpoint; `None` if it does not exist.
    fn meta(&self, id: CheckpointId) -> Result<Option<CheckpointMeta>, CheckpointError> {
        let key = self.row.key.checkpoint(id);
        let mut history = self.prepare(&history())?;
        let mut rows =
            history.query(params![self.row.key.first(), key, key]).map_err(|cause| self.refused(cause))?;
        let row = rows.next().map_err(|cause| self.refused(cause))?;
        row.map(|row| meta(self.place, self.thread, row)).transpose()
    }

    /// Reads the history. A thread that was never pruned must have every checkpoint; others must have the
    /// recorded number, and those that a part of the history lacks must be missing in the whole.
    pub(crate) fn history(&self, range: &History) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let head = self.row.head.0;
        let from_head = range.before.is_none_or(|before| before.0 > head);
        let start = range.before.map_or(head, |before| before.0.saturating_sub(1).min(head));
        // Includes checkpoints after the head, so that they are detected.
        let newest = match from_head {
            true => Some(self.row.key.last()),
            false => self.row.key.checkpoint(CheckpointId(start)),
        };
        let mut history = self.prepare(&history())?;
        let mut rows = history
            .query(params![self.row.key.first(), self.row.key.first(), newest])
            .map_err(|cause| self.refused(cause))?;
        let lost = || error::lost_rows(self.place, self.thread, "checkpoints");
        let (mut found, mut seen, mut next, mut has_gaps) = (Vec::new(), 0, start, false);
        while found.len() < range.limit.unwrap_or(usize::MAX) {
            let Some(row) = rows.next().map_err(|cause| self.refused(cause))? else {
                if self.row.is_whole() || from_head {
                    let all = if self.row.is_whole() { next == 0 } else { seen == self.row.checkpoints() };
                    return if all { Ok(found) } else { Err(lost()) };
                }
                (next, has_gaps) = (0, true);
                break;
            };
            let id = row.get(0).map(id_of).map_err(|cause| self.refused(cause))?.0;
            let must_be_next = self.row.is_whole() || (from_head && seen == 0);
            if id == 0 || id > next || (must_be_next && id != next) {
                return Err(lost());
            }
            has_gaps |= id != next;
            (next, seen) = (id - 1, seen + 1);
            // Checkpoints of other sources need no further columns.
            let is_other = |source: &str| text(row, 2).is_ok_and(|stored| stored != source.as_bytes());
            if !(is_intact(row, 7) && range.source.is_some_and(|source| is_other(source.as_str()))) {
                found.extend(Some(meta(self.place, self.thread, row)?).filter(|meta| range.has(meta)));
            }
        }
        if has_gaps {
            let whole = self.history(&History::default())?;
            let here = whole.iter().filter(|meta| (next + 1..=start).contains(&meta.id.0)).count();
            if here as u64 != seen {
                return Err(lost());
            }
        }
        Ok(found)
    }

    /// Rejects a thread with a damaged row, before its rows are rewritten.
    pub(crate) fn check(&self) -> Result<(), CheckpointError> {
        self.history(&History::default())?;
        let range = [self.row.key.first(), self.row.key.last()];
        let find = |sql: &str| {
            let mut find = self.connection.prepare(sql)?;
            let mut rows = find.query(range)?;
            rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()
        };
        let content = format!(
            "SELECT key FROM checkpoints WHERE key BETWEEN ?1 AND ?2 AND content_checksum IS NOT {CONTENT} LIMIT 1"
        );
        if let Some(key) = find(&content).map_err(|cause| self.refused(cause))? {
            return Err(error::changed(self.place, self.thread, id_of(key), "its row"));
        }
        let sums = format!(
            "SELECT checkpoint, sum({TASK_SHARE}) FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2 GROUP BY 1"
        );
        let tasks = [
            format!(
                "SELECT checkpoint FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2 AND checksum IS NOT {TASK} LIMIT 1"
            ),
            format!("SELECT * FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2 EXCEPT {sums}"),
            format!("{sums} EXCEPT SELECT * FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2"),
        ];
        for sql in tasks {
            if let Some(key) = find(&sql).map_err(|cause| self.refused(cause))? {
                return Err(error::changed(self.place, self.thread, id_of(key), "the rows of its tasks"));
            }
        }
        Ok(())
    }

    /// Returns the nearest snapshot, and the updates since, oldest first.
    fn way_back(&self, from: CheckpointId) -> Result<LoadedParts, CheckpointError> {
        let mut statement = self.prepare(&way_back())?;
        let mut way = LoadedParts::default();
        let mut next = Some(from);
        // One query for each section of the path with consecutive ids: a single one without branches.
        while let Some(start) = next {
            let newest = self.row.key.checkpoint(start).unwrap_or(self.row.key.last());
            let mut rows =
                statement.query([self.row.key.first(), newest]).map_err(|cause| self.refused(cause))?;
            while let Some(row) = rows.next().map_err(|cause| self.refused(cause))? {
                let id = row.get(0).map(id_of).map_err(|cause| self.refused(cause))?;
                if next != Some(id) {
                    break;
                }
                let applied = self.applied(id, row)?;
                let parent = row.get::<_, Option<i64>>(1).map_err(|cause| self.refused(cause))?;
                let parent = parent.map(|parent| CheckpointId(parent.unsigned_abs()));
                if parent.is_some_and(|parent| parent >= id) {
                    return Err(self.damaged(id, "parent", "it is not older"));
                }
                if id == from {
                    way.applied = named(&applied);
                }
                if let Some(snapshot) = self.snapshot(id, row)? {
                    way.snapshot = Some(snapshot);
                    next = None;
                    break;
                }
                way.commits.push(self.updates(id, parent, applied)?);
                next = parent;
                if next.is_none() {
                    break;
                }
            }
            if next == Some(start) {
                return Err(error::missing(self.place, self.thread, from, &format!("its ancestor {start}")));
            }
        }
        way.commits.reverse();
        Ok(way)
    }

    /// Returns the updates that the checkpoint `id` folded.
    fn updates(
        &self,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        applied: Vec<stored::Applied<'_>>,
    ) -> Result<Vec<StoredUpdate>, CheckpointError> {
        let mut updates = Vec::with_capacity(applied.len());
        for task in applied {
            updates.push(match task.update {
                Some(update) => update.into(),
                None => self.recorded(id, parent, task.slot)?,
            });
        }
        Ok(updates)
    }

    fn recorded(
        &self,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        slot: u32,
    ) -> Result<StoredUpdate, CheckpointError> {
        let mut find = self.prepare(&record())?;
        let key = parent.and_then(|parent| self.row.key.checkpoint(parent));
        let mut rows = find.query(params![key, slot]).map_err(|cause| self.refused(cause))?;
        let missing =
            || error::missing(self.place, self.thread, id, &format!("the record of task {slot} it applied"));
        let row = rows.next().map_err(|cause| self.refused(cause))?.ok_or_else(missing)?;
        match self.task(parent.unwrap_or(id), slot, row, 0)? {
            TaskRecord::Finished { update, .. } => Ok(update),
            _ => Err(missing()),
        }
    }

    /// Returns the records of the checkpoint's own tasks, with those that a superstep folded.
    pub(crate) fn tasks(
        &self,
        id: CheckpointId,
        key: i64,
    ) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        let mut tasks = self.own_tasks(id, key)?;
        if id < self.row.head {
            self.add_applied(id, &mut tasks)?;
        }
        Ok(tasks)
    }

    /// Returns the records of the checkpoint's own tasks.
    fn own_tasks(&self, id: CheckpointId, key: i64) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        let (mut tasks, mut sum) = (Vec::new(), 0);
        let mut effects: BTreeMap<u32, BTreeMap<String, RawJson>> = BTreeMap::new();
        {
            let mut records = self.prepare(&records())?;
            let mut rows = records.query([key]).map_err(|cause| self.refused(cause))?;
            while let Some(row) = rows.next().map_err(|cause| self.refused(cause))? {
                let slot: i64 = row.get(0).map_err(|cause| self.damaged(id, "slot of a task", cause))?;
                if let Some(task) = EffectSlots::task_of(slot) {
                    effects.entry(task).or_default().extend(self.task(id, task, row, 1)?.into_once());
                } else {
                    let slot = u32::try_from(slot);
                    let slot = slot.map_err(|cause| self.damaged(id, "slot of a task", cause))?;
                    let mut record = self.task(id, slot, row, 1)?;
                    // They come before their task.
                    if let (Some(more), Some(once)) = (effects.remove(&slot), record.once_mut()) {
                        once.extend(more);
                    }
                    tasks.push((slot, record));
                }
                sum += row.get::<_, i64>(3).map_err(|cause| self.refused(cause))?;
            }
        }
        let stored = self.prepare(TASK_SUM)?.query_row([key], |row| row.get(0)).optional();
        if stored.map_err(|cause| self.refused(cause))?.unwrap_or(0) != sum || !effects.is_empty() {
            return Err(error::missing(self.place, self.thread, id, "the record of a task"));
        }
        Ok(tasks)
    }

    /// Adds tasks without records that a superstep folded.
    fn add_applied(
        &self,
        parent: CheckpointId,
        tasks: &mut Vec<(u32, TaskRecord)>,
    ) -> Result<(), CheckpointError> {
        let thread = self.row.key.number();
        let branched = self.prepare(BRANCHED)?.query_row([thread], |row| row.get::<_, u32>(0));
        let next = CheckpointId(parent.0 + 1);
        let is_behind = self.prepare(EXISTS)?.exists([self.row.key.checkpoint(next)]);
        let is_behind = is_behind.map_err(|cause| self.refused(cause))?;
        if u64::from(branched.map_err(|cause| self.refused(cause))?) != self.row.branched()
            || !(is_behind || self.was_pruned(next)?)
        {
            return Err(error::lost_rows(self.place, self.thread, "checkpoints"));
        }
        let mut child = self.prepare(&applied_by())?;
        let parent = i64::try_from(parent.0).expect("a checkpoint that was found has a small id");
        let mut rows = child.query([thread, parent]).map_err(|cause| self.refused(cause))?;
        let Some(row) = rows.next().map_err(|cause| self.refused(cause))? else {
            return Ok(());
        };
        let id = row.get(0).map(id_of).map_err(|cause| self.refused(cause))?;
        if !is_intact(row, 2) {
            return Err(error::changed(self.place, self.thread, id, "its row"));
        }
        let applied = text(row, 1)
            .map_err(|cause| cause.to_string())
            .and_then(|json| stored::applied(json).map_err(|cause| cause.to_string()))
            .map_err(|cause| self.damaged(id, "list of applied tasks", cause))?;
        stored::add_applied(tasks, applied);
        Ok(())
    }

    /// Reads a record; the following column shows whether its row is intact.
    fn task(
        &self,
        id: CheckpointId,
        slot: u32,
        row: &Row<'_>,
        column: usize,
    ) -> Result<TaskRecord, CheckpointError> {
        if !is_intact(row, column + 1) {
            return Err(error::changed(self.place, self.thread, id, &format!("the row of its task {slot}")));
        }
        let json = text(row, column).map_err(|cause| self.damaged(id, "record of a task", cause))?;
        stored::record(json).map_err(|cause| self.damaged(id, "record of a task", cause))
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, CheckpointError> {
        self.connection.prepare_cached(sql).map_err(|cause| self.refused(cause))
    }

    fn refused(&self, cause: rusqlite::Error) -> CheckpointError {
        error::database(self.place, &format!("load thread `{}`", self.thread), cause)
    }

    fn damaged(
        &self,
        id: CheckpointId,
        part: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> CheckpointError {
        error::damaged(self.place, self.thread, id, part, cause)
    }
}

/// Reads a row of [`history`].
pub(crate) fn meta(
    place: &Location,
    thread: &ThreadId,
    row: &Row<'_>,
) -> Result<CheckpointMeta, CheckpointError> {
    let refused = |cause| error::database(place, &format!("read the history of thread `{thread}`"), cause);
    let id = row.get(0).map(id_of).map_err(refused)?;
    if !is_intact(row, 7) {
        return Err(error::changed(place, thread, id, "its row"));
    }
    let damaged = |part: &str, cause: serde_json::Error| error::damaged(place, thread, id, part, cause);
    let parent: Option<i64> = row.get(1).map_err(refused)?;
    let source = text(row, 2).map_err(|cause| error::damaged(place, thread, id, "source", cause))?;
    let source = stored::source(&String::from_utf8_lossy(source))
        .map_err(|cause| error::damaged(place, thread, id, "source", cause))?;
    let control = text(row, 4).map_err(|cause| error::damaged(place, thread, id, "control", cause))?;
    let control: Control = serde_json::from_slice(control).map_err(|cause| damaged("control", cause))?;
    let metadata = row.get_ref(5).map_err(refused)?.as_bytes_or_null();
    let metadata = metadata.map_err(|cause| error::damaged(place, thread, id, "metadata", cause))?;
    let (pruned, missing): (bool, bool) = (row.get(6).map_err(refused)?, row.get(8).map_err(refused)?);
    if pruned != missing {
        return Err(error::missing(place, thread, id, "its parent"));
    }
    Ok(CheckpointMeta {
        id,
        parent: parent.map(|parent| CheckpointId(parent.unsigned_abs())),
        parent_pruned: pruned,
        source,
        control,
        created_ms: row.get(3).map_err(refused)?,
        metadata: metadata
            .map_or_else(|| Ok(Default::default()), serde_json::from_slice)
            .map_err(|cause| damaged("metadata", cause))?,
    })
}

/// Returns the slots and nodes of applied tasks.
fn named(applied: &[stored::Applied<'_>]) -> Vec<(u32, NodeName)> {
    applied.iter().map(|task| (task.slot, task.node.as_ref().into())).collect()
}

/// Returns whether a row is intact, by a column that compares its checksum.
fn is_intact(row: &Row<'_>, column: usize) -> bool {
    row.get::<_, Option<bool>>(column).is_ok_and(|intact| intact == Some(true))
}

/// Returns a column with text.
fn text<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<&'row [u8]> {
    Ok(row.get_ref(column)?.as_bytes()?)
}
